"""Numbers that say how far to trust a fit."""

import math
from dataclasses import asdict, dataclass

import numpy as np

from commingle.shared.estimation.covariance import Residual, meat, residual
from commingle.shared.estimation.estimators import Errors
from commingle.shared.estimation.linear_algebra import largest_eigenvalue
from commingle.shared.estimation.noisy_moments.signal import noise_bound
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """None where a number cannot be computed.

    Attributes:
        signal_to_noise: lambda_min(S_hat_xx), intercept partialled out, over lambda_max(V_xx); over the bound t on the
            noise for moments.
        root: the l of estimation.md over features and target; None (infinite) without noise.
        feature_root: the same over the features alone: near 1 some direction is buried in noise.
        condition_number: of S_hat_xx; None if it is not positive definite.
        f_statistic, f_p_value: test of the release's own least squares against the constant.
        r_squared: what these coefficients are expected to explain of the private table's label; may be negative.
        r_squared_error: its standard error.
    """

    signal_to_noise: float | None
    root: float | None
    feature_root: float | None
    condition_number: float | None
    f_statistic: float | None
    f_p_value: float | None
    r_squared: float | None
    r_squared_error: float | None

    def to_dict(self) -> dict[str, float | None]:
        """Ready for JSON."""
        return asdict(self)


def diagnose(system: System, signal: Signal, H: Array, b: Array, errors: Errors) -> Diagnostics:
    """The diagnostics of b = H G_xy."""
    if system.entries is None:
        noise = largest_eigenvalue(signal.centred.V)
    else:
        noise = noise_bound(system.entries, signal.centred)
    r_squared, error = expected_r_squared(system, signal, H, b, errors)
    has_features = len(signal.centred.g) > 0
    return Diagnostics(
        signal_to_noise=_finite(signal.smallest / noise) if noise > 0 else None,
        root=_finite(signal.root),
        feature_root=_finite(signal.feature_root),
        condition_number=_finite(signal.largest / signal.smallest) if signal.smallest > 0 else None,
        f_statistic=_finite(signal.f_statistic) if has_features else None,
        f_p_value=signal.f_p_value if has_features else None,
        r_squared=_finite(r_squared),
        r_squared_error=_finite(error),
    )


def expected_r_squared(system: System, signal: Signal, H: Array, b: Array, errors: Errors) -> tuple[float, float]:
    """1 - N/D of these coefficients on the private table, and its standard error; NaN if D is not positive.

    D = S_hat_yy about its mean, scaled from m = k - 1 rows to k. N = c^T S_hat c + 2 tr(H Omega): b was chosen on the
    same noise, so c^T S_hat c is too small by that much on average (the covariance penalty of Efron 2004). The error
    is the delta method's: Cov(c^T G c, d^T G d) = 2 (c^T G d)^2 / k for rows of a normal law, d the centred label.
    For moments D = S_hat_yy about its mean and Var(N - ratio D) is that of the same sum of noise entries.
    """
    c, k = signal.centred, system.rows
    label = k * (c.yy / c.rows - system.v_yy) if system.entries is None else c.yy
    if label <= 0:
        return math.nan, math.nan
    r: Residual = residual(system, b)
    penalty = 2 * float(np.sum(H * meat(system, r, errors, "population")))
    loss = r.signal + penalty
    slopes = b[len(b) - len(c.g) :]
    cross = c.yy - float(slopes @ c.g)
    ratio = loss / label
    if system.entries is not None:
        d = c.about_mean
        variance = system.entries.form_variance(np.outer(r.direction, r.direction) - ratio * np.outer(d, d))
        return 1 - ratio, math.sqrt(variance) / label
    variance = 2 / k * (r.total**2 - 2 * ratio * cross**2 + (ratio * c.yy) ** 2)
    return 1 - ratio, math.sqrt(max(0.0, variance)) / label


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
