"""Terms of a model: their values for rows in original units, and the ranges that are public."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.estimation.errors import RowsError
from commingle.shared.estimation.prepared import Array

Values = Sequence[float] | Sequence[str] | NDArray[Any]


def term_matrix(rows: Mapping[str, Values], attributes: tuple[Attribute, ...], *, intercept: bool) -> Array:
    """One row per row and one column per term, (m, p_x). Attributes that the model does not use are ignored.

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
    """Of each term but the intercept: upper - lower of a number, 1 for a level against the reference level."""
    widths = [
        [a.upper - a.lower] if isinstance(a, NumericAttribute) else [1.0] * (len(a.levels) - 1) for a in attributes
    ]
    return np.array([width for of_attribute in widths for width in of_attribute])


def _columns(attribute: Attribute, values: Values) -> list[Array]:
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
