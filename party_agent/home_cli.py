"""Commands about a party's home and its membership: `init`, `enrol`, `pin`, `rotate-key` and `status`."""

from pathlib import Path
from typing import TextIO

import click
from pydantic import ValidationError
from rich.console import Console

from commingle.party_agent.compose import ask, compose_agents, consortium_option, home_option
from commingle.party_agent.home import Home, PartySettings
from commingle.party_agent.membership import enrol as enrol_party
from commingle.party_agent.membership import rotate_key as rotate_party_key
from commingle.party_agent.policy import Policy
from commingle.shared.documents.model import explain
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import load_secret
from commingle.shared.runtime.settings import load_settings
from commingle.shared.runtime.tls import ca_option, http_option

_LONGEST_INVITE = 1000


@click.command(epilog="Example: commingle party init --home ./ward --name ward --epsilon-cap 6")
@home_option
@click.option("--name", required=True, help="Lower-case name, as the consortium will know it.")
@click.option("--population", default="default", show_default=True, help="Whose data the budget is for.")
@click.option("--epsilon-cap", type=float, default=10.0, show_default=True, help="The most it may ever lose.")
@click.option("--delta-cap", type=float, default=1e-5, show_default=True)
@click.option(
    "--linkage-key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The consortium's linkage key, made by the first member; left out, this member makes it.",
)
@click.option(
    "--no-linkage-key", "receives", is_flag=True, help="A fellow member will send it: commingle party linkage send."
)
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_option
def init(
    *,
    home: Path,
    name: str,
    population: str,
    epsilon_cap: float,
    delta_cap: float,
    linkage_key: Path | None,
    receives: bool,
    policy_file: Path | None,
    as_json: bool,
) -> None:
    """Make a party's home: fresh keys, settings and policy."""
    place = Home(home)
    try:
        settings = PartySettings(name=name, population=population, epsilon_cap=epsilon_cap, delta_cap=delta_cap)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}", remedy="See --help.") from None
    policy = load_settings(Policy, policy_file) if policy_file else Policy()
    if receives and linkage_key is not None:
        raise click.UsageError("--linkage-key and --no-linkage-key exclude each other")
    given = load_secret(linkage_key) if linkage_key else None
    place.create(settings, policy=policy, linkage_key=given, receives_linkage_key=receives)
    fingerprint = place.identity().signing_key.fingerprint

    def text(console: Console) -> None:
        console.print(f"Party {name} is ready in {home}.\nKey fingerprint: {fingerprint}")
        console.print("Read it to your fellow members over the telephone; they run:")
        console.print(f"  commingle party pin --home … {name} {fingerprint}", soft_wrap=True)
        if linkage_key is None and not receives:
            console.print("This party holds the linkage key. Once the others are enrolled and pinned, send it to them:")
            console.print(f"  commingle party linkage send --home {home}", soft_wrap=True)

    emit({"home": str(home), "name": name, "fingerprint": fingerprint}, as_json=as_json, text=text)


@click.command(
    epilog="Example: commingle party enrol --home ./ward --coordinator https://c.example --invite-file invite.txt"
)
@home_option
@click.option("--coordinator", "url", required=True, help="The coordinator's URL.")
@click.option("--invite", help="The one-time invite its operator sent.")
@click.option(
    "--invite-file", type=click.File(errors="replace"), help="The same from a file, or from standard input: -"
)
@click.option("--consortium", metavar="NAME", help="What to call it here, if not as its coordinator calls itself.")
@ca_option
@http_option
@json_option
def enrol(
    *,
    home: Path,
    url: str,
    invite: str | None,
    invite_file: TextIO | None,
    consortium: str | None,
    ca_file: Path | None,
    allow_http: bool,
    as_json: bool,
) -> None:
    """Enrol in a consortium, or in another one, and pin its coordinator's key. All consortia share one budget."""
    if (invite is None) == (invite_file is None):
        raise click.UsageError("give either --invite or --invite-file")
    given = invite_file.read(_LONGEST_INVITE) if invite_file is not None else invite or ""
    ca_file = ca_file and ca_file.resolve()
    joined = enrol_party(
        Home(home), url=url, invite=given, ca_file=ca_file, allow_http=allow_http, consortium=consortium
    )
    fingerprint = joined.coordinator().key.fingerprint
    emit(
        {"consortium": joined.name, "coordinator": url, "fingerprint": fingerprint},
        as_json=as_json,
        text=lambda console: console.print(
            f"Enrolled at {url}, consortium {joined.name}.\nIts key {fingerprint} is pinned.", soft_wrap=True
        ),
    )


