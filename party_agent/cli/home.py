"""Commands about a party's home, its membership and keys, who gets in, and what an auditor gets."""

from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

import click
from pydantic import ValidationError
from rich.console import Console

from commingle.party_agent.edge.webhook import remove_webhook, send_test, set_webhook
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    SCOPE_WORDS,
    AgentScope,
    create_token,
    local_tokens,
    revoke_token,
)
from commingle.party_agent.operate.compose import (
    agent_client,
    calling,
    compose_agents,
    consortium_option,
    home_option,
    person_option,
)
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.operate.membership import enrol as enrol_party
from commingle.party_agent.operate.membership import leave as leave_consortium
from commingle.party_agent.operate.membership import rotate_key as rotate_party_key
from commingle.party_agent.rounds.linkage import publish_identity, receive_linkage_key, send_linkage_key
from commingle.party_agent.wire.answers import StatusView
from commingle.shared.documents.model import encode, explain
from commingle.shared.dp.accounting import Cost
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.verification import called
from commingle.shared.runtime.cli import A_FILE, NEW_FILE, LazyGroup, at_home, changes, emit, reads, together
from commingle.shared.runtime.doctor import Check, report
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import NOT_COMPARED, load_secret, read_history, write_durably
from commingle.shared.runtime.settings import load_settings, system_clock
from commingle.shared.runtime.tls import ca_option, http_option

_LONGEST_INVITE = 1000
BUDGET = ("population", "epsilon_cap", "delta_cap")
budget_options = together(
    click.option(
        "--population", default="default", show_default=True, help="The people whose privacy the budget limits."
    ),
    click.option(
        "--epsilon-cap",
        type=float,
        default=10.0,
        show_default=True,
        help="The largest epsilon that all releases and regressions together may spend.",
    ),
    click.option(
        "--delta-cap", type=float, default=1e-5, show_default=True, help="The largest delta that they may spend."
    ),
)


def new_settings(name: str, **budget: Any) -> PartySettings:  # noqa: ANN401 - click
    try:
        return PartySettings(name=name, **budget)
    except ValidationError as error:
        raise SettingsError(f"these settings cannot be used: {explain(error)}", remedy="See --help.") from None


@click.command(epilog="Example: commingle party init --home ./ward --name ward --epsilon-cap 6")
@home_option
@click.option("--name", required=True, help="The member's name in the consortium, in lower case.")
@budget_options
@click.option(
    "--linkage-key",
    type=A_FILE,
    help="A file with the consortium's linkage key.  [a new key, which this member makes]",
)
@click.option(
    "--no-linkage-key",
    "receives",
    is_flag=True,
    help="Another member will send the linkage key, by `commingle party linkage send`.",
)
@click.option("--policy", "policy_file", type=A_FILE, help="The policy.json to start with.  [the default policy]")
@changes(home=str, name=str, fingerprint=str)
def init(
    *,
    home: Home,
    name: str,
    linkage_key: Path | None,
    receives: bool,
    policy_file: Path | None,
    **budget: Any,  # noqa: ANN401 - click
) -> None:
    """Create a member's home directory with keys, settings and a policy."""
    settings = new_settings(name, **budget)
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
            console.print(f"  commingle party linkage send {at_home(home.root)}")

    emit({"home": str(home.root), "name": name, "fingerprint": fingerprint}, text=text)


@click.command(
    epilog="Example: commingle party enrol --home ./ward --coordinator https://c.example --invite-file invite.txt"
)
@home_option
@click.option("--coordinator", "url", required=True, help="The coordinator's URL.")
@click.option("--invite", help="The one-time invite that the coordinator operator sent.")
@click.option(
    "--invite-file", type=click.File(errors="replace"), help="A file with the invite, or - for standard input."
)
@click.option(
    "--consortium", metavar="NAME", help="The name of the consortium at this member.  [the coordinator's name]"
)
@ca_option
@http_option
@changes(consortium=str, coordinator=str, fingerprint=str)
def enrol(
    *,
    home: Home,
    url: str,
    invite: str | None,
    invite_file: TextIO | None,
    consortium: str | None,
    ca_file: Path | None,
    allow_http: bool,
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
        text=f"Enrolled at {url}, consortium {joined.name}.\nIts key {fingerprint} is pinned.",
    )


