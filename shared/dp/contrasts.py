"""Contrasts: how a release codes L levels as L - 1 columns (ADR 33, docs/proofs/sensitivity.md 1.6).

Helmert's: column k = 1..L-1 is p_k for levels before level k (counted from 0), -n_k for level k, and 0 for later ones,
with p_k = 1 / sqrt(k (k + 1)) and n_k = k p_k. Rows have the squared norm 1 - 1/L, two of them are sqrt(2) apart, so no
level is another's reference. Integers are truncated toward zero: no row and no difference of two is longer than that.
"""

from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.fixed_point import FRACTION_BITS


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
