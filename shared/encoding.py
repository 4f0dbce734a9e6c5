"""Raw values to fixed-point integers, the only code that does it: for agents, the planner and the simulation.

Pure functions of public bounds and of one cell at a time; no row is held. Encoding is total. A caller that wants to
refuse cells asks for that (`encode_conforming`): errors name a column and a count, never a value.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Levelled,
    NumericAttribute,
    as_registered,
)
from commingle.shared.documents.subject_ids import EXACT, LONGEST_PART, IdCounts, SubjectKey, canonical_subject
from commingle.shared.documents.subsets import Subset
from commingle.shared.documents.terms import PartyTerms
from commingle.shared.dp.fixed_point import (
    FRACTION_BITS,
    SCALE,
    WHITENED_LIMIT,
    IntegerMap,
    clip_rows,
    coarsen,
    quantise,
    squared_row_limit,
    within_unit,
)
from commingle.shared.dp.sensitivity import codebook
from commingle.shared.errors import DataError
from commingle.shared.text import counted

Cells: TypeAlias = "pa.Array[Any]"
"""One column of some rows, of whatever type the source has."""

MISSING = ("", "NA", "N/A", "null", "NULL")
"""How a file without types spells a missing value."""

LONGEST_CELL = 1 << 20
"""Bytes of a text above which it is no number, level or id: it would be copied, and quoted by what refuses it."""

UNREADABLE = b"\xff"
"""What stands for a cell that nobody can read: neither a number, nor a level, nor an id."""

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
class EncodedAttribute:
    """One attribute of m rows. The counts are functions of the cells: for whom the rows belong to, and nobody else.

    Attributes:
        exact: m x width values in [-1, 1], before they are rounded.
        gaps: (m,) which cells have no value: missing, unreadable or NaN.
        clipped: finite values outside the public bounds.
        missing: empty cells.
        not_finite: NaN and infinities.
        unreadable: text in a number, levels that the schema does not have, cells that are neither number nor text.
    """

    exact: NDArray[np.float64] = field(repr=False)
    gaps: NDArray[np.bool_] = field(repr=False)
    clipped: int = 0
    missing: int = 0
    not_finite: int = 0
    unreadable: int = 0

    @property
    def columns(self) -> NDArray[np.int64]:
        """M x width integers."""
        return quantise(self.exact)


def encode_attribute(attribute: Attribute, *cells: Cells) -> EncodedAttribute:
    """Encode one column of some rows, or those of both parts of a crossed attribute.

    Total: every cell has its place within the bounds, by itself. What is missing, unreadable or NaN becomes the
    midpoint 0 of a numeric or binary attribute and the reference level of a categorical one, with a 1 beside it where
    the schema marks such cells; infinities are clipped. Levels that are intervals of a number, or pairs, are what
    `as_released` makes of what is registered. Whether an agent goes on may not depend on its cells
    (docs/threat-model.md#no-decision-depends-on-cells), so nothing is refused here: see `encode_conforming`.
    """
    if (registered := as_registered(attribute)) != (attribute,):
        parts = [encode_attribute(part, own) for part, own in zip(registered, cells, strict=True)]
        q = as_released(attribute, np.hstack([part.columns for part in parts]))
        return EncodedAttribute(
            exact=q / SCALE,
            gaps=np.logical_or.reduce([part.gaps for part in parts]),
            clipped=sum(part.clipped for part in parts),
            missing=sum(part.missing for part in parts),
            not_finite=sum(part.not_finite for part in parts),
            unreadable=sum(part.unreadable for part in parts),
        )
    plain = plain_cells(*cells)
    if isinstance(attribute, NumericAttribute):
        found = _encode_numeric(attribute, plain)
    else:
        found = _encode_levels(attribute, plain)
    if attribute.missing != "indicator":
        return found
    return replace(found, exact=np.column_stack([found.exact, found.gaps.astype(np.float64)]))


def encode_conforming(attribute: Attribute, *cells: Cells, gaps: bool = False) -> EncodedAttribute:
    """As `encode_attribute`, for owners, who may be told what their cells are like and should correct them.

    Args:
        attribute: its `missing` says whether empty cells are accepted.
        cells: of the column, or of both parts'.
        gaps: accept empty cells whatever the schema says: for PUBLIC rows.

    Raises:
        DataError: missing values that are not accepted, text in a number, an unknown level, NaN or infinity.
    """
    if (registered := as_registered(attribute)) != (attribute,):
        for part, own in zip(registered, cells, strict=True):
            encode_conforming(part, own, gaps=gaps)
        return encode_attribute(attribute, *cells)
    encoded, name = encode_attribute(attribute, *cells), attribute.name
    if encoded.missing and not gaps and attribute.missing == "error":
        raise DataError(
            f"column {name}: {counted(encoded.missing, 'missing value')}",
            remedy='Complete them, leave the rows out, or allow them in the schema: "missing": "indicator", or '
            '"midpoint" (numeric and binary attributes).',
        )
    if encoded.unreadable and isinstance(attribute, NumericAttribute):
        raise _not_numbers(name, encoded.unreadable)
    if encoded.unreadable and not isinstance(attribute, NumericAttribute):
        raise DataError(
            f"column {name}: {counted(encoded.unreadable, 'value is', 'values are')} not among the levels "
            f"{', '.join(attribute.levels)}",
            remedy="Correct the values, add the levels to the schema, or name each text that the column holds in "
            f"--derive '{name} = recode({name}, OLD=NEW, ...)'.",
        )
    if encoded.not_finite:
        raise DataError(
            f"column {name}: {counted(encoded.not_finite, 'value is', 'values are')} NaN or infinite",
            remedy="Store missing values as empty cells and correct the rest.",
        )
    return encoded


def narrowed(known: NumericAttribute, asked: NumericAttribute, encoded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers (m) of one attribute as they are within narrower bounds, each by itself.

    A value is known to one step of its own bounds, 2^-15 of half their width; a missing one is their midpoint.
    """
    if (known.lower, known.upper) == (asked.lower, asked.upper):
        return encoded
    values = known.lower + (encoded / SCALE + 1) / 2 * (known.upper - known.lower)
    return quantise(within_unit(values, asked.lower, asked.upper))


def as_released(asked: Attribute, encoded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers (m x width) of one attribute as a release has it, from those as it is registered; each row by itself.

    Privacy: a row's level follows from its own integers and public terms alone (docs/proofs/sensitivity.md 1.5, 1.7).
    """
    if as_registered(asked) == (asked,):
        return encoded
    if isinstance(asked, NumericAttribute):
        return _product_of(asked, encoded)
    level, gaps = _levels_of(asked, encoded)
    level = level[:, None]
    places = 2 * level - 1 if isinstance(asked, BinaryAttribute) else level == np.arange(1, len(asked.levels))
    marks = gaps[:, None][:, : asked.missing == "indicator"]
    return np.hstack([places * ~gaps[:, None], marks]).astype(np.int64) * SCALE


def _product_of(asked: NumericAttribute, encoded: NDArray[np.int64]) -> NDArray[np.int64]:
    """(m x 1 or 2) the rounded product of T_k(q) / S, k being how often a factor stands, and whether any is marked."""
    product, gaps, start = np.full(len(encoded), SCALE), np.zeros(len(encoded), np.bool_), 0
    for factor, degree in Counter(asked.product).items():
        product = _nearest(product * chebyshev(encoded[:, start], degree), SCALE)
        start += len(factor.columns)
        gaps |= (factor.missing == "indicator") & (encoded[:, start - 1] > 0)
    marks = gaps[:, None][:, : asked.missing == "indicator"]
    return np.hstack([(product * ~gaps)[:, None], marks.astype(np.int64) * SCALE])


def chebyshev(q: NDArray[np.int64], degree: int) -> NDArray[np.int64]:
    """S T_k(q / S) to the nearest integer, in [-S, S], of q in [-S, S] (docs/proofs/sensitivity.md 1.8)."""
    if degree == 1:
        return q
    if degree == 2:  # noqa: PLR2004 - a square
        return _nearest(2 * q**2 - SCALE**2, SCALE)
    return _nearest(4 * q**3 - 3 * q * SCALE**2, SCALE**2)


def _nearest(numerator: NDArray[np.int64], denominator: int) -> NDArray[np.int64]:
    return (numerator + denominator // 2) // denominator


def within(subsets: Sequence[Subset], encoded: Sequence[NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Which rows are in every subset, from integers (m x d) of the attribute of each as it is registered.

    Privacy: whether a row is follows from its own integers and public terms alone.
    """
    found = np.ones(len(encoded[0]), np.bool_)
    for subset, columns in zip(subsets, encoded, strict=True):
        level, gaps = _levels_of(subset.attribute, columns)
        found &= np.isin(level, list(map(subset.attribute.levels.index, subset.levels))) & ~gaps
    return found


def _levels_of(asked: Levelled, encoded: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The level of each row, and which are marked, from integers (m x d) as what it is made of is registered.

    A value v is in the interval of as many cuts as have q(v) >= q(cut), so a cut is known to a step of the bounds. The
    pair of levels i and j is i L + j. Without a mark, what is missing is in the interval of the midpoint, or has the
    first level.
    """
    if isinstance(asked, CategoricalAttribute) and asked.cross is not None:
        one, other = asked.cross
        width = sum(len(registered.columns) for registered in as_registered(one))
        (first, lacks), (second, lacks_too) = _levels_of(one, encoded[:, :width]), _levels_of(other, encoded[:, width:])
        return first * len(other.levels) + second, lacks | lacks_too
    gaps = encoded[:, -1] > 0 if asked.missing == "indicator" else np.zeros(len(encoded), np.bool_)
    if asked.intervals is not None:
        return asked.intervals.places(encoded[:, 0]), gaps
    if isinstance(asked, BinaryAttribute):
        return (encoded[:, 0] > 0).astype(np.int64), gaps
    others = len(asked.levels) - 1
    return encoded[:, :others] @ np.arange(1, others + 1) // SCALE, gaps


def cells_for(attribute: Attribute, columns: Mapping[str, Cells]) -> list[Cells]:
    """The columns of a table that `encode_attribute` takes of this attribute."""
    return [columns[registered.name] for registered in as_registered(attribute)]


def encode_rows(attributes: Iterable[Attribute], columns: Mapping[str, Cells]) -> NDArray[np.int64]:
    """Some rows (m x width integers), the attributes side by side. Raises DataError as `encode_conforming`."""
    return np.hstack([encode_conforming(a, *cells_for(a, columns)).columns for a in attributes])


def bounded_rows(
    party: PartyTerms, row_map: IntegerMap | None = None, *, fraction_bits: int = FRACTION_BITS
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Encoded rows (m x d) to those that `squared_sensitivity` bounds: contrasts and weights, or mapped; then cut."""
    times = np.repeat(party.weights, [len(a.columns) for a in party.attributes])

    def weighted(rows: NDArray[np.int64]) -> NDArray[np.int64]:
        found = coarsen(contrasts_of(party, rows), fraction_bits)
        return found if party.weighted is None else found * times

    if party.row_norm is None:
        return weighted
    limit = squared_row_limit(party.row_norm, fraction_bits)
    if row_map is None:
        largest = SCALE * max(party.weights, default=1)
        return lambda rows: clip_rows(weighted(rows), limit, largest=largest)
    return lambda rows: clip_rows(coarsen(row_map.rows(rows), fraction_bits), limit, largest=WHITENED_LIMIT)


def contrasts_of(party: PartyTerms, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Encoded rows (m x d) with contrasts in place of indicators of levels; each row by itself."""
    if not party.contrasted:
        return rows
    parts, start = list[NDArray[np.int64]](), 0
    for attribute in party.attributes:
        own = rows[:, start : (start := start + len(attribute.columns))]
        if isinstance(attribute, CategoricalAttribute):
            width = own.shape[1]
            own = codebook(width + 1)[own @ np.arange(1, width + 1) // SCALE]
        parts.append(own)
    return np.hstack(parts)


@dataclass(frozen=True, slots=True)
class SubjectIds:
    """The subjects of some rows.

    Attributes:
        ids: canonical ids (`SubjectKey.canonical`), empty where a row has none.
        counts: without duplicates, which these rows alone do not show.
    """

    ids: Cells = field(repr=False)
    counts: IdCounts


def subject_ids(key: SubjectKey, columns: Mapping[str, Cells]) -> SubjectIds:
    """Canonical subject ids of some rows, each by itself. Raises DataError for columns whose type has no text.

    What cannot be read as an id is none: bytes that are no UTF-8, a cell that is too long, one that breaks its rule.
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
    # what is ASCII needs no normalisation, and Arrow strips it at once
    stripped, others = pc.ascii_trim(texts, _ASCII_BLANKS), pc.invert(pc.string_is_ascii(texts))
    listed: list[Any] = texts.filter(others).to_pylist()
    ids = pa.array(map(canonical_subject, listed), pa.large_binary())
    replaced: Cells = pc.call_function("replace_with_mask", [stripped.cast(pa.large_binary()), others, ids])
    return replaced


def id_lengths(ids: Cells) -> NDArray[np.int64]:
    """Bytes of each canonical id; 0 where there is none."""
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

    Null where there is none: for a missing value, NaN, and bytes that are no UTF-8.

    Raises:
        DataError: the column's type has no text, as that of lists.
    """
    plain = plain_cells(values)
    if not has_text(plain.type):
        raise no_text(name, plain.type)
    return _by_halves(_text, plain, pa.large_string())


@lru_cache(maxsize=256)  # it is asked of every column of every batch
def has_text(kind: "pa.DataType") -> bool:
    """Whether values of a type have a text. It is the type's doing, whatever cells there are."""
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
    numbers = _by_halves(_numbers, plain, pa.float64())
    if numbers.null_count > plain.null_count:
        raise _not_numbers(name, numbers.null_count - plain.null_count)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)


def readable_numbers(values: Cells) -> NDArray[np.float64]:
    """Values as float64, each by itself, NaN where a cell holds no number."""
    found = _by_halves(_numbers, plain_cells(values), pa.float64())
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
    """What `read` makes of each cell, null where it refuses one, whatever stands beside it.

    Privacy: a row's encoding may not depend on another row's cell, so a refusal is followed down to the cell it is of.
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
        # a source without types writes so what is 1 and 0 in one with
        for truth, number in (("true", "1"), ("false", "0")):
            text = pc.if_else(pc.equal(text, pa.scalar(truth, text.type)), pa.scalar(number, text.type), text)
        return text.cast(pa.float64(), safe=False)


def _number_text(numbers: Cells) -> Cells:
    exact = numbers.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.floor(exact), exact), pc.less_equal(pc.abs(exact), pa.scalar(_LARGEST_WHOLE)))
    integers = pc.if_else(whole, exact, None).cast(pa.int64()).cast(pa.large_string())
    others = pc.if_else(pc.is_nan(exact), pa.scalar(None, numbers.type), numbers).cast(pa.large_string())
    return pc.coalesce(integers, others)


def _not_numbers(name: str, count: int) -> DataError:
    return DataError(
        f"column {name}: {counted(count, 'value is no number', 'values are not numbers')}",
        remedy="Correct them (no thousands separator; decimal commas: --decimal ,) or make the attribute categorical.",
    )


def _encode_levels(attribute: BinaryAttribute | CategoricalAttribute, plain: Cells) -> EncodedAttribute:
    levels = pa.array(attribute.levels, pa.large_string())
    found = _by_halves(lambda part: pc.index_in(_text(part), value_set=levels), plain, pa.int32())
    codes = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    if isinstance(attribute, CategoricalAttribute):
        exact = (codes[:, None] == np.arange(1, len(attribute.levels))).astype(np.float64)
    else:
        exact = np.array([-1.0, 1.0, 0.0])[codes][:, None]  # -1, what is no level, is the last
    unreadable = found.null_count - plain.null_count
    return EncodedAttribute(exact, codes < 0, missing=plain.null_count, unreadable=unreadable)


def _encode_numeric(attribute: NumericAttribute, plain: Cells) -> EncodedAttribute:
    found = _by_halves(_numbers, plain, pa.float64())
    numbers = np.asarray(found.to_numpy(zero_copy_only=False), np.float64)
    infinite = int(np.count_nonzero(np.isinf(numbers)))
    nowhere = np.isnan(numbers)
    outside = (numbers < attribute.lower) | (numbers > attribute.upper)
    encoded = within_unit(numbers, attribute.lower, attribute.upper)
    return EncodedAttribute(
        np.where(nowhere, 0.0, encoded)[:, None],
        nowhere,
        clipped=int(np.count_nonzero(outside)) - infinite,
        missing=plain.null_count,
        not_finite=infinite + int(np.count_nonzero(nowhere)) - found.null_count,
        unreadable=found.null_count - plain.null_count,
    )
