"""The provider of single sign-on for a console, the rights of its groups, and the options of every console."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import click
from pydantic import AfterValidator, Field, StringConstraints

from commingle.shared.runtime.cli import gathered
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import Settings
from commingle.shared.runtime.tls import ServerTls, http_option, is_this_machine, tls_options

ConsoleScope = Literal["read", "decide"]
_HERE = "127.0.0.1"
_USUAL_PORTS = {"https": 443, "http": 80}


def require_web(url: str) -> str:
    """The address itself, if nobody in between can read or change its pages. Raises ValueError."""
    at = urlsplit(url)
    if not at.hostname or at.scheme not in _USUAL_PORTS or "@" in at.netloc or not url.isprintable():
        raise ValueError("it is not an https:// address")
    if at.scheme == "http" and not is_this_machine(at.hostname):
        raise ValueError("it has to be an https:// address, unless it is on this machine")
    return url


def _issuer(url: str) -> str:
    if " " in url or not url.isascii() or urlsplit(url).query or urlsplit(url).fragment:
        raise ValueError("an issuer has no blank, query or fragment")
    return require_web(url)


def _origin(url: str) -> str:
    at = urlsplit(require_web(url))
    if at.path not in {"", "/"} or at.query or at.fragment:
        raise ValueError("a console has a host name of its own: its address ends after name and port")
    if not url.isascii():
        raise ValueError("browsers send a name with other letters than a to z in ASCII: write that (xn--...)")
    host = f"[{at.hostname}]" if ":" in (at.hostname or "") else at.hostname
    port = "" if at.port in {None, _USUAL_PORTS[at.scheme]} else f":{at.port}"
    return f"{at.scheme}://{host}{port}"


class SsoSettings(Settings):
    """Single sign-on by OpenID Connect.

    Attributes:
        issuer: the provider, as its ID tokens name it.
        client_id: the provider's name for this console.
        client_secret_file: holds the client's secret; None for a public client.
        url: where browsers reach the console. The provider sends them back to `URL/enter/callback` and, after they
            left, to `URL/enter/left`. It can itself report ended sessions to `URL/enter/ended`.
        groups: what members of a group may do. A person in none of them is not let in.
        groups_claim: the claim of the ID token that lists a person's groups.
        scopes: what is asked of the provider.
        idle_minutes: a session ends this long after its last page.
        session_minutes: a session ends this long after the sign-in; then groups are looked at again.
        ca_file: PEM certificates of authorities to trust besides the system's.
    """

    issuer: Annotated[str, StringConstraints(max_length=200), AfterValidator(_issuer)]
    client_id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    client_secret_file: Path | None = None
    url: Annotated[str, AfterValidator(_origin)]
    groups: Annotated[Mapping[str, frozenset[ConsoleScope]], Field(min_length=1)]
    groups_claim: Annotated[str, StringConstraints(min_length=1)] = "groups"
    scopes: tuple[str, ...] = ("openid", "profile")
    idle_minutes: Annotated[float, Field(gt=0, le=720)] = 15.0
    session_minutes: Annotated[float, Field(gt=0, le=720)] = 60.0
    ca_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a console listens, and whether people sign on to it or open a link."""

    port: int
    sso: bool = False
    host: str = _HERE
    tls: ServerTls | None = None


def require_sso(settings: SsoSettings | None, where: str) -> SsoSettings:
    """The settings of single sign-on. Raises SettingsError if there are none."""
    if settings is None:
        raise SettingsError(
            f"no provider of single sign-on is set in {where}", remedy='Set "sso" there: docs/settings.md.'
        )
    return settings


def _place(port: int, sso: bool, host: str, allow_http: bool, tls: ServerTls | None) -> Place:
    if not sso and (host != _HERE or tls is not None):
        raise click.UsageError("--host, --tls-certificate and --tls-key go with --sso")
    if not (is_this_machine(host) or tls is not None or allow_http):
        raise SettingsError(
            "a console on the network is served by TLS, as cookies could be read on the way",
            remedy="Add --tls-certificate and --tls-key; or --allow-http where a reverse proxy speaks TLS for it "
            "and the network in between is yours alone.",
        )
    return Place(port, sso, host, tls)


console_options = gathered(
    "place",
    _place,
    click.option("--port", default=0, type=click.IntRange(0, 65535), help="The port to listen on.  [any free port]"),
    click.option("--sso", is_flag=True, help='People sign on, many at once, by the provider in "sso" of settings.'),
    click.option("--host", default=_HERE, show_default=True, help="With --sso: the address to listen on."),
    http_option,
    tls_options,
)
"""Where a console is; the command is given `place`."""
