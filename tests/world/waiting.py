"""Calls on several threads."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
