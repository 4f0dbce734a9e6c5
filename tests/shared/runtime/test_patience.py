"""Requests that are watched over together (`test_remote.py` has those that take too long)."""

from threading import Event, active_count
from time import monotonic

import httpx
import pytest

from commingle.shared.runtime import patience
from commingle.shared.runtime.patience import Watch

STARTED = "http11.send_request_headers.started"


class Noting(Watch):
    """Notes that its time was over."""

    def __init__(self, client: httpx.Client, seconds: float) -> None:
        super().__init__(client, sending_seconds=seconds, answering_seconds=seconds, reading_seconds=seconds)
        self.over = Event()

    def cut(self) -> None:
        self.over.set()


def test_one_thread_watches_over_all_requests_and_cuts_each_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = monotonic()
    monkeypatch.setattr(patience, "monotonic", lambda: now)
    with httpx.Client() as client:
        first = Noting(client, 30.0)
        first(STARTED, {})
        threads = active_count()
        others = [Noting(client, seconds) for seconds in (0.3, 0.1, 0.05)]
        for watch in others:
            watch(STARTED, {})
        others[-1].stop()
        assert active_count() == threads
        now += 0.2
        assert others[1].over.wait(60)
        assert not others[0].over.is_set()
        now += 0.2
        assert others[0].over.wait(60)
        assert not others[2].over.is_set()
        assert not first.over.is_set()
        first.stop()
