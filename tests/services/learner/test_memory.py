from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from commingle import Release, ReleaseClient
from commingle.services.errors import UnknownReleaseError
from commingle.services.learner.source import ReleaseMemory, ReleaseSource
from commingle.shared.runtime.errors import BusyError
from tests.world.released import ServingCoordinator, published

RELEASE = Release.of(published()[1])


class Counted:
    def __init__(self, answer: Callable[[str], Release] = lambda _: RELEASE) -> None:
        self.asked: list[str] = []
        self._answer = answer

    def __call__(self, release_id: str) -> Release:
        self.asked.append(release_id)
        return self._answer(release_id)


def test_least_recently_used_release_is_given_up() -> None:
    fetch = Counted()
    memory = ReleaseMemory(fetch, capacity=2)
    memory.fetch("a")
    memory.fetch("b")
    memory.get("a")
    memory.fetch("c")
    assert (len(memory), memory.get("b") is None, memory.get("a") is not None) == (2, True, True)
    assert fetch.asked == ["a", "b", "c"]


def test_failure_is_told_to_everybody_and_not_remembered_and_gives_up_nothing() -> None:
    def unknown(release_id: str) -> Release:
        if release_id == "good":
            return RELEASE
        raise UnknownReleaseError("no", remedy="none")

    fetch = Counted(unknown)
    memory = ReleaseMemory(fetch, capacity=1)
    memory.fetch("good")
    for _ in range(2):
        with pytest.raises(UnknownReleaseError):
            memory.fetch("bad")
    assert fetch.asked == ["good", "bad", "bad"]
    assert memory.get("good") is not None


def test_many_threads_asking_for_one_release_fetch_it_once() -> None:
    together = Barrier(8)
    fetch = Counted()
    memory = ReleaseMemory(fetch, capacity=2)

    def take(_: int) -> object:
        together.wait()
        return memory.fetch("a")

    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(take, range(8)))
    assert len(set(map(id, held))) == 1
    assert fetch.asked == ["a"]


def test_requests_beyond_those_that_may_wait_are_refused_while_held_releases_are_served() -> None:
    release_id, files = published()
    fake = ServingCoordinator.serving((release_id, files))
    source = ReleaseSource(ReleaseClient("http://hub", transport=fake.transport), waiting=1)
    source.fetch(release_id)
    reached, resume = Event(), Event()
    answer = fake.answer

    def stuck(request: object) -> object:
        reached.set()
        resume.wait(60)
        fake.instead = None
        return answer(request)  # type: ignore[arg-type]

    fake.instead = stuck  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(source.page, cursor=None, limit=10)
        assert reached.wait(60)
        with pytest.raises(BusyError):
            source.fetch("0" * 64)
        assert source.fetch(release_id).published.release == release_id
        resume.set()
        assert len(waiting.result().items) == 1
