"""Publishing: once, whole and as signed, whatever fails meanwhile; and the files as they are served."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest

from commingle.coordinator import publisher as publisher_module
from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import StorageError
from commingle.coordinator.publisher import Publisher, ask_again, publish
from tests.faults.chaos import CrashError
from tests.world.command import eventually
from tests.world.coordinator import Honest, Hub, Parties, Proposed, problem
from tests.world.waiting import at_once


class CountingBlobs(BlobDirectory):
    """A blob directory that dies after storing some blobs, or cannot open some."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.puts_before_crash: int | None = None
        self.broken: set[str] = set()
        self.opened = 0
        self.looks = 0

    def put(self, data: bytes) -> str:
        if self.puts_before_crash == 0:
            raise CrashError
        if self.puts_before_crash is not None:
            self.puts_before_crash -= 1
        return super().put(data)

    def running_releases(self) -> tuple[str, ...]:
        self.looks += 1
        return super().running_releases()

    def open(self, digest: str) -> BinaryIO:
        self.opened += 1
        if digest in self.broken:
            raise RuntimeError(digest)
        return super().open(digest)


def on(hub: Hub, blobs: BlobDirectory) -> Coordinator:
    return replace(hub.coordinator, blobs=blobs)


class Timed:
    """A publisher that is run at the seconds a test says."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.seconds = 0.0
        self.publisher = Publisher(coordinator, interval_seconds=1.0, timer=lambda: self.seconds)

    def run(self, *seconds: float) -> None:
        for self.seconds in seconds:
            self.publisher.run_once()


def bodies(hub: Hub, proposed: Proposed) -> list[str]:
    """Digests of the blocks that are in."""
    with hub.store.read() as tx:
        release = tx.releases.get(proposed.id)
    assert release is not None
    return [share.body for share in release.shares.values() if share.body is not None]


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_crash_between_blobs_and_commit_is_recovered_after_restart(
    hub: Hub, open_hub: Callable[[], Hub], parties: Parties, tmp_path: Path, stored: int
) -> None:
    proposed = hub.complete(parties)
    blobs = CountingBlobs(tmp_path / "blobs")
    blobs.puts_before_crash = stored
    with pytest.raises(CrashError):
        publish(on(hub, blobs), proposed.id)
    hub.close()
    restarted = open_hub()
    assert restarted.state(proposed) == "collecting"
    restarted.publisher.run_once()
    assert restarted.verified(proposed).release == proposed.id
    assert restarted.kinds(proposed).count("published") == 1


def test_two_replicas_publish_once(hub: Hub, open_hub: Callable[[], Hub], parties: Parties) -> None:
    replica = open_hub()
    proposed = hub.complete(parties)
    replica.clock.move(minutes=1)  # so that their manifests differ
    at_once(*(partial(publish, one.coordinator, proposed.id) for one in (hub, replica)))
    assert hub.kinds(proposed).count("published") == 1
    assert hub.verified(proposed).release == proposed.id
    assert replica.verified(proposed).release == proposed.id


def test_poison_release_delays_itself_alone_and_ever_longer(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    poisoned, healthy = hub.complete(parties), hub.complete(parties, mechanism="dgm")
    blobs = CountingBlobs(tmp_path / "blobs")
    blobs.broken = set(bodies(hub, poisoned))
    timed, tried = Timed(on(hub, blobs)), []
    timed.run(0)
    assert (hub.state(poisoned), hub.state(healthy)) == ("collecting", "published")
    for tick in range(20):
        before = blobs.opened
        timed.run(tick)
        if blobs.opened > before:
            tried.append(tick)
    assert tried == [2, 6, 14]
    blobs.broken = set()
    timed.run(1000)
    assert hub.state(poisoned) == "published"


def flip(path: Path) -> None:
    path.write_bytes(b"flipped" + path.read_bytes()[7:])


@pytest.mark.parametrize("damage", [flip, Path.unlink], ids=["flipped", "gone"])
def test_block_that_stays_lost_is_asked_for_again_and_costs_nobody_anything(
    hub: Hub, parties: Parties, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    lost, healthy = hub.approved(parties), hub.complete(parties, mechanism="dgm")
    blocks = {party.name: hub.block(lost, party) for party in parties}
    for name, block in blocks.items():
        assert hub.upload(lost, name, block).status_code == 201
    body, other = bodies(hub, lost)
    damage(tmp_path / "blobs" / body[:2] / body)
    timed = Timed(hub.coordinator)
    timed.run(0)
    assert (hub.state(lost), hub.state(healthy)) == ("collecting", "published")
    timed.run(*range(60))
    assert bodies(hub, lost) == [body, other]
    timed.run(62)
    assert (hub.state(lost), bodies(hub, lost)) == ("collecting", [other])
    assert list(hub.show(lost)["blocks"]) == ["registry"]
    assert hub.kinds(lost)[-1] == "block-lost"
    assert hub.upload(lost, "clinic", blocks["clinic"]).status_code == 201
    timed.run(62)
    assert (hub.state(lost), bodies(hub, lost)) == ("published", [body, other])
    assert hub.verified(lost).release == lost.id


def test_block_that_is_asked_for_again_can_be_no_other(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    proposed = hub.complete(parties)
    body = bodies(hub, proposed)[0]
    (tmp_path / "blobs" / body[:2] / body).unlink()
    ask_again(hub.coordinator, proposed.id)
    other = hub.block(proposed, parties[0], content_sha256="0" * 64)
    assert problem(hub.upload(proposed, "clinic", other)) == (409, "other-bytes")
    assert problem(hub.http.get(f"/v1/releases/{proposed.id}/manifest")) == (409, "not-published")


def test_published_file_that_was_altered_is_not_served(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    proposed = hub.complete(parties)
    hub.publisher.run_once()
    with hub.store.read() as tx:
        files = require_release(tx, proposed.id).files
    assert files is not None
    for name, digest in (("manifest", files.manifest), ("matrix", files.matrix), ("moments", files.moments)):
        path = tmp_path / "blobs" / digest[:2] / digest
        whole = path.read_bytes()
        flip(path)
        assert problem(hub.http.get(f"/v1/releases/{proposed.id}/{name}")) == (503, "storage")
        path.write_bytes(whole)
    assert hub.verified(proposed).release == proposed.id


def test_missing_blob_leaves_the_round_for_later(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    proposed = hub.complete(parties)
    (tmp_path / "blobs").rename(tmp_path / "unmounted")
    with pytest.raises(StorageError):
        publish(hub.coordinator, proposed.id)
    hub.publisher.run_once()
    assert hub.state(proposed) == "collecting"
    (tmp_path / "unmounted").rename(tmp_path / "blobs")
    publish(hub.coordinator, proposed.id)
    assert hub.state(proposed) == "published"


def test_faults_before_a_block_was_lost_do_not_hasten_the_end(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    proposed = hub.complete(parties)
    body, blobs = bodies(hub, proposed)[0], CountingBlobs(tmp_path / "blobs")
    blobs.broken = {body}
    timed = Timed(on(hub, blobs))
    timed.run(*range(100))
    assert blobs.opened == 6
    blobs.broken = set()
    aside = (tmp_path / "blobs" / body[:2] / body).rename(tmp_path / "aside")
    timed.run(1000)
    assert (blobs.opened, hub.state(proposed)) == (7, "collecting")
    aside.rename(tmp_path / "blobs" / body[:2] / body)
    timed.run(2000)
    assert hub.state(proposed) == "published"


def test_release_whose_block_is_back_is_published_however_busy_the_coordinator_is(
    hub: Hub, parties: Parties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed = hub.complete(parties)
    digest = bodies(hub, proposed)[0]
    path = tmp_path / "blobs" / digest[:2] / digest
    aside, asked = path.rename(tmp_path / "aside"), ask_again

    def back_just_before(coordinator: Coordinator, release: str) -> None:
        aside.rename(path)
        asked(coordinator, release)

    monkeypatch.setattr(publisher_module, "ask_again", back_just_before)
    timed, second = Timed(hub.coordinator), 0
    while not path.exists():
        timed.run(second)
        second += 1
    for number in range(3):  # events of others, never a minute without one
        second += 30
        hub.proposed(parties, study=f"other {number}")
        timed.run(second)
    assert hub.state(proposed) == "published"


def test_background_thread_publishes_when_woken_and_survives_faults(hub: Hub, parties: Parties) -> None:
    proposed = hub.complete(parties)
    publisher = Publisher(hub.coordinator, interval_seconds=60)
    publisher.start()
    try:
        second = hub.complete(parties, mechanism="dgm")
        publisher.wake()
        eventually(lambda: hub.state(proposed) == hub.state(second) == "published", what="not published", seconds=60)
    finally:
        publisher.stop()


def test_messages_of_exchanges_are_looked_for_after_events_and_each_minute(hub: Hub, parties: Parties) -> None:
    blobs = CountingBlobs(hub.home / "blobs")
    timed = Timed(on(hub, blobs))
    timed.run(*[0] * 5)
    assert blobs.looks == 1
    hub.proposed(parties)
    timed.run(*[0] * 5)
    assert blobs.looks == 2
    timed.run(*[60] * 5)
    assert blobs.looks == 3


def test_incomplete_rounds_are_left_alone(hub: Hub, parties: Parties, clinic: Honest) -> None:
    proposed = hub.approved(parties)
    hub.upload(proposed, "clinic", hub.block(proposed, clinic))
    hub.publisher.run_once()
    publish(hub.coordinator, proposed.id)
    assert hub.state(proposed) == "collecting"


@pytest.fixture(params=["rmgm", "dgm"])
def published(request: pytest.FixtureRequest, hub: Hub, parties: Parties) -> Proposed:
    proposed = hub.complete(parties, mechanism=request.param)
    hub.publisher.run_once()
    return proposed


def test_complete_round_is_published_and_verifies_offline(hub: Hub, published: Proposed) -> None:
    release = hub.verified(published)
    assert release.release == published.id
    assert release.spec == published.spec
    assert hub.state(published) == "published"
    assert hub.kinds(published) == ["proposal", "approval", "approval", "block", "block", "published"]


def test_known_etag_gets_304_without_a_body(hub: Hub, published: Proposed) -> None:
    first = hub.http.get(f"/v1/releases/{published.id}/matrix")
    again = hub.http.get(f"/v1/releases/{published.id}/matrix", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" in first.headers["cache-control"]


def test_files_of_an_unpublished_release_are_refused_as_not_published(hub: Hub, parties: Parties) -> None:
    proposed = hub.proposed(parties)
    for name in ("manifest", "matrix", "moments"):
        assert problem(hub.http.get(f"/v1/releases/{proposed.id}/{name}")) == (409, "not-published")
        assert problem(hub.http.get(f"/v1/releases/{'0' * 64}/{name}")) == (404, "unknown")


def test_published_release_refuses_everything_but_repeats(hub: Hub, published: Proposed, clinic: Honest) -> None:
    assert hub.approve(published, "clinic", clinic.approval(published)).status_code == 200
    assert problem(hub.reject(published, "clinic", clinic.rejection(published))) == (409, "state")
    assert hub.state(published) == "published"
