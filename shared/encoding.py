"""Raw values to fixed-point integers, the only code that does it: for agents, the planner and the simulation.

Pure functions of public bounds and of the cells given; no row is held. Errors name a column and a count, never a value.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.shared.documents.linkage import canonical_subject
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Whitening,
)
from commingle.shared.dp.fixed_point import FRACTION_BITS, clip_rows, coarsen, quantise, squared_row_limit
from commingle.shared.dp.whitening import WHITENED_LIMIT
from commingle.shared.errors import DataError

Cells: TypeAlias = "pa.Array[Any]"
"""One column of some rows, of whatever type the source has."""

MISSING = ("", "NA", "N/A", "null", "NULL")
"""How a file without types spells a missing value."""

_LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True)
class EncodedAttribute:
    """One attribute of m rows.

    Attributes:
        exact: m x width values in [-1, 1], before they are rounded.
        clipped: values outside the public bounds.
        missing: empty values, encoded as the midpoint, 0.
    """

    exact: NDArray[np.float64] = field(repr=False)
    clipped: int = 0
    missing: int = 0

    @property
    def columns(self) -> NDArray[np.int64]:
        """M x width integers."""
        return quantise(self.exact)


def encode_attribute(attribute: Attribute, values: Cells) -> EncodedAttribute:
    """Encode one column of some rows.

    Raises:
        DataError: missing values that the schema does not allow, text in a number, an unknown level, NaN or infinity.
    """
    missing = values.null_count
    if missing and not (isinstance(attribute, NumericAttribute | BinaryAttribute) and attribute.missing == "midpoint"):
        raise DataError(
            f"column {attribute.name}: {missing} missing values",
            remedy='Complete them, leave the rows out, or allow "missing": "midpoint" (numeric and binary attributes).',
        )
    return encode_with_gaps(attribute, values)


def encode_with_gaps(attribute: Attribute, values: Cells) -> EncodedAttribute:
    """As `encode_attribute`, but what is missing is 0 whatever the schema says: for PUBLIC rows.

    Raises:
        DataError: text in a number, an unknown level, NaN or infinity.
    """
    if isinstance(attribute, NumericAttribute):
        return _encode_numeric(attribute, values)
    codes = _level_codes(attribute, values)
    if isinstance(attribute, CategoricalAttribute):
        indicators = codes[:, None] == np.arange(1, len(attribute.levels))
        return EncodedAttribute(indicators.astype(np.float64), missing=values.null_count)
    signs = np.where(codes == 0, -1.0, 1.0)
    return EncodedAttribute(np.where(codes < 0, 0.0, signs)[:, None], missing=values.null_count)


def encode_rows(attributes: Iterable[Attribute], columns: Mapping[str, Cells]) -> NDArray[np.int64]:
    """Some rows (m x width integers), the attributes side by side. Raises DataError as `encode_attribute`."""
    return np.hstack([encode_attribute(a, columns[a.name]).columns for a in attributes])


class RowBounds(Protocol):
    """What a party does to its rows: its part of a spec, of a study or of a plan."""

    @property
    def row_norm(self) -> float | None: ...
    @property
    def whitening(self) -> Whitening | None: ...


def bounded_rows(
    party: RowBounds, fraction_bits: int = FRACTION_BITS
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Encoded rows (m x d) to the rows whose distances `squared_sensitivity` bounds: whitened, then clipped."""
    if party.row_norm is None:
        return lambda rows: coarsen(rows, fraction_bits)
    limit = squared_row_limit(party.row_norm, fraction_bits)
    if party.whitening is None:
        return lambda rows: clip_rows(coarsen(rows, fraction_bits), limit)
    whiten = party.whitening.integer_map().rows
    return lambda rows: clip_rows(whiten(rows), limit, largest=WHITENED_LIMIT)


