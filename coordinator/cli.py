"""`commingle coordinator`: settings -> store -> application -> server."""

import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar, get_args

import click
import httpx
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from commingle.coordinator.access import Scope, create_token, revoke_token
from commingle.coordinator.errors import StateError
from commingle.coordinator.feed import Feed
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings, open_coordinator
from commingle.coordinator.http.app import create_app
from commingle.coordinator.members import invite as issue_invite
from commingle.coordinator.members import revoke as revoke_party
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.store.database import check_url
from commingle.coordinator.trust_cli import audit, doctor, home_option
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import TRUST_NOBODY
from commingle.shared.documents.model import Name, explain
from commingle.shared.documents.study import Member, Study, build_spec
from commingle.shared.forecast.forecast import forecast_of, with_sketch
from commingle.shared.forecast.words import forecast_sentences
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from commingle.shared.runtime.cli import emit, json_option
from commingle.shared.runtime.clock import system_clock
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.keyfiles import create_secret, load_signing_key
from commingle.shared.runtime.logging import configure_logging
from commingle.shared.runtime.remote import call, model_of, pages, reaching
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.server import serve as serve_app
from commingle.shared.runtime.settings import load_settings
from commingle.shared.runtime.tls import ServerTls, ca_option, tls_options, trust
from commingle.shared.wire import PartyPage, ReleaseDetails, ReleasePage, ReleaseSummary

Paged = TypeVar("Paged", PartyPage, ReleasePage)

_FOLLOW_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0  # a busy coordinator waits half of that for its database, and to repeat a proposal is another
_DEFAULT_URL = "http://127.0.0.1:8000"

url_option = click.option(
    "--coordinator", "url", default=_DEFAULT_URL, show_default=True, help="Where the running coordinator answers."
)


