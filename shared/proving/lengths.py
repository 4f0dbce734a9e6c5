"""How long proofs are, from sizes alone: what is received is held against it before anything is read.

What cannot be proved is refused here, before anybody has paid for it.
"""

from collections.abc import Iterator, Sequence
from math import isqrt

from commingle.shared.proving.ciphertexts import SECRET_BITS, segment_rows
from commingle.shared.proving.columns import BOUND_LIMIT, SQUARES, digit_weights
from commingle.shared.proving.parameters import Sizes, check_tries
from commingle.shared.proving.proof import Places, proof_bytes
from commingle.shared.proving.replies import NOISE_BITS
from commingle.shared.ring.layout import Layout
from commingle.shared.ring.parameters import ENTRY_LIMIT


def column_proofs(layout: Layout) -> list[int]:
    """Bytes of each segment's proof of columns.

    Raises:
        DomainError: a segment has too many columns to be proved, or too many tries would be thrown away.
    """
    sizes, digits = Sizes(layout.parameters), len(digit_weights(layout.parameters.error_bound))
    found = []
    for rows, count in _runs(layout):
        errors = _polynomials(layout, rows) * _pieces(sizes) * digits
        bits, groups = SECRET_BITS * _pieces(sizes) + errors, _groups(layout, rows)
        height = bits + groups * (layout.columns + SQUARES)
        check_tries(sizes, bits + groups * (layout.columns * ENTRY_LIMIT + SQUARES * isqrt(BOUND_LIMIT)))
        found += [proof_bytes(sizes, Places(height).all)] * count
    return found


def reply_proofs(layout: Layout, owners: Sequence[Layout]) -> list[int]:
    """Bytes of the parts of an evaluator's proof of replies to these owners, one for each segment.

    Raises:
        DomainError: there are too many replies to be proved, or too many tries would be thrown away.
    """
    sizes, found = Sizes(layout.parameters), []
    bits = sum(_number_rows(sizes, layout.columns, owner) for owner in owners)
    errors = sum(layout.columns * owner.groups * _pieces(sizes) * 2 for owner in owners)
    largest = 0
    for rows, count in _runs(layout):
        bits += SECRET_BITS * _pieces(sizes)
        errors += _polynomials(layout, rows) * _pieces(sizes)
        cells = _groups(layout, rows) * layout.columns
        found += [proof_bytes(sizes, Places(bits + errors + cells).all)] * count
        largest += count * (bits + errors * sizes.ring.error_bound + cells * ENTRY_LIMIT)
        bits = errors = 0  # what was drawn is proved with the first segment
    if owners:
        check_tries(sizes, largest)
    return found


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


def _pieces(sizes: Sizes) -> int:
    return sizes.places // sizes.message


def _groups(layout: Layout, rows: int) -> int:
    length, message = layout.stripe_rows, Sizes(layout.parameters).message
    return -(-layout.stripes(0, rows) // max(1, message // length)) * -(-length // message)
