"""Calls the loops of `loops.c`, a library that is built with the package and lies in it; nothing is compiled here.

Sizes that a loop names by the same letter must be equal, or the call is refused: a loop itself checks nothing.
"""

import ctypes
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("libloops.so.1")  # a name that no import takes for a module
LEVELS = ("base", "v2", "v3", "v4")
"""Levels of x86-64 vector instructions, in the order of `loops.c`; other processors have the first."""

REMEDY = "Install Commingle from a wheel for this machine; or install a C compiler (gcc, clang) and Commingle again."

_SCALARS: dict[str, Any] = {"u4": ctypes.c_uint32, "i8": ctypes.c_int64}
_ADDRESS = ctypes.c_char * 0  # of a buffer: NumPy's own way to an array's takes five times as long
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """Called with arrays and integers."""

    function: Any  # releases Python's lock for as long as it runs; it is told here what it takes
    # of each argument its type and, of an array, the sizes: letters or numbers
    takes: tuple[tuple[str, tuple[str | int, ...]], ...]

    def __post_init__(self) -> None:
        known, types = set[str | int](), list[Any]()
        for kind, sizes in self.takes:
            letters = [size for size in dict.fromkeys(sizes) if isinstance(size, str) and size not in known]
            types += [ctypes.c_void_p, *[ctypes.c_int64] * len(letters)] if sizes else [_SCALARS[kind]]
            known.update(letters)
        self.function.argtypes, self.function.restype = types, None

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - arrays and integers, as `takes` says
        """Raises TypeError: an array of another type, layout or size than the loop takes."""
        words: list[Any] = []
        known: dict[str | int, int] = {}
        for argument, (kind, sizes) in zip(arguments, self.takes, strict=True):
            if not sizes:
                words.append(int(argument))
                continue
            if argument.dtype != kind or argument.ndim != len(sizes) or not argument.flags.carray:
                raise TypeError(f"a loop takes {len(sizes)} dimensions of {kind}, writable and C-contiguous")
            words.append(_ADDRESS.from_buffer(argument))
            for size, found in zip(sizes, argument.shape, strict=True):
                if isinstance(size, str) and size not in known:
                    known[size] = found
                    words.append(found)
                elif known.get(size, size) != found:
                    expected = ",".join(map(str, sizes))
                    raise TypeError(f"a loop takes {kind}[{expected}], and not {argument.shape}: {known}")
        self.function(*words)


class Loops:
    """The loops of one room, by name."""

    def __init__(self, library: ctypes.CDLL, room: str, level: str) -> None:
        self._library, self._room, self._level = library, room, level

    def __getattr__(self, name: str) -> Loop:
        symbol = f"{self._room}_{name}_{self._level}"
        try:
            described = ctypes.c_char_p.in_dll(self._library, f"{symbol}_takes").value or b""
        except ValueError:
            raise AttributeError(f"{self._room} has no loop {name}") from None
        loop = Loop(self._library[symbol], tuple(_parsed(each) for each in described.decode().split()))
        setattr(self, name, loop)
        return loop


@cache
def loops(room: str, *, at: str | None = None) -> Loops:
    """The loops of a room, for this processor or a lower level of it.

    Raises OSError: there are none; see `available`.
    """
    return Loops(_library(), room, at or level())


@cache
def available() -> bool:
    """Whether the package was built with loops for this kind of machine; if not, the log says so once."""
    if why := missing():
        _log.warning("compiled arithmetic is not available (%s). %s", why, REMEDY)
    return not why


def missing() -> str:
    """Why there are no loops; empty if there are."""
    try:
        _library()
    except OSError as error:
        return str(error)
    return ""


def level() -> str:
    """The instruction set whose loops are called. Raises OSError: there are no loops."""
    return LEVELS[_library().level()]


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(LIBRARY))


def _parsed(argument: str) -> tuple[str, tuple[str | int, ...]]:
    kind, _, sizes = argument.rstrip("]").partition("[")
    return kind, tuple(int(size) if size.isdigit() else size for size in sizes.split(",")) if sizes else ()
