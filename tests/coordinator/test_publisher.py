import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from commingle.coordinator.blobs import BlobDirectory
from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.errors import StorageError
from commingle.coordinator.publisher import Publisher
from commingle.coordinator.publishing import ask_again, publish
from commingle.shared.release.verification import verify_release
from tests.world.coordinator import Honest, Hub, Proposed, problem

Parties = tuple[Honest, Honest]


class CrashError(BaseException):
    """The process dies here."""


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


def bodies(hub: Hub, proposed: Proposed) -> list[str]:
    """Digests of the blocks that are in."""
    with hub.store.read() as tx:
        release = tx.releases.get(proposed.id)
    assert release is not None
    return [share.body for share in release.shares.values() if share.body is not None]


def verified(hub: Hub, proposed: Proposed) -> None:
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
    )
    verify_release(manifest, matrix, moments, trusted_coordinator=hub.key.fingerprint)


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
    verified(restarted, proposed)
    assert restarted.kinds(proposed).count("published") == 1


def test_two_replicas_publish_once(hub: Hub, open_hub: Callable[[], Hub], parties: Parties) -> None:
    replica = open_hub()
    proposed = hub.complete(parties)
    replica.clock.move(minutes=1)  # so that their manifests differ
    both = threading.Barrier(2)

    def work(coordinator: Coordinator) -> None:
        both.wait()
        publish(coordinator, proposed.id)

    threads = [threading.Thread(target=work, args=(h.coordinator,)) for h in (hub, replica)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert hub.kinds(proposed).count("published") == 1
    verified(hub, proposed)
    verified(replica, proposed)


def test_poison_release_delays_itself_alone_and_ever_longer(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    poisoned, healthy = hub.complete(parties), hub.complete(parties, mechanism="dgm")
    blobs = CountingBlobs(tmp_path / "blobs")
    blobs.broken = set(bodies(hub, poisoned))
    seconds = 0.0
    publisher = Publisher(on(hub, blobs), interval_seconds=1.0, timer=lambda: seconds)
    publisher.run_once()
    assert (hub.state(poisoned), hub.state(healthy)) == ("collecting", "published")
    tried = []
    for tick in range(20):
        seconds, before = float(tick), blobs.opened
        publisher.run_once()
        if blobs.opened > before:
            tried.append(tick)
    assert tried == [2, 6, 14]
    blobs.broken = set()
    seconds = 1000.0
    publisher.run_once()
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
    seconds = 0.0
    publisher = Publisher(hub.coordinator, interval_seconds=1.0, timer=lambda: seconds)
    publisher.run_once()
    assert (hub.state(lost), hub.state(healthy)) == ("collecting", "published")
    for seconds in range(60):  # noqa: B007 - the publisher's timer
        publisher.run_once()
    assert bodies(hub, lost) == [body, other]
    seconds = 62.0
    publisher.run_once()
    assert (hub.state(lost), bodies(hub, lost)) == ("collecting", [other])
    assert list(hub.show(lost)["blocks"]) == ["registry"]
    assert hub.kinds(lost)[-1] == "block-lost"
    assert hub.upload(lost, "clinic", blocks["clinic"]).status_code == 201
    publisher.run_once()
    assert (hub.state(lost), bodies(hub, lost)) == ("published", [body, other])
    verified(hub, lost)


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
    verified(hub, proposed)


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
    body, blobs, seconds = bodies(hub, proposed)[0], CountingBlobs(tmp_path / "blobs"), 0.0
    blobs.broken = {body}
    publisher = Publisher(on(hub, blobs), interval_seconds=1.0, timer=lambda: seconds)
    for seconds in range(100):  # noqa: B007 - the publisher's timer
        publisher.run_once()
    assert blobs.opened == 6
    blobs.broken = set()
    aside = (tmp_path / "blobs" / body[:2] / body).rename(tmp_path / "aside")
    seconds = 1000.0
    publisher.run_once()
    assert (blobs.opened, hub.state(proposed)) == (7, "collecting")
    aside.rename(tmp_path / "blobs" / body[:2] / body)
    seconds = 2000.0
    publisher.run_once()
    assert hub.state(proposed) == "published"


def test_block_that_comes_back_within_a_minute_is_published(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    proposed = hub.complete(parties)
    block = next(path for path in (tmp_path / "blobs").rglob("*") if path.is_file())
    seconds = 0.0
    publisher = Publisher(hub.coordinator, interval_seconds=1.0, timer=lambda: seconds)
    aside = block.rename(tmp_path / "aside")
    publisher.run_once()
    seconds = 30.0
    publisher.run_once()
    aside.rename(block)
    seconds = 60.0
    publisher.run_once()
    assert hub.state(proposed) == "published"


def test_background_thread_publishes_when_woken_and_survives_faults(hub: Hub, parties: Parties) -> None:
    proposed = hub.complete(parties)
    publisher = Publisher(hub.coordinator, interval_seconds=60)
    publisher.start()
    try:
        second = hub.complete(parties, mechanism="dgm")
        publisher.wake()
        waited = threading.Event()
        for _ in range(1200):
            if hub.state(proposed) == hub.state(second) == "published":
                break
            waited.wait(0.05)
        assert hub.state(second) == "published"
    finally:
        publisher.stop()


def test_messages_of_exchanges_are_looked_for_after_events_and_each_minute(hub: Hub, parties: Parties) -> None:
    blobs, seconds = CountingBlobs(hub.home / "blobs"), 0.0
    publisher = Publisher(on(hub, blobs), timer=lambda: seconds)
    for _ in range(5):
        publisher.run_once()
    assert blobs.looks == 1
    hub.proposed(parties)
    for _ in range(5):
        publisher.run_once()
    assert blobs.looks == 2
    seconds = 60.0
    for _ in range(5):
        publisher.run_once()
    assert blobs.looks == 3


def test_incomplete_rounds_are_left_alone(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.approved(parties)
    hub.upload(proposed, "clinic", hub.block(proposed, clinic))
    hub.publisher.run_once()
    publish(hub.coordinator, proposed.id)
    assert hub.state(proposed) == "collecting"
