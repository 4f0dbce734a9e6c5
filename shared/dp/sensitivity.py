"""How far one subject can move one party's encoded rows (docs/design/privacy.md#sensitivity), and contrasts.

Contrasts are how a release codes L levels as L - 1 columns (docs/design/encoding.md#contrasts,
docs/proofs/sensitivity.md 1.6), Helmert's: column k = 1..L-1 is p_k for levels before level k (counted from 0), -n_k
for level k, and 0 for later ones, with p_k = 1 / sqrt(k (k + 1)) and n_k = k p_k. Rows have the squared norm 1 - 1/L,
two of them are sqrt(2) apart, so no level is another's reference. Integers are truncated toward zero: no row and no
difference of two is longer than that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.fixed_point import FRACTION_BITS, exact_row_norm, presence
from commingle.shared.errors import ParameterError

CONTRAST_ROUNDING = 21


class Adjacency(StrEnum):
    """Which data sets are neighbours.

    Under `replace_one` one subject's values differ, and become any others within the schema (Wu et al. 2022). Under
    `add_remove` one data set has a subject more, with any values (docs/proofs/keyed-subjects.md). Under `zero_out` one
    subject's encoded row, whitened if so asked, becomes zeros: no release uses it, but proofs of `add_remove` do.
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"
    ADD_REMOVE = "add_remove"


def unit_of(*, keyed: bool) -> Adjacency:
    """The unit of releases, regressions, caps and ledgers: presence in keyed data sets, values in listed ones."""
    return Adjacency.ADD_REMOVE if keyed else Adjacency.REPLACE_ONE


@dataclass(frozen=True, slots=True)
class Geometry:
    """Squared radius r^2 and squared diameter D^2 of one attribute's columns."""

    radius_squared: Fraction | int
    diameter_squared: int
    # steps of 2^-f by which truncation may take the product of two rows below r^2 - D^2 / 2 (proof, 3.7)
    rounding: int = 0

    def weighted(self, weight: int) -> Self:
        """The geometry of columns that are multiplied by w after they were truncated (proof, 1.9)."""
        squared, steps = weight**2, self.rounding * weight * (weight + 1) // 2
        return replace(
            self,
            radius_squared=self.radius_squared * squared,
            diameter_squared=self.diameter_squared * squared,
            rounding=steps,
        )


def contrast_geometry(levels: int) -> Geometry:
    """The geometry of contrasts (`codebook`): r^2 = 1 - 1/L, D^2 = 2."""
    return Geometry(Fraction(levels - 1, levels), diameter_squared=2, rounding=CONTRAST_ROUNDING)


@lru_cache(maxsize=512)
def codebook(levels: int, fraction_bits: int = FRACTION_BITS) -> NDArray[np.int64]:
    """(L, L - 1) integers in steps of 2^-f, a row for each level."""
    book = np.zeros((levels, levels - 1), np.int64)
    for k in range(1, levels):
        book[:k, k - 1] = isqrt(4**fraction_bits // (k * (k + 1)))
        book[k, k - 1] = -isqrt(4**fraction_bits * k // (k + 1))
    book.flags.writeable = False
    return book


@lru_cache(maxsize=512)
def indicators(levels: int, fraction_bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """(L - 1, L) the 0/1 indicators of all levels but the first as combinations of 1 and contrasts.

    With t_k = x_0 + .. + x_k, z_k = p_k (t_k - x_k) - n_k x_k, so x_k = (p_k t_k - z_k) / (p_k + n_k), the last first.
    """
    unit, forms = np.eye(levels), np.zeros((levels - 1, levels))
    book, left = codebook(levels, fraction_bits) / 2**fraction_bits, np.eye(levels)[0]
    for k in range(levels - 1, 0, -1):
        before, own = book[0, k - 1], -book[k, k - 1]
        forms[k - 1] = (before * left - unit[k]) / (before + own)
        left = left - forms[k - 1]
    forms.flags.writeable = False
    return forms


def squared_sensitivity(
    attributes: Iterable[Geometry] | None,
    *,
    row_norm: float | None,
    adjacency: Adjacency,
    fraction_bits: int = FRACTION_BITS,
) -> int:
    """Delta_q^2 = floor(Delta^2 4^f), the squared L2 sensitivity of one integer row.

    Adjacency and guarantee: for `replace_one` Delta = min(sqrt(sum D_a^2), 2C), for `zero_out` Delta = min(sqrt(sum
    r_a^2), C); C, the row norm, is infinite if there is none. Whitened rows, which have no attributes here, are bounded
    by C alone. Truncation never moves an encoded value away from zero and integer rows have integer squared distances,
    so the floor is safe (docs/proofs/sensitivity.md). Under `add_remove` a row's presence counts besides what
    `zero_out` has. Under `replace_one` a subject stays and its values change, so presence counts nothing: neither
    bounds the other (docs/proofs/keyed-subjects.md, 2.2 and 2.3). Raises ParameterError: row_norm is not a positive
    finite number, or missing for whitened rows.
    """
    replace = adjacency is Adjacency.REPLACE_ONE
    bounds = []
    if attributes is not None:
        bounds.append(Fraction(sum(a.diameter_squared if replace else a.radius_squared for a in attributes)))
    if row_norm is not None:
        bounds.append(exact_row_norm(row_norm) ** 2 * (4 if replace else 1))
    if not bounds:
        raise ParameterError("whitened rows have no bound without row_norm", remedy="Give the member a row_norm.")
    present = presence(fraction_bits) ** 2 if adjacency is Adjacency.ADD_REMOVE else 0
    return int(min(bounds) * 4**fraction_bits) + present


def largest_gap(
    attributes: Iterable[Geometry] | None, *, row_norm: float | None, fraction_bits: int = FRACTION_BITS
) -> int:
    """The largest 2 (c - q.p) of two integer rows, up to 4c: Delta_q^2 of `replace_one`, and what truncation adds.

    c is the largest squared norm (docs/proofs/sensitivity.md 3.7).
    """
    attributes = None if attributes is None else tuple(attributes)
    rounding = sum(2 * a.rounding << fraction_bits for a in attributes or ())
    apart = squared_sensitivity(
        attributes, row_norm=row_norm, adjacency=Adjacency.REPLACE_ONE, fraction_bits=fraction_bits
    )
    return apart + rounding
