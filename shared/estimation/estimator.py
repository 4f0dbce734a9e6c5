"""What an estimator is, and what is measured of a release before any is applied.

Most estimators are linear in the cross moments given G_xx, V, k and n: b = H (G_xy - a k v_xy), where v_xy is what the
noise of the terms and that of the label share: 0 unless one party whitened both. Of one that reads the posterior mode,
H is the derivative of its coefficients. Their covariance and the expected loss follow from H in the same way for all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from commingle.shared.estimation.errors import SingularError
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.system import Centred, System

Errors = Literal["noisy_regressors", "plain", "none"]
FAILURE = 0.05  # of every bound on noise


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """Facts about a system that no estimator changes.

    Attributes:
        centred: the system with the intercept partialled out, q features.
        inverse: (q, q) X^-1.
        root: l, the smallest root of det(G - l k V) = 0 over (x, y); infinite without noise.
        feature_root: l_x, the smallest root of X against its degrees of freedom times V_xx; infinite without noise.
        smallest, largest: eigenvalues of S_hat_xx; NaN without features.
        f_statistic: of the release's own least squares against the mean (against 0 without intercept), what noise
            shared by label and features explains taken off.
        f_degrees: its second degrees of freedom.
        f_p_value: its tail probability; 1 without features.
    """

    centred: Centred
    inverse: Array
    root: float
    feature_root: float
    smallest: float
    largest: float
    f_statistic: float
    f_degrees: int
    f_p_value: float


def _all(system: System, signal: Signal) -> float:  # noqa: ARG001 - all estimators have one signature
    return 1.0


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator and what can be said about its errors.

    Attributes:
        solve: H, (p_x, p_x), of a system, and the coefficients b, (p_x,).
        errors: `noisy_regressors`: standard errors around the private table or the population;
            `plain`: those of a regression on the noisy release; `none`: it is biased on purpose, so none.
        uses_features: False for the label mean.
        damping: how much it damped the features, if it does so only where it must: what is damped is biased and has
            no standard errors.
    """

    solve: Callable[[System, Signal], tuple[Array, Array]]
    errors: Errors
    uses_features: bool = True
    damping: Callable[[System, Signal], float] | None = None


def linear(
    operator: Callable[[System, Signal], Array], subtracted: Callable[[System, Signal], float] = _all
) -> Callable[[System, Signal], tuple[Array, Array]]:
    """H of `operator` and b = H (G_xy - a k v_xy).

    `subtracted` is a, the share of the shared noise that is taken off: the estimator's own share of V_xx where its
    coefficients are to be exact, all of it where they are damped towards 0.
    """

    def solve(system: System, signal: Signal) -> tuple[Array, Array]:
        H = operator(system, signal)
        return H, H @ (system.xy - subtracted(system, signal) * system.rows * system.v_xy)

    return solve


def _label_mean(system: System, signal: Signal) -> Array:  # noqa: ARG001 - as above
    """H = 1 / G_11, the intercept being the only term."""
    return np.reciprocal(system.xx)


CONSTANT = Estimator(linear(_label_mean), "noisy_regressors", uses_features=False)
"""The label mean: the baseline every private fit is compared with."""


def inverse(matrix: Array) -> Array:
    """The inverse of a symmetric matrix, definite or not, (p, p).

    Raises:
        SingularError: it has none.
    """
    try:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None


def largest_eigenvalue(V: Array) -> float:
    """Of a covariance (q, q); 0 of an empty one."""
    return float(np.linalg.eigvalsh(V)[-1]) if V.size else 0.0