@click.command(epilog="Example: commingle party leave --home ./ward --consortium trial")
@home_option
@click.option("--consortium", metavar="NAME", required=True, help="The consortium to leave.")
@click.option("--unannounced", is_flag=True, help="Do not tell the coordinator, because it is gone or not trusted.")
@changes(left=str, announced=bool)
def leave(*, home: Home, consortium: str, unannounced: bool) -> None:
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
    emit({"left": name, "announced": not unannounced}, text=f"Left {name}.")


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
@click.option("--replace", is_flag=True, help="Replace a pinned key, after its holder has told you that it changed.")
@consortium_option
@changes(pinned=dict[str, str])
def pin(*, home: Home, pins: dict[str, str], replace: bool, consortium: str | None) -> None:
    """Pin members' keys after comparing their fingerprints over another channel."""
    pinned = home.consortium(consortium).pin(pins, replace=replace)
    emit({"pinned": dict(pinned)}, text=f"{', '.join(pinned)} pinned.")


@click.command("rotate-key", epilog="Example: commingle party rotate-key --home ./ward")
@home_option
@click.option(
    "--abandon-open", is_flag=True, help="Rotate although approved releases are open. Their cost stays spent."
)
@changes(name=str, fingerprint=str)
def rotate_key(*, home: Home, abandon_open: bool) -> None:
    """Replace this member's signing and sealing key, with the agent stopped. Repeat it if it was interrupted."""
    with compose_agents(home) as agents:
        name, fingerprint = agents.identity.name, rotate_party_key(agents, abandon_open=abandon_open)
    emit(
        {"name": name, "fingerprint": fingerprint},
        text=(
            f"The new key's fingerprint: {fingerprint}\nRead it to your fellow members; until they have run\n"
            f"  commingle party pin --home … --replace {name} {fingerprint}\nnew proposals wait at theirs."
        ),
    )


@click.command()
@home_option
@reads(StatusView)
def status(*, home: Home) -> None:
    """Show the agent's identity and health."""
    with agent_client(home) as agent:
        value = agent.status()

    def text(console: Console) -> None:
        for key, said in value:
            if key != "consortia" and said is not None:
                console.print(f"{key}: {said}")
        for one in value.consortia:
            console.print(f"consortium {one.name}: {one.coordinator}\n  coordinator fingerprint: {one.fingerprint}")
            if one.trouble:
                console.print(f"  trouble: {one.trouble}")

    emit(value, text=text)


@click.group(cls=LazyGroup)
def webhook() -> None:
    """Notify one of this member's systems of proposals that wait for a person."""


@webhook.command("set", epilog="Example: commingle party webhook set https://desk.example/proposals --home ./ward")
@click.argument("url")
@home_option
@ca_option
@http_option
@changes(url=str, secret=str)
def set_url(*, url: str, home: Home, ca_file: Path | None, allow_http: bool) -> None:
    """Notify URL, and print the secret that signs the messages. It is shown once; set again, it changes."""
    home.settings()  # refuses a directory that is no party's home
    made = set_webhook(home, url, ca_file=ca_file and ca_file.resolve(), allow_http=allow_http)
    emit({"url": made.url, "secret": made.secret}, text=made.secret)


@webhook.command("test", epilog="Example: commingle party webhook test --home ./ward")
@home_option
@changes(url=str)
def send_one(*, home: Home) -> None:
    """Send a test message."""
    url = send_test(home)
    emit({"url": url}, text=f"{url} accepted it.")


@webhook.command("remove", epilog="Example: commingle party webhook remove --home ./ward")
@home_option
@changes(removed=bool)
def remove(*, home: Home) -> None:
    """Stop notifying."""
    remove_webhook(home)
    emit({"removed": True}, text="The webhook is removed.")


