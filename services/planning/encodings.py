"""Which encoding of a study's numbers a public table speaks for: as they are, with their squares, or as intervals.

Post-processing of public rows: nothing is read of the parties', and no budget is spent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from commingle.services.planning.public_table import assumed_of_table
from commingle.services.tables import Table, conform
from commingle.shared.documents.schema import Attribute, Intervals, NumericAttribute
from commingle.shared.documents.spec import MAX_COLUMNS
from commingle.shared.documents.study import CutNumber, Product, Study
from commingle.shared.encoding import as_numbers
from commingle.shared.forecast.forecast import forecast
from commingle.shared.forecast.result import Forecast
from commingle.shared.release.resolve import terms_of

PLAIN, SQUARED = "as asked", "with squares"
_INTERVALS = (4, 6)


@dataclass(frozen=True, slots=True)
class Encoded:
    """One encoding of a study's numbers, and what it is forecast to be worth.

    Attributes:
        name: of the encoding.
        study: with the attributes encoded so.
        forecast: of a fit of the target on all others.
    """

    name: str
    study: Study
    forecast: Forecast


def encodings(study: Study, table: Table, *, target: str) -> dict[str, Study]:
    """The study itself, with the square of each number beside it, and with each number in equal intervals, by name.

    The target stays as it is, and so does a number that has two values in the public table, or no value in some
    interval. What would have too many columns is left out.
    """
    ways = {PLAIN: study, SQUARED: _with(study, target, partial(_and_square, table=table))}
    for count in _INTERVALS:
        ways[f"in {count} intervals"] = _with(study, target, partial(_in_intervals, table=table, count=count))
    return {name: way for name, way in ways.items() if name == PLAIN or (way != study and _columns(way) < MAX_COLUMNS)}


def compared(study: Study, table: Table, *, where: str, target: str) -> tuple[Encoded, ...]:
    """Each encoding with its forecast from the table's moments, the best first.

    Args:
        study: with the terms that are asked for.
        table: public rows like the private ones.
        where: what an error calls the table.
        target: the attribute to explain.

    Raises:
        TableError: the table lacks an attribute, or holds what the attribute cannot.
        PlanningError: there is nothing to forecast.
    """
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
