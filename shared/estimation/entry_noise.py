"""The noise E in the entries of second moments: as published, and as a regression or a table of them sees it.

To first order, E enters a fit of keyed subjects as a linear form <W, E> = sum_kl W_kl E_kl, W (p, p) symmetric.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_SOLVED = 1e-6  # of the right side
_FEW = 0.1  # of entries: forms of pairs of levels have few, and a sparse product skips the others


@dataclass(frozen=True, slots=True, eq=False)
class EntryNoise:
    """Symmetric noise E with independent entries E_kl = E_lk over published columns, seen in the basis of a system."""

    variance: Array  # (m, m) Var(E_kl) of the m columns that (1, x, y) are made of; 0 where the entry is exact
    basis: Array  # (m, p_x + 1) T: the moments of the system's terms and its label carry the noise T^T E T

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
    """Symmetric noise E of p columns with Cov(<W, E>, <U, E>) = 2 tr((W * s) L U L): all noise here has this form.

    So has that of pairs of different subjects that met: s counts them, entry by entry, and L has the second moments of
    one subject of each party, 0 between two parties. Subject s of one party and r of another add eps u_s w_r, eps = +-1
    at random (docs/proofs/keyed-subjects.md, 5.1).
    """

    s: Array  # (p, p) symmetric, multiplied entry by entry
    L: Array  # (p, p) symmetric; L (W * s) L is so too

    @classmethod
    def of_entries(cls, variance: Array) -> Self:
        """Independent E_kl = E_lk of these variances, (p, p)."""
        return cls(variance - np.diag(np.diag(variance) / 2), np.eye(len(variance)))

    @classmethod
    def of_rows(cls, gram: Array, rows: int) -> Self:
        """Errors of G = P^T P for k noisy rows P that are like draws of a normal law.

        Cov(E_ab, E_cd) = (G_ac G_bd + G_ad G_bc) / k (docs/proofs/keyed-subjects.md, 3.2).
        """
        return cls(np.full_like(gram, 1 / rows), gram)

    @property
    def of_normal_rows(self) -> bool:
        """Whether these are errors of noisy rows (`of_rows`): each grows with the columns that it is between."""
        return bool(np.all(self.s == self.s[0, 0]))

    def drawn_rows(self, random: np.random.Generator, count: int, *, left: Array) -> Array:
        """Draws of A E A^T, (count, a, a), A = `left` (a, p), if E is `of_normal_rows`: E = s^1/2 F Z F^T, F F^T = L.

        Z is symmetric and normal with variance 2 on the diagonal and 1 off it.
        """
        values, vectors = np.linalg.eigh(self.L)
        F = left @ (float(self.s[0, 0]) ** 0.25 * vectors * np.sqrt(np.maximum(values, 0.0)))
        Z = random.standard_normal((count, *self.L.shape))
        half = F @ Z @ F.T
        return np.asarray((half + half.swapaxes(1, 2)) / np.sqrt(2))

    def on(self, columns: NDArray[np.intp]) -> "PairLaw":
        block = np.ix_(columns, columns)
        return PairLaw(self.s[block], self.L[block])

    def covariances(self, forms: Array) -> Array:
        """Covariances (t, t) of <W, E> for t symmetric W, (t, p, p)."""
        k, l = np.triu_indices(len(self.L))  # noqa: E741 - both factors are symmetric
        scaled = forms[:, k, l] * (self.s[k, l] * np.where(k < l, 4, 2))
        single = np.array_equal(self.L, np.eye(len(self.L)))
        turned = forms[:, k, l] if single else (self.L @ forms @ self.L)[:, k, l]
        if np.count_nonzero(scaled) > _FEW * scaled.size:
            return np.asarray(scaled @ turned.T)
        from scipy.sparse import csr_array  # noqa: PLC0415 - loads slowly

        return np.asarray(csr_array(scaled) @ np.ascontiguousarray(turned.T))

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
        """Variances of the same products, (a, b)."""
        turned, other = left @ self.L, right @ self.L
        found = (left * turned) @ self.s @ (right * other).T
        for place, (one, own) in enumerate(zip(left, turned, strict=True)):
            k = np.flatnonzero(one)
            found[place] += np.sum((one[k] * other[:, k]) @ self.s[k] * (right * own), axis=1)
        return np.asarray(found)

    def _between(self, X: Array, Y: Array) -> Array:
        k, l = np.flatnonzero(X.any(axis=0)), np.flatnonzero(Y.any(axis=0))  # noqa: E741 - few where levels differ
        return np.asarray(X[:, k] @ (self.s[np.ix_(k, l)] @ Y[:, l].T))


@dataclass(frozen=True, slots=True, eq=False)
class ProductNoise:
    """Errors l E r of a table of sums of products, (a, b), as a sum over independent kinds of noise.

    Tables of many levels have more covariances than memory holds, so a part is made only when it is asked for.
    """

    # the law of each kind, and in its columns the combinations: left (a, p) and right (b, p)
    parts: tuple[tuple[PairLaw, Array, Array], ...]

    @property
    def variances(self) -> Array:
        found = np.sum([law.variances(left, right) for law, left, right in self.parts], axis=0)
        return np.asarray(np.maximum(found, 0.0))

    @property
    def errors(self) -> Array:
        return np.sqrt(self.variances)

    @property
    def covariance(self) -> Array:
        """(a b, a b), written down whole."""
        found = np.asarray(sum(law.across(left, right) for law, left, right in self.parts))
        size = found.shape[0] * found.shape[1]
        return found.reshape(size, size)

    def along(self, weights: Array) -> Array:
        """Cov(sum_ab w_ab e_ab, e), (a, b), for w (a, b): without the covariance."""
        found = np.zeros_like(weights)
        for law, left, right in self.parts:
            form = left.T @ weights @ right
            found += left @ law.along((form + form.T) / 2) @ right.T
        return found

    def of(self, rows: Array, columns: Array) -> "ProductNoise":
        """The noise of sums over rows and columns of the table: `rows` (c, a) and `columns` (d, b) of weights."""
        return ProductNoise(tuple((law, rows @ left, columns @ right) for law, left, right in self.parts))


@dataclass(frozen=True, slots=True, eq=False)
class TableNoise:
    """Errors of a table whose covariance is written down, (a, b, a, b)."""

    of_cells: Array

    @property
    def variances(self) -> Array:
        a, b = self.of_cells.shape[:2]
        return np.asarray(np.maximum(np.diag(self.covariance), 0.0).reshape(a, b))

    @property
    def errors(self) -> Array:
        return np.sqrt(self.variances)

    @property
    def covariance(self) -> Array:
        size = self.of_cells.shape[0] * self.of_cells.shape[1]
        return self.of_cells.reshape(size, size)

    def along(self, weights: Array) -> Array:
        """Cov(sum_ab w_ab e_ab, e), (a, b), for w (a, b)."""
        return np.tensordot(weights, self.of_cells, axes=2)

    def of(self, rows: Array, columns: Array) -> "TableNoise":
        (c, a), (d, b) = rows.shape, columns.shape
        half = columns @ (rows @ self.of_cells.reshape(a, -1)).reshape(c, b, a * b)
        return TableNoise(rows @ half.reshape(c, d, a, b) @ columns.T)


def inverse_form(apply: Callable[[Array], Array], scale: Array, x: Array) -> float:
    """The form x C^-1 x by conjugate gradients, for a positive definite C that is not written down; `apply` gives C v.

    `scale` is near the diagonal of C, and positive; x and it have any one shape. NaN if they do not converge.
    """
    from scipy.sparse.linalg import LinearOperator, cg  # noqa: PLC0415 - loads slowly

    shape = (x.size, x.size)
    C = LinearOperator(shape, lambda v: apply(v.reshape(x.shape)).ravel(), dtype=np.float64)
    M = LinearOperator(shape, lambda v: v.ravel() / scale.ravel(), dtype=np.float64)
    found, _ = cg(C, x.ravel(), rtol=1e-12, atol=0.0, M=M, maxiter=1000)
    left = np.linalg.norm(C @ found - x.ravel())  # rounding may keep it above what was asked for
    return float(found @ x.ravel()) if left <= _SOLVED * np.linalg.norm(x) else float("nan")
