"""Results as pictures: what each term of a fit does to the target over its public range, and intervals of a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from commingle.services.analysis import Survival
from commingle.services.fit.predicting import public_ranges
from commingle.services.plotting import COLOURS
from commingle.services.results import ResultColumn, ResultTable, number_text
from commingle.shared.documents.schema import Attribute

WIDTH = 400.0
"""Of a row, in its own units."""
HEIGHT = 200.0
"""Of curves, in the same."""
_DASHES = ("", "8 4", "2 4", "8 4 2 4")
_APART = 0.14  # of the width: numbers of times that are nearer would overlap on a phone
_MARGIN = 0.04
_FAR, _NEAR = 8.0, 1.2  # of a log axis: beyond ratios, and around 1
_TICKS = tuple(base * 10.0**exponent for exponent in range(-6, 7) for base in (1, 2, 5))


def picture_of(fit: Mapping[str, Any], attributes: Sequence[Attribute]) -> dict[str, Any] | None:
    """The picture of a fit as it is answered; None where it has no terms.

    `effects`, of all terms but the intercept, are on one scale from `least` to `most`, each drawn `at` a place with
    its interval from `low` to `high`, if there is one; no effect is at `zero`. An effect is the coefficient times the
    width of the attribute's bounds, and for a level the coefficient itself.
    """
    by_name = {attribute.name: attribute for attribute in attributes}
    widths: list[float] = public_ranges(tuple(by_name[name] for name in fit["features"])).tolist()
    start = int(fit["intercept"])
    rows: list[tuple[str, float, tuple[float, float] | None]] = [
        (term, effect * width, None if low is None or high is None else (low * width, high * width))
        for term, effect, (low, high), width in zip(
            fit["terms"][start:], fit["coefficients"][start:], fit["intervals"][start:], widths, strict=True
        )
    ]
    ends = [0.0, *(effect for _, effect, _ in rows), *(end for *_, interval in rows for end in interval or ())]
    least, most = min(ends), max(ends)
    if most == least:
        return None

    place = _places(least, most)
    effects = []
    for term, effect, interval in rows:
        low, high = (None, None) if interval is None else map(place, interval)
        effects.append({"term": term, "effect": effect, "at": place(effect), "low": low, "high": high})
    return {"effects": effects, "zero": place(0.0), "least": least, "most": most}


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


def forest(table: ResultTable, *, start: int = 0) -> dict[str, Any] | None:
    """A forest plot of the last column of ratios that a table has, from that row on, on a log axis; None without.

    `rows` are label, text, and where the ratio and the ends of its interval are drawn, None where out of reach; `ticks`
    are where and what, and no effect is at `one`.
    """
    columns = [c for c in table.columns if c.heading.endswith(" ratio") and c.interval is not None]
    if not columns or columns[-1].interval is None:
        return None
    column, spans = columns[-1], columns[-1].interval
    drawn = [i for i, value in enumerate(column.numbers) if i >= start and value > 0]
    if not drawn:
        return None
    near, ends = column.numbers[drawn], spans[drawn]
    seen = ends[np.isfinite(ends) & (ends > near.min() / _FAR) & (ends < near.max() * _FAR)]
    shown = np.concatenate([near, seen, [1 / _NEAR, _NEAR]])
    place, (least, most) = _places(*np.log([shown.min(), shown.max()]).tolist()), (shown.min(), shown.max())
    texts = column.texts()
    rows = [
        (
            str(table.labels[i]),
            texts[i],
            place(math.log(column.numbers[i])),
            place(math.log(low)) if low >= least else None,
            place(math.log(high)) if high <= most else None,
        )
        for i, (low, high) in zip(drawn, ends.tolist(), strict=True)
    ]
    ticks = [(place(math.log(tick)), f"{tick:g}") for tick in _TICKS if least <= tick <= most]
    return {"name": column.heading, "rows": rows, "ticks": ticks, "one": place(0.0)}


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
