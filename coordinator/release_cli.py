"""Commands about releases, asked of the running coordinator: `propose` and `releases`."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import click
import httpx
from rich.console import Console
from rich.table import Table

from commingle.coordinator.cli import examples
from commingle.coordinator.errors import StateError
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.coordinator.trust_cli import home_option
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import TRUST_NOBODY
from commingle.shared.documents.study import Member, Study, build_spec
from commingle.shared.forecast.forecast import forecast_of, with_sketch
from commingle.shared.forecast.words import forecast_sentences
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.rounds import State
from commingle.shared.runtime.cli import emit, json_option, say
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.remote import call, connect, model_of, pages, reaching
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import load_settings, system_clock
from commingle.shared.runtime.tls import ca_option, http_option
from commingle.shared.text import quoted
from commingle.shared.wire import PartyPage, ReleaseDetails, ReleasePage, ReleaseSummary

Paged = TypeVar("Paged", PartyPage, ReleasePage)

_FOLLOW_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0  # a busy coordinator waits half of that for its database, and to repeat a proposal is another
_DEFAULT_URL = "http://127.0.0.1:8000"

url_option = click.option(
    "--coordinator", "url", default=_DEFAULT_URL, show_default=True, help="Where the running coordinator answers."
)


@click.command(epilog=examples("propose study.json --home hub --coordinator http://127.0.0.1:8000"))
@click.argument("study", type=click.Path(path_type=Path, dir_okay=False))
@home_option
@url_option
@ca_option
@http_option
@click.option("--wait", is_flag=True, help="Wait until the release is published or over.")
@json_option
def propose(
    *, study: Path, home: Path, url: str, ca_file: Path | None, allow_http: bool, wait: bool, as_json: bool
) -> None:
    """Propose the release that STUDY, a JSON file, describes."""
    asked = load_settings(Study, study)
    key = load_signing_key(CoordinatorHome(home).signing_key)
    with _client(url, key, ca_file, allow_http=allow_http) as client:
        spec = build_spec(
            with_sketch(asked),
            members=_members(client),
            proposer=key.fingerprint,
            seed=secrets.token_bytes(32),
            now=system_clock(),
        )
        forecast = forecast_of(spec)
        say("\n".join(forecast_sentences(forecast)))
        body = seal(spec, kind="spec", key=key).to_json()
        answer = call(client, "POST", "/v1/releases", content=body, headers={"Content-Type": "application/json"})
        release = model_of(ReleaseDetails, answer)
        if wait:
            release = _wait_until_published(client, release.id)
    said = release.model_dump(mode="json") | {"forecast": None if forecast is None else asdict(forecast)}

    def text(console: Console) -> None:
        _print_release(console, release)
        if (trust := mechanism_of(spec).trust_of(spec.bounds)) != TRUST_NOBODY:
            console.print(trust, highlight=False, soft_wrap=True)

    emit(said, as_json=as_json, text=text)


@click.command(epilog=examples("releases --home hub --state published"))
@home_option
@url_option
@ca_option
@http_option
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only releases in this state.")
@json_option
def releases(*, home: Path, url: str, ca_file: Path | None, allow_http: bool, state: str | None, as_json: bool) -> None:
    """List releases, the newest first."""
    load_settings(CoordinatorSettings, CoordinatorHome(home).settings)
    key = load_signing_key(CoordinatorHome(home).signing_key)
    with _client(url, key, ca_file, allow_http=allow_http) as client:
        found = list(_pages(client, "/v1/releases", ReleasePage, {"state": state} if state else {}))
    items = [release for page in found for release in page.items]
    listed = {"items": [release.model_dump(mode="json") for release in items]}
    emit(listed, as_json=as_json, text=lambda console: _print_releases(console, items))


@contextmanager
def _client(url: str, key: SigningKey, ca_file: Path | None, *, allow_http: bool) -> Iterator[httpx.Client]:
    """Calls to the running coordinator, signed with its own key."""
    auth = RequestSigner(key, audience=key.fingerprint)
    with (
        reaching(url),
        connect(url, auth=auth, timeout_seconds=_TIMEOUT_SECONDS, ca_file=ca_file, allow_http=allow_http) as client,
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
            say(now)
        said = now
        if release.state is State.PUBLISHED:
            return release
        if release.state.final:
            raise StateError(
                f"the release is {release.state}: {quoted(release.reason or '')}",
                remedy="Mend the cause and propose it again.",
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
        f"{release.id}\n{quoted(release.study)}: {release.mechanism}, {size} {release.n}, epsilon {release.epsilon:g}, "
        f"delta {release.delta:g}\n{release.state}, expires {release.expires:%Y-%m-%d %H:%M} UTC",
        highlight=False,
        soft_wrap=True,
    )


def _print_releases(console: Console, items: list[ReleaseSummary]) -> None:
    table = Table("release", "study", "mechanism", "state", "parties", "approved", "uploaded", "reason")
    for release in items:
        count = [sum(p.approved for p in release.parties), sum(p.uploaded for p in release.parties)]
        row = [release.id[:16], quoted(release.study), release.mechanism, release.state, str(len(release.parties))]
        table.add_row(*row, *map(str, count), quoted(release.reason) if release.reason else "")
    console.print(table)
