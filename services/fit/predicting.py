"""Terms of a model: their values for rows in original units, their public ranges, and predictions within these.

No row lies beyond the bounds, as agents clip rows. So a prediction beyond them would rest on no data.
"""

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import GAP, Attribute, Factor, Levelled, NumericAttribute, parts_of
from commingle.shared.errors import RowsError
from commingle.shared.estimation.entry_noise import Array

Values = Sequence[float | None] | Sequence[str | None] | NDArray[Any]


def term_matrix(rows: Mapping[str, Values], attributes: tuple[Attribute, ...], *, intercept: bool) -> Array:
    """The terms of m rows, (m, p_x). Ignores attributes that the model does not use.

    A product is made of the values of its factors, clipped to their public bounds. None and NaN are missing cells of
    attributes that mark these. Where levels are intervals of a number, a value is a level or the number.

    Raises RowsError: an attribute is missing, has another length, or holds a value that it cannot have.
    """
    size = length_of(rows, tuple(dict.fromkeys(name for a in attributes for name in asked_for(a))))
    columns = [np.ones(size)] if intercept else []
    for attribute in attributes:
        columns += _columns(attribute, *(rows[name] for name in asked_for(attribute)))
    return np.column_stack(columns)


def length_of(rows: Mapping[str, Values], asked: tuple[str, ...]) -> int:
    """How many rows there are, given by attribute; if a model asks for none, those of any attribute.

    Raises RowsError: the rows are given otherwise, or lack an attribute; or attributes differ in length.
    """
    if not hasattr(rows, "keys"):
        raise RowsError(
            "the rows are not given by attribute",
            remedy='Give the values of all rows by attribute, as {"age": [40, 50]}; pandas.DataFrame(rows) makes them.',
        )
    missing = [name for name in asked if name not in rows]
    if missing:
        raise RowsError(f"the rows lack {', '.join(map(repr, missing))}", remedy=f"Give all of: {', '.join(asked)}.")
    single = [name for name in asked if isinstance(rows[name], str) or not hasattr(rows[name], "__len__")]
    if single:
        raise RowsError(
            f"one value and no list is given of {', '.join(map(repr, single))}",
            remedy='Give a list of each attribute, one value for every row, as {"age": [40]}.',
        )
    lengths = {len(rows[name]) for name in asked} or {len(values) for values in rows.values()}
    if len(lengths) != 1:
        raise RowsError(
            "the rows have no length" if not lengths else f"the attributes differ in length: {sorted(lengths)}",
            remedy="Give one value of each attribute for every row.",
        )
    return lengths.pop()


def asked_for(attribute: Attribute) -> tuple[str, ...]:
    """The columns that predictions need: its own, or the factors of a product."""
    parts = parts_of(attribute) if isinstance(attribute, NumericAttribute) else ()
    return tuple(part.name for part in parts) or (attribute.name,)


def public_ranges(attributes: tuple[Attribute, ...]) -> Array:
    """The range of each term but the intercept: upper - lower for a number, 1 for a level or a mark."""
    widths = np.ones(sum(len(a.columns) for a in attributes))
    start = 0
    for attribute in attributes:
        if isinstance(attribute, NumericAttribute):
            widths[start] = attribute.upper - attribute.lower
        start += len(attribute.columns)
    return widths


def level_places(attribute: Levelled, values: Values) -> NDArray[np.intp]:
    """The place of each value among the levels, (m,); one past the last is a missing cell that the attribute marks.

    Where levels are intervals, numbers get theirs by the rule of agents (`shared.encoding.as_released`).

    Raises RowsError: a value is neither a level nor a number of an interval, or is missing without a mark.
    """
    marked, of = attribute.missing == "indicator", attribute.intervals
    known = {level: place for place, level in enumerate((*attribute.levels, *((GAP,) if marked else ())))}
    cells, gaps = np.asarray(values, dtype=object), _gaps(values)
    found = np.where(gaps, len(attribute.levels) if marked else -1, 0)
    numbers = np.zeros_like(gaps) if of is None else _are_numbers(values) & ~gaps
    if of is not None:
        found[numbers] = of.places_of(cells[numbers].astype(np.float64))
    texts = ~gaps & ~numbers
    found[texts] = [known.get(str(cell), -1) for cell in cells[texts].tolist()]
    if (found < 0).any():
        or_number = "" if of is None else ", or a number"
        raise RowsError(
            f"{attribute.name!r} holds something that is not one of its levels",
            remedy=f"Its levels are: {', '.join(attribute.levels)}{or_number}.",
        )
    return found


def _columns(attribute: Attribute, values: Values, *others: Values) -> list[Array]:
    marked = attribute.missing == "indicator"
    if isinstance(attribute, NumericAttribute) and attribute.product is not None:
        return _product_columns(attribute, attribute.product, (values, *others))
    if isinstance(attribute, NumericAttribute):
        return _numeric_columns(attribute, values) if marked else [_numbers(attribute.name, values)]
    places = level_places(attribute, values)
    gaps = places == len(attribute.levels)
    terms = [(places == level).astype(np.float64) for level in range(1, len(attribute.levels))]
    return [*terms, gaps.astype(np.float64)] if marked else terms


def _numeric_columns(attribute: NumericAttribute, values: Values) -> list[Array]:
    gaps = _gaps(values)
    term = np.full(len(gaps), attribute.columns[0].offset)
    term[~gaps] = _numbers(attribute.name, np.asarray(values, dtype=object)[~gaps])
    return [term, gaps.astype(np.float64)]


