"""Constants as papers print them, which no user is offered: for reproducing what the papers report.

Those of SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1 (docs/proofs/regression.md, 3.4 and
4.6); the distance of second moments under-noises nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, log, nextafter, sqrt
from types import MappingProxyType

from numpy.random import Generator

from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy, require_calibration
from commingle.party_agent.private.regression.measuring import Measure, planned_loss
from commingle.party_agent.private.regression.methods import METHODS, ExactMethod, FloatingMethod
from commingle.party_agent.private.regression.posterior import (
    AdaopsConstants,
    adaptive_sample,
    coefficient_bound,
    ops_ridge,
    positive_root,
    sample_posterior,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Sample
from commingle.party_agent.private.regression.sufficient import (
    ADASSP_PARTS,
    SSP_PARTS,
    noisy_cross,
    noisy_gram,
    noisy_system,
    solve,
)
from commingle.shared.dp.accounting import ZERO, Loss

_WIDER = 2.0 / nextafter(sqrt(2), inf)
_AS_PRINTED = frozenset({NoiseCalibration.PUBLISHED})


@dataclass(frozen=True, slots=True)
class TriangleInequality:
    """Measures symmetric sums, the second moments, as if one row moved them by 2 R^2: proved, and noisier."""

    measures: Measure

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        """As `Measure`."""
        wider = sensitivity * (_WIDER if symmetric else 1.0)
        return self.measures.measure(value, sensitivity=wider, multiplier=multiplier, symmetric=symmetric)


def published_multiplier(privacy: Privacy, parts: int) -> float:
    """sqrt(ln(2 parts / delta)) parts / epsilon: noise of each of `parts` measurements (Wang 2018).

    A part does not keep the (epsilon, delta)/parts that the paper's proof gives it (it delivers 2.65 times delta/3 at
    epsilon 1, delta 1e-6); all parts together do keep (epsilon, delta) wherever it was computed, because adding up
    epsilons is wasteful.
    """
    require_calibration(privacy, _AS_PRINTED)
    return sqrt(log(2 * parts / privacy.delta)) * parts / privacy.epsilon


def _gaussian_loss(privacy: Privacy, parts: int) -> Loss:
    one = planned_loss(published_multiplier(privacy, parts))
    return Loss(sum((one for _ in range(parts)), start=ZERO))


def _approximate_loss(privacy: Privacy) -> Loss:
    require_calibration(privacy, _AS_PRINTED)
    return Loss.approximate(privacy.epsilon, privacy.delta)


def _ssp_loss(privacy: Privacy) -> Loss:
    return _gaussian_loss(privacy, SSP_PARTS)


def _ssp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    s = published_multiplier(privacy, SSP_PARTS)
    gram = noisy_gram(sample, privacy, measure, multiplier=s)
    return Estimate(solve(gram, noisy_cross(sample, privacy, measure, multiplier=s)), _ssp_loss(privacy))


def _adassp_loss(privacy: Privacy) -> Loss:
    return _gaussian_loss(privacy, ADASSP_PARTS)


def _adassp(sample: Sample, privacy: Privacy, measure: Measure) -> Estimate:
    s, tail = published_multiplier(privacy, ADASSP_PARTS), sqrt(log(2 * ADASSP_PARTS / privacy.delta))
    system, _ = noisy_system(sample, privacy, measure, multiplier=s, tail=tail)
    return Estimate(solve(system, noisy_cross(sample, privacy, measure, multiplier=s)), _adassp_loss(privacy))


def _ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    loss, asked = _approximate_loss(privacy), privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=published_root(sample, asked, ridge) ** 2)
    return Estimate(theta, loss)


def published_root(sample: Sample, asked: Privacy, ridge: float) -> float:
    """Sqrt(gamma) of OPS."""
    tail, square = log(2 / asked.delta), sample.row_bound**2
    lipschitz = sample.row_bound * (coefficient_bound(sample, ridge) * sample.row_bound + sample.label_bound)
    # g^2 L^2/(lambda + C^2) + g L sqrt(ln(2/delta)/lambda) = epsilon - (1 + ln(2/delta)) C^2/(2 lambda)
    return positive_root(
        lipschitz**2 / (ridge + square),
        lipschitz * sqrt(tail / ridge),
        asked.epsilon - (1 + tail) * square / (2 * ridge),
    )


def _adaops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    loss, asked = _approximate_loss(privacy), privacy.as_add_remove()
    theta, published = adaptive_sample(sample, asked, generator, published_constants(asked))
    return Estimate(theta, loss, published)


def published_constants(asked: Privacy) -> AdaopsConstants:
    """Of AdaOPS, whose bound on the eigenvalue fails too often."""
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


_NOTHING = "None: the paper's constants."
AS_PUBLISHED: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        "ssp": ExactMethod("ssp", _AS_PRINTED, _NOTHING, _ssp_loss, _ssp),
        "adassp": ExactMethod("adassp", _AS_PRINTED, _NOTHING, _adassp_loss, _adassp),
        "ops": FloatingMethod("ops", _AS_PRINTED, _NOTHING, _approximate_loss, _ops),
        "adaops": FloatingMethod("adaops", _AS_PRINTED, _NOTHING, _approximate_loss, _adaops),
    }
)
"""By name, as `methods.METHODS`."""


def method_with(name: str, calibration: NoiseCalibration) -> ExactMethod | FloatingMethod:
    """A method as its paper prints it, where asked for and the product has it otherwise; the product's else."""
    printed = calibration is NoiseCalibration.PUBLISHED and name in AS_PUBLISHED
    return (AS_PUBLISHED if printed else METHODS)[name]
