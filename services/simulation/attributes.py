"""Attributes from a table, for simulation only: real bounds are public and never computed from private rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from commingle.services.simulation.errors import TableError
from commingle.services.simulation.table import Levels, Numbers, as_levels, is_numeric, missing
from commingle.shared.documents.model import explain
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Missing,
    NumericAttribute,
)

MAX_LEVELS = 256
_MOSTLY_NUMBERS = 0.9


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a column cannot be an attribute."""

    reason: str


def infer(name: str, values: NDArray[Any], *, target: bool, levels: bool) -> Attribute | Unusable:
    """The attribute that a column suggests: bounds are its least and largest value, levels those it holds.

    Args:
        name: of the column.
        values: of the column.
        target: whether it is to be predicted; numbers then stay numbers, even if there are but two.
        levels: whether the column is known to hold levels: numbers are then codes of them.

    Raises:
        TableError: infinite values, text among numbers, or a name or level that no attribute can have.
    """
    present = values[~missing(values)]
    try:
        if is_numeric(values) and not levels:
            return _of_numbers(name, present, target=target, gaps=len(present) < len(values))
        if not levels:
            _refuse_text_among_numbers(name, present)
        return _of_levels(name, as_levels(present), gaps=len(present) < len(values) and not target)
    except ValidationError as error:
        raise TableError(
            f"column {name!r} cannot be an attribute: {explain(error)}", remedy="Rename the column or its levels."
        ) from None


def _of_numbers(name: str, present: Numbers, *, target: bool, gaps: bool) -> Attribute | Unusable:
    infinite = int(np.isinf(present).sum())
    if infinite:
        raise TableError(f"column {name!r} holds {infinite} infinite values", remedy="Correct or remove them.")
    kinds = np.unique(present)
    if len(kinds) < 2:  # noqa: PLR2004 - what does not vary
        return Unusable("it does not vary" if len(kinds) else "it holds no values")
    rule: Missing = "midpoint" if gaps and not target else "error"
    if len(kinds) == 2 and not target:  # noqa: PLR2004 - two values are two levels
        return BinaryAttribute(name=name, levels=tuple(as_levels(kinds).tolist()), missing=rule)
    return NumericAttribute(name=name, lower=float(kinds[0]), upper=float(kinds[-1]), missing=rule)


def _of_levels(name: str, present: Levels, *, gaps: bool) -> Attribute | Unusable:
    kinds, counts = np.unique(present.astype(str), return_counts=True)
    levels = kinds.tolist()
    match len(levels):
        case 0 | 1:
            return Unusable("it does not vary" if levels else "it holds no values")
        case 2:
            return BinaryAttribute(name=name, levels=tuple(levels), missing="midpoint" if gaps else "error")
        case count if count > MAX_LEVELS:
            return Unusable(f"it has {count} levels, more than {MAX_LEVELS}")
    commonest = levels.pop(int(np.argmax(counts)))  # the reference, because rare ones make the fit unstable
    return CategoricalAttribute(name=name, levels=(commonest, *levels))


def _refuse_text_among_numbers(name: str, present: Levels) -> None:
    kinds, counts = np.unique(present.astype(str), return_counts=True)
    numbers = np.array([_is_number(kind) for kind in kinds], dtype=bool)
    share = counts[numbers].sum() / max(1, counts.sum())
    if _MOSTLY_NUMBERS <= share < 1:
        raise TableError(
            f"column {name!r} holds text among numbers: {counts[~numbers].sum()} values",
            remedy="Correct them, leave them empty where they are missing, or declare the column in a schema file.",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def conform(attribute: Attribute, values: NDArray[Any]) -> NDArray[Any]:
    """The column as its attribute needs it: numbers, or levels of the schema.

    Raises:
        TableError: text where the attribute is numeric, infinite values, or levels that the schema does not have.
    """
    name = attribute.name
    if isinstance(attribute, NumericAttribute):
        if not is_numeric(values):
            raise TableError(
                f"column {name!r} is numeric by its schema but holds text", remedy="Correct the table or the schema."
            )
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise TableError(f"column {name!r} holds {infinite} infinite values", remedy="Correct or remove them.")
        return values
    levels = as_levels(values)
    unknown = sorted(set(levels[~missing(levels)].tolist()) - set(attribute.levels))
    if unknown:
        raise TableError(
            f"column {name!r} holds {unknown[0]!r}, which its schema does not have",
            remedy=f"Its levels are: {', '.join(attribute.levels[:20])}. Correct the table or the schema.",
        )
    return levels