def _product_columns(attribute: NumericAttribute, factors: Sequence[Factor], each: Sequence[Values]) -> list[Array]:
    """The product of T_k of encoded factors, as agents make it (`shared.encoding.as_released`), but for rounding."""
    product, gaps = np.ones(len(each[0])), np.zeros(len(each[0]), np.bool_)
    for (factor, degree), values in zip(Counter(factors).items(), each, strict=True):
        term, *mark = _columns(factor, values)
        encoded = np.clip((term - factor.columns[0].offset) / factor.columns[0].scale, -1, 1)
        product *= np.cos(degree * np.arccos(encoded))  # T_k(cos t) = cos(k t)
        gaps |= mark[0] > 0 if mark else False
    product[gaps] = 0.0
    return [product, gaps.astype(np.float64)] if attribute.missing == "indicator" else [product]


def _gaps(values: Values) -> NDArray[np.bool_]:
    missing = (value is None or (isinstance(value, float | np.floating) and isnan(value)) for value in values)
    return np.fromiter(missing, dtype=bool, count=len(values))


def _are_numbers(values: Values) -> NDArray[np.bool_]:
    numbers = (isinstance(v, int | float | np.number) and not isinstance(v, bool) for v in values)
    return np.fromiter(numbers, dtype=bool, count=len(values))


def _numbers(name: str, values: Values) -> Array:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise RowsError(f"{name!r} holds something that is not a number", remedy="Give numbers.") from None
    if np.isnan(numbers).any():
        raise RowsError(
            f"{name!r} is missing in some rows, and the release marks no missing {name}",
            remedy="Leave these rows out, or fit without this attribute.",
        )
    return numbers


class OutsideBoundsWarning(UserWarning):
    """Values to predict from, or predictions, lay outside their public bounds and were clipped."""


def outside_intervals(attribute: Levelled, values: Values) -> list[str]:
    """A sentence if numbers lie beyond all intervals that are an attribute's levels, and count in an outermost one."""
    of = attribute.intervals
    if of is None:
        return []
    numbers = np.array(np.asarray(values, dtype=object)[_are_numbers(values) & ~_gaps(values)], np.float64)
    return _outside(numbers, of.lower, of.upper, f"values of {attribute.name}", "count in the outermost interval.")


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Expected targets (m,) in the target's unit, and a sentence for each kind of value that was clipped."""

    values: Array
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A linear model with the public bounds and levels of its attributes.

    Attributes:
        coefficients: (p_x,), the intercept first if there is one.
        schema: the attributes of the features.
        response: the attribute of the target.
    """

    coefficients: Array
    schema: tuple[Attribute, ...]
    response: Attribute
    intercept: bool = True

    def of(self, rows: Mapping[str, Values], *, extrapolate: bool = False) -> Predicted:
        """Expected targets of m rows in original units: numbers, or levels as strings, by attribute name.

        Ignores attributes that the model does not use. With `extrapolate` numbers and predictions may lie beyond public
        bounds. Raises RowsError: an attribute is missing, has another length, or holds a value that it cannot have.
        """
        terms = term_matrix(rows, self.schema, intercept=self.intercept)
        levelled = (a for a in self.schema if not isinstance(a, NumericAttribute))
        said, place = [text for a in levelled for text in outside_intervals(a, rows[a.name])], int(self.intercept)
        if extrapolate:
            return Predicted(np.asarray(terms @ self.coefficients), tuple(said))
        for attribute in self.schema:
            if isinstance(attribute, NumericAttribute):
                for factor in parts_of(attribute):  # the product is of clipped values
                    if isinstance(factor, NumericAttribute):
                        numbers = np.array(rows[factor.name], np.float64)
                        said += _clip(numbers, factor.lower, factor.upper, f"values of {factor.name}")
                said += _clip(terms[:, place], attribute.lower, attribute.upper, f"values of {attribute.name}")
            place += len(attribute.columns)
        values = np.asarray(terms @ self.coefficients)
        said += _clip(values, *public_bounds(self.response), f"predictions of {self.response.name}")
        return Predicted(values, tuple(dict.fromkeys(said)))

    def warned(self, rows: Mapping[str, Values], *, extrapolate: bool = False) -> Array:
        """Expected targets (m,); an OutsideBoundsWarning for each kind of value that was clipped. Raises RowsError."""
        found = self.of(rows, extrapolate=extrapolate)
        for said in found.warnings:
            warnings.warn(said, OutsideBoundsWarning, stacklevel=3)
        return found.values


def public_bounds(response: Attribute) -> tuple[float, float]:
    """The bounds of the expected target: its own, or 0 and 1 for a share."""
    return (response.lower, response.upper) if isinstance(response, NumericAttribute) else (0.0, 1.0)


def _clip(values: Array, lower: float, upper: float, what: str) -> list[str]:
    said = _outside(values, lower, upper, what, "were clipped; set extrapolate to take them as they are.")
    np.clip(values, lower, upper, out=values)
    return said


def _outside(values: Array, lower: float, upper: float, what: str, so: str) -> list[str]:
    outside = int(np.count_nonzero((values < lower) | (values > upper)))
    return [f"{outside:,} of {len(values):,} {what} lay outside {lower:g} to {upper:g} and {so}"] if outside else []
