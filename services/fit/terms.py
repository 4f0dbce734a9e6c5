"""Terms of a model: their values for rows in original units, and the ranges that are public."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.estimation.errors import RowsError
from commingle.shared.estimation.prepared import Array

Values = Sequence[float | None] | Sequence[str | None] | NDArray[Any]


def term_matrix(rows: Mapping[str, Values], attributes: tuple[Attribute, ...], *, intercept: bool) -> Array:
    """One row per row and one column per term, (m, p_x). Attributes that the model does not use are ignored.

    None and NaN are missing cells of attributes that mark these.

    Raises:
        RowsError: an attribute is missing, of another length, or holds something that is not one of its values.
    """
    missing = [a.name for a in attributes if a.name not in rows]
    if missing:
        raise RowsError(
            f"the rows lack {', '.join(map(repr, missing))}",
            remedy=f"Give all of: {', '.join(a.name for a in attributes)}.",
        )
    lengths = {len(rows[a.name]) for a in attributes} or {len(values) for values in rows.values()}
    if len(lengths) != 1:
        raise RowsError(
            "the rows have no length" if not lengths else f"the attributes differ in length: {sorted(lengths)}",
            remedy="Give one value of each attribute for every row.",
        )
    columns = [np.ones(lengths.pop())] if intercept else []
    for attribute in attributes:
        columns += _columns(attribute, rows[attribute.name])
    return np.column_stack(columns)


def public_ranges(attributes: tuple[Attribute, ...]) -> Array:
    """Of each term but the intercept: upper - lower of a number, 1 for a level against the reference, 1 for a mark."""
    widths = np.ones(sum(len(a.columns) for a in attributes))
    start = 0
    for attribute in attributes:
        if isinstance(attribute, NumericAttribute):
            widths[start] = attribute.upper - attribute.lower
        start += len(attribute.columns)
    return widths


def _columns(attribute: Attribute, values: Values) -> list[Array]:
    if attribute.missing != "indicator":
        return _present(attribute, values)
    gaps = _gaps(values)
    known = np.flatnonzero(~gaps)
    present = _present(attribute, np.asarray(values, dtype=object)[known])
    terms = []
    for column, found in zip(attribute.columns[:-1], present, strict=True):
        term = np.full(len(gaps), column.offset)
        term[known] = found
        terms.append(term)
    return [*terms, gaps.astype(np.float64)]


def _gaps(values: Values) -> NDArray[np.bool_]:
    """Which values are missing: None or NaN."""
    missing = (value is None or (isinstance(value, float | np.floating) and isnan(value)) for value in values)
    return np.fromiter(missing, dtype=bool, count=len(values))


def _present(attribute: Attribute, values: Values) -> list[Array]:
    if isinstance(attribute, NumericAttribute):
        return [_numbers(attribute.name, values)]
    levels = np.asarray(values).astype(str)
    if not set(levels.tolist()) <= set(attribute.levels):
        raise RowsError(
            f"{attribute.name!r} holds something that is not one of its levels",
            remedy=f"Its levels are: {', '.join(attribute.levels)}.",
        )
    return [(levels == level).astype(np.float64) for level in attribute.levels[1:]]


def _numbers(name: str, values: Values) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise RowsError(f"{name!r} holds something that is not a number", remedy="Give numbers.") from None
