"""Commands about a party's home and its membership: `init`, `enrol`, `pin`, `rotate-key`, `status` and `webhook`."""

from pathlib import Path
from typing import TextIO

import click
from pydantic import ValidationError
from rich.console import Console

from commingle.party_agent.edge.webhook import remove_webhook, send_test, set_webhook
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.operate.compose import agent_client, compose_agents, consortium_option, home_option
from commingle.party_agent.operate.membership import enrol as enrol_party
from commingle.party_agent.operate.membership import leave as leave_consortium
from commingle.party_agent.operate.membership import rotate_key as rotate_party_key
from commingle.shared.documents.explained import explain
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
    home: Home,
    name: str,
    population: str,
    epsilon_cap: float,
    delta_cap: float,
    linkage_key: Path | None,
    receives: bool,
    policy_file: Path | None,
    as_json: bool,
) -> None:
    """Create a member's home directory with keys, settings and a policy."""
    try:
        settings = PartySettings(name=name, population=population, epsilon_cap=epsilon_cap, delta_cap=delta_cap)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}", remedy="See --help.") from None
    policy = load_settings(Policy, policy_file) if policy_file else Policy()
    if receives and linkage_key is not None:
        raise click.UsageError("--linkage-key and --no-linkage-key exclude each other")
    given = load_secret(linkage_key) if linkage_key else None
    home.create(settings, policy=policy, linkage_key=given, receives_linkage_key=receives)
    fingerprint = home.identity().signing_key.fingerprint

    def text(console: Console) -> None:
        console.print(f"Member {name} is ready in {home.root}.\nKey fingerprint: {fingerprint}")
        console.print("Read it to your fellow members over the telephone; they run:")
        console.print(f"  commingle party pin --home … {name} {fingerprint}")
        if linkage_key is None and not receives:
            console.print(
                "This member holds the linkage key. Once the others are enrolled and pinned, send it to them:"
            )
            console.print(f"  commingle party linkage send --home {home.root}")

    emit({"home": str(home.root), "name": name, "fingerprint": fingerprint}, as_json=as_json, text=text)


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
    home: Home,
    url: str,
    invite: str | None,
    invite_file: TextIO | None,
    consortium: str | None,
    ca_file: Path | None,
    allow_http: bool,
    as_json: bool,
) -> None:
    """Enrol in a consortium and pin its coordinator's key. Repeat it for others; all share one budget."""
    if (invite is None) == (invite_file is None):
        raise click.UsageError("give either --invite or --invite-file")
    given = invite_file.read(_LONGEST_INVITE) if invite_file is not None else invite or ""
    ca_file = ca_file and ca_file.resolve()
    joined = enrol_party(home, url=url, invite=given, ca_file=ca_file, allow_http=allow_http, consortium=consortium)
    fingerprint = joined.coordinator().key.fingerprint
    emit(
        {"consortium": joined.name, "coordinator": url, "fingerprint": fingerprint},
        as_json=as_json,
        text=f"Enrolled at {url}, consortium {joined.name}.\nIts key {fingerprint} is pinned.",
    )


@click.command(epilog="Example: commingle party leave --home ./ward --consortium trial")
@home_option
@click.option("--consortium", metavar="NAME", required=True)
@click.option("--unannounced", is_flag=True, help="Do not tell its coordinator, which is gone or not trusted.")
@json_option
def leave(*, home: Home, consortium: str, unannounced: bool, as_json: bool) -> None:
    """Leave a consortium, with the agent stopped.

    Its coordinator then refuses proposals that name this member. What it has cost stays spent. To come back, run
    `party enrol --consortium NAME` with a new invite for this member: its pins and linkage key are still there.
    """
    name = home.consortium(consortium).name
    if unannounced:
        home.leave(name)
    else:
        with compose_agents(home) as agents:
            leave_consortium(agents, name)
    emit({"left": name, "announced": not unannounced}, as_json=as_json, text=f"Left {name}.")


def _pins(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
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
def pin(*, home: Home, pins: dict[str, str], replace: bool, consortium: str | None, as_json: bool) -> None:
    """Pin members' keys after comparing their fingerprints over another channel."""
    pinned = home.consortium(consortium).pin(pins, replace=replace)
    emit({"pinned": dict(pinned)}, as_json=as_json, text=f"{', '.join(pinned)} pinned.")


@click.command("rotate-key", epilog="Example: commingle party rotate-key --home ./ward")
@home_option
@click.option("--abandon-open", is_flag=True, help="Also if approved releases are open; what they cost stays spent.")
@json_option
def rotate_key(*, home: Home, abandon_open: bool, as_json: bool) -> None:
    """Replace this member's signing and sealing key, with the agent stopped. Repeat it if it was interrupted."""
    with compose_agents(home) as agents:
        name, fingerprint = agents.identity.name, rotate_party_key(agents, abandon_open=abandon_open)
    emit(
        {"name": name, "fingerprint": fingerprint},
        as_json=as_json,
        text=(
            f"The new key's fingerprint: {fingerprint}\nRead it to your fellow members; until they have run\n"
            f"  commingle party pin --home … --replace {name} {fingerprint}\nnew proposals wait at theirs."
        ),
    )


@click.command()
@home_option
@json_option
def status(*, home: Home, as_json: bool) -> None:
    """Show the agent's identity and health."""
    with agent_client(home) as agent:
        value = agent.status()

    def text(console: Console) -> None:
        for key, said in value:
            if key != "consortia":
                console.print(f"{key}: {said}")
        for one in value.consortia:
            console.print(f"consortium {one.name}: {one.coordinator}\n  coordinator fingerprint: {one.fingerprint}")
            if one.trouble:
                console.print(f"  trouble: {one.trouble}")

    emit(value, as_json=as_json, text=text)


@click.group()
def webhook() -> None:
    """Notify one of this member's systems of proposals that wait for a person."""


@webhook.command("set", epilog="Example: commingle party webhook set https://desk.example/proposals --home ./ward")
@click.argument("url")
@home_option
@ca_option
@http_option
@json_option
def set_url(*, url: str, home: Home, ca_file: Path | None, allow_http: bool, as_json: bool) -> None:
    """Notify URL, and print the secret that signs the messages. It is shown once; set again, it changes."""
    home.settings()  # refuses a directory that is no party's home
    made = set_webhook(home, url, ca_file=ca_file and ca_file.resolve(), allow_http=allow_http)
    emit({"url": made.url, "secret": made.secret}, as_json=as_json, text=made.secret)


@webhook.command("test", epilog="Example: commingle party webhook test --home ./ward")
@home_option
@json_option
def send_one(*, home: Home, as_json: bool) -> None:
    """Send a test message."""
    url = send_test(home)
    emit({"url": url}, as_json=as_json, text=f"{url} accepted it.")


@webhook.command("remove", epilog="Example: commingle party webhook remove --home ./ward")
@home_option
@json_option
def remove(*, home: Home, as_json: bool) -> None:
    """Stop notifying."""
    remove_webhook(home)
    emit({"removed": True}, as_json=as_json, text="The webhook is removed.")
