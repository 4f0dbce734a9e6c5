"""A fit as a picture: what each term does to the target over its public range, in a row of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commingle.services.fit.terms import public_ranges
from commingle.shared.documents.schema import Attribute

WIDTH = 400.0
"""Of a row, in its own units."""
_MARGIN = 0.04


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

    def place(value: float) -> float:
        return WIDTH * (_MARGIN + (1 - 2 * _MARGIN) * (value - least) / (most - least))

    return Picture(
        effects=tuple(
            Effect(term, effect, place(effect), *((None, None) if interval is None else map(place, interval)))
            for term, effect, interval in rows
        ),
        zero=place(0.0),
        least=least,
        most=most,
    )
