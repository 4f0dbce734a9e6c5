"""The rows of witnesses and the lengths of proofs, from sizes alone.

Received bytes are compared with them before anything is read. Rows have the length that makes a proof shortest. What
cannot be proved is refused here, before anybody has paid for it.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import isqrt

from commingle.shared.proving.ciphertexts import group_count, polynomial_count, segment_rows
from commingle.shared.proving.parameters import (
    BOUND_LIMIT,
    LENGTHS,
    NOISE_BITS,
    SECRET_BITS,
    SQUARES,
    Sizes,
    check_tries,
)
from commingle.shared.proving.proof import Places, proof_bytes
from commingle.shared.proving.relation import Shape, Squares
from commingle.shared.ring.parameters import ENTRY_LIMIT, Layout

_Segments = list[tuple[Shape, int]]  # shapes of a party's segments, and how many have each


def column_shape(layout: Layout, sizes: Sizes, rows: int, bound: int) -> Shape:
    """A secret's bits; errors together, then the columns of each group, numbers behind each that fill up a sum."""
    errors, columns = polynomial_count(layout, rows) * sizes.pieces, layout.columns + SQUARES
    bounded = Squares(1, errors + SQUARES, errors * sizes.ring.error_bound**2)
    return Shape(SECRET_BITS * sizes.pieces, (bounded, Squares(group_count(layout, sizes, rows), columns, bound)))


def evaluated_shape(layout: Layout, sizes: Sizes, rows: int) -> Shape:
    """A secret's bits, errors, and columns."""
    errors, cells = polynomial_count(layout, rows) * sizes.pieces, group_count(layout, sizes, rows) * layout.columns
    reach = errors * sizes.ring.error_bound + cells * ENTRY_LIMIT
    return Shape(SECRET_BITS * sizes.pieces, others=errors + cells, reach=reach)


def bounded_shape(layout: Layout, sizes: Sizes, rows: int, bound: int) -> Shape:
    """Columns, with numbers that fill up their bound: at most what entries within 2^14 reach."""
    most = min(bound, layout.columns * ENTRY_LIMIT**2)
    return Shape(0, (Squares(-(-rows // sizes.message), layout.columns + SQUARES, most),))


def drawn_shape(owners: Sequence[Layout], columns: int, sizes: Sizes) -> Shape:
    """What is drawn for replies to owners, for `columns` columns each: bits of numbers, then secrets and errors."""
    zeros = sum(columns * owner.groups * sizes.pieces * 2 for owner in owners)
    bits = sum(number_rows(owner, columns, sizes) for owner in owners)
    return Shape(bits, others=zeros, reach=zeros * sizes.ring.error_bound)


def number_rows(owner: Layout, columns: int, sizes: Sizes) -> int:
    """Rows of the bits of all floods and noise in a reply to one owner."""
    return -(-owner.columns * columns * (sizes.ring.flood_bits + NOISE_BITS + 2) // sizes.message)


@lru_cache(maxsize=64)
def column_sizes(layout: Layout) -> Sizes:
    return _shortest(layout, lambda sizes: _column_shapes(sizes, layout))


def column_proofs(layout: Layout) -> list[int]:
    """Bytes of each segment's proof of columns. Raises DomainError: too many columns, or too many tries thrown away."""
    sizes = column_sizes(layout)
    held = _column_shapes(sizes, layout)
    for shape, _ in held:
        check_tries(sizes, shape.largest)
    return _lengths(sizes, held)


def proved_noise(layout: Layout) -> int:
    """An upper bound on the noise of a sum over these ciphertexts, for all errors that their proofs allow.

    Let K polynomials of a segment take N / l rows each. At a position the squares of its errors sum up to 441 K N / l,
    and a column meets min(L, l) positions: its errors have a norm of at most 21 sqrt W, W = min(L, l) (N / l) sum K,
    and the key's one of 21 sqrt(N K). So V = 21 (M sqrt(n W) + N sqrt K + N) (docs/proofs/proved-bounds.md, 7.1).
    """
    sizes, ring = column_sizes(layout), layout.parameters
    polynomials = [(polynomial_count(layout, rows), count) for rows, count in _runs(layout)]
    met = min(layout.stripe_rows, sizes.message) * sizes.pieces * sum(each * count for each, count in polynomials)
    rows, key = _root(layout.rows * met), _root(polynomials[0][0])
    return ring.error_bound * (ENTRY_LIMIT * rows + ring.degree * (key + 1))


def reply_sizes(layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> Sizes:
    return _shortest(layout, lambda sizes: _reply_shapes(sizes, layout, owners, encrypted=encrypted))


def reply_proofs(layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> list[int]:
    """Bytes of the parts of an evaluator's proof of replies to these owners, one for each segment.

    The evaluator has that layout, and encrypts its rows, or else proves their bound with the replies. Raises
    DomainError: too many replies, or too many tries would be thrown away.
    """
    sizes = reply_sizes(layout, owners, encrypted=encrypted)
    held = _reply_shapes(sizes, layout, owners, encrypted=encrypted)
    if owners:
        check_tries(sizes, sum(count * shape.largest for shape, count in held))
    return _lengths(sizes, held)


def _column_shapes(sizes: Sizes, layout: Layout) -> _Segments:
    return [(column_shape(layout, sizes, rows, BOUND_LIMIT), count) for rows, count in _runs(layout)]


def _reply_shapes(sizes: Sizes, layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> _Segments:
    # the first segment's proof also covers what was drawn
    held = [
        (evaluated_shape(layout, sizes, rows) if encrypted else bounded_shape(layout, sizes, rows, BOUND_LIMIT), count)
        for rows, count in _runs(layout)
    ]
    (first, count), *others = held
    return [(drawn_shape(owners, layout.columns, sizes) + first, count), *others]


def _shortest(layout: Layout, held: Callable[[Sizes], _Segments]) -> Sizes:
    every = [Sizes(layout.parameters, length) for length in LENGTHS if layout.parameters.degree % length == 0]
    return min(
        every, key=lambda sizes: sum(count * proof_bytes(sizes, each.rows + sizes.added) for each, count in held(sizes))
    )


def _lengths(sizes: Sizes, held: _Segments) -> list[int]:
    return [length for each, count in held for length in [proof_bytes(sizes, Places(sizes, each.rows).all)] * count]


def _runs(layout: Layout) -> Iterator[tuple[int, int]]:
    """The numbers of rows of segments, and how many segments have each: the first one, others, and the rest."""
    size = segment_rows(layout)
    whole, rest = divmod(layout.rows, size)
    lengths = ((size, min(whole, 1)), (size, whole - 1), (rest, 1))
    return ((rows, count) for rows, count in lengths if rows and count > 0)


def _root(number: int) -> int:
    return isqrt(number - 1) + 1
