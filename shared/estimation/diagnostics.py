"""How certain a fit is: covariances of coefficients, figures that say how far to trust it, and warnings for readers.

A fit is b = H G_xy. With c = (-b, 1) the moment G_x. c of its own noise has some covariance Omega ("meat" below), and
Cov(b) = H Omega H (docs/design/estimation.md#covariance). A mechanism brings its own Omega (`method.FitMethod`). A fit
of whole rows may lie as far from that of cut rows as the weight of what cutting took, and intervals allow for it.
"""

import math
from collections.abc import Sequence

import numpy as np

from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import (
    Coverage,
    Diagnostics,
    Errors,
    FitMethod,
    IntervalFor,
    Residual,
    Signal,
    residual,
)
from commingle.shared.estimation.system import System, centre

_BENT = 1 / 3
"""Standard deviation of what is bent, over what cutting took; measured (docs/coverage.md#rows-that-were-cut)."""
SIGNIFICANCE = 0.05
_UNCUT = (
    'A study whose numbers have cuts, or that says "first_stage_share": null for each member (study new --one-stage), '
    "cuts no rows."
)
_COUNTED = (
    "Intervals count what that usually bends, and are wider for it (docs/coverage.md#rows-that-were-cut). " + _UNCUT
)
_AROUND_THE_CUT = (
    "intervals are around the fit of the cut rows, and do not count how far that is from the fit of whole rows"
)
_OF_THE_CUT = "these figures are of the cut rows"
_OFF = "These figures may be off by as much"
_TOLD = 0.01  # part of a column's variance that cutting took, from which on we say so, and count the error of it


def covariance(
    method: FitMethod,
    system: System,
    H: Array,
    r: Residual,
    *,
    errors: Errors,
    interval_for: IntervalFor,
    spread: Array | None = None,
) -> tuple[Array, Coverage]:
    """Cov(b) in the system's units, (p_x, p_x), NaN if there is none, and what it is around.

    For the population rmgm adds (residual variance / n) (S_hat_xx / n)^-1. H stands in for S_hat_xx^-1: it has the same
    limit and exists even if S_hat_xx is not positive definite. Keyed subjects have a sampling of their own. If
    residuals spread unequally, T turns what is added (`spread`). What cutting may bend counts if first stages say what
    it took.
    """
    if errors == "none":
        return np.full_like(H, np.nan), "none"
    omega = method.meat(system, r, errors, interval_for)
    cov = H @ omega @ H
    if errors == "plain":
        return cov, "release"
    if interval_for == "population":
        drawn = method.population(system, r, H, omega)
        cov = cov + (drawn if spread is None else spread @ drawn @ spread.T)
    return cov + bent_by_cutting(system, H), interval_for


def bent_by_cutting(system: System, H: Array) -> Array:
    """Cov(b) of what cutting may bend: H diag(g) H', g_j = (_BENT (l_j + l_y) / 2)^2 X_jj yy without their noise.

    Cutting changes the entry g_j by the sum over rows of (1 - s^2) x_j e, s the part of a row that is left: at most
    sqrt(l_j X_jj l_e ee), and nearly that if the relation to the largest values bends.
    """
    if system.lost is None or system.may_have_lost is None:
        return np.zeros_like(H)
    c, lost = centre(system), np.where(system.lost < _TOLD, system.lost, system.may_have_lost)
    noise = c.rows * np.append(np.diag(c.V), system.v_yy)
    spread = np.append(np.zeros(int(system.intercept)), np.maximum(np.append(np.diag(c.X), c.yy) - noise, 0))
    bent = _BENT * (lost[:-1] + lost[-1]) / 2
    return np.asarray((H * (bent**2 * spread[:-1] * spread[-1])) @ H.T)


def diagnose(method: FitMethod, system: System, signal: Signal, H: Array, b: Array, *, errors: Errors) -> Diagnostics:
    noise = method.noise_level(system, signal)
    r_squared, error = expected_r_squared(method, system, signal, H, b, errors=errors)
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


def expected_r_squared(
    method: FitMethod, system: System, signal: Signal, H: Array, b: Array, *, errors: Errors
) -> tuple[float, float]:
    """1 - N/D of these coefficients on the private table, and its standard error; NaN if D is not positive.

    D is the label's moment about its mean. N = c^T S_hat c + 2 tr(H Omega): b was chosen on the same noise, so c^T
    S_hat c is too small by that much on average (the covariance penalty of Efron 2004). The error is the delta
    method's, by the mechanism's own Var(N - ratio D).
    """
    c = signal.centred
    label = method.label_moment(system, c)
    if label <= 0:
        return math.nan, math.nan
    r = residual(system, b)
    penalty = 2 * float(np.sum(H * method.meat(system, r, errors, "population")))
    ratio = (r.signal + penalty) / label
    cross = c.yy - float(b[len(b) - len(c.g) :] @ c.g)
    variance = method.loss_variance(system, c, r, ratio=ratio, cross=cross)
    return 1 - ratio, math.sqrt(max(0.0, variance)) / label


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def cut_rows(unknown: Sequence[str], lost: Array | None, *, counted: bool | None = True) -> list[str]:
    """How far intervals allow for what cutting rows bends, if any were cut; `lost` as in `System`.

    Intervals of linear fits allow for it; those of counts, and of figures from counts, do not (`counted`, which is None
    for figures without intervals).
    """
    said = []
    if unknown:
        whose = f"Rows of {', '.join(unknown)} were cut at a norm before noise was added"
        said.append(f"{whose}: {_OF_THE_CUT if counted is None else _AROUND_THE_CUT} (docs/coverage.md).")
    if lost is not None and (most := float(lost.max())) >= _TOLD:
        so = {True: _COUNTED, False: f"{_OFF}, and intervals do not count it. {_UNCUT}", None: f"{_OFF}. {_UNCUT}"}
        said.append(
            f"Rows were cut at a norm before noise was added, which took about {most:.0%} of what one of these columns "
            f"varies. {so[counted]}"
        )
    return said


def cautions(
    method: FitMethod, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
) -> tuple[str, ...]:
    """Warnings about one fit; `determined` says whether the estimator's operator is positive definite."""
    chosen = method.estimators[estimator]
    found = _useless(system, diagnostics) if chosen.uses_features else []
    found += method.cautions(system, signal, estimator, diagnostics, determined=determined)
    if chosen.errors == "none":
        found.append(f"{estimator} is for prediction: it is biased on purpose and has no standard errors.")
    if chosen.damping is not None and (damped := chosen.damping(system, signal)) > 0:
        biased = ": the coefficients are biased on purpose and get no standard errors. Use ols for those"
        found.append(
            f"The features were damped by {damped / system.n:.3g} n to keep the noise out"
            f"{biased if chosen.errors != 'none' else ''}."
        )
    return tuple(found)


def _useless(system: System, d: Diagnostics) -> list[str]:
    reasons = []
    if d.f_p_value is not None and d.f_p_value > SIGNIFICANCE:
        reasons.append(f"F test p = {d.f_p_value:.2f}")
    if d.r_squared is None:
        reasons.append("no variance of the target is left once the noise is taken off")
    elif d.r_squared <= 0:
        reasons.append(f"expected R-squared {d.r_squared:.2f}")
    if not reasons:
        return []
    baseline = "predicting the mean of the target" if system.intercept else "predicting 0"
    return [f"This fit cannot be told from {baseline} ({'; '.join(reasons)})."]
