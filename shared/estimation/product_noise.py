"""The noise in a table of sums of products, l with r for each l of one set of combinations and each r of another.

Tables of many levels have more covariances than memory holds. They follow from what levels are made of (`PairLaw`), so
a part is made where it is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from commingle.shared.estimation.entry_noise import Array, PairLaw

_SOLVED = 1e-6  # of the right side


@dataclass(frozen=True, slots=True, eq=False)
class ProductNoise:
    """Errors l E r of a table, (a, b), as a sum over independent kinds of noise.

    Attributes:
        parts: the law of each kind, and in its columns the combinations: left (a, p) and right (b, p).
    """

    parts: tuple[tuple[PairLaw, Array, Array], ...]

    @property
    def variances(self) -> Array:
        """(a, b)."""
        found = np.sum([law.variances(left, right) for law, left, right in self.parts], axis=0)
        return np.asarray(np.maximum(found, 0.0))

    @property
    def errors(self) -> Array:
        """(a, b) standard errors."""
        return np.sqrt(self.variances)

    @property
    def covariance(self) -> Array:
        """(a b, a b): as large as it is asked for."""
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
        """Of sums over rows and columns of the table: `rows` (c, a) and `columns` (d, b) of weights."""
        return ProductNoise(tuple((law, rows @ left, columns @ right) for law, left, right in self.parts))


def inverse_form(apply: Callable[[Array], Array], scale: Array, x: Array) -> float:
    """Return x C^-1 x for a positive definite C that is never written down, `apply` giving C v, by conjugate gradients.

    `scale` is near the diagonal of C, and positive; x and it have any one shape. NaN where they do not converge.
    """
    from scipy.sparse.linalg import LinearOperator, cg  # noqa: PLC0415 - loads slowly

    shape = (x.size, x.size)
    C = LinearOperator(shape, lambda v: apply(v.reshape(x.shape)).ravel(), dtype=np.float64)
    M = LinearOperator(shape, lambda v: v.ravel() / scale.ravel(), dtype=np.float64)
    found, _ = cg(C, x.ravel(), rtol=1e-12, atol=0.0, M=M, maxiter=1000)
    left = np.linalg.norm(C @ found - x.ravel())  # rounding may keep it above what was asked for
    return float(found @ x.ravel()) if left <= _SOLVED * np.linalg.norm(x) else float("nan")
