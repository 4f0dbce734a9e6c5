"""The meaning of a cell: a number, a text or the id of a subject, each cell by itself, whatever its source.

Pure functions that hold no row. An unreadable cell has no value, and never changes how another cell is read.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.shared.documents.subject_ids import EXACT, LONGEST_PART, IdCounts, SubjectKey, canonical_subject
from commingle.shared.errors import DataError
from commingle.shared.text import counted

Cells: TypeAlias = "pa.Array[Any]"  # one column of some rows, of whatever type the source has

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "null", "NULL")
"""The spellings of a missing value in a file without types."""

LONGEST_CELL = 1 << 20
"""Bytes of a text above which it is no number, level or id: it would be copied, and quoted by what refuses it."""

UNREADABLE = b"\xff"  # stands for an unreadable cell: it is neither a number, nor a level, nor an id

_LARGEST_WHOLE = 2.0**53
_ASCII_BLANKS = "".join(filter(str.isspace, map(chr, range(128))))  # what str.strip takes off
_KINDS_OF_TEXT = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


@dataclass(frozen=True, slots=True)
class SubjectIds:
    """The subjects of some rows."""

    ids: Cells = field(repr=False)  # canonical ids (`SubjectKey.canonical`), empty where a row has none
    counts: IdCounts  # without duplicates, which these rows alone do not show


def spelled_missing(name: str, levels: Sequence[str]) -> tuple[str, str] | None:
    """Why a CSV has nobody at some levels of an attribute, and the remedy; None if it spells none as missing."""
    found = [level for level in levels if level.strip() in MISSING]
    if not found:
        return None
    said = f"column {name}: a CSV spells missing cells {', '.join(found)}, as the schema does a level"
    return said, "Write another word for the level in file and schema, or give the rows as Parquet or from a database."


def subject_ids(key: SubjectKey, columns: Mapping[str, Cells]) -> SubjectIds:
    """Canonical subject ids of some rows, each by itself. Raises DataError for columns whose type has no text.

    An unreadable cell gives an empty id: bytes that are no UTF-8, too long a cell, or one that breaks its rule.
    """
    texts = [_parts(name, columns[name]) for name in key.columns]
    if key.rules == EXACT:  # as most tables have it, and there is nothing to compare
        exact = _exact_ids(texts[0].fill_null(""))
        nothing, empty = id_lengths(exact) == 0, _blank(texts[0], columns[key.columns[0]])
        counts = IdCounts(len(exact), missing=int((nothing & empty).sum()), invalid=int((nothing & ~empty).sum()))
        return SubjectIds(exact, counts)
    blank = np.logical_or.reduce([_blank(text, columns[n]) for text, n in zip(texts, key.columns, strict=True)])
    ids, missing, invalid, changed = list[bytes](), 0, 0, 0
    for row, is_blank in zip(zip(*(text.to_pylist() for text in texts), strict=True), blank.tolist(), strict=True):
        cells = [cell or "" for cell in row]
        ids.append(found := key.canonical(cells))
        missing += bool(is_blank)
        invalid += bool(not is_blank and not found)
        changed += bool(found and found != key.written(cells))
    counts = IdCounts(len(ids), missing=missing, invalid=invalid, changed=changed)
    return SubjectIds(pa.array(ids, pa.large_binary()), counts)


def _parts(name: str, values: Cells) -> Cells:
    texts = as_text(name, values)
    is_short = pc.less_equal(pc.call_function("binary_length", [texts]), pa.scalar(LONGEST_PART))
    found: Cells = pc.if_else(is_short, texts, pa.scalar(None, texts.type))
    return found


def _blank(texts: Cells, values: Cells) -> NDArray[np.bool_]:
    nothing = pc.is_null(plain_cells(values), nan_is_null=True).to_numpy(zero_copy_only=False)
    empty = pc.equal(texts, pa.scalar("", texts.type)).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    found: NDArray[np.bool_] = np.logical_or(nothing, empty)
    return found


def _exact_ids(texts: Cells) -> Cells:
    # ASCII needs no normalisation, and Arrow strips it at once
    stripped, others = pc.ascii_trim(texts, _ASCII_BLANKS), pc.invert(pc.string_is_ascii(texts))
    listed: list[Any] = texts.filter(others).to_pylist()
    ids = pa.array(map(canonical_subject, listed), pa.large_binary())
    replaced: Cells = pc.call_function("replace_with_mask", [stripped.cast(pa.large_binary()), others, ids])
    return replaced


def id_lengths(ids: Cells) -> NDArray[np.int64]:
    """Bytes of each canonical id; 0 for a row without one."""
    found: NDArray[np.int64] = pc.call_function("binary_length", [ids]).to_numpy()
    return found


def length_prefixed(ids: Cells) -> bytes:
    """Ids (large binary) side by side, each behind its length: 4 bytes, big-endian."""
    heads = pa.Array.from_buffers(pa.binary(4), len(ids), [None, pa.py_buffer(id_lengths(ids).astype(">u4").data)])
    nothing = pa.scalar(b"", pa.large_binary())
    each: Cells = pc.call_function("binary_join_element_wise", [heads.cast(pa.large_binary()), ids, nothing])
    whole = pa.ListArray.from_arrays(pa.array([0, len(ids)], pa.int32()), each)
    joined: bytes = pc.call_function("binary_join", [whole, nothing])[0].as_py()
    return joined


def as_text(name: str, values: Cells) -> Cells:
    """Values as people write them, each by itself: 1.0 and 1 are "1", text is stripped.

    Null for a missing value, NaN, and bytes that are no UTF-8. Raises DataError: the column's type has no text, such as
    lists.
    """
    plain = plain_cells(values)
    if not has_text(plain.type):
        raise no_text(name, plain.type)
    return _by_halves(_text, plain, pa.large_string())


@lru_cache(maxsize=256)  # it is asked of every column of every batch
def has_text(kind: "pa.DataType") -> bool:
    """Whether values of a type have a text. That depends on the type alone, not on cells."""
    try:
        _text(plain_cells(pa.array([0] if pa.types.is_timestamp(kind) else [], kind)))  # in a zone that may be unknown
    except pa.ArrowException:
        return False
    return True


def no_text(name: str, kind: "pa.DataType") -> DataError:
    """The refusal of a column whose type nobody can read."""
    return DataError(
        f"column {name}: values of type {kind} cannot be read as text",
        remedy="Store numbers or text in this column.",
    )


def as_numbers(name: str, values: Cells) -> NDArray[np.float64]:
    """Values as float64, NaN where missing. Raises DataError: values that are not numbers."""
    plain = plain_cells(values)
    numbers = numbers_in(plain)
    if numbers.null_count > plain.null_count:
        raise not_numbers(name, numbers.null_count - plain.null_count)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def readable_numbers(values: Cells) -> NDArray[np.float64]:
    """Values as float64, each by itself, NaN where a cell holds no number."""
    found = numbers_in(plain_cells(values))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.float64)


def is_number(value: object) -> bool:
    """Whether a value, perhaps a text, reads as a number."""
    try:
        float(value)  # type: ignore[arg-type] # that is the question
    except (TypeError, ValueError):
        return False
    return True


def plain_cells(values: Cells) -> Cells:
    """Dictionary-encoded cells as the values they stand for.

    Privacy: many cells may stand for one long text, which together would fill a batch and end the reading of others.
    """
    if not isinstance(values, pa.DictionaryArray):
        return values
    known: Cells = values.dictionary
    if any(is_kind(known.type) for is_kind in _KINDS_OF_TEXT):
        known = _short(known, UNREADABLE)
    return pa.DictionaryArray.from_arrays(values.indices, known).dictionary_decode()


def _short(texts: Cells, instead: bytes | None) -> Cells:
    """Texts as bytes, with something else in place of each that is too long to be read."""
    found: Cells = texts.cast(pa.large_binary())
    lengths = pc.call_function("binary_length", [found])
    if (pc.max(lengths).as_py() or 0) > LONGEST_CELL:
        is_short = pc.less_equal(lengths, pa.scalar(LONGEST_CELL))
        found = pc.if_else(is_short, found, pa.scalar(instead, found.type))
    return found


def _by_halves(read: Callable[[Cells], Cells], cells: Cells, kind: "pa.DataType") -> Cells:
    """The results of `read` for each cell, null for a cell that it refuses, whatever stands beside it.

    Privacy: a row's encoding may not depend on another row's cell, so a refusal is followed down to its cell.
    """
    try:
        return read(cells)
    except pa.ArrowException as refusal:
        is_of_type = isinstance(refusal, pa.ArrowNotImplementedError)  # so of every cell
    middle = len(cells) // 2  # behind the refusal, which quotes the cell: no more than one is kept at a time
    if middle and not is_of_type:
        return pa.concat_arrays([_by_halves(read, half, kind) for half in (cells[:middle], cells[middle:])])
    nothing: Cells = pa.array([None] * len(cells), kind)
    return nothing


def numbers_in(plain: Cells) -> Cells:
    """Values as float64, null where a cell holds no number."""
    return _by_halves(_numbers, plain, pa.float64())


def places_in(levels: Sequence[str], plain: Cells) -> Cells:
    """The place of each value among these texts, int32, null if it is none."""
    known = pa.array(levels, pa.large_string())
    return _by_halves(lambda part: pc.index_in(_text(part), value_set=known), plain, pa.int32())


def _text(plain: Cells) -> Cells:
    if pa.types.is_floating(plain.type):
        return _number_text(plain)
    if any(is_kind(plain.type) for is_kind in _KINDS_OF_TEXT):
        plain = _short(plain, None)  # as bytes, since a file may call bytes text that are none
    return pc.utf8_trim_whitespace(plain.cast(pa.large_string()))


def _numbers(plain: Cells) -> Cells:
    if not any(is_kind(plain.type) for is_kind in _KINDS_OF_TEXT):
        return plain.cast(pa.float64(), safe=False)
    text = _text(plain)
    try:
        return text.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:
        # a source without types writes these for 1 and 0
        for truth, number in (("true", "1"), ("false", "0")):
            text = pc.if_else(pc.equal(text, pa.scalar(truth, text.type)), pa.scalar(number, text.type), text)
        return text.cast(pa.float64(), safe=False)


def _number_text(numbers: Cells) -> Cells:
    exact = numbers.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(exact), exact), pc.less_equal(pc.abs(exact), pa.scalar(_LARGEST_WHOLE)))
    integers = pc.if_else(whole, exact, None).cast(pa.int64()).cast(pa.large_string())
    others = pc.if_else(pc.is_nan(exact), pa.scalar(None, numbers.type), numbers).cast(pa.large_string())
    return pc.coalesce(integers, others)


def derive_number(name: str) -> str:
    """The option by which a member makes numbers of a column that holds 186,572 or <0.5."""
    return f"--derive '{name} = number({name}, thousands=comma, below=half)'"


def not_numbers(name: str, count: int) -> DataError:
    """The refusal of a column of numbers in which `count` cells hold none."""
    return DataError(
        f"column {name}: {counted(count, 'value is no number', 'values are not numbers')}",
        remedy="Correct them. Or have the owner of the data set declare it anew: decimal commas by --decimal ',', "
        f"numbers like 186,572 or <0.5 by {derive_number(name)}, or the attribute as categorical.",
    )
