"""Results as pictures: what each term of a fit does to the target over its public range, and intervals of a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from commingle.services.fit.terms import public_ranges
from commingle.services.results import ResultColumn, ResultTable
from commingle.shared.documents.schema import Attribute

WIDTH = 400.0
"""Of a row, in its own units."""
_MARGIN = 0.04
_FAR, _NEAR = 8.0, 1.2  # of a log axis: beyond ratios, and around 1
_TICKS = tuple(base * 10.0**exponent for exponent in range(-6, 7) for base in (1, 2, 5))


@dataclass(frozen=True, slots=True)
class Effect:
    """One term. `at` is where its effect is drawn, `low` and `high` its interval, if there is one."""

    term: str
    effect: float
    at: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All terms but the intercept, on one scale from `least` to `most`; `zero` is where no effect is drawn."""

    effects: tuple[Effect, ...]
    zero: float
    least: float
    most: float


def picture_of(fit: Mapping[str, Any], attributes: Sequence[Attribute]) -> Picture | None:
    """The picture of a fit as it is answered; None where it has no terms.

    An effect is the coefficient times the width of the attribute's bounds, and for a level the coefficient itself.
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
    return Picture(
        effects=tuple(
            Effect(term, effect, place(effect), *((None, None) if interval is None else map(place, interval)))
            for term, effect, interval in rows
        ),
        zero=place(0.0),
        least=least,
        most=most,
    )


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


@dataclass(frozen=True, slots=True)
class Forest:
    """Ratios on a log axis.

    Attributes:
        name: what they are.
        rows: label, text, and where the ratio and the ends of its interval are drawn; an end out of reach is None.
        ticks: where and what.
        one: where no effect is drawn.
    """

    name: str
    rows: tuple[tuple[str, str, float, float | None, float | None], ...]
    ticks: tuple[tuple[float, str], ...]
    one: float


def forest(table: ResultTable, *, start: int = 0) -> Forest | None:
    """A forest plot of the last column of ratios that a table has, from that row on; None without."""
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
    return Forest(column.heading, tuple(rows), tuple(ticks), place(0.0))


def _places(least: float, most: float) -> Callable[[float], float]:
    return lambda value: WIDTH * (_MARGIN + (1 - 2 * _MARGIN) * (value - least) / (most - least or 1.0))
