"""Raw columns to fixed-point integers (protocol.md section 1). Errors name a column and a count, never a value."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.rows import Cells, RawReader
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.dp.fixed_point import SCALE, quantise

_LARGEST_WHOLE = 2.0**53


@dataclass(frozen=True, slots=True)
class EncodedAttribute:
    """One attribute of some rows.

    Attributes:
        columns: m x width integers.
        clipped: values outside the public bounds.
        missing: empty values, encoded as the midpoint.
    """

    columns: NDArray[np.int64]
    clipped: int = 0
    missing: int = 0


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
    if isinstance(attribute, NumericAttribute):
        return _encode_numeric(attribute, values, missing)
    codes = _level_codes(attribute, values)
    if isinstance(attribute, CategoricalAttribute):
        indicators = codes[:, None] == np.arange(1, len(attribute.levels))
        return EncodedAttribute(indicators.astype(np.int64) * SCALE)
    signs = np.where(codes == 0, -SCALE, SCALE)
    return EncodedAttribute(np.where(codes < 0, 0, signs)[:, None], missing=missing)


def encode_rows(read: RawReader, attributes: Sequence[Attribute]) -> NDArray[np.int64]:
    """Every row of a source (m x columns integers), for PUBLIC rows: without subjects, order or digest.

    Raises:
        DataError: as `encode_attribute`.
    """
    batches = [
        np.hstack([encode_attribute(a, batch.columns[a.name]).columns for a in attributes])
        for batch in read([a.name for a in attributes])
    ]
    return np.vstack(batches) if batches else np.empty((0, 1), np.int64)


def as_text(name: str, values: Cells) -> Cells:
    """Values as people write them, each by itself: 1.0 and 1 are "1", text is stripped, NaN is missing.

    Raises:
        DataError: values that have no text, such as lists or bytes.
    """
    plain = _plain(values)
    try:
        text = _number_text(plain) if pa.types.is_floating(plain.type) else plain.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"column {name}: values of type {plain.type} cannot be read as text",
            remedy="Store numbers or text in this column.",
        ) from None
    return pc.utf8_trim_whitespace(text)


def _number_text(numbers: Cells) -> Cells:
    exact = numbers.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(exact), exact), pc.less_equal(pc.abs(exact), pa.scalar(_LARGEST_WHOLE)))
    integers = pc.if_else(whole, exact, None).cast(pa.int64()).cast(pa.string())
    others = pc.if_else(pc.is_nan(exact), pa.scalar(None, numbers.type), numbers).cast(pa.string())
    return pc.coalesce(integers, others)


def _plain(values: Cells) -> Cells:
    """Dictionary-encoded cells as the values they stand for."""
    if isinstance(values.type, pa.DictionaryType):
        return values.cast(values.type.value_type)
    return values


def _encode_numeric(attribute: NumericAttribute, values: Cells, missing: int) -> EncodedAttribute:
    numbers = _numbers(attribute.name, values)
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
    columns = quantise(np.where(present, encoded, 0.0))[:, None]
    return EncodedAttribute(columns, clipped=int(np.count_nonzero(outside)), missing=missing)


def _numbers(name: str, values: Cells) -> NDArray[np.float64]:
    """float64, NaN where missing."""
    plain = _plain(values)
    if pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type):
        plain = pc.utf8_trim_whitespace(plain)
    try:
        numbers = plain.cast(pa.float64(), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        bad = sum(not _is_number(value) for value in plain.drop_null().to_pylist())
        raise DataError(
            f"column {name}: {bad} values are not numbers",
            remedy="Correct them (decimal point, no thousands separator), or declare the attribute categorical.",
        ) from None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type] # that is the question
    except (TypeError, ValueError):
        return False
    return True


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
