"""Raw rows in memory, and values of a source that knows no Arrow as cells. Importable only inside this package.

What a cell becomes follows from that cell alone. Whole numbers, floats, texts and bytes are encoded as in a column of
their own, truths as the texts `true` and `false`, decimals, times and the like as what Python writes for them. What has
no text is kept as bytes that are no UTF-8: neither a number, nor a level, nor an id. So is a driver's own type: Python
may write for it where it lies in memory, which follows from what else was read.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from uuid import UUID

import pyarrow as pa

from commingle.shared.values import UNREADABLE, Cells, as_text


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Some rows as the source holds them: `size` cells of each column asked for.

    Attributes:
        unreadable: records beside them that were passed over, because they could not be read.
        uneven: records among the rows that have fewer or more cells than the source has columns.
    """

    columns: dict[str, Cells] = field(repr=False)
    size: int
    unreadable: int = 0
    uneven: int = 0


RawReader = Callable[[Sequence[str]], Iterator[RawBatch]]
"""Reads the named columns, a batch at a time."""


_WRITTEN_AS_READ = {int: pa.int64(), float: pa.float64(), str: pa.large_string(), bytes: pa.large_binary()}
"""Types whose columns Arrow takes at once, to cells that are encoded as their texts would be (tests hold that)."""


_WRITTEN = (
    *(str, int, Decimal, date, time, timedelta, UUID),
    *(IPv4Address, IPv4Network, IPv6Address, IPv6Network),
)
"""Types whose values alone decide what Python writes for them."""


def cells_of(values: Sequence[object]) -> Cells:
    """A column's cells: those of one plain type as they are, which saves time; of several types, each as its text."""
    kinds = {type(value) for value in values if value is not None}
    kind = _WRITTEN_AS_READ.get(kinds.pop()) if len(kinds) == 1 else None
    if kind is not None:
        with suppress(pa.ArrowException, OverflowError, UnicodeError):
            array: Cells = pa.array(values, kind)
            return array
    return pa.array(list(_texts(values)), pa.large_binary())


def _texts(values: Sequence[object]) -> Iterator[bytes | None]:
    floats = pa.array([value for value in values if isinstance(value, float)], pa.float64())
    written: Iterator[str | None] = iter(
        as_text("", floats).to_pylist()
    )  # all at once: Arrow writes 1e22, Python 1e+22
    for value in values:
        if isinstance(value, float):
            text = next(written)
            yield UNREADABLE if text is None else text.encode()
        else:
            yield None if value is None else _text(value)


def _text(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    try:
        if not _is_written(value):
            return UNREADABLE
        text = str(value)
        return (text.lower() if isinstance(value, bool) else text).encode("utf-8", "surrogateescape")
    except Exception:  # noqa: BLE001 - digits without end, half a surrogate pair, nested without end, a driver's fault
        return UNREADABLE


def _is_written(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_written(key) and _is_written(of) for key, of in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_written, value))
    return value is None or isinstance(value, (float, *_WRITTEN))
