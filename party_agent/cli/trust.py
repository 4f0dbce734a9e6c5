"""`commingle party audit`, `linkage`, `token` and `doctor`: accountability, keys and access, and health."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import (
    EVERY_SCOPE,
    SCOPE_WORDS,
    AgentScope,
    create_token,
    local_tokens,
    revoke_token,
)
from commingle.party_agent.operate.compose import agent_client, calling, consortium_option, home_option, person_option
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.rounds.linkage import publish_identity, receive_linkage_key, send_linkage_key
from commingle.shared.documents.model import encode
from commingle.shared.dp.accounting import Cost
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.verification import called
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.doctor import report
from commingle.shared.runtime.files import NOT_COMPARED, read_history, write_durably
from commingle.shared.runtime.settings import system_clock

_FOR_EVERYONE = 0o644
_name_option = click.option("--name", required=True, help="What it is for.")


@click.group()
def audit() -> None:
    """Export this member's history for an auditor, or verify one."""


@audit.command("export", epilog="Example: commingle party audit export --home ./ward --out audit-ward.json")
@home_option
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The file to write.")
@json_option
def export_file(*, home: Home, out: Path, as_json: bool) -> None:
    """Write the ledger's whole chain and everything this member signed, under its signature."""
    with agent_client(home) as agent:
        data = encode(agent.audit())
    history = verify_party_audit(data)
    write_durably(out, data, mode=_FOR_EVERYONE)
    said = {"file": str(out), "entries": len(history.audit.entries), "head": history.audit.head}
    emit(said, as_json=as_json, text=f"{said['entries']} entries in {out}\nhead {said['head']}")


@audit.command("verify", epilog="Example: commingle party audit verify audit-ward.json --key 3f7a…")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--key", metavar="FINGERPRINT", help="The member's key, known from elsewhere.")
@json_option
def verify_file(*, file: Path, key: str | None, as_json: bool) -> None:
    """Check a member's history offline: chain, charges, signatures, and that they fit together."""
    history = read_history(file, verify_party_audit, key=key)
    said = {
        "party": history.audit.party,
        "signer": history.signer,
        "signer_known": key is not None,
        "entries": len(history.audit.entries),
        "head": history.audit.head,
        "charged": _figures(history.told.lost),
        "charges": {
            release: {"state": charge.state, **_figures(charge.cost)}
            for release, charge in history.told.charges.items()
        },
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

    emit(said, as_json=as_json, text=text)


def _figures(cost: Cost) -> dict[str, Any]:
    own, other = ({"rho": float(loss.rho), "delta": loss.delta} for loss in (cost.loss, cost.replaced))
    return {"unit": cost.unit, **own, "replacement": other}


@click.group()
def linkage() -> None:
    """Share the members' linkage key so that the coordinator cannot read it."""


@linkage.command("send", epilog="Example: commingle party linkage send --home ./ward")
@home_option
@consortium_option
@json_option
def send(*, home: Home, consortium: str | None, as_json: bool) -> None:
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
    emit(said, as_json=as_json, text=text)


@linkage.command("receive", epilog="Example: commingle party linkage receive --home ./ward")
@home_option
@click.option("--from", "sender", metavar="MEMBER", help="Accept only this member's.")
@click.option("--replace", is_flag=True, help="Overwrite another linkage key that is here already.")
@consortium_option
@json_option
def receive(*, home: Home, sender: str | None, replace: bool, consortium: str | None, as_json: bool) -> None:
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
        as_json=as_json,
        text=f"The linkage key of {received.sender} is taken over. Check value, to compare: {received.check}",
    )


@click.command(epilog="Example: commingle party doctor --home ./ward")
@home_option
@json_option
def doctor(*, home: Home, as_json: bool) -> None:
    """Check home, ledger, data, disk and coordinator, and say how to fix problems. Exit code 1 if there are any."""
    report(examine_home(home, now=system_clock()), as_json=as_json)


@click.group()
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
@click.option("--expires-days", type=click.FloatRange(0, 3650, min_open=True), help="Never, if absent.")
@person_option
@json_option
def create(
    *, home: Home, name: str, scopes: tuple[AgentScope, ...], expires_days: float | None, person: str, as_json: bool
) -> None:
    """Make a token. It is shown once; only its digest is kept."""
    lifetime = None if expires_days is None else timedelta(days=expires_days)
    home.settings()  # refuses a directory that is no party's home
    text = create_token(home, name=name, scopes=frozenset(scopes), lifetime=lifetime, now=system_clock(), person=person)
    emit({"name": name, "scopes": sorted(scopes), "person": person, "token": text}, as_json=as_json, text=text)


@token.command("list", epilog="Example: commingle party token list --home ./ward")
@home_option
@json_option
def list_tokens(*, home: Home, as_json: bool) -> None:
    """List tokens, without their secrets."""
    known = local_tokens(home, system_clock())

    def text(console: Console) -> None:
        table = Table("name", "scopes", "person", "made by", "created", "expires", "last used")
        for name, one in known.items():
            made, ends, used = one.made_by or "the operator", one.expires or "never", one.used or "never"
            table.add_row(name, ", ".join(sorted(one.scopes)), one.person, made, f"{one.created}", f"{ends}", f"{used}")
        console.print(table)

    items = [
        {"name": name, **one.model_dump(exclude={"digest"}), "scopes": sorted(one.scopes)}
        for name, one in known.items()
    ]
    emit({"items": items}, as_json=as_json, text=text)


@token.command("revoke", epilog="Example: commingle party token revoke --home ./ward --name etl")
@home_option
@_name_option
@json_option
def revoke(*, home: Home, name: str, as_json: bool) -> None:
    """Revoke a token, at once."""
    revoke_token(home, name, system_clock())
    emit({"name": name}, as_json=as_json, text=f"Token {name} is revoked.")
