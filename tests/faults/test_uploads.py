"""Uploads as a proxy records them, held against ledgers: an honest run passes, and every planted defect is found."""
# ruff: noqa: S608 - a condition of ours

import re
import shutil
import sqlite3
from collections.abc import Mapping
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
        """The uploads with one changed."""
        index = next(i for i, upload in enumerate(self.uploads) if upload.kind == kind)
        changed = replace(self.uploads[index], **changes)  # type: ignore[arg-type]
        return (*self.uploads[:index], changed, *self.uploads[index + 1 :])

    def execute(self, statement: str) -> None:
        """Change the clinic's ledger."""
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
    """Its homes are this test's own."""
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


@pytest.mark.parametrize("kind", ["columns", "replies", "blocks"])
def test_body_that_is_not_the_signed_one_is_found(ran: Ran, kind: str) -> None:
    broken = ran.broken(uploads=ran.altered(kind, body_sha256="0" * 64))
    assert any("is not what was signed" in promise for promise in broken)


@pytest.mark.parametrize("kind", ["approvals", "columns", "replies", "blocks"])
def test_statement_that_the_ledger_does_not_have_is_found(ran: Ran, kind: str) -> None:
    of_another = next(u.statement for u in reversed(ran.uploads) if u.kind == kind)
    broken = ran.broken(uploads=ran.altered(kind, statement=of_another))
    assert any("ledger does not have" in promise for promise in broken)


def test_second_different_upload_to_one_place_is_found(ran: Ran) -> None:
    approval = next(upload for upload in ran.uploads if upload.kind == "approvals")
    other = replace(approval, statement=f" {approval.statement}")
    assert any("two different approvals" in promise for promise in ran.broken(uploads=(*ran.uploads, other)))


def test_charge_missing_from_a_ledger_is_found(ran: Ran) -> None:
    ran.execute(f"DELETE FROM entries WHERE {MOVES}")
    broken = ran.broken()
    assert {upload.kind for upload in ran.uploads if any(p.startswith(f"{upload.kind} of clinic") for p in broken)} == {
        "columns",
        "replies",
        "blocks",
    }


def test_charge_given_back_after_columns_left_is_found(ran: Ran) -> None:
    ran.execute(f"UPDATE entries SET body = json_set(body, '$.kind', 'released') WHERE {MOVES}")
    assert any(promise.startswith("ledger of clinic") for promise in ran.broken())


def test_charge_left_open_is_found(ran: Ran) -> None:
    ran.execute(f"DELETE FROM entries WHERE {MOVES} AND body LIKE '%\"acked\"%'")
    assert any("after the end" in promise for promise in ran.broken())


def test_published_block_that_never_passed_is_found(ran: Ran) -> None:
    unseen = tuple(upload for upload in ran.uploads if (upload.kind, upload.party) != ("blocks", "insurer"))
    assert any("insurer never sent its block" in promise for promise in ran.broken(uploads=unseen))


def test_part_of_a_block_has_to_be_paid_for_and_nothing_more(ran: Ran) -> None:
    part = ran.altered("blocks", body_sha256="0" * 64, whole=False)
    assert ran.broken(uploads=part) == []
    ran.execute(f"DELETE FROM entries WHERE {MOVES}")
    assert any(promise.startswith("blocks of clinic") for promise in ran.broken(uploads=part))
