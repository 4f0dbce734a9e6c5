"""Results as pictures of a page: values with their intervals, numbers of a table, and curves."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from commingle.services.plotting import COLOURS, Array, Curves, Intervals, term_text
from commingle.services.results import ResultColumn, ResultTable, number_text

WIDTH = 400.0
"""Of a row, in its own units."""
HEIGHT = 200.0
"""Of curves, in the same."""
_DASHES = ("", "8 4", "2 4", "8 4 2 4")
_MARGIN = 0.04


def bars(column: ResultColumn) -> list[tuple[float, float, float] | None] | None:
    """Where values and their intervals are drawn: those of the last row's form, up to the edge without an end."""
    if column.interval is None:
        return None
    ends = np.column_stack([column.numbers, column.interval])
    ends[[form != column.forms[-1] for form in column.forms]] = np.nan
    finite = ends[np.isfinite(ends)]
    if len(finite) == 0:
        return None
    place = _places(min(0.0, float(finite.min())), float(finite.max()))
    return [
        None if math.isnan(value + low) else (place(value), place(low), WIDTH if math.isinf(high) else place(high))
        for value, low, high in ends.tolist()
    ]


def figure(picture: Intervals) -> dict[str, Any] | None:
    """Effects, or ratios on a log axis, as rows of a table; None of shares, which `bars` draw, and of nothing but 0.

    `rows` are label, text, the place of the value and of both ends of its interval, None where there is none, and
    whether each end is out of reach; `ticks` are where and what, and no effect is at `none`.
    """
    ratios, (least, most) = picture.of == "ratios", picture.reach
    if picture.of == "shares" or least == most:
        return None
    along = math.log if ratios else float
    place = _places(along(least), along(most))

    def at(value: float) -> float | None:
        return None if math.isnan(value) else place(along(min(max(value, least), most)))

    column = ResultColumn("", picture.values, ".3g", picture.intervals)
    rows = [
        (term_text(label), text, at(value), at(low), at(high), low < least, high > most)
        for label, text, value, (low, high) in zip(
            picture.labels, column.texts(), picture.values.tolist(), picture.intervals.tolist(), strict=True
        )
    ]
    ticks = [(place(along(tick)), number_text(tick, ".3g")) for tick in picture.ticks]
    return {
        "axis": picture.axis,
        "rows": rows,
        "ticks": ticks,
        "none": place(along(1.0 if ratios else 0.0)),
        "of": picture.of,
    }


def lengths(table: ResultTable) -> list[list[tuple[float, float, float] | None]]:
    """Where numbers of a table without intervals are drawn: from 0 on, all columns on one scale."""
    most = max((float(x) for c in table.columns for x in c.numbers if math.isfinite(x)), default=0.0)
    place = _places(0.0, most)
    return [
        [(place(x), place(0.0), place(x)) if math.isfinite(x) and x >= 0 else None for x in c.numbers.tolist()]
        for c in table.columns
    ]


def curves(picture: Curves) -> dict[str, Any] | None:
    """Curves in WIDTH by HEIGHT; None without a share.

    Of each group points of its line and of its band, and who is at risk, with its place in percent of the width.
    """
    times, shown = picture.times, picture.told
    if len(times) == 1:
        return None
    along = picture.along.tolist()

    def points(shares: Array) -> list[tuple[float, float]]:
        places = zip(along, (shares / picture.top).tolist(), strict=True)
        return [(WIDTH * x, HEIGHT * (1 - y)) for x, y in places if math.isfinite(y)]

    drawn = [
        {
            "name": name,
            "colour": COLOURS[g % len(COLOURS)],
            "dash": _DASHES[g % len(_DASHES)],
            "line": points(picture.shares[g]),
            "band": [*points(picture.bands[g, :, 1]), *reversed(points(picture.bands[g, :, 0]))],
            "at_risk": [(100 * along[k], number_text(picture.at_risk[g, k], ",.0f")) for k in shown],
        }
        for g, name in enumerate(picture.groups)
    ]
    return {
        "title": picture.title,
        "share": picture.share,
        "axis": picture.time,
        "shares": [(f"{25 * k * picture.top:g} %", k / 4) for k in range(5)],
        "times": [(100 * along[k], f"{times[k]:g}") for k in shown],
        "curves": drawn,
    }


def _places(least: float, most: float) -> Callable[[float], float]:
    return lambda value: WIDTH * (_MARGIN + (1 - 2 * _MARGIN) * (value - least) / (most - least or 1.0))
