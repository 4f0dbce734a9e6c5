"""What a moments release reveals of one person to those who hold no party's noise (docs/proofs/moments.md, section 6).

Cross entries reach them with the noise of two parties, so it is less than the sum over parties. With r_j the product
of the person's two rows at party j, mu^2 is at most c^T P c - r^T P r + 2 k^T (c - r), and P is positive definite.
Everything is public and in integers: rows in steps of 2^-f, P and k in units of 2^-128, rounded up.
"""

from collections.abc import Sequence

from commingle.shared.documents.spec import AnyParty, AnyRelease
from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.moments.allocation import Bounds, bounds_of, linear_weight, own_weight, scales

_UNITS = 1 << 128
_SWEEPS = 100
_Matrix = Sequence[Sequence[int]]


def outsider_loss(spec: AnyRelease, sigmas: Sequence[int], adjacency: Adjacency) -> Rho:
    """The Gaussian loss of one person, whose rows change at some or all parties at once, rounded up.

    Adjacency and guarantee: as given, at every party; the noise of all parties is unknown. Precondition: every party
    keeps the bounds of the spec.

    Args:
        spec: the release.
        sigmas: the noise of each party's block, in the spec's order.
        adjacency: how the person's rows change.
    """
    members: Sequence[AnyParty] = spec.parties
    bounds = [bounds_of(spec, party) for party in members]
    parties = list(zip(members, sigmas, strict=True))
    crossed = [scales(spec, party, sigma).cross ** 2 for party, sigma in parties]
    pairs = [[_up(1, one + other) for other in crossed] for one in crossed]
    for j, (party, sigma) in enumerate(parties):
        pairs[j][j] = 2 * _up(own_weight(spec, party), sigma**2)
    linear = [_up(linear_weight(party) * 4**spec.fraction_bits, sigma**2) for party, sigma in parties]
    c = [bound.c for bound in bounds]
    if adjacency is not Adjacency.REPLACE_ONE:
        moved = _product(c, pairs, c) // 2 + _dot(linear, c)
    else:
        moved = _product(c, pairs, c) + 2 * _dot(linear, c) - _least(bounds, pairs, linear)
    # whole numbers are split between the two noises of an entry; products with rows of nothing do not change
    columns = [len(party.columns) if bound.c else 0 for party, bound in zip(members, bounds, strict=True)]
    split = sum(_up(d * (sum(columns) - d), 4 * variance) for d, variance in zip(columns, crossed, strict=True))
    return Rho(-(-(moved + split) // (2 * _UNITS // RHO_UNITS)))


def _least(bounds: Sequence[Bounds], pairs: _Matrix, linear: Sequence[int]) -> int:
    """A lower bound of r^T P r + 2 k^T r over c - e/2 <= r <= c, next to its minimum.

    r^T P r >= 2 z^T P r - z^T P z for every z; the best z is the minimum, found one coordinate after the other.
    """
    z = [bound.c - bound.e // 2 for bound in bounds]
    for _ in range(_SWEEPS):
        before = tuple(z)
        for j, (bound, row) in enumerate(zip(bounds, pairs, strict=True)):
            best = z[j] - (_dot(row, z) + linear[j]) // row[j]
            z[j] = min(max(best, bound.c - bound.e // 2), bound.c)
        if before == tuple(z):
            break
    slopes = [_dot(row, z) + k for row, k in zip(pairs, linear, strict=True)]
    ends = (min((2 * b.c - b.e) * slope, 2 * b.c * slope) for b, slope in zip(bounds, slopes, strict=True))
    return sum(ends) - _product(z, pairs, z)


def _product(left: Sequence[int], matrix: _Matrix, right: Sequence[int]) -> int:
    return _dot(left, [_dot(row, right) for row in matrix])


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _up(numerator: int, denominator: int) -> int:
    return -(-numerator * _UNITS // denominator)