def _name(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        return TypeAdapter(Name).validate_python(value)
    except ValidationError:
        raise click.BadParameter("up to 63 of a-z, 0-9, '_', '.', '-', beginning with a letter or digit") from None


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  commingle coordinator {line}" for line in lines)


@click.group(
    epilog=_examples(
        "init --home hub --name hub.example.org",
        "serve --home hub --host 0.0.0.0 --port 8000",
        "invite --home hub --party clinic-a",
        "propose study.json --home hub",
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
)
def coordinator() -> None:
    """Run and operate a coordinator."""


coordinator.add_command(audit)
coordinator.add_command(doctor)


@coordinator.command(
    epilog=_examples("init --home hub", "init --home hub --database-url-file /run/secrets/database-url")
)
@home_option
@click.option("--name", default="coordinator", show_default=True, help="What people call it.")
@click.option(
    "--database-url", help="postgresql://USER:PASSWORD@HOST/DATABASE; SQLite in the home directory if absent."
)
@click.option(
    "--database-url-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file that holds the database URL; read at every start.",
)
@click.option(
    "--blob-directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where blocks and published files are kept; replicas share it. HOME/blobs if absent.",
)
@json_option
def init(
    *,
    home: Path,
    name: str,
    database_url: str | None,
    database_url_file: Path | None,
    blob_directory: Path | None,
    as_json: bool,
) -> None:
    """Create a coordinator: settings and a signing key in HOME."""
    if database_url is not None and database_url_file is not None:
        raise click.UsageError("--database-url and --database-url-file exclude each other")
    if database_url is not None:
        check_url(database_url)
    given = {
        "name": name,
        "database_url": database_url,
        "database_url_file": database_url_file and str(database_url_file.resolve()),
        "blob_directory": blob_directory and str(blob_directory.resolve()),
    }
    text = json.dumps({key: value for key, value in given.items() if value is not None}, indent=2)
    try:
        CoordinatorSettings.model_validate_json(text)
    except ValidationError as error:
        raise SettingsError(explain(error), remedy="Correct the option of that name.") from None
    at = CoordinatorHome(home)
    if at.signing_key.exists():
        raise SettingsError(f"{home} holds a coordinator already", remedy="Use it, or give another --home.")
    write_durably(at.settings, text.encode() + b"\n")
    key = SigningKey(create_secret(at.signing_key))  # last, so that an interrupted init can be repeated
    emit(
        {"home": str(home), "name": name, "fingerprint": key.fingerprint},
        as_json=as_json,
        text=lambda console: console.print(
            f"Coordinator {name} in {home}\nfingerprint {key.fingerprint}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        ),
    )


@coordinator.command(epilog=_examples("serve --home hub"))
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free port.")
@tls_options
def serve(*, home: Path, host: str, port: int, tls: ServerTls | None) -> None:
    """Serve HTTP until told to stop."""
    configure_logging(service="coordinator")
    faults.arm_from(os.environ)
    with open_coordinator(home, patient=True) as hub:
        feed = Feed(hub.store)
        serve_app(create_app(hub, Publisher(hub), feed), host=host, port=port, tls=tls, on_stopping=feed.stop)


@coordinator.command(epilog=_examples("invite --home hub --party clinic-a"))
@home_option
@click.option("--party", required=True, callback=_name, help="The name the party will have.")
@click.option("--expires-hours", default=72.0, show_default=True, type=click.FloatRange(0, 8760, min_open=True))
@json_option
def invite(*, home: Path, party: str, expires_hours: float, as_json: bool) -> None:
    """Issue a one-time invite for one party; hand it over confidentially."""
    with open_coordinator(home) as hub:
        text, expires = issue_invite(hub, party=party, lifetime=timedelta(hours=expires_hours))
    emit(
        {"party": party, "invite": text, "expires": expires.isoformat()},
        as_json=as_json,
        text=lambda console: console.print(
            f"{text}\nfor {party}, until {expires:%Y-%m-%d %H:%M} UTC", highlight=False, markup=False, soft_wrap=True
        ),
    )


@coordinator.command(epilog=_examples("propose study.json --home hub --coordinator http://127.0.0.1:8000"))
@click.argument("study", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@url_option
@ca_option
@click.option("--wait", is_flag=True, help="Wait until the release is published or over.")
@json_option
def propose(*, study: Path, home: Path, url: str, ca_file: Path | None, wait: bool, as_json: bool) -> None:
    """Propose the release that STUDY, a JSON file, describes."""
    asked = load_settings(Study, study)
    key = load_signing_key(CoordinatorHome(home).signing_key)
    with _client(url, key, ca_file) as client:
        spec = build_spec(
            with_sketch(asked),
            members=_members(client),
            proposer=key.fingerprint,
            seed=secrets.token_bytes(32),
            now=system_clock(),
        )
        forecast = forecast_of(spec)
        click.echo("\n".join(forecast_sentences(forecast)), err=True)
        body = seal(spec, kind="spec", key=key).to_json()
        answer = call(client, "POST", "/v1/releases", content=body, headers={"Content-Type": "application/json"})
        release = model_of(ReleaseDetails, answer)
        if wait:
            release = _wait_until_published(client, release.id)
    said = release.model_dump(mode="json") | {"forecast": None if forecast is None else asdict(forecast)}

    def text(console: Console) -> None:
        _print_release(console, release)
        if mechanism_of(spec).trust != TRUST_NOBODY:
            console.print(mechanism_of(spec).trust, highlight=False, soft_wrap=True)

    emit(said, as_json=as_json, text=text)


@coordinator.command(epilog=_examples("releases --home hub --state published"))
@home_option
@url_option
@ca_option
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only releases in this state.")
@json_option
def releases(*, home: Path, url: str, ca_file: Path | None, state: str | None, as_json: bool) -> None:
    """List releases, the newest first."""
    load_settings(CoordinatorSettings, CoordinatorHome(home).settings)
    with _client(url, load_signing_key(CoordinatorHome(home).signing_key), ca_file) as client:
        found = list(_pages(client, "/v1/releases", ReleasePage, {"state": state} if state else {}))
    items = [release for page in found for release in page.items]
    listed = {"items": [release.model_dump(mode="json") for release in items]}
    emit(listed, as_json=as_json, text=lambda console: _print_releases(console, items))


@coordinator.command(epilog=_examples("revoke --home hub --party clinic-a"))
@home_option
@click.option("--party", required=True, callback=_name, help="The member that is to be one no longer.")
@json_option
def revoke(*, home: Path, party: str, as_json: bool) -> None:
    """End a membership: open releases that name the party end, nothing it signs is taken any more."""
    with open_coordinator(home) as hub:
        ended = revoke_party(hub, party)
    emit(
        {"party": party, "ended": list(ended)},
        as_json=as_json,
        text=lambda console: console.print(f"{party} is revoked; {len(ended)} open releases ended."),
    )


@coordinator.group(epilog=_examples("token create --home hub --name learner --scope read", "token list --home hub"))
def token() -> None:
    """Bearer tokens for operators and learners."""


@token.command("create", epilog=_examples("token create --home hub --name learner --scope read --expires-days 90"))
@home_option
@click.option("--name", required=True, callback=_name, help="What it is for.")
@click.option(
    "--scope",
    type=click.Choice(get_args(Scope)),
    required=True,
    help="read: everything that can be read; operate: that, and proposing signed specs.",
)
@click.option("--expires-days", type=click.FloatRange(0, 3650, min_open=True), help="Never, if absent.")
@json_option
def create(*, home: Path, name: str, scope: Scope, expires_days: float | None, as_json: bool) -> None:
    """Make a token. It is shown once; only its digest is kept."""
    lifetime = None if expires_days is None else timedelta(days=expires_days)
    with open_coordinator(home) as hub:
        text = create_token(hub, name=name, scope=scope, lifetime=lifetime)
    emit(
        {"name": name, "scope": scope, "token": text},
        as_json=as_json,
        text=lambda console: console.print(text, highlight=False, markup=False, soft_wrap=True),
    )


@token.command("list", epilog=_examples("token list --home hub"))
@home_option
@json_option
def list_tokens(*, home: Path, as_json: bool) -> None:
    """List tokens, without their secrets."""
    with open_coordinator(home) as hub, hub.store.read() as tx:
        found = tx.access.tokens()
    shown = [{key: value for key, value in asdict(row).items() if key != "digest"} for row in found]

    def text(console: Console) -> None:
        table = Table("name", "scope", "created", "expires", "revoked")
        for row in shown:
            table.add_row(*(f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value for value in row.values()))
        console.print(table)

    emit({"items": shown}, as_json=as_json, text=text)


@token.command("revoke", epilog=_examples("token revoke --home hub --name learner"))
@home_option
@click.option("--name", required=True, callback=_name)
@json_option
def revoke_one(*, home: Path, name: str, as_json: bool) -> None:
    """Let nobody in with a token any more."""
    with open_coordinator(home) as hub:
        revoke_token(hub, name)
    emit({"name": name}, as_json=as_json, text=lambda console: console.print(f"Token {name} is revoked."))


@contextmanager
def _client(url: str, key: SigningKey, ca_file: Path | None) -> Iterator[httpx.Client]:
    """Calls to the running coordinator, signed with its own key."""
    auth = RequestSigner(key, audience=key.fingerprint)
    with (
        reaching(url),
        httpx.Client(base_url=url, auth=auth, timeout=_TIMEOUT_SECONDS, verify=trust(ca_file)) as client,
    ):
        yield client


def _wait_until_published(client: httpx.Client, release_id: str) -> ReleaseDetails:
    """A release once it is published; what happens until then goes to standard error. Raises StateError."""
    said = ""
    while True:
        release = model_of(ReleaseDetails, call(client, "GET", f"/v1/releases/{release_id}"))
        approved, uploaded = (sum(getattr(p, done) for p in release.parties) for done in ("approved", "uploaded"))
        of = len(release.parties)
        now = f"{release.state}: {approved} of {of} parties approved, {uploaded} of {of} blocks are in"
        if now != said:
            click.echo(now, err=True)
        said = now
        if release.state is State.PUBLISHED:
            return release
        if release.state.final:
            raise StateError(
                f"the release is {release.state}: {release.reason}", remedy="Mend the cause and propose it again."
            )
        time.sleep(_FOLLOW_SECONDS)


def _members(client: httpx.Client) -> dict[str, Member]:
    pages = _pages(client, "/v1/parties", PartyPage, {})
    return {party.name: Member(party.signing_key, party.sealing_key) for page in pages for party in page.items}


def _pages(client: httpx.Client, path: str, kind: type[Paged], query: dict[str, str | int]) -> Iterator[Paged]:
    def ask(cursor: str | None) -> Paged:
        more = {} if cursor is None else {"cursor": cursor}
        return model_of(kind, call(client, "GET", path, params=query | more | {"limit": 200}))

    return pages(str(client.base_url), ask)


def _print_release(console: Console, release: ReleaseDetails) -> None:
    size = f"{release.k} x" if release.k else "n ="
    console.print(
        f"{release.id}\n{escape(release.study)}: {release.mechanism}, {size} {release.n}, epsilon {release.epsilon:g}, "
        f"delta {release.delta:g}\n{release.state}, expires {release.expires:%Y-%m-%d %H:%M} UTC",
        highlight=False,
        soft_wrap=True,
    )


def _print_releases(console: Console, items: list[ReleaseSummary]) -> None:
    table = Table("release", "study", "mechanism", "state", "parties", "approved", "uploaded", "reason")
    for release in items:
        count = [sum(p.approved for p in release.parties), sum(p.uploaded for p in release.parties)]
        row = [release.id[:16], release.study, release.mechanism, release.state, str(len(release.parties))]
        table.add_row(*map(escape, row), *map(str, count), escape(release.reason or ""))
    console.print(table)
