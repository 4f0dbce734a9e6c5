"""The noise E in the entries of second moments: as published, and as a regression that is cut from them sees it.

What a fit of keyed subjects makes of E is, to first order, a linear form <W, E> = sum_kl W_kl E_kl, W (p, p) symmetric.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class EntryNoise:
    """Symmetric noise E with independent entries E_kl = E_lk over published columns, seen in the basis of a system.

    Attributes:
        variance: (m, m) Var(E_kl) of the m columns that (1, x, y) are made of; 0 where the entry is exact.
        basis: (m, p_x + 1) T: the moments of the system's terms and its label carry the noise T^T E T.
    """

    variance: Array
    basis: Array

    def covariance(self, direction: Array) -> Array:
        """Cov(v), (p_x, p_x), of v = (T^T E T)_x. c for c = (-b, 1) (docs/design/estimation.md#covariance).

        With u = T c the entries of E u have Var = sum_l u_l^2 Var(E_kl) and Cov_km = u_k u_m Var(E_km).
        """
        u = self.basis @ direction
        cov = np.outer(u, u) * self.variance
        np.fill_diagonal(cov, self.variance @ u**2)
        x = self.basis[:, :-1]
        return np.asarray(x.T @ cov @ x)

    def form_variance(self, form: Array) -> float:
        """Var of sum_ij Q_ij (T^T E T)_ij for symmetric Q = `form`, (p_x + 1, p_x + 1)."""
        # with R = T Q T^T:  4 sum_{k<l} R_kl^2 Var(E_kl) + sum_k R_kk^2 Var(E_kk)
        weighted = (self.basis @ form @ self.basis.T) ** 2 * self.variance
        return float(2 * weighted.sum() - np.trace(weighted))


class PublishedNoise(ABC):
    """E, symmetric, of p published columns."""

    @abstractmethod
    def on(self, columns: NDArray[np.intp]) -> "PublishedNoise":
        """The noise of some columns."""

    @abstractmethod
    def covariances(self, forms: Array) -> Array:
        """Covariances of <W, E> for t symmetric W: (t, p, p) to (t, t)."""

    @abstractmethod
    def variances(self, rows: Array) -> Array:
        """Variances of the entries of R E R^T, (r, r), for R (r, p)."""


@dataclass(frozen=True, slots=True, eq=False)
class MixedRows(PublishedNoise):
    """Errors of P^T P for k rows P that are like draws of a normal law: Cov(E_ab, E_cd) = (G_ac G_bd + G_ad G_bc) / k.

    docs/proofs/keyed-subjects.md, 3.2, with the noise of the rows.
    """

    gram: Array
    rows: int

    def on(self, columns: NDArray[np.intp]) -> "MixedRows":
        return MixedRows(self.gram[np.ix_(columns, columns)], self.rows)

    def covariances(self, forms: Array) -> Array:
        # 2/k tr(W G U G).
        turned = forms @ self.gram
        size = len(turned)
        return np.asarray(2 / self.rows * turned.reshape(size, -1) @ turned.swapaxes(1, 2).reshape(size, -1).T)

    def variances(self, rows: Array) -> Array:
        # (G_aa G_bb + G_ab^2) / k.
        seen = rows @ self.gram @ rows.T
        return np.asarray((np.outer(np.diag(seen), np.diag(seen)) + seen**2) / self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class NoisyEntries(PublishedNoise):
    """Independent E_kl = E_lk of these variances, (p, p)."""

    variance: Array

    def on(self, columns: NDArray[np.intp]) -> "NoisyEntries":
        return NoisyEntries(self.variance[np.ix_(columns, columns)])

    def covariances(self, forms: Array) -> Array:
        # 4 sum_{k<l} W_kl U_kl Var(E_kl) + sum_k W_kk U_kk Var(E_kk).
        k, l = np.triu_indices(len(self.variance))  # noqa: E741 - the indices of the formula
        scaled = forms[:, k, l] * np.sqrt(np.where(k < l, 4, 1) * self.variance[k, l])
        return np.asarray(scaled @ scaled.T)

    def variances(self, rows: Array) -> Array:
        # sum_kl (R_ak^2 R_bl^2 + m_k m_l) Var(E_kl) - sum_k m_k^2 Var(E_kk) with m_k = R_ak R_bk.
        found = rows**2 @ self.variance @ (rows**2).T
        used = (rows != 0).astype(np.int64)
        a, b = np.nonzero(used @ used.T > 1)  # with one column in common, or none, nothing is left of m
        both = rows[a] * rows[b]
        found[a, b] += np.sum(both @ self.variance * both, axis=1) - both**2 @ np.diag(self.variance)
        return np.asarray(found)
