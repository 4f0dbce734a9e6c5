"""Commands about releases, asked of the running coordinator: `propose` and `releases`."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from commingle.coordinator.cli import examples, home_option
from commingle.coordinator.errors import StateError
from commingle.coordinator.home import CoordinatorHome, CoordinatorSettings
from commingle.shared.documents.dsse import SigningKey, seal
from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS
from commingle.shared.documents.study import Study
from commingle.shared.forecast.forecast import forecast_of, outlook_of, with_sketch
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import build_spec, read_spec
from commingle.shared.release.rounds import State
from commingle.shared.runtime.attachments import attach_option, with_attachments
from commingle.shared.runtime.cli import NEW_FILE, changes, emit, reads, say, together, wants_json, whole_id
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.files import load_signing_key
from commingle.shared.runtime.remote import connect, reaching
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import load_settings, system_clock
from commingle.shared.runtime.tls import ca_option, http_option
from commingle.shared.text import printable, quoted
from commingle.shared.wire import ReleaseDetails, ReleaseSummary

_FOLLOW_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0  # a busy coordinator waits half of that for its database, and to repeat a proposal is another
_SHOWN = 100  # a table of thousands takes longer to draw than to ask for
_SHOWN_ID, _SHOWN_STUDY, _SHOWN_REASON = 12, 60, 160
_PORT = 8000


_asked = together(
    home_option,
    click.option(
        "--coordinator",
        "url",
        help="URL of the running coordinator.  [this machine, at the port in HOME/settings.json]",
    ),
    ca_option,
    http_option,
)
"""Options that say where the coordinator is and how to reach it, as `_client` takes them."""


class Proposed(ReleaseDetails):
    """A release just proposed, and what `commingle plan` says of it."""

    forecast: dict[str, Any] | None


@click.command(epilog=examples("propose study.json --home hub"))
@click.argument("study", type=NEW_FILE)
@_asked
@attach_option
@click.option("--wait", is_flag=True, help="Wait until the release is published or ended.")
@changes(Proposed)
def propose(*, study: Path, files: tuple[Path, ...], wait: bool, **where: Any) -> None:  # noqa: ANN401 - click
    """Propose the release that STUDY, a JSON file, describes."""
    asked = with_attachments(load_settings(Study, study), files)
    with _client(**where) as (key, client):
        spec = build_spec(
            with_sketch(asked),
            members=client.proposable(),
            proposer=key.fingerprint,
            seed=secrets.token_bytes(32),
            now=system_clock(),
        )
        forecast = forecast_of(spec)
        say("\n".join(outlook_of(spec)))
        release = client.propose(seal(spec, key=key))
        if wait:
            release = _wait_until_published(client, release.id)
    said = release.model_dump(mode="json") | {"forecast": None if forecast is None else asdict(forecast)}

    def text(console: Console) -> None:
        _print_release(console, release)
        if (trust := mechanism_of(spec).trust(proved=spec.terms.proved)) != TRUST_WITH_NO_ROWS:
            console.print(trust)

    emit(said, text=text)


@click.command(epilog=examples("releases --home hub --state published", "releases --home hub 8d0c3f7a"))
@click.argument("release", required=False)
@_asked
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only releases in this state.")
@click.option("--all", "whole", is_flag=True, help=f"Show all releases, as --json does.  [the newest {_SHOWN}]")
@reads(ReleaseDetails, items=list[ReleaseSummary])
def releases(*, release: str | None, state: str | None, whole: bool, **where: Any) -> None:  # noqa: ANN401 - click
    """List releases, the newest first.

    RELEASE, an id or its first letters, shows that one alone, and says what it waits for.
    """
    with _client(**where) as (_, client):
        most = None if whole or release is not None or wants_json() else _SHOWN
        items = list(islice(client.listed(state=state), None if most is None else most + 1))
        if release is not None:
            if (found := whole_id(release, (item.id for item in items))) is None:
                raise click.UsageError(f"no release has an id that begins with {release}")
            one = client.release(found)
            emit(one.model_dump(mode="json"), text=lambda console: _print_one(console, one))
            return
    listed = {"items": [item.model_dump(mode="json") for item in items]}
    emit(listed, text=lambda console: _print_releases(console, items, most=most))


def _here(home: Path) -> str:
    port = load_settings(CoordinatorSettings, CoordinatorHome(home).settings).serve.get("port", _PORT)
    return f"http://127.0.0.1:{port}"


@contextmanager
def _client(
    *, home: Path, url: str | None, ca_file: Path | None, allow_http: bool
) -> Iterator[tuple[SigningKey, CoordinatorClient]]:
    where = url or _here(home)
    key = load_signing_key(CoordinatorHome(home).signing_key)
    auth = RequestSigner(key, audience=key.fingerprint)
    with (
        reaching(where),
        connect(where, auth=auth, timeout_seconds=_TIMEOUT_SECONDS, ca_file=ca_file, allow_http=allow_http) as http,
    ):
        yield key, CoordinatorClient(http)


def _wait_until_published(client: CoordinatorClient, release_id: str) -> ReleaseDetails:
    said = ""
    while True:
        release = client.release(release_id)
        approved, uploaded = (sum(getattr(p, done) for p in release.parties) for done in ("approved", "uploaded"))
        of = len(release.parties)
        now = f"{release.state}: {approved} of {of} members approved, {uploaded} of {of} blocks are in"
        if now != said:
            say(now)
        said = now
        if release.state is State.PUBLISHED:
            return release
        if release.state.final:
            raise StateError(
                f"the release is {release.state}: {quoted(release.reason or '')}",
                remedy="Fix the cause and propose it again.",
            )
        time.sleep(_FOLLOW_SECONDS)


def _print_release(console: Console, release: ReleaseDetails) -> None:
    size = f"{release.k} x" if release.k else "n ="
    console.print(
        f"{release.id}\n{quoted(release.study)}: {release.mechanism}, {size} {release.n}, epsilon {release.epsilon:g}, "
        f"delta {release.delta:g}\n{release.state}, expires {release.expires:%Y-%m-%d %H:%M} UTC"
    )
    spec = None if release.spec is None else read_spec(release.spec.payload_bytes)
    for sentence in () if spec is None else spec.stated_sentences:
        console.print(sentence)


def _print_one(console: Console, release: ReleaseDetails) -> None:
    _print_release(console, release)
    if release.reason:
        console.print(f"It ended: {printable(release.reason)}")
    if waits := release.waits_for:
        console.print(waits)
    table = Table("member", "approved", "block is in")
    for party in release.parties:
        approved = "rejected" if party.name in release.rejections else _yes(party.approved)
        table.add_row(party.name, approved, _yes(party.uploaded))
    console.print(table)


def _yes(done: bool) -> str:
    return "yes" if done else "no"


def _print_releases(console: Console, items: list[ReleaseSummary], *, most: int | None) -> None:
    table = Table()
    for heading in ("release", "study", "mechanism", "state", "approved", "blocks"):
        table.add_column(heading, no_wrap=heading != "study", overflow="fold" if heading == "study" else "ellipsis")
    for release in items[:most]:
        of = len(release.parties)
        done = [sum(p.approved for p in release.parties), sum(p.uploaded for p in release.parties)]
        counts = [f"{count} of {of}" for count in done]
        study = f"{quoted(release.study, longest=_SHOWN_STUDY)}\n{release.created:%Y-%m-%d %H:%M}"
        if release.reason:
            study += f"\n{quoted(release.reason, longest=_SHOWN_REASON)}"
        table.add_row(release.id[:_SHOWN_ID], study, release.mechanism, release.state, *counts)
    console.print(table)
    if most is not None and len(items) > most:
        console.print(f"These are the newest {_SHOWN}; --all lists older ones too.")
    if items:
        console.print(f"One of them: commingle coordinator releases --home … {items[0].id[:_SHOWN_ID]}")
