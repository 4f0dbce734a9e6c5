"""Files nobody needs are removed, and no others, whatever another replica does at that moment."""

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from commingle.coordinator.blobs import LEAST_AGE, BlobDirectory
from commingle.coordinator.errors import StorageError
from commingle.coordinator.publisher import clean
from commingle.coordinator.publishing import expire, publish
from commingle.coordinator.uploads import expect_block, store_block
from commingle.shared.release.verification import verify_release
from tests.world.coordinator import Honest, Hub, Proposed, problem

Parties = tuple[Honest, Honest]


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


def rejected(hub: Hub, parties: Parties) -> None:
    proposed = with_one_block(hub, parties)
    assert hub.reject(proposed, "registry", parties[1].rejection(proposed)).status_code == 201


def expired(hub: Hub, parties: Parties) -> None:
    proposed = with_one_block(hub, parties)
    hub.clock.now = proposed.spec.expires
    expire(hub.coordinator, proposed.id)


@pytest.mark.parametrize("ended", [rejected, expired])
def test_blocks_of_rounds_that_came_to_nothing_are_removed_once_old(
    hub: Hub, parties: Parties, blobs: Path, ended: Callable[[Hub, Parties], None]
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
        found = [hub.http.get(f"/v1/releases/{release.id}/{name}") for name in ("manifest", "matrix", "moments")]
        verify_release(*(file.content for file in found), trusted_coordinator=hub.key.fingerprint)


def test_block_that_another_open_round_shares_stays(hub: Hub, parties: Parties, blobs: Path) -> None:
    rejected(hub, parties)
    hub.clock.move(seconds=1)
    other = with_one_block(hub, parties)
    first, second = (path.name for path in age(blobs, old(hub)))
    with hub.store._database.writing() as connection:  # noise would have to coincide for this to happen by itself
        connection.exec_driver_sql(f"UPDATE shares SET body = '{first}' WHERE release = '{other.id}' AND body <> ''")  # noqa: S608 - the test's own figures
    assert clean(hub.coordinator) == 1
    assert [path.name for path in blobs.rglob("*") if path.is_file()] == [first]
    assert second != first


def test_leftovers_of_crashes_are_removed_once_old(hub: Hub, blobs: Path) -> None:
    (blobs / "ab").mkdir(parents=True)
    for name in (f"ab/.{'ab' * 32}.x1", ".probe-1-2", f"ab/{'ab' * 32}", f".probe-1-2.{'y'}"):
        (blobs / name).touch()
    age(blobs, hub.clock())
    assert clean(hub.coordinator) == 0
    age(blobs, old(hub))
    (blobs / "ab" / "a person's notes").touch()
    assert clean(hub.coordinator) == 4
    assert [path.name for path in blobs.rglob("*") if path.is_file()] == ["a person's notes"]


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


def test_publisher_cleans_when_it_starts_and_every_hour(hub: Hub, parties: Parties, blobs: Path) -> None:
    rejected(hub, parties)
    age(blobs, old(hub))
    hub.publisher.run_once()
    assert [path for path in blobs.rglob("*") if path.is_file()] == []