def canonical_ids(name: str, values: Cells) -> list[bytes]:
    """Canonical subject ids of some rows. Raises DataError for missing or empty ones."""
    ids = [canonical_subject(text or "") for text in as_text(name, values).to_pylist()]
    empty = sum(not identifier for identifier in ids)
    if empty:
        raise DataError(f"column {name}: {empty} subject ids are missing", remedy="Every row needs its subject id.")
    return ids


def as_text(name: str, values: Cells) -> Cells:
    """Values as people write them, each by itself: 1.0 and 1 are "1", text is stripped, NaN is missing.

    Raises:
        DataError: values that have no text, such as lists or bytes.
    """
    plain = plain_cells(values)
    try:
        text = _number_text(plain) if pa.types.is_floating(plain.type) else plain.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"column {name}: values of type {plain.type} cannot be read as text",
            remedy="Store numbers or text in this column.",
        ) from None
    return pc.utf8_trim_whitespace(text)


def as_numbers(name: str, values: Cells) -> NDArray[np.float64]:
    """Values as float64, NaN where missing.

    Raises:
        DataError: values that are not numbers.
    """
    plain = plain_cells(values)
    if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
        plain = pc.utf8_trim_whitespace(plain)
    try:
        numbers = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        bad = sum(not is_number(value) for value in plain.drop_null().to_pylist())
        raise DataError(
            f"column {name}: {bad} values are not numbers",
            remedy="Correct them (decimal point, no thousands separator), or declare the attribute categorical.",
        ) from None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def is_number(value: object) -> bool:
    """Whether a value, perhaps a text, reads as a number."""
    try:
        float(value)  # type: ignore[arg-type] # that is the question
    except (TypeError, ValueError):
        return False
    return True


def plain_cells(values: Cells) -> Cells:
    """Dictionary-encoded cells as the values they stand for."""
    if isinstance(values.type, pa.DictionaryType):
        return values.cast(values.type.value_type)
    return values


def _number_text(numbers: Cells) -> Cells:
    exact = numbers.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(exact), exact), pc.less_equal(pc.abs(exact), pa.scalar(_LARGEST_WHOLE)))
    integers = pc.if_else(whole, exact, None).cast(pa.int64()).cast(pa.string())
    others = pc.if_else(pc.is_nan(exact), pa.scalar(None, numbers.type), numbers).cast(pa.string())
    return pc.coalesce(integers, others)


def _encode_numeric(attribute: NumericAttribute, values: Cells) -> EncodedAttribute:
    missing = values.null_count
    numbers = as_numbers(attribute.name, values)
    present = ~np.isnan(numbers) if missing else np.ones(len(numbers), bool)
    not_finite = int(np.count_nonzero(~np.isfinite(numbers))) - missing
    if not_finite:
        raise DataError(
            f"column {attribute.name}: {not_finite} values are NaN or infinite",
            remedy="Store missing values as empty cells and correct the rest.",
        )
    outside = (numbers < attribute.lower) | (numbers > attribute.upper)
    # x = 2 (v - lower) / (upper - lower) - 1
    clipped = np.clip(numbers, attribute.lower, attribute.upper)
    encoded = np.clip(2 * ((clipped - attribute.lower) / (attribute.upper - attribute.lower)) - 1, -1, 1)
    exact = np.where(present, encoded, 0.0)[:, None]
    return EncodedAttribute(exact, clipped=int(np.count_nonzero(outside)), missing=missing)


def _level_codes(attribute: BinaryAttribute | CategoricalAttribute, values: Cells) -> NDArray[np.int64]:
    """Index of each value among the levels, -1 where missing."""
    text = as_text(attribute.name, values)
    codes = pc.index_in(text, value_set=pa.array(attribute.levels, pa.string()))
    unknown = codes.null_count - values.null_count
    if unknown:
        raise DataError(
            f"column {attribute.name}: {unknown} values are not among the levels {', '.join(attribute.levels)}",
            remedy="Add the level to the schema or correct the values.",
        )
    return np.asarray(codes.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
