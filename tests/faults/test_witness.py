"""The witness of rounds under faults passes an honest release, and finds every defect that is planted."""
# ruff: noqa: S608 - a condition of ours

import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from commingle.party_agent.home.home import Home
from commingle.shared.documents.spec import ReleaseSpec
from tests.faults.witness import Witness, check_ledger, check_published, check_settled
from tests.party_agent.exchanging import approved, finish
from tests.world.consortium import consortium_of

MOVES = "json_extract(body, '$.kind') NOT IN ('signed', 'received', 'rejoined')"


@dataclass(frozen=True)
class Ran:
    """A moments release from proposal to publication."""

    release: str
    spec: ReleaseSpec
    left: tuple[httpx.Request, ...]
    files: tuple[bytes, bytes, bytes]
    homes: Mapping[str, Home]
    coordinator: str

    def watched(self, *requests: httpx.Request) -> Witness:
        """What sees these requests leave after the honest ones."""
        witness = Witness(self.homes)
        for request in (*self.left, *requests):
            witness.request(request.url.path.rpartition("/")[2], request)
        return witness

    def sent(self, kind: str, *, by: str = "clinic") -> httpx.Request:
        return next(request for request in self.left if request.url.path.endswith(f"/{kind}/{by}"))

    def without(self, request: httpx.Request) -> "Ran":
        return replace(self, left=tuple(one for one in self.left if one is not request))

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.homes["clinic"].database)) as db, db:
            assert db.execute(statement).rowcount


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    pair, left = consortium_of(tmp_path_factory.mktemp("pair"), "clinic", "insurer"), list[httpx.Request]()

    def record(request: httpx.Request) -> None:
        if request.method == "PUT" and "/releases/" in request.url.path:
            left.append(request)

    pair.coordinator.before = record
    release = approved(pair)
    finish(pair, release)
    found, http = pair.coordinator.found(release), pair.coordinator.hub.http
    manifest, matrix, moments = (
        http.get(f"/v1/releases/{release}/{file}").content for file in ("manifest", "matrix", "moments")
    )
    pair.coordinator.close()
    files = (manifest, matrix, moments)
    return Ran(release, found.document, tuple(left), files, pair.homes, pair.coordinator.key.fingerprint)


@pytest.fixture
def ran(once: Ran, tmp_path: Path) -> Ran:
    homes = {name: Home(shutil.copytree(home.root, tmp_path / name)) for name, home in once.homes.items()}
    return replace(once, homes=homes)


def checked(ran: Ran, witness: Witness) -> None:
    for name, home in ran.homes.items():
        check_ledger(witness, name, {ran.release: ran.spec}, cap_units=home.settings().cap.rho.units)
        check_settled(home, [ran.release])
    check_published(witness, ran.files, release=ran.release, coordinator=ran.coordinator)


def test_release_without_faults_keeps_every_promise(ran: Ran) -> None:
    assert {request.url.path.split("/")[4] for request in ran.left} == {"approvals", "columns", "replies", "blocks"}
    checked(ran, ran.watched())


def of_another_body(request: httpx.Request, _: httpx.Request) -> httpx.Request:
    return httpx.Request("PUT", request.url, headers=request.headers, content=b"x" + request.content)


def of_another_member(request: httpx.Request, other: httpx.Request) -> httpx.Request:
    return httpx.Request("PUT", request.url, headers=other.headers, content=other.content)


Altered = Callable[[httpx.Request, httpx.Request], httpx.Request]
PLANTED: list[tuple[str, Altered, tuple[str, ...]]] = [
    ("did not sign", of_another_body, ("columns", "replies", "blocks")),
    ("its ledger does not have", of_another_member, ("approvals", "columns", "replies", "blocks")),
]


@pytest.mark.parametrize(
    ("said", "altered", "kind"), [(said, altered, kind) for said, altered, kinds in PLANTED for kind in kinds]
)
def test_upload_that_breaks_a_promise_is_found(ran: Ran, said: str, altered: Altered, kind: str) -> None:
    sender, other = ("insurer", "clinic") if kind == "replies" else ("clinic", "insurer")
    request = ran.sent(kind, by=sender)
    planted = altered(request, ran.sent(kind, by=other))
    with pytest.raises(AssertionError, match=said):
        ran.without(request).watched(planted)
    with pytest.raises(AssertionError, match=f"two different {kind}"):
        ran.watched(planted)


def test_block_that_nobody_saw_leave_is_found_in_what_is_published(ran: Ran) -> None:
    with pytest.raises(AssertionError, match="insurer never sent its block"):
        checked(ran, ran.without(ran.sent("blocks", by="insurer")).watched())


@pytest.mark.parametrize("kind", ["columns", "replies", "blocks"])
def test_charge_missing_from_a_ledger_is_found(ran: Ran, kind: str) -> None:
    ran.execute(f"DELETE FROM entries WHERE {MOVES}")
    with pytest.raises(AssertionError, match=f"clinic sends {kind} without a charge"):
        replace(ran, left=(ran.sent(kind),)).watched()


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (f"UPDATE entries SET body = json_set(body, '$.kind', 'released') WHERE {MOVES}", "clinic: released"),
        (f"DELETE FROM entries WHERE {MOVES} AND body LIKE '%\"acked\"%'", "after the end|clinic: stored"),
    ],
    ids=["given back after columns left", "left open"],
)
def test_charge_that_does_not_follow_from_what_left_is_found(ran: Ran, statement: str, said: str) -> None:
    witness = ran.watched()
    ran.execute(statement)
    with pytest.raises(AssertionError, match=said):
        checked(ran, witness)
