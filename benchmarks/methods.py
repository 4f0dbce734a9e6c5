"""Methods and pre-processing of papers that no user is offered: for reproducing what the papers report.

Rows go into the unit ball and back as in Kalaja 2020 and Wang 2018. A map reads nothing but the row itself and the
numbers of its `Scales`, so it costs nothing beyond the method that follows. `Scales.of` takes the numbers from the
private rows as the papers do: that is not private. The product maps rows by the bounds of their schema.

SSP and AdaSSP measure each sum by itself with an equal part of the budget: entries beside the diagonal of X^T X get as
much noise as those on it, and AdaSSP measures the least eigenvalue (Wang 2018, algorithm 2; Kalaja 2020, algorithm 3,
with classical noise). The product measures both sums at once (`commingle.party_agent.private.regression.sums`).
Published constants of SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1
(docs/proofs/regression.md, 3.4 and 4.6). add_remove or replace_one.

DP-PMTOLSE and its baseline DP-OLSE, which has no transform, are of "Enhancing DP linear regression via public
second-moment" (2025). They measure the second and the cross moment of bounded rows each by itself; replace_one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, log, nextafter, sqrt
from typing import Self

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.floating import (
    AdaopsConstants,
    adaptive_sample,
    coefficient_bound,
    noisy_floor,
    ops_ridge,
    positive_root,
    sample_posterior,
)
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    Measure,
    NoiseCalibration,
    Privacy,
    gaussian_multiplier,
    multiplier_within,
    planned_loss,
    require_calibration,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample, clip_sample
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod, FloatingMethod
from commingle.party_agent.private.regression.sums import ETA, PublicMoments, solve, tail
from commingle.shared.documents.regression import RowMapping
from commingle.shared.dp.accounting import ZERO, Loss
from commingle.shared.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Mapped:
    """Rows and labels in the ball, for `problem.clip_sample` or `on_grid` with label bound 1.

    Attributes:
        x: n x d, or n x (d + 1) with the intercept column first.
        row_bound: 1, or sqrt(2) where an intercept column of ones stands beside rows of norm 1.
    """

    x: Floats
    y: Floats
    row_bound: float


@dataclass(frozen=True, slots=True)
class Scales:
    """The numbers of a map, in the units of the data.

    Attributes:
        means, sds: (d,) subtracted from columns, and then dividing them.
        label_mean, label_max: the same for the label, after the row's norm divides it, if it does.
        row_max: the largest norm of a standardised row. `maximum` divides all rows by it. `per_row` divides each row by
            its own norm, `per_row_with_label` its label too.
        intercept: whether a column of ones comes first.
    """

    means: Floats
    sds: Floats
    label_mean: float
    label_max: float
    row_max: float
    mapping: RowMapping
    intercept: bool

    @classmethod
    def of(cls, x: Floats, y: Floats, *, mapping: RowMapping, intercept: bool, centre_label: bool = True) -> Self:
        """Means, standard deviations and maxima of the rows themselves. Not private: benchmarks only."""
        means, sds = x.mean(axis=0), x.std(axis=0)
        sds = np.where(sds > 0, sds, 1.0)
        label_mean = float(y.mean()) if centre_label else 0.0
        longest = float(_row_norms((x - means) / sds).max())
        rough = cls(means, sds, label_mean, 1.0, longest, mapping, intercept)
        return replace(rough, label_max=float(np.abs(rough.applied(x, y).y).max()) or 1.0)

    def applied(self, x: Floats, y: Floats) -> Mapped:
        """Standardise, add the intercept column, scale. With public scales rows may leave the ball: clip them after."""
        whole = self.mapping == "maximum"
        rows = (x - self.means) / self.sds / (self.row_max if whole else 1.0)
        labels = (y - self.label_mean) / self.label_max
        if self.intercept:
            rows = np.column_stack([np.ones(len(rows)), rows])
        if whole:
            return Mapped(rows, labels, sqrt(2) if self.intercept else 1.0)
        norms = _row_norms(rows)
        return Mapped(rows / norms[:, None], labels / norms if self.mapping == "per_row_with_label" else labels, 1.0)

    def undone(self, theta: Floats) -> tuple[float, Floats]:
        """Intercept and d slopes in the units of the data, from coefficients with the intercept first. Post-processing.

        theta'_j = y_max theta_j / (x_max sd_j), theta'_0 = label_mean + y_max theta_0 - sum_j theta'_j mean_j, with
        x_max = 1 for per_row_with_label, where a row and its label are divided alike.

        Raises ParameterError: the mapping is per_row, after which labels are no linear function of the rows.
        """
        if self.mapping == "per_row":
            raise ParameterError(
                "coefficients of rows divided by their norms have no counterpart in the units of the data",
                remedy="Use mapping maximum or per_row_with_label.",
            )
        slopes = self.label_max * theta[1:] / ((self.row_max if self.mapping == "maximum" else 1.0) * self.sds)
        return float(self.label_mean + self.label_max * theta[0] - slopes @ self.means), slopes


def _row_norms(rows: Floats) -> Floats:
    norms: Floats = np.linalg.norm(rows, axis=1)
    norms[norms == 0] = 1.0
    return norms


SSP_PARTS, ADASSP_PARTS = 2, 3
_PUBLISHED = frozenset({NoiseCalibration.PUBLISHED})
_FAILURE = 0.05
_NOTHING = "None where the constants are the paper's."


def published_multiplier(privacy: Privacy, parts: int) -> float:
    """sqrt(ln(2 parts / delta)) parts / epsilon: noise of each of `parts` measurements (Wang 2018).

    A part does not keep the (epsilon, delta)/parts that the paper's proof gives it (it delivers 2.65 times delta/3 at
    epsilon 1, delta 1e-6); all parts together do keep (epsilon, delta) wherever it was computed, because adding up
    epsilons is wasteful.
    """
    require_calibration(privacy, _PUBLISHED)
    return sqrt(log(2 * parts / privacy.delta)) * parts / privacy.epsilon


def multiplier(privacy: Privacy, parts: int) -> float:
    """Noise of each of `parts` measurements, as printed or by a proved calibration."""
    printed = privacy.calibration in _PUBLISHED
    return published_multiplier(privacy, parts) if printed else gaussian_multiplier(privacy, parts)


def gaussian_loss(privacy: Privacy, parts: int) -> Loss:
    one = planned_loss(multiplier(privacy, parts))
    return Loss(sum((one for _ in range(parts)), start=ZERO))


def gram_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||xx^T||_F <= C^2; ||xx^T - vv^T||_F^2 = |x|^4 + |v|^4 - 2 (x.v)^2 <= 2 C^4."""
    return sample.row_bound**2 * (sqrt(2) if privacy.replaces else 1.0)


