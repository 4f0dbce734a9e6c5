"""Calls on several threads."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import TypeVar

Answer = TypeVar("Answer")


def at_once(*calls: Callable[[], Answer]) -> list[Answer]:
    """What calls return that begin together, each on a thread of its own."""
    together = Barrier(len(calls))

    def run(call: Callable[[], Answer]) -> Answer:
        together.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


@contextmanager
def meanwhile(call: Callable[[], Answer], *, after_seconds: float = 0.3) -> Iterator[Future[Answer]]:
    """A call on another thread, given time to begin."""
    with ThreadPoolExecutor(1) as thread:
        begun = thread.submit(call)
        time.sleep(after_seconds)
        yield begun
