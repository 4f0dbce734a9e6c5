"""A thread of its own for what may take long or never end, so that it takes none of those that answer requests."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class OwnThread:
    """Calls functions one after the other, in the order in which they were given. Safe to use from several threads.

    The process ends without waiting for it, as it may hang in a read of a network drive.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._newest: dict[str, object] = {}
        self._starting = Lock()
        self._started = False

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Call it when its turn comes. Cancelled before, it is not called. Raises what it raises."""
        future: Future[T] = Future()
        self._waiting.put((future, partial(copy_context().run, function, *arguments)))
        self._start()
        return await asyncio.wrap_future(future)

    async def run_newest(self, key: str, function: Callable[..., T], *arguments: object) -> T | None:
        """The same, but for None where the same key was given again meanwhile: only the newest call is done."""
        mark = self._newest[key] = object()

        def unless_newer() -> T | None:
            if self._newest.get(key) is not mark:
                return None
            return function(*arguments)

        return await self.run(unless_newer)

    def _start(self) -> None:
        with self._starting:
            if not self._started:
                self._started = True
                Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        while True:
            future, call = self._waiting.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
                future.set_exception(error)
