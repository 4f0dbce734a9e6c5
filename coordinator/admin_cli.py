"""Commands of the coordinator's operator: its home, its server, its members and their tokens."""

import json
import os
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import click
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table

from commingle.coordinator.cli import examples, home_option
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.coordinator.members import CoordinatorScope, create_token, revoke_token
from commingle.coordinator.members import invite as issue_invite
from commingle.coordinator.members import revoke as revoke_party
from commingle.coordinator.store.database import check_url
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.invitation import ADDRESS, Invitation
from commingle.shared.documents.model import Name
from commingle.shared.runtime import faults
from commingle.shared.runtime.cli import A_FOLDER, NEW_FILE, LazyGroup, at_home, changes, emit, reads, wants_json
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import create_secret, write_durably
from commingle.shared.runtime.settings import ServeCommand, Tracing, resolve, traces_option, trusted_proxies_option
from commingle.shared.runtime.telemetry import configure_logging
from commingle.shared.runtime.tls import ServerTls, tls_options

_FEWEST = 2
_expiry_option = click.option(
    "--expires-hours",
    default=72.0,
    show_default=True,
    type=click.FloatRange(0, 8760, min_open=True),
    help="Hours until the invite expires.",
)


def _name(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError:
        raise click.BadParameter("up to 63 of a-z, 0-9, '_', '.', '-', beginning with a letter or digit") from None


@click.command(epilog=examples("init --home hub", "init --home hub --database-url-file /run/secrets/database-url"))
@home_option
@click.option("--name", default="coordinator", show_default=True, help="Display name.")
@click.option("--database-url", help="postgresql://USER:PASSWORD@HOST/DATABASE.  [SQLite in HOME]")
@click.option(
    "--database-url-file",
    type=NEW_FILE,
    help="A file that holds the database URL; read at every start.",
)
@click.option(
    "--blob-directory",
    type=A_FOLDER,
    help="The folder for blocks and published files, which replicas share.  [HOME/blobs]",
)
@click.option("--blob-bucket", metavar="s3://BUCKET/PREFIX", help="S3-compatible storage in place of a directory.")
@changes(home=str, name=str, fingerprint=str)
def init(*, home: Path, name: str, **given: str | Path | None) -> None:
    """Create a coordinator: settings and a signing key in HOME."""
    key = _create(home, name=name, **given)
    emit(
        {"home": str(home), "name": name, "fingerprint": key.fingerprint},
        text=f"Coordinator {name} in {home}\nfingerprint {key.fingerprint}",
    )


def _create(home: Path, **given: object) -> SigningKey:
    given = {key: value for key, value in given.items() if value is not None}
    if {"database_url", "database_url_file"} <= given.keys():
        raise click.UsageError("--database-url and --database-url-file exclude each other")
    said = {key: str(value.resolve()) if isinstance(value, Path) else value for key, value in given.items()}
    settings, _ = resolve(CoordinatorSettings, said, "the options", {})
    at = CoordinatorHome(home)
    check_url(at.database_url(settings))
    at.blobs(settings)  # refuses an address that is none before anything is written
    if at.signing_key.exists():
        raise SettingsError(f"{home} holds a coordinator already", remedy="Use it, or give another --home.")
    at.secure(settings)
    write_durably(at.settings, json.dumps(said, indent=2).encode() + b"\n")
    return SigningKey(create_secret(at.signing_key))  # last, so that an interrupted init can be repeated


def _members(_: click.Context, __: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names) or len(names) < _FEWEST:
        raise click.BadParameter("name two members at least, each once")
    return tuple(_name(_, __, name) for name in names)


@click.command(
    "new-consortium",
    epilog=examples("new-consortium --home hub --url https://hub.example ward laboratory registration"),
)
@home_option
@click.option("--name", default="coordinator", show_default=True, help="Display name.")
@click.option(
    "--url",
    required=True,
    help="The URL at which members reach the coordinator. If it names a port, `serve` listens there.",
)
@click.option("--database-url-file", type=NEW_FILE, help="A file that holds the database URL; read at every start.")
@_expiry_option
@click.argument("members", nargs=-1, required=True, callback=_members)
@changes(home=str, name=str, fingerprint=str, invitations=dict[str, str])
def new_consortium(
    *, home: Path, name: str, url: str, expires_hours: float, members: tuple[str, ...], **given: object
) -> None:
    """Create a coordinator and an invitation for each of its MEMBERS."""
    if not ADDRESS.fullmatch(url):
        raise SettingsError(
            f"{url!r} is not the address of a coordinator", remedy="Give one such as https://hub.example."
        )
    port = _port(url)
    serve = None if port is None else {"port": port}
    key = _create(home, name=name, serve=serve, **given)
    lines = {}
    with open_coordinator(home) as hub:
        for member in members:
            secret, _ = issue_invite(hub, party=member, lifetime=timedelta(hours=expires_hours))
            names = (member, *(other for other in members if other != member))
            lines[member] = str(Invitation(secret, names, url))

    def text(console: Console) -> None:
        console.print(
            f"Coordinator {name} in {home}\nfingerprint {key.fingerprint}\n"
            "Give the fingerprint to everybody who is to ask releases: --coordinator-key.\n\n"
            f"Run it: commingle coordinator serve {at_home(home)}\n\n"
            f"Send each member its own command, confidentially. It works once, for {expires_hours:g} hours. The member "
            "puts the names of its table, of the table's column of ids, and of its schema in it:"
        )
        for member, line in lines.items():
            table = "--source TABLE.csv --subject-id COLUMN --schema SCHEMA.json --serve"
            console.print(f"\ncommingle party join --home ./{member} {table} {line}")

    value = {"home": str(home), "name": name, "fingerprint": key.fingerprint, "invitations": lines}
    emit(value, text=text)


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        raise SettingsError(f"{url!r} has no port that exists", remedy="Ports are from 1 to 65535.") from None


@click.command(cls=ServeCommand, kind=CoordinatorSettings, epilog=examples("serve --home hub"))
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@tls_options
@trusted_proxies_option
@traces_option
def serve(
    *, home: Path, host: str, port: int, tls: ServerTls | None, trusted_proxies: tuple[str, ...], trace: Tracing
) -> None:
    """Serve HTTP until told to stop."""
    # no other command of an operator needs these, which load slowly
    from commingle.coordinator.http.app import create_app  # noqa: PLC0415
    from commingle.coordinator.http.streams import Feed  # noqa: PLC0415
    from commingle.coordinator.publisher import Publisher  # noqa: PLC0415
    from commingle.shared.runtime.server import serve as serve_app  # noqa: PLC0415

    configure_logging(service="coordinator")
    trace(service="coordinator")
    faults.arm_from(os.environ)
    with open_coordinator(home, patient=True) as hub:
        feed = Feed(hub.store)
        serve_app(
            create_app(hub, Publisher(hub), feed),
            host=host,
            port=port,
            tls=tls,
            trusted_proxies=trusted_proxies,
            on_stopping=feed.stop,
        )


@click.command(epilog=examples("invite --home hub --party clinic-a"))
@home_option
@click.option("--party", required=True, callback=_name, help="The name the member will have.")
@_expiry_option
@changes(party=str, invite=str, expires=datetime)
def invite(*, home: Path, party: str, expires_hours: float) -> None:
    """Issue a one-time invite for one member; hand it over confidentially."""
    with open_coordinator(home) as hub:
        text, expires = issue_invite(hub, party=party, lifetime=timedelta(hours=expires_hours))
    emit({"party": party, "invite": text, "expires": expires.isoformat()}, text=text)
    if not wants_json():
        from commingle.shared.runtime.console import PlainConsole  # noqa: PLC0415 - loads slowly

        PlainConsole(stderr=True).print(
            f"for {party}, until {expires:%Y-%m-%d %H:%M} UTC. {party} runs `commingle party init`, then "
            "`commingle party enrol` with it, your URL and --home (docs/deployment.md#each-member)."
        )


@click.command(epilog=examples("revoke --home hub --party clinic-a"))
@home_option
@click.option("--party", required=True, callback=_name, help="The member to revoke.")
@changes(party=str, ended=list[str])
def revoke(*, home: Path, party: str) -> None:
    """Revoke a member: abort its open releases and stop accepting its signatures."""
    with open_coordinator(home) as hub:
        ended = revoke_party(hub, party)
    emit({"party": party, "ended": list(ended)}, text=f"{party} is revoked; {len(ended)} open releases ended.")


@click.group(
    cls=LazyGroup, epilog=examples("token create --home hub --name learner --scope read", "token list --home hub")
)
def token() -> None:
    """Manage bearer tokens for operators and learners."""


@token.command("create", epilog=examples("token create --home hub --name learner --scope read --expires-days 90"))
@home_option
@click.option("--name", required=True, callback=_name, help="What the token is for.")
@click.option(
    "--scope",
    type=click.Choice(get_args(CoordinatorScope)),
    required=True,
    help="read: everything that can be read. operate: also propose signed specs.",
)
@click.option(
    "--expires-days", type=click.FloatRange(0, 3650, min_open=True), help="Days until the token expires.  [never]"
)
@changes(name=str, scope=CoordinatorScope, token=str)
def create(*, home: Path, name: str, scope: CoordinatorScope, expires_days: float | None) -> None:
    """Make a token. It is shown once; only its digest is kept."""
    lifetime = None if expires_days is None else timedelta(days=expires_days)
    with open_coordinator(home) as hub:
        text = create_token(hub, name=name, scope=scope, lifetime=lifetime)
    emit({"name": name, "scope": scope, "token": text}, text=text)


@token.command("list", epilog=examples("token list --home hub"))
@home_option
@reads(items=list[dict[str, Any]])
def list_tokens(*, home: Path) -> None:
    """List tokens, without their secrets."""
    with open_coordinator(home) as hub, hub.store.read() as tx:
        found = tx.access.tokens()
    shown = [{key: value for key, value in asdict(row).items() if key != "digest"} for row in found]

    def text(console: Console) -> None:
        table = Table("name", "scope", "created", "expires", "revoked")
        for row in shown:
            table.add_row(*(f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value for value in row.values()))
        console.print(table)

    emit({"items": shown}, text=text)


@token.command("revoke", epilog=examples("token revoke --home hub --name learner"))
@home_option
@click.option("--name", required=True, callback=_name, help="The name of the token.")
@changes(name=str)
def revoke_one(*, home: Path, name: str) -> None:
    """Revoke a token."""
    with open_coordinator(home) as hub:
        revoke_token(hub, name)
    emit({"name": name}, text=f"Token {name} is revoked.")
