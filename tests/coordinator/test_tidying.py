"""Nobody fills the coordinator's disk: files that no release needs are removed, and no others, whatever another
replica does at that moment; what came to nothing loses its documents, and a member has so many proposals."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from commingle.coordinator.blobs import LEAST_AGE, BlobDirectory
from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.errors import StateError, StorageError, TooManyProposalsError
from commingle.coordinator.http.views import release_details
from commingle.coordinator.publisher import clean, expire, prune, publish
from commingle.coordinator.rounds import expect_block, propose, reject, store_block
from commingle.shared.documents.model import encode
from commingle.shared.release.audit import verify_coordinator_audit
from tests.coordinator.test_relaying import message, send
from tests.world.coordinator import Hub, Parties, Proposed, problem


@pytest.fixture
def blobs(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def age(blobs: Path, at: datetime, pattern: str = "*") -> list[Path]:
    """Give the files there are another time of writing."""
    files = [path for path in blobs.rglob(pattern) if path.is_file()]
    for path in files:
        os.utime(path, (at.timestamp(), at.timestamp()))
    return files


def old(hub: Hub) -> datetime:
    return hub.clock() - LEAST_AGE - timedelta(seconds=1)


def with_one_block(hub: Hub, parties: Parties) -> Proposed:
    proposed = hub.approved(parties)
    assert hub.upload(proposed, "clinic", hub.block(proposed, parties[0])).status_code == 201
    return proposed


def rejected(hub: Hub, parties: Parties) -> Proposed:
    proposed = with_one_block(hub, parties)
    assert hub.reject(proposed, "registry", parties[1].rejection(proposed)).status_code == 201
    return proposed


def expired(hub: Hub, parties: Parties) -> Proposed:
    return ended_by_time(hub, with_one_block(hub, parties))


def never_approved(hub: Hub, parties: Parties) -> Proposed:
    return ended_by_time(hub, hub.proposed(parties))


def ended_by_time(hub: Hub, proposed: Proposed) -> Proposed:
    hub.clock.now = proposed.spec.expires
    expire(hub.coordinator, proposed.id)
    return proposed


@pytest.mark.parametrize("ended", [rejected, expired])
def test_blocks_of_rounds_that_came_to_nothing_are_removed_once_old(
    hub: Hub, parties: Parties, blobs: Path, ended: Callable[[Hub, Parties], object]
) -> None:
    ended(hub, parties)
    (block,) = age(blobs, hub.clock() - LEAST_AGE)
    assert clean(hub.coordinator) == 0
    age(blobs, old(hub))
    assert clean(hub.coordinator) == 1
    assert not block.exists()


def test_files_of_open_and_published_rounds_stay_however_old(hub: Hub, parties: Parties, blobs: Path) -> None:
    published = hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.move(seconds=1)
    proposed = with_one_block(hub, parties)
    files = age(blobs, old(hub))
    assert len(files) == 2 + 3 + 1
    assert clean(hub.coordinator) == 0
    hub.upload(proposed, "registry", hub.block(proposed, parties[1]))
    hub.publisher.run_once()
    for release in (published, proposed):
        assert hub.verified(release).release == release.id


def test_block_that_another_open_round_shares_stays(hub: Hub, parties: Parties, blobs: Path) -> None:
    rejected(hub, parties)
    hub.clock.move(seconds=1)
    other = with_one_block(hub, parties)
    first, second = (path.name for path in age(blobs, old(hub)))
    # noise would have to coincide for this to happen by itself
    hub.sql(f"UPDATE shares SET body = '{first}' WHERE release = '{other.id}' AND body <> ''")  # noqa: S608 - the test's own figures
    assert clean(hub.coordinator) == 1
    assert [path.name for path in blobs.rglob("*") if path.is_file()] == [first]
    assert second != first


def test_leftovers_of_crashes_are_removed_once_old(hub: Hub, blobs: Path) -> None:
    (blobs / "ab").mkdir(parents=True)
    (own := blobs / ".profile").touch()
    for name in (f"ab/.{'ab' * 32}.x1", ".probe-1-2", f"ab/{'ab' * 32}", "..probe-1-2.y"):
        (blobs / name).touch()
    age(blobs, hub.clock())
    assert clean(hub.coordinator) == 0
    age(blobs, old(hub))
    (blobs / "ab" / "a person's notes").touch()
    assert clean(hub.coordinator) == 4
    assert {path.name for path in blobs.rglob("*") if path.is_file()} == {"a person's notes", own.name}


class Interrupted(BlobDirectory):
    """Blobs of a replica that is slow to record what it has stored."""

    def __init__(self, root: Path, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self._meanwhile = meanwhile

    def put(self, data: bytes) -> str:
        digest = super().put(data)
        self._meanwhile()
        return digest


def test_block_removed_between_storing_and_recording_is_not_recorded(
    hub: Hub, open_hub: Callable[[], Hub], parties: Parties, blobs: Path
) -> None:
    replica = open_hub()
    proposed = hub.approved(parties)
    block = hub.block(proposed, parties[0])

    def a_day_passes() -> None:
        age(blobs, old(hub))
        assert clean(replica.coordinator) == 1

    slow = replace(hub.coordinator, blobs=Interrupted(blobs, a_day_passes))
    expected = expect_block(slow, proposed.id, "clinic", block.envelope)
    with slow.blobs.scratch() as file:
        file.write(block.body)
        with pytest.raises(StorageError):
            store_block(slow, expected, file)
    assert hub.show(proposed)["blocks"] == {}
    assert hub.upload(proposed, "clinic", block).status_code == 201
    assert clean(replica.coordinator) == 0


def test_publication_removed_before_it_is_recorded_is_made_again(hub: Hub, parties: Parties, blobs: Path) -> None:
    proposed = hub.complete(parties)

    def a_day_passes() -> None:
        age(blobs, old(hub))
        clean(hub.coordinator)

    with pytest.raises(StorageError):
        publish(replace(hub.coordinator, blobs=Interrupted(blobs, a_day_passes)), proposed.id)
    assert problem(hub.http.get(f"/v1/releases/{proposed.id}/manifest")) == (409, "not-published")
    publish(hub.coordinator, proposed.id)
    assert hub.state(proposed) == "published"


def test_storing_the_same_bytes_again_makes_them_young(hub: Hub, blobs: Path) -> None:
    digest = hub.coordinator.blobs.put(b"block")
    age(blobs, old(hub))
    assert hub.coordinator.blobs.put(b"block") == digest
    assert clean(hub.coordinator) == 0


MOST = 3


@pytest.fixture
def small(hub: Hub) -> Hub:
    hub.coordinator = replace(hub.coordinator, most_proposals=MOST)
    return hub


def put_forward(hub: Hub, parties: Parties, study: str) -> Proposed:
    proposed = hub.by_member(parties, parties[0], study=study)
    assert propose(hub.coordinator, proposed.envelope)[1]
    return proposed


def kept(hub: Hub, proposed: Proposed) -> bool:
    with hub.store.read() as tx:
        release = tx.releases.get(proposed.id)
    assert release is not None
    assert (release.spec is None) is (release_details(release).spec is None)
    return release.spec is not None


@pytest.mark.parametrize("ended", [rejected, never_approved])
def test_release_that_came_to_nothing_loses_its_documents_after_the_retention(
    hub: Hub, parties: Parties, ended: Callable[[Hub, Parties], Proposed]
) -> None:
    proposed = ended(hub, parties)
    before = hub.show(proposed)
    hub.clock.move(days=30)
    assert (prune(hub.coordinator), kept(hub, proposed)) == (0, True)
    hub.clock.move(seconds=1)
    assert (prune(hub.coordinator), kept(hub, proposed)) == (1, False)
    assert prune(hub.coordinator) == 0
    assert hub.show(proposed) == before | {"spec": None}


def test_what_was_dropped_can_still_be_listed_and_audited_and_is_not_taken_up_again(hub: Hub, parties: Parties) -> None:
    proposed = rejected(hub, parties)
    assert hub.http.get(f"/v1/releases/{proposed.id}/forecast").is_success
    hub.clock.move(days=31)
    prune(hub.coordinator)
    assert [one["id"] for one in hub.http.get("/v1/releases").json()["items"]] == [proposed.id]
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert ("proposal", proposed.id) in {(event.kind, event.document) for event in history.entries}
    again = hub.propose(proposed)
    assert (again.status_code, again.json()["state"]) == (200, "aborted")
    assert problem(hub.http.get(f"/v1/releases/{proposed.id}/forecast")) == (409, "state")
    with pytest.raises(StateError, match="no longer kept"):
        reject(hub.coordinator, proposed.id, "clinic", parties[0].rejection(proposed))


def test_open_and_published_releases_keep_their_documents_however_old(hub: Hub, parties: Parties) -> None:
    published = hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.move(days=300)
    waiting = hub.proposed(parties)
    hub.clock.move(days=40)
    assert prune(hub.coordinator) == 0
    assert kept(hub, published)
    assert kept(hub, waiting)


def test_publisher_cleans_and_prunes_when_it_starts(hub: Hub, parties: Parties, blobs: Path) -> None:
    proposed = rejected(hub, parties)
    hub.clock.move(days=31)
    age(blobs, old(hub))
    hub.publisher.run_once()
    assert [path for path in blobs.rglob("*") if path.is_file()] == []
    assert not kept(hub, proposed)


def test_member_has_so_many_open_proposals_and_no_more(small: Hub, parties: Parties) -> None:
    made = [put_forward(small, parties, f"study {number}") for number in range(MOST)]
    with pytest.raises(TooManyProposalsError, match="3 proposals of clinic"):
        propose(small.coordinator, small.by_member(parties, parties[0], study="one more").envelope)
    assert propose(small.coordinator, made[0].envelope)[1] is False  # the same again is none
    assert propose(small.coordinator, small.signed(small.spec(parties)).envelope)[1]  # the operator's own disk
    reject(small.coordinator, made[0].id, "registry", parties[1].rejection(made[0]))
    put_forward(small, parties, "one more")


def test_too_many_proposals_are_a_conflict_with_a_remedy(hub: Hub, parties: Parties) -> None:
    for number in range(hub.coordinator.most_proposals):
        put_forward(hub, parties, f"study {number}")
    answer = hub.propose(hub.by_member(parties, parties[0], study="one more"))
    assert problem(answer) == (409, "too-many-proposals")
    assert "50 proposals of clinic are open" in answer.json()["detail"]


def test_member_that_proposes_and_rejects_in_turn_keeps_so_many_documents_and_no_more(
    small: Hub, parties: Parties
) -> None:
    made = []
    for number in range(3 * MOST):
        made.append(put_forward(small, parties, f"study {number}"))
        reject(small.coordinator, made[-1].id, "clinic", parties[0].rejection(made[-1]))
    assert [kept(small, one) for one in made] == [False] * (2 * MOST - 1) + [True] * (MOST + 1)


@pytest.mark.usefixtures("parties")
def test_expired_invites_and_old_linkage_keys_and_nonces_are_forgotten(hub: Hub) -> None:
    def counts() -> list[int]:
        tables = ("invites", "linkage_keys", "nonces")
        return [hub.sql(f"SELECT count(*) FROM {table}")[0][0] for table in tables]  # noqa: S608 - names above

    hub.invited("never came")
    send(hub, message(hub))
    assert counts() == [3, 1, 1]
    hub.clock.move(days=29)
    prune(hub.coordinator)
    assert counts() == [3, 1, 0]
    hub.clock.move(days=5)
    prune(hub.coordinator)
    assert counts() == [2, 0, 0]  # invites of members stay
    with hub.coordinator.store.read() as tx:
        assert tx.linkage.of("registry") == ()
    hub.clock.move(seconds=timedelta(hours=1).total_seconds())
    assert send(hub, message(hub, created=hub.clock())).status_code == 201