_FOR_EVERYONE = 0o644
_name_option = click.option("--name", required=True, help="What the token is for.")


@click.group(cls=LazyGroup)
def audit() -> None:
    """Export this member's history for an auditor, or verify one."""


@audit.command("export", epilog="Example: commingle party audit export --home ./ward --out audit-ward.json")
@home_option
@click.option("--out", type=NEW_FILE, required=True, help="The file to write.")
@changes(file=str, entries=int, head=str)
def export_file(*, home: Home, out: Path) -> None:
    """Write the ledger's whole chain and everything this member signed, under its signature."""
    with agent_client(home) as agent:
        data = encode(agent.audit())
    history = verify_party_audit(data)
    write_durably(out, data, mode=_FOR_EVERYONE)
    said = {"file": str(out), "entries": len(history.audit.entries), "head": history.audit.head}
    emit(said, text=f"{said['entries']} entries in {out}\nhead {said['head']}")


@audit.command("verify", epilog="Example: commingle party audit verify audit-ward.json --key 3f7a…")
@click.argument("file", type=NEW_FILE)
@click.option("--key", metavar="FINGERPRINT", help="The member's key, known from elsewhere.")
@reads(
    party=str,
    signer=str,
    signer_known=bool,
    entries=int,
    head=str,
    charged=dict[str, Any],
    charges=dict[str, dict[str, Any]],
    documents=int,
    keys=list[str],
)
def verify_file(*, file: Path, key: str | None) -> None:
    """Check a member's history offline: chain, charges, signatures, and that they fit together."""
    history = read_history(file, verify_party_audit, key=key)
    charges = history.told.charges.items()
    said = {
        "party": history.audit.party,
        "signer": history.signer,
        "signer_known": key is not None,
        "entries": len(history.audit.entries),
        "head": history.audit.head,
        "charged": _figures(history.told.lost),
        "charges": {release: {"state": charge.state, **_figures(charge.cost)} for release, charge in charges},
        "documents": len(history.audit.documents),
        "keys": [known.fingerprint for known in history.keys],
    }

    def text(console: Console) -> None:
        lost = history.told.lost.loss
        console.print(
            f"Everything holds in the history of {called(history.audit.party, pinned=key is not None)}, "
            f"key {history.signer}\n"
            f"{said['entries']} entries, {said['documents']} signed documents, charged rho {float(lost.rho):.6g}"
            f"{', delta ' + format(lost.delta, '.3g') if lost.delta else ''} ({history.told.lost.unit})\n"
            f"head {history.audit.head}"
        )
        if key is None:
            console.print(NOT_COMPARED)

    emit(said, text=text)


def _figures(cost: Cost) -> dict[str, Any]:
    own, other = ({"rho": float(loss.rho), "delta": loss.delta} for loss in (cost.loss, cost.replaced))
    return {"unit": cost.unit, **own, "replacement": other}


@click.group(cls=LazyGroup)
def linkage() -> None:
    """Share the members' linkage key so that the coordinator cannot read it."""


@linkage.command("send", epilog="Example: commingle party linkage send --home ./ward")
@home_option
@consortium_option
@changes(check=str, recipients=list[str], left_out=list[str])
def send(*, home: Home, consortium: str | None) -> None:
    """Seal this member's linkage key to every pinned member that is enrolled."""
    membership = home.consortium(consortium)
    with calling(home, membership) as client:
        fingerprint = membership.coordinator().key.fingerprint
        sent = send_linkage_key(home, membership, client, coordinator=fingerprint, now=system_clock())

    def text(console: Console) -> None:
        console.print(f"Sent to {', '.join(sent.recipients)}. Check value: {sent.check}")
        console.print("The recipients are shown the same digits when they take it over; compare them.")
        if sent.left_out:
            console.print(f"Not yet enrolled, send again when they are: {', '.join(sent.left_out)}")

    said = {"check": sent.check, "recipients": list(sent.recipients), "left_out": list(sent.left_out)}
    emit(said, text=text)


