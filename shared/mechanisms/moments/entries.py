"""The entries of published moments: their places, their noise, and what one subject can move (docs/proofs/moments.md).

The matrix M is p x p in steps of 4^-f; a party's columns and rows are next to each other, in their order. A party's
columns hold its linear terms in row 0, its own block, and in the rows of every party after it their cross block; the
rows of parties before it are 0. So S_hat[i, j] = M[i, j] + M[j, i]^T. The intercept, encoded 2^f, is a party of its own
with nothing but n 4^f in row 0.

The entries of a party's block get noise of variance sigma^2 / weight, sigma being the block's: weight 1 for cross
blocks, 2 for linear terms (they enter every centred moment), one chosen here for the own block. Where the spec gives
cross blocks a weight, linear terms have 1: columns that a first stage centred need them for little but the intercept.
Weights count in the sensitivity. All quantities are public and integers in steps of 4^-f, so every party computes the
same.

Cross entries reach those who hold no party's noise with the noise of two parties, so a person loses less to them than
the sum over parties. With r_j the product of the person's two rows at party j, mu^2 is at most c^T P c - r^T P r + 2
k^T (c - r), and P is positive definite: rows in steps of 2^-f, P and k in units of 2^-128, rounded up.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.row_maps import row_bound
from commingle.shared.documents.terms import PartyTerms, Terms, settled
from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency, largest_gap

_LINEAR = 2  # where cross blocks have 1
OWN_WEIGHTS = (1, *(odd << shift for shift in range(10) for odd in (2, 3)))
_UNITS = 1 << 128
_SWEEPS = 100
_Matrix = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class NoiseScales:
    """Noise of the entries of one party's block: standard deviations, in steps."""

    linear: int
    diagonal: int
    off_diagonal: int
    cross: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Public bounds on one party's rows, in steps."""

    c: int  # largest squared norm of a row
    e: int  # largest 2 (c - r), r the product of two rows; no less than their squared distance
    k: int  # the weight of the squared distance of two rows through the linear terms and the others' rows


def scales(terms: Terms, party: PartyTerms, sigma: int) -> NoiseScales:
    """The noise of every entry where the largest is sigma; each the least s with weight s^2 >= sigma^2.

    Off-diagonal entries of the own block stand for two equal ones: they need half the variance.
    """
    own, (linear, cross) = own_weight(terms, party), outer_weights(party)
    return NoiseScales(
        linear=_share(sigma, linear),
        diagonal=_share(sigma, own),
        off_diagonal=_share(sigma, 2 * own),
        cross=_share(sigma, cross),
    )


def outer_weights(party: PartyTerms) -> tuple[int, int]:
    """The weights of a party's linear terms and of its cross blocks."""
    weight = settled(party.cross_weight)
    return (_LINEAR, 1) if weight is None else (1, weight)


