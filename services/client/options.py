"""Options of commands that read releases."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from commingle.shared.runtime.cli import gathered
from commingle.shared.runtime.settings import read_token, token_option
from commingle.shared.runtime.tls import ca_option, http_option

if TYPE_CHECKING:  # httpx is slow to import, and a directory needs none
    from commingle.services.client.remote import ReleaseClient


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorAccess:
    """How a command reads a coordinator, and which keys it trusts.

    Attributes:
        coordinator_key: a fingerprint as somebody typed it; None trusts any coordinator.
    """

    coordinator_key: str | None
    members: Mapping[str, str]
    token_file: Path | None
    ca_file: Path | None
    allow_http: bool

    def client(self, url: str, **choices: Any) -> "ReleaseClient":  # noqa: ANN401 - what else a ReleaseClient takes
        """A client of the coordinator there. Raises SettingsError."""
        from commingle.services.client.remote import ReleaseClient  # noqa: PLC0415 - as above

        return ReleaseClient(
            url,
            trusted_coordinator=self.coordinator_key,
            members=self.members,
            token=read_token(self.token_file),
            ca_file=self.ca_file,
            allow_http=self.allow_http,
            **choices,
        )


def _pins(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    pairs = [one.partition("=") for one in given]
    names = [name.strip() for name, _, _ in pairs]
    if not all(separator and name for name, (_, separator, _) in zip(names, pairs, strict=True)):
        raise click.BadParameter("give NAME=FINGERPRINT")
    if len(set(names)) != len(names):
        raise click.BadParameter("name each member once")
    from commingle.services.client.files import member_pins  # noqa: PLC0415 - pyarrow loads slowly

    return member_pins({name: text for name, (_, _, text) in zip(names, pairs, strict=True)})


coordinator_key_option = click.option(
    "--coordinator-key",
    metavar="FINGERPRINT",
    help="Fingerprint of the coordinator's key (64 hex digits), which you got by another channel.",
)
member_option = click.option(
    "--member",
    "members",
    multiple=True,
    metavar="NAME=FINGERPRINT",
    callback=_pins,
    help="Fingerprint of a member's key, which you got by another channel. A release that names another is "
    "refused. Repeatable.",
)


access_options = gathered(
    "access", CoordinatorAccess, coordinator_key_option, member_option, token_option, ca_option, http_option
)
"""Options to read a coordinator, which the command gets as `access`."""
