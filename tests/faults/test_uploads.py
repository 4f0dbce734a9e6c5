"""Uploads as a proxy records them, held against ledgers: an honest run passes, and every planted defect is found."""
# ruff: noqa: S608 - a condition of ours

import re
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from commingle.party_agent.home.home import Home
from tests.faults.witness import Ended, Upload, broken_promises
from tests.party_agent.exchanging import approved, finish
from tests.world.consortium import Consortium, consortium_of

MOVES = "json_extract(body, '$.kind') NOT IN ('signed', 'received', 'rejoined')"
_PLACE = re.compile("/v1/releases/([0-9a-f]+)/([a-z]+)/([a-z]+)")


@dataclass(frozen=True)
class Ran:
    """A moments release from proposal to publication."""

    release: str
    uploads: tuple[Upload, ...]
    ended: Mapping[str, Ended]
    homes: Mapping[str, Home]
    coordinator: str

    def broken(self, *, uploads: tuple[Upload, ...] | None = None) -> list[str]:
        seen = self.uploads if uploads is None else uploads
        return broken_promises(seen, self.ended, self.homes, coordinator=self.coordinator)

    def altered(self, kind: str, **changes: str | bool) -> tuple[Upload, ...]:
        index = next(i for i, upload in enumerate(self.uploads) if upload.kind == kind)
        changed = replace(self.uploads[index], **changes)  # type: ignore[arg-type]
        return (*self.uploads[:index], changed, *self.uploads[index + 1 :])

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.homes["clinic"].database)) as db, db:
            assert db.execute(statement).rowcount


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    pair = consortium_of(tmp_path_factory.mktemp("pair"), "clinic", "insurer")
    uploads = list[Upload]()

    def record(request: httpx.Request) -> None:
        if request.method == "PUT" and (place := _PLACE.fullmatch(request.url.path)):
            release, kind, party = place.groups()
            header = request.headers.get("commingle-block") or request.headers.get("commingle-statement")
            digest = sha256(request.content).hexdigest()
            uploads.append(Upload(party, release, kind, header or request.content.decode(), digest, whole=True, at=0.0))

    pair.coordinator.before = record
    release = approved(pair)
    finish(pair, release)
    ended = {release: _ended(pair, release)}
    pair.coordinator.close()
    return Ran(release, tuple(uploads), ended, pair.homes, pair.coordinator.key.fingerprint)


@pytest.fixture
def ran(once: Ran, tmp_path: Path) -> Ran:
    homes = {name: Home(shutil.copytree(home.root, tmp_path / name)) for name, home in once.homes.items()}
    return replace(once, homes=homes)


def _ended(pair: Consortium, release: str) -> Ended:
    found, hub = pair.coordinator.found(release), pair.coordinator.hub
    with hub.store.read() as tx:
        events = tx.events.after(0, limit=1000, release=release)
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{release}/{file}").content for file in ("manifest", "matrix", "moments")
    )
    history = tuple((event.seq, event.kind, event.party, event.state) for event in events)
    return Ended(found.document, found.state, history, (manifest, matrix, moments))


def test_release_without_faults_keeps_every_promise(ran: Ran) -> None:
    assert {upload.kind for upload in ran.uploads} == {"approvals", "columns", "replies", "blocks"}
    assert ran.broken() == []


def of_another(ran: Ran, kind: str) -> tuple[Upload, ...]:
    return ran.altered(kind, statement=next(u.statement for u in reversed(ran.uploads) if u.kind == kind))


def sent_twice(ran: Ran, kind: str) -> tuple[Upload, ...]:
    first = next(upload for upload in ran.uploads if upload.kind == kind)
    return (*ran.uploads, replace(first, statement=f" {first.statement}"))


def without(ran: Ran, kind: str) -> tuple[Upload, ...]:
    return tuple(upload for upload in ran.uploads if (upload.kind, upload.party) != (kind, "insurer"))


Planted = Callable[[Ran, str], tuple[Upload, ...]]
PLANTED: list[tuple[str, Planted, tuple[str, ...]]] = [
    (
        "is not what was signed",
        lambda ran, kind: ran.altered(kind, body_sha256="0" * 64),
        ("columns", "replies", "blocks"),
    ),
    ("ledger does not have", of_another, ("approvals", "columns", "replies", "blocks")),
    ("two different approvals", sent_twice, ("approvals",)),
    ("insurer never sent its block", without, ("blocks",)),
]


@pytest.mark.parametrize(
    ("said", "planted", "kind"), [(said, planted, kind) for said, planted, kinds in PLANTED for kind in kinds]
)
def test_upload_that_breaks_a_promise_is_found(ran: Ran, said: str, planted: Planted, kind: str) -> None:
    assert any(said in promise for promise in ran.broken(uploads=planted(ran, kind)))


def test_charge_missing_from_a_ledger_is_found(ran: Ran) -> None:
    ran.execute(f"DELETE FROM entries WHERE {MOVES}")
    broken = ran.broken()
    assert {upload.kind for upload in ran.uploads if any(p.startswith(f"{upload.kind} of clinic") for p in broken)} == {
        "columns",
        "replies",
        "blocks",
    }


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE entries SET body = json_set(body, '$.kind', 'released') WHERE {MOVES}", "^ledger of clinic"),
        (f"DELETE FROM entries WHERE {MOVES} AND body LIKE '%\"acked\"%'", "after the end"),
    ],
    ids=["given back after columns left", "left open"],
)
def test_charge_that_does_not_follow_from_what_left_is_found(ran: Ran, statement: str, said: str) -> None:
    ran.execute(statement)
    assert any(re.search(said, promise) for promise in ran.broken())


def test_part_of_a_block_has_to_be_paid_for_and_nothing_more(ran: Ran) -> None:
    part = ran.altered("blocks", body_sha256="0" * 64, whole=False)
    assert ran.broken(uploads=part) == []
    ran.execute(f"DELETE FROM entries WHERE {MOVES}")
    assert any(promise.startswith("blocks of clinic") for promise in ran.broken(uploads=part))