def cross_sensitivity(sample: Sample, privacy: Privacy) -> float:
    """||x y|| <= C Y; ||x y - v w|| <= 2 C Y, attained by v = x, w = -y."""
    return sample.row_bound * sample.label_bound * (2.0 if privacy.replaces else 1.0)


def measure_upper(value: Floats, measure: Measure, *, sensitivity: float, multiplier: float) -> Floats:
    """A symmetric matrix with equal noise on and above the diagonal, mirrored."""
    upper = np.triu_indices(len(value))
    full = np.zeros_like(value)
    full[upper] = measure.measure(value[upper], sensitivity=sensitivity, multiplier=multiplier)
    return full + np.triu(full, 1).T


def noisy_gram(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T X + noise, d x d, symmetric."""
    sensitivity = gram_sensitivity(sample, privacy)
    return measure_upper(sample.x.T @ sample.x, measure, sensitivity=sensitivity, multiplier=multiplier)


def noisy_cross(sample: Sample, privacy: Privacy, measure: Measure, *, multiplier: float) -> Floats:
    """X^T y + noise, d."""
    cross = sample.x.T @ sample.y
    return measure.measure(cross, sensitivity=cross_sensitivity(sample, privacy), multiplier=multiplier)


def _ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    s = multiplier(privacy, SSP_PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    return Estimate(solve(gram, noisy_cross(sample, privacy, measure, multiplier=s)))


def _adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    """(X^T X + noise + lambda I)^-1 (X^T y + noise), lambda = max(0, sd sqrt(d ln(2 d^2 / 0.05)) - floor)."""
    s, d, printed = multiplier(privacy, ADASSP_PARTS), sample.d, privacy.calibration in _PUBLISHED
    tail = log(2 * ADASSP_PARTS / privacy.delta) if printed else 2 * log(1.25 * ADASSP_PARTS / privacy.delta)
    floor = noisy_floor(sample, measure, multiplier=s, tail=sqrt(tail))
    ridge = max(0.0, s * gram_sensitivity(sample, privacy) * sqrt(d * log(2 * d**2 / _FAILURE)) - floor)
    system = noisy_gram(sample, privacy, measure, multiplier=s) + ridge * np.eye(d)
    return Estimate(solve(system, noisy_cross(sample, privacy, measure, multiplier=s)))


def _approximate_loss(privacy: Privacy) -> Loss:
    require_calibration(privacy, _PUBLISHED)
    return Loss.approximate(privacy.epsilon, privacy.delta)


def _ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    asked = privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=published_root(sample, asked, ridge) ** 2)
    return Estimate(theta)


def published_root(sample: Sample, asked: Privacy, ridge: float) -> float:
    """The square root of OPS's gamma."""
    tail, square = log(2 / asked.delta), sample.row_bound**2
    lipschitz = sample.row_bound * (coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound)
    # g^2 L^2/(lambda + C^2) + g L sqrt(ln(2/delta)/lambda) = epsilon - (1 + ln(2/delta)) C^2/(2 lambda)
    return positive_root(
        lipschitz**2 / (ridge + square),
        lipschitz * sqrt(tail / ridge),
        asked.epsilon - (1 + tail) * square / (2 * ridge),
    )


def _adaops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    asked = privacy.as_add_remove()
    return adaptive_sample(sample, asked, generator, published_constants(asked))


def published_constants(asked: Privacy) -> AdaopsConstants:
    """Constants of AdaOPS, whose bound on the eigenvalue fails too often."""
    epsilon, log_delta = asked.epsilon, log(6 / asked.delta)
    # (e^2/2) [1/ln(6/delta) + (1 + ln(6/delta))/ln(6/delta)] + e = epsilon/2
    part = positive_root((2 + log_delta) / (2 * log_delta), 1.0, epsilon / 2)

    def root(residual: float, level: float, bound: float) -> float:
        return sqrt(level * part**2 / (log_delta * (bound * residual) ** 2))

    return AdaopsConstants(
        multiplier=sqrt(log_delta) / (epsilon / 4),
        tail=sqrt(log_delta),
        reserve=0.0,
        log_delta=log_delta,
        least=(1 + log_delta) / (2 * epsilon),
        root=root,
    )


def _sums_in_parts(calibrations: frozenset[NoiseCalibration]) -> dict[str, ExactMethod]:
    def loss_of(parts: int) -> Callable[[Privacy], Loss]:
        def loss(privacy: Privacy) -> Loss:
            require_calibration(privacy, calibrations)
            return gaussian_loss(privacy, parts)

        return loss

    return {
        "ssp": ExactMethod("ssp", calibrations, _NOTHING, loss_of(SSP_PARTS), None, _ssp),
        "adassp": ExactMethod("adassp", calibrations, _NOTHING, loss_of(ADASSP_PARTS), None, _adassp),
    }


IN_PARTS: Mapping[str, ExactMethod] = _sums_in_parts(GAUSSIAN | _PUBLISHED)
"""By name as `regress.METHODS`, for any calibration."""
AS_PUBLISHED: Mapping[str, ExactMethod | FloatingMethod] = {
    **_sums_in_parts(_PUBLISHED),
    "ops": FloatingMethod("ops", _PUBLISHED, _NOTHING, _approximate_loss, None, _ops),
    "adaops": FloatingMethod("adaops", _PUBLISHED, _NOTHING, _approximate_loss, None, _adaops),
}
"""By name as `regress.METHODS`, with the papers' constants."""


def method_with(name: str, calibration: NoiseCalibration) -> ExactMethod | FloatingMethod:
    """The method as its paper prints it, if the calibration asks for it and the product differs; else the product's."""
    printed = calibration is NoiseCalibration.PUBLISHED and name in AS_PUBLISHED
    return (AS_PUBLISHED if printed else METHODS)[name]


TIGHT = nextafter(sqrt(2), inf)
"""||u u^T - v v^T||_F^2 = |u|^4 + |v|^4 - 2 (u.v)^2 <= 2 R^4."""
TRIANGLE = 2.0
"""As the paper prints it, by the triangle inequality: proved, and noisier."""


def loss_of_both(rho: float) -> Loss:
    """The loss of measuring each of both moments at `rho`: 2 rho."""
    one = Loss(planned_loss(multiplier_within(rho)))
    return one + one


def noisy_second_moment(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Floats:
    """X^T X / n + G, d x d, G symmetric with sd `distance` R^2 / (sqrt(2 rho) n).

    Privacy: replace_one; rho-zCDP (Bun, Steinke 2016, lemma 2.5).
    """
    sensitivity, s = distance * sample.row_bound**2, multiplier_within(rho)
    return measure_upper(sample.x.T @ sample.x, measure, sensitivity=sensitivity, multiplier=s) / sample.n


def noisy_cross_moment(sample: Sample, rho: float, measure: Measure) -> Floats:
    """X^T y / n + g, d, with sd 2 R L / (sqrt(2 rho) n): ||u y - v w|| <= 2 R L, attained by v = u, w = -y.

    Privacy: replace_one; rho-zCDP.
    """
    sensitivity = 2 * sample.row_bound * sample.label_bound
    total = measure.measure(sample.x.T @ sample.y, sensitivity=sensitivity, multiplier=multiplier_within(rho))
    return total / sample.n


def dp_pmtolse(
    sample: Sample, public: PublicMoments, rho: float, measure: Measure, *, distance: float = TIGHT
) -> Estimate:
    """Coefficients sigma_B Sigma_B^-1/2 (X~^T X~/n + G)^-1 (X~^T y~/n + g).

    Privacy: replace_one; `loss_of_both(rho)`. `sample` is made by `transform` with the same public moments.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    beta = sqrt(public.label) * public.root(-0.5) @ np.linalg.lstsq(moment, cross)[0]
    return Estimate(beta.astype(np.float64))


def clipped(x: Floats, y: Floats, moments: PublicMoments) -> Sample:
    """Cut rows and labels at sqrt(Tr(Sigma) + d ln(2n/eta)) and sqrt(sigma^2 + ln(2n/eta)).

    The paper takes Sigma and sigma^2 from these rows themselves, which is NOT PRIVATE: benchmarks only.
    """
    spread = tail(len(y), ETA) - 1
    row_bound = sqrt(float(np.trace(moments.features)) + x.shape[1] * spread)
    return clip_sample(x, y, row_bound=row_bound, label_bound=sqrt(moments.label + spread))


def dp_olse(sample: Sample, rho: float, measure: Measure, *, distance: float = TIGHT) -> Estimate:
    """Coefficients (X^T X/n + G)^-1 (X^T y/n + g), G and g in the sample's own bounds.

    Privacy: replace_one; `loss_of_both(rho)`, provided that the sample's bounds were not taken from its rows.
    """
    moment = noisy_second_moment(sample, rho, measure, distance=distance)
    cross = noisy_cross_moment(sample, rho, measure)
    published = {"second_moment": moment.ravel().tolist(), "cross_moment": cross.tolist()}
    return Estimate(np.linalg.lstsq(moment, cross)[0].astype(np.float64), published)
