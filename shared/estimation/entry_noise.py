"""The noise in the entries of second moments, as a regression that is cut from them sees it."""

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
