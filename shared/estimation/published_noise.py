"""The errors E of published second moments of keyed subjects about what they estimate.

What a fit makes of them is, to first order, a linear form <W, E> = sum_kl W_kl E_kl for symmetric W, (p, p).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class PublishedNoise(ABC):
    """E, symmetric, of p published columns."""

    @abstractmethod
    def on(self, columns: NDArray[np.intp]) -> "PublishedNoise":
        """That of some columns."""

    @abstractmethod
    def covariances(self, forms: Array) -> Array:
        """Of <W, E> for t symmetric W: (t, p, p) to (t, t)."""

    @abstractmethod
    def variances(self, rows: Array) -> Array:
        """Of the entries of R E R^T, (r, r), for R (r, p)."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedRows(PublishedNoise):
    """Of P^T P for k rows P that behave like draws of a normal law: Cov(E_ab, E_cd) = (G_ac G_bd + G_ad G_bc) / k.

    docs/proofs/keyed-subjects.md, 3.2, with the noise of the rows.
    """

    gram: Array
    rows: int

    def on(self, columns: NDArray[np.intp]) -> "MixedRows":
        """Mixed likewise."""
        return MixedRows(self.gram[np.ix_(columns, columns)], self.rows)

    def covariances(self, forms: Array) -> Array:
        """2/k tr(W G U G)."""
        turned = forms @ self.gram
        size = len(turned)
        return np.asarray(2 / self.rows * turned.reshape(size, -1) @ turned.swapaxes(1, 2).reshape(size, -1).T)

    def variances(self, rows: Array) -> Array:
        """(G_aa G_bb + G_ab^2) / k."""
        seen = rows @ self.gram @ rows.T
        return np.asarray((np.outer(np.diag(seen), np.diag(seen)) + seen**2) / self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyEntries(PublishedNoise):
    """Independent E_kl = E_lk of these variances, (p, p)."""

    variance: Array

    def on(self, columns: NDArray[np.intp]) -> "NoisyEntries":
        """Independent likewise."""
        return NoisyEntries(self.variance[np.ix_(columns, columns)])

    def covariances(self, forms: Array) -> Array:
        """4 sum_{k<l} W_kl U_kl Var(E_kl) + sum_k W_kk U_kk Var(E_kk)."""
        k, l = np.triu_indices(len(self.variance))  # noqa: E741 - the indices of the formula
        scaled = forms[:, k, l] * np.sqrt(np.where(k < l, 4, 1) * self.variance[k, l])
        return np.asarray(scaled @ scaled.T)

    def variances(self, rows: Array) -> Array:
        """sum_kl (R_ak^2 R_bl^2 + m_k m_l) Var(E_kl) - sum_k m_k^2 Var(E_kk) with m_k = R_ak R_bk."""
        found = rows**2 @ self.variance @ (rows**2).T
        used = (rows != 0).astype(np.int64)
        a, b = np.nonzero(used @ used.T > 1)  # with one column in common, or none, nothing is left of m
        both = rows[a] * rows[b]
        found[a, b] += np.sum(both @ self.variance * both, axis=1) - both**2 @ np.diag(self.variance)
        return np.asarray(found)