def block_sensitivity(terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
    """Delta^2 such that the block is rho-zCDP with rho = Delta^2 / (2 sigma^2), rounded up.

    Adjacency and guarantee: as given, for party's rows against everybody else together, other parties' rows being
    known and bounded. Precondition: every party keeps the bounds of the terms.
    """
    return _moved(bounds_of(terms, party), own_weight(terms, party), adjacency)


def bounds_of(terms: Terms, party: PartyTerms) -> Bounds:
    c = {p.name: row_bound(terms, p) for p in terms.parties}
    own, (_, cross) = c[party.name], outer_weights(party)
    return Bounds(
        c=own,
        e=min(4 * own, largest_gap(party.geometries, row_norm=party.row_norm, fraction_bits=terms.fraction_bits)),
        k=linear_weight(party) * 4**terms.fraction_bits + cross * (sum(c.values()) - own),
    )


@lru_cache(maxsize=256)  # every draw of noise asks for it
def own_weight(terms: Terms, party: PartyTerms) -> int:
    """The weight of the own block, no less than that of cross blocks, with the least expected squared error in all.

    k / 2c costs nothing for numeric attributes without a row norm: two rows farthest apart have the same x x^T.
    """
    bounds, linear, (_, cross) = bounds_of(terms, party), linear_weight(party), outer_weights(party)
    d = terms.widths[party.name]
    others = sum(terms.widths.values()) - d
    grid = [cross * weight for weight in OWN_WEIGHTS]
    free = min(bounds.k // (2 * bounds.c), max(grid)) if bounds.c else cross

    def error(own: int) -> Fraction:
        # sigma^2 is proportional to Delta^2; E ||noise||_F^2 / sigma^2 = d(d+1) / 2w + 2d / linear + 2d(p-d) / cross
        spread = Fraction(d * (d + 1), 2 * own) + Fraction(2 * d * others, cross)
        spread += Fraction(2 * d, linear) if linear else 0
        return _moved(bounds, own, terms.adjacency) * spread

    return min(sorted({*grid, max(free, cross)}), key=error)


def linear_weight(party: PartyTerms) -> int:
    """The weight of the linear terms; keyed subjects have none: presences are columns like others."""
    return 0 if party.keyed else outer_weights(party)[0]


def _moved(bounds: Bounds, own: int, adjacency: Adjacency) -> int:
    """The largest w ||x x^T - y y^T||_F^2 + k ||x - y||^2, rounded up; except under replace_one one row is 0."""
    c, k = bounds.c, bounds.k
    if adjacency is not Adjacency.REPLACE_ONE:
        return own * c * c + k * c
    # w (2 c e - e^2 / 2) + k e grows up to e = 2c + k/w
    e = min(Fraction(bounds.e), 2 * c + Fraction(k, own))
    return ceil(own * (2 * c * e - e * e / 2) + k * e)


def _share(sigma: int, weight: int) -> int:
    return isqrt(-(-sigma * sigma // weight) - 1) + 1


def outsider_loss(terms: Terms, sigmas: Sequence[int], adjacency: Adjacency) -> Rho:
    """The Gaussian loss of one person, whose rows change at some or all parties at once, rounded up.

    Adjacency and guarantee: as given, at every party; the noise of all parties is unknown. Precondition: every party
    keeps the bounds of the terms. `sigmas` are of the parties' blocks, in the order of the terms.
    """
    bounds = [bounds_of(terms, party) for party in terms.parties]
    parties = list(zip(terms.parties, sigmas, strict=True))
    crossed = [scales(terms, party, sigma).cross ** 2 for party, sigma in parties]
    pairs = [[_up(1, one + other) for other in crossed] for one in crossed]
    for j, (party, sigma) in enumerate(parties):
        pairs[j][j] = 2 * _up(own_weight(terms, party), sigma**2)
    linear = [_up(linear_weight(party) * 4**terms.fraction_bits, sigma**2) for party, sigma in parties]
    c = [bound.c for bound in bounds]
    if adjacency is not Adjacency.REPLACE_ONE:
        moved = _product(c, pairs, c) // 2 + _dot(linear, c)
    else:
        moved = _product(c, pairs, c) + 2 * _dot(linear, c) - least_form(bounds, pairs, linear)
    # whole numbers are split between the two noises of an entry; products with rows of nothing do not change
    columns = [d if bound.c else 0 for d, bound in zip(terms.widths.values(), bounds, strict=True)]
    split = sum(_up(d * (sum(columns) - d), 4 * variance) for d, variance in zip(columns, crossed, strict=True))
    return Rho(-(-(moved + split) // (2 * _UNITS // RHO_UNITS)))


def least_form(bounds: Sequence[Bounds], pairs: _Matrix, linear: Sequence[int]) -> int:
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


def width(terms: Terms) -> int:
    return first_place(terms) + sum(terms.widths.values())


def step(terms: Terms) -> float:
    """4^-f: a published value is integer * step."""
    return 0.25**terms.fraction_bits


def first_place(terms: Terms) -> int:
    """The parties' columns begin here: after the intercept, which keyed subjects do not have."""
    return 0 if terms.keyed else 1


def places(terms: Terms) -> dict[str, slice]:
    """The place of each party's columns among all p, and of its rows too."""
    found, start = {}, first_place(terms)
    for name, d in terms.widths.items():
        found[name] = slice(start, start := start + d)
    return found


def block_noise(
    terms: Terms, party: PartyTerms, *, sigma: int, draw: Sampler, others: Collection[str]
) -> NDArray[np.int64]:
    """A party's noise (p x d), every entry at its scale: linear terms, own block (symmetric), rows of the others.

    The rest is 0. `draw` draws each of them in turn.
    """
    scale, at, d = scales(terms, party, sigma), places(terms), terms.widths[party.name]
    block = np.zeros((width(terms), d), np.int64)
    for name in others:
        block[at[name]] = cross_noise(terms, party, at[name].stop - at[name].start, sigma=sigma, draw=draw)
    for row in block[: first_place(terms)]:
        row[:] = draw(scale.linear, d)
    symmetric = np.diag(draw(scale.diagonal, d))
    upper = np.triu_indices(d, 1)
    symmetric[upper] = draw(scale.off_diagonal, len(upper[0]))
    symmetric.T[upper] = symmetric[upper]
    block[at[party.name]] = symmetric
    return block


def cross_noise(terms: Terms, party: PartyTerms, rows: int, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
    """The noise of a party for its cross block with another that has `rows` columns: (rows x d)."""
    d = terms.widths[party.name]
    return draw(scales(terms, party, sigma).cross, rows * d).reshape(rows, d)


def open_matrix(terms: Terms, matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """S_hat in steps (p x p) from M, mod 2^64 and read as signed."""
    words = matrix.astype(np.uint64)
    opened = words + words.T
    for own in (slice(0, first_place(terms)), *places(terms).values()):
        opened[own, own] = words[own, own]
    return opened.astype(np.int64)


def entry_variances(terms: Terms, sigmas: Sequence[int]) -> NDArray[np.float64]:
    """Variances (p x p) of the noise of S_hat, in encoded units: a cross entry carries both parties' noise."""
    shares = np.zeros((width(terms), width(terms)))
    own_blocks = np.zeros_like(shares)
    for party, sigma in zip(terms.parties, sigmas, strict=True):
        scale, own = scales(terms, party, sigma), places(terms)[party.name]
        shares[:, own] = float(scale.cross) ** 2
        shares[: first_place(terms), own] = float(scale.linear) ** 2
        shares[own, own] = 0
        own_blocks[own, own] = float(scale.off_diagonal) ** 2
        np.fill_diagonal(own_blocks[own, own], float(scale.diagonal) ** 2)
    variances: NDArray[np.float64] = (shares + shares.T + own_blocks) * step(terms) ** 2
    return variances
