from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest

from commingle.services.client import Release, ReleaseClient
from commingle.services.errors import UnknownReleaseError
from commingle.services.learner.catalogue import Catalogue
from commingle.services.learner.errors import BusyError
from commingle.services.learner.shelf import Shelf
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
    shelf = Shelf(fetch, capacity=2)
    shelf.take("a")
    shelf.take("b")
    shelf.get("a")
    shelf.take("c")
    assert (len(shelf), shelf.get("b") is None, shelf.get("a") is not None) == (2, True, True)
    assert fetch.asked == ["a", "b", "c"]


def test_failure_is_told_to_everybody_and_not_remembered_and_gives_up_nothing() -> None:
    def unknown(release_id: str) -> Release:
        if release_id == "good":
            return RELEASE
        raise UnknownReleaseError("no", remedy="none")

    fetch = Counted(unknown)
    shelf = Shelf(fetch, capacity=1)
    shelf.take("good")
    for _ in range(2):
        with pytest.raises(UnknownReleaseError):
            shelf.take("bad")
    assert fetch.asked == ["good", "bad", "bad"]
    assert shelf.get("good") is not None


def test_many_threads_asking_for_one_release_fetch_it_once() -> None:
    together = Barrier(8)
    fetch = Counted()
    shelf = Shelf(fetch, capacity=2)

    def take(_: int) -> object:
        together.wait()
        return shelf.take("a")

    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(take, range(8)))
    assert len(set(map(id, held))) == 1
    assert fetch.asked == ["a"]


def test_requests_beyond_those_that_may_wait_are_refused_while_held_releases_are_served() -> None:
    release_id, files = published()
    fake = ServingCoordinator.serving((release_id, files))
    catalogue = Catalogue(ReleaseClient("http://hub", transport=fake.transport), waiting=1)
    catalogue.take(release_id)
    reached, resume = Event(), Event()
    answer = fake.answer

    def stuck(request: object) -> object:
        reached.set()
        resume.wait(60)
        fake.instead = None
        return answer(request)  # type: ignore[arg-type]

    fake.instead = stuck  # type: ignore[assignment]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(catalogue.page, cursor=None, limit=10)
        assert reached.wait(60)
        with pytest.raises(BusyError):
            catalogue.take("0" * 64)
        assert catalogue.take(release_id).id == release_id
        resume.set()
        assert len(waiting.result().items) == 1
