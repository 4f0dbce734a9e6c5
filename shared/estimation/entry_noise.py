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


@dataclass(frozen=True, slots=True, eq=False)
class PairLaw:
    """Symmetric noise E of p columns with Cov(<W, E>, <U, E>) = 2 tr((W * s) L U L): all noise here is of this form.

    What was published has it (`PublishedNoise.law`). So have pairs of different subjects that met: s counts them, entry
    by entry, and L has the second moments of one subject of each party, 0 between two parties. Subject s of one party
    and r of another add eps u_s w_r, eps = +-1 at random (docs/proofs/keyed-subjects.md, 5.1).

    Attributes:
        s: (p, p) symmetric, multiplied entry by entry.
        L: (p, p) symmetric; L (W * s) L is so too.
    """

    s: Array
    L: Array

    def covariances(self, forms: Array) -> Array:
        """Of t symmetric W, (t, p, p): (t, t)."""
        k, l = np.triu_indices(len(self.L))  # noqa: E741 - both factors are symmetric
        scaled = forms[:, k, l] * (self.s[k, l] * np.where(k < l, 4, 2))
        return np.asarray(scaled @ (self.L @ forms @ self.L)[:, k, l].T)

    def along(self, form: Array) -> Array:
        """Cov(<W, E>, <U, E>) = <U, C> for every symmetric U: C (p, p), for one W."""
        return np.asarray(2 * self.L @ (form * self.s) @ self.L)

    def across(self, left: Array, right: Array) -> Array:
        """Covariances of l E r for each l of `left` (a, p) with each r of `right` (b, p): (a, b, a, b).

        With l' = L l and r' = L r, sum_kl s_kl ((l_a l'_c)_k (r_b r'_d)_l + (l_a r'_d)_k (r_b l'_c)_l).
        """
        a, b, p = len(left), len(right), len(self.L)
        turned, other = left @ self.L, right @ self.L
        X = (left[:, None] * turned).reshape(-1, p)
        Y = (right[:, None] * other).reshape(-1, p)
        found = self._between(X, Y).reshape(a, a, b, b).transpose(0, 2, 1, 3)
        X = (left[:, None] * other).reshape(-1, p)
        Y = (right[:, None] * turned).reshape(-1, p)
        return np.asarray(found + self._between(X, Y).reshape(a, b, b, a).transpose(0, 2, 3, 1))

    def variances(self, left: Array, right: Array) -> Array:
        """Of the same, (a, b)."""
        turned, other = left @ self.L, right @ self.L
        X, Y = left[:, None] * other, right * turned[:, None]
        used = np.flatnonzero(X.any(axis=(0, 1)) | Y.any(axis=(0, 1)))
        X, Y = X[..., used], Y[..., used]
        both = np.einsum("abk,abk->ab", X @ self.s[np.ix_(used, used)], Y)
        return np.asarray((left * turned) @ self.s @ (right * other).T + both)

    def _between(self, X: Array, Y: Array) -> Array:
        k, l = np.flatnonzero(X.any(axis=0)), np.flatnonzero(Y.any(axis=0))  # noqa: E741 - few where levels differ
        return np.asarray(X[:, k] @ (self.s[np.ix_(k, l)] @ Y[:, l].T))


class PublishedNoise(ABC):
    """E, symmetric, of p published columns."""

    @property
    @abstractmethod
    def law(self) -> PairLaw:
        """Its covariances as two matrices."""

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

    @property
    def law(self) -> PairLaw:
        return PairLaw(np.full_like(self.gram, 1 / self.rows), self.gram)

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

    @property
    def law(self) -> PairLaw:
        return PairLaw(self.variance - np.diag(np.diag(self.variance) / 2), np.eye(len(self.variance)))

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