@linkage.command("receive", epilog="Example: commingle party linkage receive --home ./ward")
@home_option
@click.option("--from", "sender", metavar="MEMBER", help="Accept only a key from this member.")
@click.option("--replace", is_flag=True, help="Overwrite the linkage key of this home.")
@consortium_option
@changes(check=str, sender=str)
def receive(*, home: Home, sender: str | None, replace: bool, consortium: str | None) -> None:
    """Take over the linkage key a pinned member has sent. A running agent that has none does so by itself."""
    membership = home.consortium(consortium)
    with calling(home, membership) as client:
        publish_identity(home, client)  # again, as the signing key may have been replaced since enrolment
        fingerprint = membership.coordinator().key.fingerprint
        received = receive_linkage_key(
            home, membership, client, coordinator=fingerprint, sender=sender, replace=replace
        )
    if received is None:
        raise NotFoundError(
            "no pinned member has sent a linkage key", remedy="Pin the sender; it runs: commingle party linkage send"
        )
    emit(
        {"check": received.check, "sender": received.sender},
        text=f"The linkage key of {received.sender} is taken over. Check value, to compare: {received.check}",
    )


@click.command(epilog="Example: commingle party doctor --home ./ward")
@home_option
@reads(healthy=bool, checks=list[Check])
def doctor(*, home: Home) -> None:
    """Check home, ledger, data, disk and coordinator, and say how to fix problems. Exit code 1 if there are any."""
    report(examine_home(home, now=system_clock()))


@click.group(cls=LazyGroup)
def token() -> None:
    """Manage tokens of the local API for this member's systems."""


@token.command("create", epilog="Example: commingle party token create --home ./ward --name etl --scope register")
@home_option
@_name_option
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(sorted(EVERY_SCOPE)),
    multiple=True,
    required=True,
    help=f"{'; '.join(f'{scope}: {words}' for scope, words in SCOPE_WORDS.items())}. Repeatable.",
)
@click.option(
    "--expires-days", type=click.FloatRange(0, 3650, min_open=True), help="Days until the token expires.  [never]"
)
@person_option
@changes(name=str, scopes=list[AgentScope], person=str, token=str)
def create(*, home: Home, name: str, scopes: tuple[AgentScope, ...], expires_days: float | None, person: str) -> None:
    """Make a token. It is shown once; only its digest is kept."""
    lifetime = None if expires_days is None else timedelta(days=expires_days)
    home.settings()  # refuses a directory that is no party's home
    text = create_token(home, name=name, scopes=frozenset(scopes), lifetime=lifetime, now=system_clock(), person=person)
    emit({"name": name, "scopes": sorted(scopes), "person": person, "token": text}, text=text)


@token.command("list", epilog="Example: commingle party token list --home ./ward")
@home_option
@reads(items=list[dict[str, Any]])
def list_tokens(*, home: Home) -> None:
    """List tokens, without their secrets."""
    known = local_tokens(home, system_clock())

    def text(console: Console) -> None:
        for name, one in known.items():  # whole, to be copied: a table cuts names of people who signed on
            made, ends, used = (
                moment and f"{moment:%Y-%m-%d %H:%M} UTC" for moment in (one.created, one.expires, one.used)
            )
            console.print(
                f"{name}: {', '.join(sorted(one.scopes))}{f', for {one.person}' if one.person else ''}; made by "
                f"{one.made_by or 'the operator'} {made}, expires {ends or 'never'}, last used {used or 'never'}"
            )

    shown = ((name, one.model_dump(exclude={"digest"}) | {"scopes": sorted(one.scopes)}) for name, one in known.items())
    emit({"items": [{"name": name, **said} for name, said in shown]}, text=text)


@token.command("revoke", epilog="Example: commingle party token revoke --home ./ward --name etl")
@home_option
@_name_option
@changes(name=str)
def revoke(*, home: Home, name: str) -> None:
    """Revoke a token, at once."""
    revoke_token(home, name, system_clock())
    emit({"name": name}, text=f"Token {name} is revoked.")
