"""How noisy moments are fitted: S_hat = S + E itself, E of known entry variances.

See docs/design/estimation.md#noisy-moments.
"""

from dataclasses import dataclass

import numpy as np

from commingle.shared.estimation.diagnostics import biased, useless
from commingle.shared.estimation.estimator import Errors, Signal
from commingle.shared.estimation.method import Diagnostics, FitMethod, Residual
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.estimation.system import Centred, System
from commingle.shared.mechanisms.moments.estimators import ESTIMATORS
from commingle.shared.mechanisms.moments.signal import entries_of, measure, noise_bound

ENOUGH = 2.0  # times t; intervals were measured to cover 0.945 to 0.961 above 1.8 and to be too wide below


@dataclass(frozen=True, slots=True)
class MomentsFit(FitMethod):
    """Fits of S_hat, from which nothing is to be subtracted."""

    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:  # noqa: ARG002 - as asked of all
        """The covariance of E_x. c, which is the same for table and population."""
        return entries_of(system).covariance(r.direction)

    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:
        """(c^T S_hat c + tr(H Omega)) / (n - p_x) H: b fits its own noise, which lowers the first by the second."""
        return max(0.0, r.signal + float(np.sum(H * omega))) / system.degrees_of_freedom * H

    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:  # noqa: ARG002 - as asked of all
        """The noise is that of the table's own moments."""
        return 1 / n if interval_for == "population" else 0.0

    def noise_level(self, system: System, signal: Signal) -> float:
        """The bound t on the noise."""
        return noise_bound(entries_of(system), signal.centred)

    def label_moment(self, system: System, c: Centred) -> float:  # noqa: ARG002 - as asked of all
        """As published."""
        return c.yy

    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:  # noqa: ARG002 - as asked of all
        """That of the same sum of noise entries."""
        d = c.about_mean
        return entries_of(system).form_variance(np.outer(r.direction, r.direction) - ratio * np.outer(d, d))

    def cautions(
        self, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
    ) -> tuple[str, ...]:
        """What a reader of a fit must be told, in plain language."""
        chosen = self.estimators[estimator]
        found = useless(system, diagnostics) if chosen.uses_features else []
        ratio = diagnostics.signal_to_noise
        if not determined:
            found.append(
                "The noise outweighs the features in some direction: these coefficients mean nothing and get no "
                "standard errors. Name fewer features, or use adaptive_ridge or shrunken."
            )
        elif chosen.uses_features and chosen.errors != "none" and ratio is not None and ratio < ENOUGH:
            found.append(
                f"Some combination of the features varies only {ratio:.2g} times as much as the noise may "
                f"(signal_to_noise; {ENOUGH:g} is enough): coefficients are unstable and standard errors rough. "
                "Name fewer features, or use shrunken to predict."
            )
        if chosen.errors == "none":
            found.append(biased(estimator))
        if chosen.damping is not None and (damped := chosen.damping(system, signal)) > 0:
            found.append(
                f"The features were damped by {damped / system.n:.3g} n to keep the noise out: the coefficients are "
                "biased on purpose and get no standard errors. Use ols for those."
            )
        return tuple(found)


NOISY_MOMENTS = MomentsFit(ESTIMATORS, "ols", measure)
