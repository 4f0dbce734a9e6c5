"""`commingle party token`: access to the local API for the party's own systems."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from commingle.party_agent.home import Home
from commingle.party_agent.options import home_option
from commingle.party_agent.tokens import EVERY_SCOPE, Scope, create_token, local_tokens, revoke_token
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.clock import system_clock

name_option = click.option("--name", required=True, help="What it is for.")


@click.group()
def token() -> None:
    """Tokens of the local API for this party's own systems."""


@token.command("create", epilog="Example: commingle party token create --home ./ward --name etl --scope register")
@home_option
@name_option
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(sorted(EVERY_SCOPE)),
    multiple=True,
    required=True,
    help="read: status, proposals, ledger, jobs; decide: approve, reject, regress; register: data sets. Repeatable.",
)
@click.option("--expires-days", type=click.FloatRange(0, 3650, min_open=True), help="Never, if absent.")
@json_option
def create(*, home: Path, name: str, scopes: tuple[Scope, ...], expires_days: float | None, as_json: bool) -> None:
    """Make a token. It is shown once; only its digest is kept."""
    lifetime = None if expires_days is None else timedelta(days=expires_days)
    place = Home(home)
    place.settings()  # refuses a directory that is no party's home
    text = create_token(place, name=name, scopes=frozenset(scopes), lifetime=lifetime, now=system_clock())
    emit(
        {"name": name, "scopes": sorted(scopes), "token": text},
        as_json=as_json,
        text=lambda console: console.print(text, highlight=False, markup=False, soft_wrap=True),
    )


@token.command("list", epilog="Example: commingle party token list --home ./ward")
@home_option
@json_option
def list_tokens(*, home: Path, as_json: bool) -> None:
    """List tokens, without their secrets."""
    items: list[dict[str, Any]] = [
        {"name": name, "scopes": sorted(one.scopes), "created": one.created, "expires": one.expires}
        for name, one in local_tokens(Home(home)).items()
    ]

    def text(console: Console) -> None:
        table = Table("name", "scopes", "created", "expires")
        for item in items:
            table.add_row(
                item["name"], ", ".join(item["scopes"]), f"{item['created']}", f"{item['expires'] or 'never'}"
            )
        console.print(table)

    emit({"items": items}, as_json=as_json, text=text)


@token.command("revoke", epilog="Example: commingle party token revoke --home ./ward --name etl")
@home_option
@name_option
@json_option
def revoke(*, home: Path, name: str, as_json: bool) -> None:
    """Let nobody in with a token any more, at once."""
    revoke_token(Home(home), name)
    emit({"name": name}, as_json=as_json, text=lambda console: console.print(f"Token {name} is revoked."))
