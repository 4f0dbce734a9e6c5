"""What one person's record may hold: cells, as values of Python; bytes are those that a text is stored as."""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

FEW = 40
MORE = int(os.environ.get("COMMINGLE_NEIGHBOURS", FEW))
"""So many records of every kind of source are drawn at random, beside those that are listed."""

OWN = "s031"
"""The person whose record it is. Ids of all others are `s` and three digits, too."""
OTHER = "s007"
"""Another person, whom some records name."""

TEXTS = (
    *("", " ", "\t", "NA", "null", "\0", "a\0b", "\ufeff", "\x1a", "\x1b[2J", "\x0b", "\x1c", "\x85", "\u2028"),
    *('"', '""', '"""', '"a', 'a"b', '"a"b', "'", "\\", '\\"', '"\\"', "`", "=1+1", "'; DROP TABLE t; --"),
    *("\n", "\r", "\r\n", "a\nb", "a\rb", "\n\n", f"x\n{OTHER},99,99,1,B", f'x"\n{OTHER},99,99,1,B\n"', "x\ny,1,2,0,A"),
    *("nan", "NaN", "-nan", "inf", "Infinity", "-INF", "1e999", "-1e999", "1e-999", "5e-324", "0x1F", "1_000", "1,5"),
    *("186,572", "<0.5", "≤ 1,000.5", "<", "<-1", "<1e999", "1,23,456", "1" + ",000" * 900),
    *("9" * 5000, "1" + "0" * 400, "0." + "0" * 400 + "1", "-0", "١٢", "½", "1 000", " 12 ", "12.", "--1", "+1"),
    *("true", "TRUE", "False", "1", "0", "2020-02-30", "0000-00-00", "99999-01-01", "2020-02-29T24:00:61Z"),
    *('{"a": [1, {"b": null}]}', '[{"id": "' + OTHER + '"}]', "[" * 3000, "NULL", "#N/A", "\ud800", "a\udfffb"),
    *(
        f" {OWN} ",
        "\u017f031",
        "é",
        "e\u0301",
        "\u1e9b\u0323",
        "a" + "\u0301\u0316" * 5000,
        "\U0001f469\u200d",
        "\u202e1",
    ),
)
BYTES = (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80" * 1000, b"\xfe\xff", b"a\xffb", b"\xff\n\xff")
NUMBERS = (
    *(float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 5e-324, -0.0, 0.1 + 0.2, 2.0**53, 1e22),
    *(0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 10**30, 10**5000, True, False),
    *(Decimal("1e-30"), Decimal("NaN"), Decimal("1e30"), Decimal("12.345")),
)
DATES = (date(1, 1, 1), date(9999, 12, 31), datetime(1900, 2, 28, 23, 59), datetime(2020, 2, 29), timedelta(days=1))  # noqa: DTZ001 - cells have no zone
LARGE = ("x" * 10_000_000, b"\x80" * 10_000_000, '"' * 10_000_001, "1" * 10_000_000)
CELLS: tuple[object, ...] = (None, *TEXTS, *BYTES, *NUMBERS, *DATES)


Made = Callable[[], tuple[Any, ...]]
"""Makes records, which are large: most searches try one of several."""


def instead(row: Sequence[object]) -> Iterator[tuple[str, tuple[Sequence[object], ...]]]:
    """What may stand where one row stood, with a name for it: no row, another, or several."""
    yield "no record", ()
    yield "the record as it is", (row,)
    yield "two of it", (row, row)
    for place in range(len(row)):
        for number, cell in enumerate(CELLS):
            name = f"column {place} is {_name(cell)}"
            yield name, (_with(row, place, cell),)
            if number % 7 == place:
                yield f"{name}, beside it", (row, _with(row, place, cell))
    for cell in LARGE:
        for place in (0, 1):
            yield f"column {place} is {_name(cell)}", (_with(row, place, cell),)
    draw = np.random.default_rng(30)
    for number in range(MORE):
        rows = [tuple(_any(draw, was) for was in row) for _ in range(1 + int(draw.integers(3)))]
        yield f"at random, {number}: {' '.join(map(_name, rows[0]))}", tuple(rows)


def _with(row: Sequence[object], place: int, cell: object) -> tuple[object, ...]:
    return (*row[:place], cell, *row[place + 1 :])


def _any(draw: np.random.Generator, was: object) -> object:
    what = int(draw.integers(4))
    return was if what == 0 else draw.bytes(int(draw.integers(9))) if what == 1 else CELLS[draw.integers(len(CELLS))]


def _name(cell: object) -> str:
    try:
        shown = ascii(cell[:40] if isinstance(cell, str | bytes) else cell)
    except ValueError:  # a number of too many digits
        shown = "a number of 5000 digits"
    size = f" and so on, {len(cell)}" if isinstance(cell, str | bytes) and len(cell) > len(shown) else ""
    return shown + size
