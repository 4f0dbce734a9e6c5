"""Results as pictures of a page: values with their intervals, numbers of a table, and curves."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from commingle.services.analysis import Survival
from commingle.services.plotting import COLOURS, Intervals
from commingle.services.results import ResultColumn, ResultTable, number_text

WIDTH = 400.0
"""Of a row, in its own units."""
HEIGHT = 200.0
"""Of curves, in the same."""
_DASHES = ("", "8 4", "2 4", "8 4 2 4")
_APART = 0.14  # of the width: numbers of times that are nearer would overlap on a phone
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
        (label, text, at(value), at(low), at(high), low < least, high > most)
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


def curves(found: Survival) -> dict[str, Any] | None:
    """Kaplan-Meier curves in WIDTH by HEIGHT, up to the last end that any group has a share at; None without.

    Of each group points of its line and of its band, and who is at risk, with its place in percent of the width.
    """
    reached = int(np.isfinite(found.survival).any(axis=0).sum())
    if reached == 0:
        return None
    begins = np.append(found.begin, found.ends[:reached])  # of intervals, and the end of the last share
    along = ((begins - begins[0]) / (begins[-1] - begins[0])).tolist()
    shown = [0]
    for k, x in enumerate(along):
        shown += [k] if x - along[shown[-1]] >= _APART else []

    def points(shares: Sequence[float]) -> list[tuple[float, float]]:
        whole = zip(along, (1.0, *shares), strict=False)
        return [(WIDTH * x, HEIGHT * (1 - y)) for x, y in whole if math.isfinite(y)]

    drawn = []
    for g, name in enumerate(found.groups):
        low, high = found.survival_intervals[g, :reached].T.tolist()
        risk = [number_text(x, ",.0f") for x in found.at_risk[g].tolist()]
        drawn.append(
            {
                "name": name,
                "colour": COLOURS[g % len(COLOURS)],
                "dash": _DASHES[g % len(_DASHES)],
                "line": points(found.survival[g, :reached].tolist()),
                "band": [*points(high), *reversed(points(low))],
                "at_risk": [(100 * along[k], risk[k]) for k in shown],
            }
        )
    times, table = [(100 * along[k], f"{begins[k]:g}") for k in shown], found.table()
    return {"label": table.title, "event": found.event, "axis": table.heading, "times": times, "curves": drawn}


def _places(least: float, most: float) -> Callable[[float], float]:
    return lambda value: WIDTH * (_MARGIN + (1 - 2 * _MARGIN) * (value - least) / (most - least or 1.0))