@click.command(epilog="Example: commingle party leave --home ./ward --consortium trial")
@home_option
@click.option("--consortium", metavar="NAME", required=True)
@json_option
def leave(*, home: Path, consortium: str, as_json: bool) -> None:
    """Belong to a consortium no longer, with the agent stopped. What it has cost stays spent."""
    place = Home(home)
    place.leave(place.consortium(consortium).name)
    emit({"left": consortium}, as_json=as_json, text=lambda console: console.print(f"{consortium} is left."))


def _pins(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Fingerprints by member, given as MEMBER FINGERPRINT … or as MEMBER=FINGERPRINT …."""
    flat = [part for one in given for part in one.split("=")] if all("=" in one for one in given) else list(given)
    pins = dict(zip(flat[::2], flat[1::2], strict=False))
    if len(flat) % 2 or 2 * len(pins) != len(flat) or not all(pins):
        raise click.BadParameter("give pairs: MEMBER FINGERPRINT or MEMBER=FINGERPRINT, each member once")
    return pins


@click.command(
    epilog="\b\nExamples:\n  commingle party pin --home ./ward laboratory 3f7a…\n"
    "  commingle party pin --home ./ward laboratory=3f7a… insurer=90bc…"
)
@home_option
@click.argument("pins", metavar="MEMBER=FINGERPRINT...", nargs=-1, required=True, callback=_pins)
@click.option("--replace", is_flag=True, help="Where another key is pinned: it has changed, as its holder says.")
@consortium_option
@json_option
def pin(*, home: Path, pins: dict[str, str], replace: bool, consortium: str | None, as_json: bool) -> None:
    """Trust fellow members' keys, after comparing their fingerprints over another channel."""
    pinned = Home(home).consortium(consortium).pin_all(pins, replace=replace)
    emit(
        {"pinned": dict(pinned)},
        as_json=as_json,
        text=lambda console: console.print(f"{', '.join(pinned)} pinned."),
    )


@click.command("rotate-key", epilog="Example: commingle party rotate-key --home ./ward")
@home_option
@click.option("--abandon-open", is_flag=True, help="Also if approved releases are open; what they cost stays spent.")
@json_option
def rotate_key(*, home: Path, abandon_open: bool, as_json: bool) -> None:
    """Replace this party's signing and sealing key, with the agent stopped. Repeat it if it was interrupted."""
    with compose_agents(Home(home)) as agents:
        name, fingerprint = agents.identity.name, rotate_party_key(agents, abandon_open=abandon_open)
    emit(
        {"name": name, "fingerprint": fingerprint},
        as_json=as_json,
        text=lambda console: console.print(
            f"The new key's fingerprint: {fingerprint}\nRead it to your fellow members; until they have run\n"
            f"  commingle party pin --home … --replace {name} {fingerprint}\nnew proposals wait at theirs.",
            soft_wrap=True,
        ),
    )


@click.command()
@home_option
@json_option
def status(*, home: Path, as_json: bool) -> None:
    """Show who this agent is and how it is."""
    value = ask(Home(home), "GET", "/v1/status")

    def text(console: Console) -> None:
        for key, said in value.items():
            if key != "consortia":
                console.print(f"{key.replace('_', ' ')}: {said}", soft_wrap=True)
        for one in value["consortia"]:
            console.print(f"consortium {one['name']}: {one['coordinator']}", soft_wrap=True)
            console.print(f"  coordinator fingerprint: {one['fingerprint']}", soft_wrap=True)
            if one["trouble"]:
                console.print(f"  trouble: {one['trouble']}", soft_wrap=True)

    emit(value, as_json=as_json, text=text)
