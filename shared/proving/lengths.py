"""How long proofs are, from sizes alone: what is received is held against it before anything is read.

Rows are as long as makes a proof shortest. What cannot be proved is refused here, before anybody has paid for it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

from commingle.shared.proving.ciphertexts import SECRET_BITS, segment_rows
from commingle.shared.proving.columns import BOUND_LIMIT, bounded_squares, squares
from commingle.shared.proving.parameters import LENGTHS, Sizes, check_tries
from commingle.shared.proving.proof import Places, proof_bytes
from commingle.shared.proving.replies import NOISE_BITS
from commingle.shared.ring.parameters import ENTRY_LIMIT, Layout


@dataclass(frozen=True, slots=True)
class _Witness:
    """Its rows, what they sum up to at a position at most, and how many of a party's segments have such a one."""

    rows: int
    largest: int
    count: int


def column_sizes(layout: Layout) -> Sizes:
    """Sizes of an owner's proofs of columns."""
    return _shortest(layout, lambda sizes: _column_witnesses(sizes, layout))


def column_proofs(layout: Layout) -> list[int]:
    """Bytes of each segment's proof of columns.

    Raises:
        DomainError: a segment has too many columns to be proved, or too many tries would be thrown away.
    """
    sizes = column_sizes(layout)
    held = _column_witnesses(sizes, layout)
    for witness in held:
        check_tries(sizes, witness.largest)
    return _lengths(sizes, held)


def proved_noise(layout: Layout) -> int:
    """Beyond this the noise of a sum over these ciphertexts cannot be, whatever errors their proofs allow.

    Let K polynomials of a segment take N / l rows each. At a position the squares of its errors sum up to 441 K N / l,
    and a column meets min(L, l) positions: its errors have a norm of at most 21 sqrt W, W = min(L, l) (N / l) sum K,
    and the key's one of 21 sqrt(N K). So V = 21 (M sqrt(n W) + N sqrt K + N) (docs/proofs/proved-bounds.md, 7.1).
    """
    sizes, ring = column_sizes(layout), layout.parameters
    polynomials = [(_polynomials(layout, rows), count) for rows, count in _runs(layout)]
    met = min(layout.stripe_rows, sizes.message) * sizes.pieces * sum(each * count for each, count in polynomials)
    rows, key = _root(layout.rows * met), _root(polynomials[0][0])
    return ring.error_bound * (ENTRY_LIMIT * rows + ring.degree * (key + 1))


def reply_sizes(layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> Sizes:
    """Sizes of an evaluator's proof of replies to these owners."""
    return _shortest(layout, lambda sizes: _reply_witnesses(sizes, layout, owners, encrypted=encrypted))


def reply_proofs(layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> list[int]:
    """Bytes of the parts of an evaluator's proof of replies to these owners, one for each segment.

    Args:
        layout: the evaluator's.
        owners: of those to whom it replies.
        encrypted: whether it encrypts its rows, or proves their bound with the replies.

    Raises:
        DomainError: there are too many replies to be proved, or too many tries would be thrown away.
    """
    sizes = reply_sizes(layout, owners, encrypted=encrypted)
    held = _reply_witnesses(sizes, layout, owners, encrypted=encrypted)
    if owners:
        check_tries(sizes, sum(witness.count * witness.largest for witness in held))
    return _lengths(sizes, held)


def _column_witnesses(sizes: Sizes, layout: Layout) -> list[_Witness]:
    found, bits = [], SECRET_BITS * sizes.pieces
    for rows, count in _runs(layout):
        errors, groups = _polynomials(layout, rows) * sizes.pieces, _groups(sizes, layout, rows)
        held = squares(errors, layout.parameters.error_bound, groups, layout.columns, BOUND_LIMIT)
        largest = bits + sum(each.largest for each in held)
        found.append(_Witness(bits + sum(each.rows for each in held), largest, count))
    return found


def _reply_witnesses(sizes: Sizes, layout: Layout, owners: Sequence[Layout], *, encrypted: bool) -> list[_Witness]:
    found = []
    bits = sum(_number_rows(sizes, layout.columns, owner) for owner in owners)
    errors = sum(layout.columns * owner.groups * sizes.pieces * 2 for owner in owners)
    for rows, count in _runs(layout):
        if encrypted:
            bits += SECRET_BITS * sizes.pieces
            errors += _polynomials(layout, rows) * sizes.pieces
            cells = _groups(sizes, layout, rows) * layout.columns
            largest = cells * ENTRY_LIMIT
        else:
            held = bounded_squares(layout, rows, sizes, BOUND_LIMIT)
            cells, largest = held.rows, held.largest
        found.append(_Witness(bits + errors + cells, bits + errors * sizes.ring.error_bound + largest, count))
        bits = errors = 0  # what was drawn is proved with the first segment
    return found


def _shortest(layout: Layout, held: Callable[[Sizes], Sequence[_Witness]]) -> Sizes:
    every = [Sizes(layout.parameters, length) for length in LENGTHS if layout.parameters.degree % length == 0]
    return min(
        every, key=lambda sizes: sum(each.count * proof_bytes(sizes, each.rows + sizes.added) for each in held(sizes))
    )


def _lengths(sizes: Sizes, held: Sequence[_Witness]) -> list[int]:
    return [length for each in held for length in [proof_bytes(sizes, Places(sizes, each.rows).all)] * each.count]


def _runs(layout: Layout) -> Iterator[tuple[int, int]]:
    """The rows of segments and how many are alike: the first one, others, and what is left over."""
    size = segment_rows(layout)
    whole, rest = divmod(layout.rows, size)
    lengths = ((size, min(whole, 1)), (size, whole - 1), (rest, 1))
    return ((rows, count) for rows, count in lengths if rows and count > 0)


def _number_rows(sizes: Sizes, columns: int, owner: Layout) -> int:
    bits = owner.columns * columns * (sizes.ring.flood_bits + NOISE_BITS + 2)
    return -(-bits // sizes.message)


def _polynomials(layout: Layout, rows: int) -> int:
    return 1 + layout.stripes(0, rows) * layout.groups


def _groups(sizes: Sizes, layout: Layout, rows: int) -> int:
    length, message = layout.stripe_rows, sizes.message
    return -(-layout.stripes(0, rows) // max(1, message // length)) * -(-length // message)


def _root(number: int) -> int:
    return isqrt(number - 1) + 1
