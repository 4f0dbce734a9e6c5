"""Assumptions of a forecast from a public table like the private one, and the best encoding of its numbers.

Numbers stay as they are, get their squares beside them, or become intervals. This reads public rows alone, and so
spends no budget.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from commingle.services.tables import Table, conform, no_such_column
from commingle.shared.documents.row_maps import undone
from commingle.shared.documents.schema import Attribute, Intervals, NumericAttribute, as_registered
from commingle.shared.documents.spec import MAX_COLUMNS
from commingle.shared.documents.study import CutNumber, Product, Study
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.fixed_point import FRACTION_BITS, SCALE
from commingle.shared.encoding import bounded_rows, cells_for, encode_conforming
from commingle.shared.forecast.forecast import forecast
from commingle.shared.forecast.result import Forecast
from commingle.shared.forecast.task import Assumptions, uniform_law
from commingle.shared.release.checks import terms_of
from commingle.shared.values import as_numbers

Array = NDArray[np.float64]
PLAIN, SQUARED = "as asked", "with squares"
_INTERVALS = (4, 6)


def assumed_of_table(table: Table, design: Terms, *, where: str, target: str | None = None) -> Assumptions:
    """The number and second moments of the table's rows, as the parties would encode and clip them.

    `where` is the table's name in errors.
    """
    registered = [attribute for asked in design.attributes for attribute in as_registered(asked)]
    for attribute in registered:
        if attribute.name not in table.columns:
            raise no_such_column(attribute.name, table.columns, where=where)
    held = Table(table.subjects, {a.name: conform(a, table.columns[a.name]) for a in registered})
    rows = np.hstack([encode(held, share) for share in design.parties])
    return Assumptions(target=target, second_moments=second_moments(rows, design.parties), public_rows=held.n)


def second_moments(rows: Array, shares: tuple[PartyTerms, ...]) -> Array:
    """(p, p) A^T A / n of encoded rows (n, p - 1), the intercept first.

    A column that does not vary, such as that of a level which no row has, varies as if one more row had been drawn from
    the schema: such a level is rare, not impossible.
    """
    n = len(rows)
    held = np.column_stack([np.ones(n), rows])
    mean, covariance = uniform_law(shares)
    still = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    moments: Array = held.T @ held / n
    means = moments[0].copy()
    means[1 + still] = (n * means[1 + still] + mean[still]) / (n + 1)
    for i in still:
        square = (n * moments[1 + i, 1 + i] + covariance[i, i] + mean[i] ** 2) / (n + 1)
        moments[1 + i] = moments[:, 1 + i] = means[1 + i] * means
        moments[1 + i, 1 + i] = square
    return moments


def encode(table: Table, share: PartyTerms) -> Array:
    """(n, d) rows of one party for a forecast, with missing values at the midpoint.

    Its agent mixes rows like these, after maps that follow from sums, which are not applied here (`assumed_maps`).
    """
    encoded = np.hstack(
        [encode_conforming(a, *cells_for(a, table.columns), gaps=True).columns for a in share.attributes]
    )
    whitening = None if share.whitening is None else share.whitening.integer_map()
    cut = share.model_copy(update={"row_norm": share.clipped_at, "first_stage_share": None})
    published = np.divide(bounded_rows(cut, whitening)(encoded), SCALE)
    if whitening is not None:
        return published
    undo, shift = undone(cut, None, FRACTION_BITS)
    return np.asarray(published @ undo.T + shift)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A study with an encoding of its numbers, and the forecast of a fit of the target on all others."""

    name: str
    study: Study
    forecast: Forecast


def encodings(study: Study, table: Table, *, target: str) -> dict[str, Study]:
    """By name: the study itself, with the square of each number beside it, and with each number in equal intervals.

    The target stays as it is, and so does a number with two values in the public table, or with none in some interval.
    Leaves out studies with too many columns.
    """
    ways = {PLAIN: study, SQUARED: _with(study, target, partial(_and_square, table=table))}
    for count in _INTERVALS:
        ways[f"in {count} intervals"] = _with(study, target, partial(_in_intervals, table=table, count=count))
    return {name: way for name, way in ways.items() if name == PLAIN or (way != study and _columns(way) < MAX_COLUMNS)}


def compared(study: Study, table: Table, *, where: str, target: str) -> tuple[Encoded, ...]:
    """Each encoding with its forecast from the table's moments, the best first."""
    found = []
    for name, way in encodings(study, table, target=target).items():
        terms = terms_of(way)
        assumed = assumed_of_table(table, terms, where=where, target=target)
        found.append(Encoded(name, way, forecast(terms, assumed)))
    return tuple(sorted(found, key=lambda each: -each.forecast.r_squared))


def _with(study: Study, target: str, encoded: Callable[[NumericAttribute], tuple[Attribute, ...]]) -> Study:
    def each(attribute: Attribute) -> tuple[Attribute, ...]:
        if isinstance(attribute, NumericAttribute) and attribute.product is None and attribute.name != target:
            return encoded(attribute)
        return (attribute,)

    parties = (
        p.model_copy(update={"attributes": tuple(e for a in p.attributes for e in each(a))}) for p in study.parties
    )
    return study.model_copy(update={"parties": tuple(parties)})


def _and_square(number: NumericAttribute, *, table: Table) -> tuple[Attribute, ...]:
    if len(np.unique(_values(number, table))) < 3:  # noqa: PLR2004 - the square of two values says nothing more
        return (number,)
    return number, Product(name=f"{number.name} squared", product=(number, number)).as_number


def _in_intervals(number: NumericAttribute, *, table: Table, count: int) -> tuple[Attribute, ...]:
    cuts = tuple(float(f"{cut:.4g}") for cut in np.linspace(number.lower, number.upper, count + 1)[1:-1])
    intervals = Intervals(lower=number.lower, upper=number.upper, cuts=cuts)
    if len(np.unique(intervals.places_of(_values(number, table)))) < count:
        return (number,)
    return (CutNumber.model_validate({**number.model_dump(), "cuts": cuts}).as_levels,)


def _values(number: NumericAttribute, table: Table) -> NDArray[np.float64]:
    if number.name not in table.columns:
        return np.empty(0)
    values = as_numbers(number.name, conform(number, table.columns[number.name]))
    return values[~np.isnan(values)]


def _columns(study: Study) -> int:
    return 1 + sum(len(attribute.columns) for party in study.parties for attribute in party.attributes)
