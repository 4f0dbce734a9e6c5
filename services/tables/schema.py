"""Attributes from a table, for simulation only: real bounds are public and never computed from private rows."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ValidationError

from commingle.services.errors import TableError
from commingle.services.tables.reading import is_numeric, type_text
from commingle.shared.documents.explained import explain
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Missing,
    NumericAttribute,
)
from commingle.shared.encoding import Cells, as_numbers, as_text, encode_conforming, is_number
from commingle.shared.errors import DataError

MAX_LEVELS = 256
_MOSTLY_NUMBERS = 0.9
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_IDENTIFIES_FROM = 100  # of fewer rows, ages may well be all different


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a column cannot be an attribute."""

    reason: str


Marks = Literal["midpoint", "indicator"]
"""What a drafted attribute makes of missing cells; levels are marked, or their rows left out."""


def draft(name: str, cells: Cells, *, target: bool, levels: bool, missing: Marks = "midpoint") -> Attribute | Unusable:
    """The attribute that a column suggests: bounds are its least and largest value, levels those it holds.

    Args:
        name: of the column.
        cells: of the column.
        target: whether it is to be predicted; numbers then stay numbers, even if there are but two.
        levels: whether the column is known to hold levels: numbers are then codes of them.
        missing: what becomes of missing cells, if there are any and it is not to be predicted.

    Raises:
        TableError: infinite values, text among numbers, or a name or level that no attribute can have.
    """
    present = cells.drop_null()
    rule: Missing = missing if cells.null_count > 0 and not target else "error"
    try:
        if is_numeric(cells) and not levels:
            return _of_numbers(name, present, target=target, rule=rule)
        kinds, counts = np.unique(
            as_text(name, present).drop_null().to_numpy(zero_copy_only=False).astype(str), return_counts=True
        )
        if not levels:
            _refuse_text_among_numbers(name, kinds, counts)
        return _of_levels(name, kinds.tolist(), counts, rule=rule)
    except ValidationError as error:
        raise TableError(
            f"column {name!r} cannot be an attribute: {explain(error)}", remedy="Rename the column or its levels."
        ) from None


def identifies_rows(name: str, cells: Cells) -> bool:
    """Whether a column seems to say which row it is and nothing about a person: an index, or a number or text apiece.

    Measurements with decimals differ from row to row as well, and are none.
    """
    if _INDEX.fullmatch(name):
        return True
    if len(cells) < _IDENTIFIES_FROM or cells.null_count or len(pc.unique(cells)) < len(cells):
        return False
    return not is_numeric(cells) or bool(pc.all(pc.equal(pc.floor(cells), cells)).as_py())


def conform(attribute: Attribute, cells: Cells) -> Cells:
    """The column as its attribute encodes it, missing values aside: one as an agent registers it.

    Where text does not fit as it stands, it is tried as numbers or booleans: a CSV may write True for true.

    Raises:
        TableError: text in a number, infinite values, or levels that the schema does not have.
    """
    refused = []
    for reading in (cells,) if isinstance(attribute, NumericAttribute) else (cells, type_text(cells)):
        try:
            encode_conforming(attribute, reading, gaps=True)
        except DataError as error:
            refused.append(error)
        else:
            if not isinstance(attribute, NumericAttribute):
                return as_text(attribute.name, reading)
            return reading.cast(pa.float64()) if pa.types.is_floating(reading.type) else reading
    raise TableError(str(refused[0]), remedy=refused[0].remedy)


def _of_numbers(name: str, present: Cells, *, target: bool, rule: Missing) -> Attribute | Unusable:
    numbers = as_numbers(name, present)
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise TableError(f"column {name!r} holds {infinite} infinite values", remedy="Correct or remove them.")
    kinds = np.unique(numbers)
    if len(kinds) < 2:  # noqa: PLR2004 - what does not vary
        return Unusable("it does not vary" if len(kinds) else "it holds no values")
    if len(kinds) == 2 and not target:  # noqa: PLR2004 - two values are two levels
        # as the encoder reads them: in the column's own type
        first, second = sorted((str(text) for text in as_text(name, present.unique()).to_pylist()), key=float)
        return BinaryAttribute(name=name, levels=(first, second), missing=rule)
    return NumericAttribute(name=name, lower=float(kinds[0]), upper=float(kinds[-1]), missing=rule)


def _of_levels(name: str, levels: list[str], counts: NDArray[Any], *, rule: Missing) -> Attribute | Unusable:
    match len(levels):
        case 0 | 1:
            return Unusable("it does not vary" if levels else "it holds no values")
        case 2:
            first, second = levels
            return BinaryAttribute(name=name, levels=(first, second), missing=rule)
        case count if count > MAX_LEVELS:
            return Unusable(f"it has {count} levels, more than {MAX_LEVELS}")
    commonest = levels.pop(int(np.argmax(counts)))  # the reference, because rare ones make the fit unstable
    marks: Literal["error", "indicator"] = "indicator" if rule == "indicator" else "error"
    return CategoricalAttribute(name=name, levels=(commonest, *levels), missing=marks)


def _refuse_text_among_numbers(name: str, kinds: NDArray[np.str_], counts: NDArray[Any]) -> None:
    numbers = np.array([is_number(kind) for kind in kinds], dtype=bool)
    share = counts[numbers].sum() / max(1, counts.sum())
    if _MOSTLY_NUMBERS <= share < 1:
        raise TableError(
            f"column {name!r} holds text among numbers: {counts[~numbers].sum()} values",
            remedy="Correct them, leave them empty where they are missing, or declare the column in a schema file.",
        )
