"""Raw values to fixed-point integers, the only code that does it: for agents, the planner and the simulation.

Pure functions of public bounds and of one cell at a time; no row is held. Encoding is total. A caller that wants to
refuse cells asks for that (`encode_conforming`): errors name a column and a count, never a value.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import add
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import (
    GAP,
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Levelled,
    NumericAttribute,
    as_registered,
)
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
from commingle.shared.values import Cells, not_numbers, numbers_in, places_in, plain_cells


@dataclass(frozen=True, slots=True)
class CellCounts:
    """How many cells do not fit their attribute: only the owner of the rows may see these counts."""

    clipped: int = 0  # finite values outside the public bounds
    missing: int = 0  # empty cells
    not_finite: int = 0  # NaN and infinities
    # text in a number, levels that the schema does not have, cells that are neither number nor text
    unreadable: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, astuple(self), astuple(other)))

    @property
    def without_value(self) -> int:
        """Includes infinities, though they are encoded as a bound."""
        return self.missing + self.not_finite + self.unreadable


HUNDREDTHS = 100
_MOST_OF = 0.999  # of the values: one in a thousand may be a slip


def hundredths_filled(places: NDArray[np.int64]) -> int:
    """The fewest neighbouring hundredths of the bounds that hold all but one in 1,000 values; 0 without values."""
    before = np.concatenate([[0], np.cumsum(places)])
    ends = np.searchsorted(before, before[:-1] + np.ceil(_MOST_OF * before[-1]))
    return int((ends - np.arange(len(places)))[ends < len(before)].min()) if before[-1] else 0


@dataclass(frozen=True, slots=True)
class EncodedAttribute:
    """One attribute of m rows."""

    exact: NDArray[np.float64] = field(repr=False)  # m x width values in [-1, 1], before they are rounded
    gaps: NDArray[np.bool_] = field(repr=False)  # (m,) which cells have no value: missing, unreadable or NaN
    counts: CellCounts = CellCounts()  # functions of the cells

    @property
    def columns(self) -> NDArray[np.int64]:
        return quantise(self.exact)

    @property
    def places(self) -> NDArray[np.int64]:
        """(100,) how many values of a number are in each hundredth of its bounds."""
        return np.histogram(self.exact[~self.gaps, 0], HUNDREDTHS, (-1.0, 1.0))[0]


def encode_attribute(attribute: Attribute, *cells: Cells) -> EncodedAttribute:
    """Encode one column of some rows, or the columns of both parts of a crossed attribute.

    Total: every cell by itself gets a place within the bounds. A missing, unreadable or NaN cell becomes the midpoint 0
    of a numeric or binary attribute and the reference level of a categorical one, with a 1 beside it if the schema
    marks such cells; infinities are clipped. `as_released` makes levels that are intervals or pairs from what is
    registered. Whether an agent goes on may not depend on its cells
    (docs/threat-model.md#no-decision-depends-on-cells), so nothing is refused here: see `encode_conforming`.
    """
    if (registered := as_registered(attribute)) != (attribute,):
        parts = [encode_attribute(part, own) for part, own in zip(registered, cells, strict=True)]
        q = as_released(attribute, np.hstack([part.columns for part in parts]))
        return EncodedAttribute(
            exact=q / SCALE,
            gaps=np.logical_or.reduce([part.gaps for part in parts]),
            counts=sum((part.counts for part in parts), CellCounts()),
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

    The attribute's `missing` says whether empty cells are accepted; with `gaps`, for PUBLIC rows, they always are.
    Raises DataError: missing values that are not accepted, text in a number, an unknown level, NaN or infinity.
    """
    if (registered := as_registered(attribute)) != (attribute,):
        for part, own in zip(registered, cells, strict=True):
            encode_conforming(part, own, gaps=gaps)
        return encode_attribute(attribute, *cells)
    encoded = encode_attribute(attribute, *cells)
    if (refusal := refusal_of(attribute, encoded.counts, gaps=gaps)) is not None:
        raise refusal
    return encoded


def refusal_of(attribute: Attribute, counts: CellCounts, *, gaps: bool = False) -> DataError | None:
    """The error that `encode_conforming` raises for a registered attribute with such cells."""
    name = attribute.name
    if counts.missing and not gaps and attribute.missing == "error":
        return DataError(
            f"column {name}: {counted(counts.missing, 'missing value')}",
            remedy='Complete them, leave the rows out, or allow them in the schema: "missing": "indicator", or '
            '"midpoint" (numeric and binary attributes).',
        )
    if counts.unreadable and isinstance(attribute, NumericAttribute):
        return not_numbers(name, counts.unreadable)
    if counts.unreadable and not isinstance(attribute, NumericAttribute):
        return DataError(
            f"column {name}: {counted(counts.unreadable, 'value is', 'values are')} not among the levels "
            f"{', '.join(attribute.levels)}",
            remedy="Correct the values, add the levels to the schema, or name each text that the column holds in "
            f"--derive '{name} = recode({name}, OLD=NEW, ...)'.",
        )
    if counts.not_finite:
        return DataError(
            f"column {name}: {counted(counts.not_finite, 'value is', 'values are')} NaN or infinite",
            remedy="Store missing values as empty cells and correct the rest.",
        )
    return None


def narrowed(known: NumericAttribute, asked: NumericAttribute, encoded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers (m) of one attribute as they are within narrower bounds, each by itself.

    A value is known to one step of its own bounds, 2^-15 of half their width; a missing one is their midpoint.
    """
    if (known.lower, known.upper) == (asked.lower, asked.upper):
        return encoded
    values = known.lower + (encoded / SCALE + 1) / 2 * (known.upper - known.lower)
    return quantise(within_unit(values, asked.lower, asked.upper))


def as_released(asked: Attribute, encoded: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers (m x width) of one attribute in a release, from those of its registered form; each row by itself.

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
    """(m x 1 or 2) the rounded product of T_k(q) / S, k how often a factor stands, and whether any is marked."""
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
    """Which rows are in every subset, from integers (m x d) of the registered form of each attribute.

    Privacy: the answer for a row follows from its own integers and public terms alone.
    """
    found = np.ones(len(encoded[0]), np.bool_)
    for subset, columns in zip(subsets, encoded, strict=True):
        level, gaps = _levels_of(subset.attribute, columns)
        found &= np.isin(level, list(map(subset.attribute.levels.index, subset.levels))) & ~gaps
    return found


def _levels_of(asked: Levelled, encoded: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The level of each row, and which are marked, from integers (m x d) of the registered form.

    A value v is in the interval whose number is the count of cuts with q(v) >= q(cut), so a cut is known to a step of
    the bounds. The pair of levels i and j is i L + j. Without a mark, a missing cell is in the interval of the
    midpoint, or has the first level.
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
    """The columns of a table that `encode_attribute` takes for this attribute."""
    return [columns[registered.name] for registered in as_registered(attribute)]


def encode_rows(attributes: Iterable[Attribute], columns: Mapping[str, Cells]) -> NDArray[np.int64]:
    """Some rows (m x width integers), the attributes side by side. Raises DataError as `encode_conforming`."""
    return np.hstack([encode_conforming(a, *cells_for(a, columns)).columns for a in attributes])


def bounded_rows(
    party: PartyTerms, row_map: IntegerMap | None = None, *, fraction_bits: int = FRACTION_BITS
) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """From encoded rows (m x d) to rows that `squared_sensitivity` bounds: contrasts, weighted, or mapped; then cut."""
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


def _encode_levels(attribute: BinaryAttribute | CategoricalAttribute, plain: Cells) -> EncodedAttribute:
    found = places_in((*attribute.levels, GAP), plain)
    said = np.asarray(found.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    codes = np.where(said == len(attribute.levels), -1, said)
    if isinstance(attribute, CategoricalAttribute):
        exact = (codes[:, None] == np.arange(1, len(attribute.levels))).astype(np.float64)
    else:
        exact = np.array([-1.0, 1.0, 0.0])[codes][:, None]  # -1, what is no level, is the last
    unreadable = found.null_count - plain.null_count
    missing = int(np.count_nonzero(codes < 0)) - unreadable
    return EncodedAttribute(exact, codes < 0, CellCounts(missing=missing, unreadable=unreadable))


def _encode_numeric(attribute: NumericAttribute, plain: Cells) -> EncodedAttribute:
    found = numbers_in(plain)
    numbers = np.asarray(found.to_numpy(zero_copy_only=False), np.float64)
    infinite = int(np.count_nonzero(np.isinf(numbers)))
    nowhere = np.isnan(numbers)
    outside = (numbers < attribute.lower) | (numbers > attribute.upper)
    encoded = within_unit(numbers, attribute.lower, attribute.upper)
    return EncodedAttribute(
        np.where(nowhere, 0.0, encoded)[:, None],
        nowhere,
        CellCounts(
            clipped=int(np.count_nonzero(outside)) - infinite,
            missing=plain.null_count,
            not_finite=infinite + int(np.count_nonzero(nowhere)) - found.null_count,
            unreadable=found.null_count - plain.null_count,
        ),
    )
