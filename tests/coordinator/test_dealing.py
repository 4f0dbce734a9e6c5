"""Dealing: once, for every party that approved, and what is handed to whom."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from commingle.coordinator.dealing import record_deal
from commingle.coordinator.publisher import Publisher
from commingle.shared.documents.dsse import seal
from commingle.shared.documents.model import decode
from commingle.shared.documents.statements import Approval
from commingle.shared.runtime import faults
from tests.world.coordinator import Honest, Hub, problem
from tests.world.exchange import Exchanging, approved, dealt

Parties = tuple[Honest, Honest]


class Entropy:
    """Bytes like the operating system's, but the same each time, and remembered."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.drawn: list[bytes] = []

    def __call__(self, size: int) -> bytes:
        self.drawn.append(self._random.bytes(size))
        return self.drawn[-1]


@contextmanager
def armed(strike: faults.Strike) -> Iterator[None]:
    faults.arm(strike)
    try:
        yield
    finally:
        faults.arm(lambda _: None)


def test_nothing_is_dealt_before_the_last_approval(hub: Hub, parties: Parties) -> None:
    clinic, _ = parties
    proposed = hub.proposed(parties, mechanism="moments")
    hub.approve(proposed, "clinic", clinic.approval(proposed))
    hub.publisher.run_once()
    exchanging = Exchanging(hub, proposed, parties)
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")
    assert "deal" not in hub.kinds(proposed)


def test_release_without_an_exchange_is_not_dealt_for(hub: Hub, parties: Parties) -> None:
    exchanging = Exchanging(hub, hub.approved(parties), parties)
    hub.publisher.run_once()
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")


def test_release_is_published_and_readiness_told_while_another_one_is_being_dealt_for(
    hub: Hub, parties: Parties
) -> None:
    dealing, over = threading.Event(), threading.Event()

    def take_long(point: str) -> None:
        if point == "coordinator.deal.made":
            dealing.set()
            over.wait(60)

    with armed(take_long):
        waiting = hub.approved(parties, mechanism="moments")
        publisher = Publisher(hub.coordinator)
        publisher.start()
        try:
            assert dealing.wait(60)
            complete = hub.complete(parties)
            publisher.wake()
            until = time.monotonic() + 60
            while hub.state(complete) != "published" and time.monotonic() < until:
                time.sleep(0.05)
            assert hub.state(complete) == "published"
            assert hub.http.get("/readyz").status_code == 200
            assert "deal" not in hub.kinds(waiting)
        finally:
            over.set()
            publisher.stop()
    assert "deal" in hub.kinds(waiting)


def test_deal_stays_the_same_for_ever(hub: Hub, open_hub: Callable[[], Hub], exchanging: Exchanging) -> None:
    first = exchanging.get("deal", "clinic", "clinic").json()
    hub.publisher.run_once()
    record_deal(hub.coordinator, exchanging.proposed.id)
    hub.close()
    exchanging.hub = open_hub()
    exchanging.hub.publisher.run_once()
    assert exchanging.get("deal", "clinic", "clinic").json() == first


def test_two_replicas_that_deal_at_once_commit_one_deal(
    hub: Hub, open_hub: Callable[[], Hub], parties: Parties
) -> None:
    exchanging, replica = approved(hub, parties), open_hub()
    both = threading.Barrier(2)

    def wait_for_the_other(point: str) -> None:
        if point == "coordinator.deal.made":
            both.wait()

    release = exchanging.proposed.id
    with armed(wait_for_the_other):
        threads = [threading.Thread(target=record_deal, args=(h.coordinator, release)) for h in (hub, replica)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert hub.kinds(exchanging.proposed).count("deal") == 1
    for party in parties:
        exchanging.hand(party)  # both packages are of the deal that was signed


def test_crash_while_dealing_shows_nothing_of_that_deal(hub: Hub, parties: Parties) -> None:
    class CrashError(BaseException):
        """The process dies here."""

    def crash(point: str) -> None:
        if point == "coordinator.committing":
            raise CrashError

    exchanging = approved(hub, parties)
    first, second = Entropy(0), Entropy(1)
    with armed(crash), pytest.raises(CrashError):
        record_deal(hub.coordinator, exchanging.proposed.id, entropy=first)
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")
    record_deal(hub.coordinator, exchanging.proposed.id, entropy=second)
    assert hub.kinds(exchanging.proposed).count("deal") == 1
    exchanging.hand(parties[0])
    assert len(first.drawn) == len(second.drawn) > 0


def test_no_seed_of_a_deal_reaches_disk_or_wire(hub: Hub, parties: Parties, tmp_path: Path) -> None:
    exchanging, entropy = approved(hub, parties), Entropy(0)
    record_deal(hub.coordinator, exchanging.proposed.id, entropy=entropy)
    exchanging.hand(parties[0])
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    written += hub.http.get("/v1/events").content + exchanging.get("deal", "clinic", "clinic").content
    assert [len(seed) for seed in entropy.drawn] == [32] * 3
    assert not any(seed in written or seed.hex().encode() in written for seed in entropy.drawn)


def test_degenerate_round_key_ends_the_round_in_words(hub: Hub, parties: Parties) -> None:
    clinic, registry = parties
    proposed = hub.proposed(parties, mechanism="moments")
    honest = clinic.approval(proposed)
    document = decode(Approval, honest.approval.payload_bytes).model_copy(update={"round_key": "00" * 32})
    request = honest.model_copy(update={"approval": seal(document, kind="approval", key=clinic.key)})
    assert hub.approve(proposed, "clinic", request).status_code == 201
    hub.approve(proposed, "registry", registry.approval(proposed))
    hub.publisher.run_once()
    shown = hub.show(proposed)
    assert shown["state"] == "aborted"
    assert "cannot deal: a party's round key is degenerate" in shown["reason"]


def test_expired_round_is_not_dealt_for(hub: Hub, parties: Parties) -> None:
    exchanging = approved(hub, parties)
    hub.clock.move(hours=72)
    record_deal(hub.coordinator, exchanging.proposed.id)
    hub.publisher.run_once()
    assert problem(exchanging.get("deal", "clinic", "clinic")) == (409, "not-dealt")
    assert hub.kinds(exchanging.proposed)[-2:] == ["approval", "expired"]


def test_deal_is_for_its_own_party_only(hub: Hub, exchanging: Exchanging) -> None:
    assert problem(exchanging.get("deal", "clinic", "registry")) == (403, "scope")
    assert problem(hub.http.get(exchanging.path("deal", "clinic"))) == (401, "request-signature")
    hub.enrolled("lab")
    assert problem(exchanging.get("deal", "lab", "lab")) == (404, "unknown")


def test_release_proposed_again_after_a_lost_party_is_dealt_other_pads(
    hub: Hub, parties: Parties, exchanging: Exchanging
) -> None:
    clinic, _ = parties
    before = exchanging.hand(clinic).pad(0, 10)
    exchanging.masked(clinic)  # registry is never heard of again
    hub.clock.move(hours=72)
    hub.publisher.run_once()
    assert hub.state(exchanging.proposed) == "expired"
    again = dealt(hub, parties)
    assert not np.any(again.hand(clinic).pad(0, 10) == before)
