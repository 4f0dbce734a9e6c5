"""Applications in process that serve one thing after another: putting one together takes 50 ms, most tests need one."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast
from weakref import finalize

from fastapi import FastAPI

from tests.world.transport import InProcess

T = TypeVar("T")


class Stand:
    """In the place of what an application serves; `same` is what all that it serves have alike.

    Nothing is served while the application is put together: any other attribute is a stand of its own then.
    """

    def __init__(self, find: Callable[[], Any], same: Mapping[str, object]) -> None:
        self._find = find
        self._same = same

    def __getattr__(self, name: str) -> Any:
        if (served := self._find()) is not None:
            return getattr(served, name)
        return self._same.get(name) or Stand(lambda: getattr(self._find(), name, None), {})


class _Place:
    def __init__(self, make: Callable[[Any], FastAPI], same: Mapping[str, object]) -> None:
        self.served: object = None
        self.app = make(Stand(lambda: self.served, same))


class Turn(InProcess):
    """An application while it serves one thing; then it is free for the next."""

    def __init__(self, place: _Place, free: list[_Place]) -> None:
        super().__init__(place.app)
        self._end = finalize(self, _end, place, free)

    def end(self) -> None:
        """At once, instead of when nothing keeps it. Later requests fail: they would be answered for another."""
        self.__dict__.pop("_asgi", None)
        self._end()


def _end(place: _Place, free: list[_Place]) -> None:
    place.served = None
    free.append(place)


_free: dict[Callable[[Any], FastAPI], list[_Place]] = {}


def in_turn(make: Callable[[T], FastAPI], served: T, **same: object) -> Turn:
    """What `make` makes, for as long as the transport is kept.

    It keeps its metrics and caches from turn to turn: a test about those takes an application of its own.
    """
    free = _free.setdefault(cast("Callable[[Any], FastAPI]", make), [])
    place = free.pop() if free else _Place(make, same)
    place.served = served
    return Turn(place, free)
