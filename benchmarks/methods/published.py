"""Constants as papers print them, which no user is offered: for reproducing what the papers report.

Those of SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1 (docs/proofs/regression.md, 3.4 and
4.6).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import log, sqrt
from types import MappingProxyType

from numpy.random import Generator

from benchmarks.methods.in_parts import ADASSP_PARTS, IN_PARTS, SSP_PARTS, gaussian_loss
from commingle.party_agent.private.regression.floating import (
    AdaopsConstants,
    adaptive_sample,
    coefficient_bound,
    ops_ridge,
    positive_root,
    sample_posterior,
)
from commingle.party_agent.private.regression.measuring import NoiseCalibration, Privacy, require_calibration
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod, FloatingMethod
from commingle.shared.dp.accounting import Loss

_AS_PRINTED = frozenset({NoiseCalibration.PUBLISHED})


def _gaussian_loss(parts: int) -> Callable[[Privacy], Loss]:
    def loss(privacy: Privacy) -> Loss:
        require_calibration(privacy, _AS_PRINTED)
        return gaussian_loss(privacy, parts)

    return loss


def _approximate_loss(privacy: Privacy) -> Loss:
    require_calibration(privacy, _AS_PRINTED)
    return Loss.approximate(privacy.epsilon, privacy.delta)


def _ops(sample: Sample, privacy: Privacy, generator: Generator) -> Estimate:
    asked = privacy.as_add_remove()
    ridge = ops_ridge(sample, asked)
    theta = sample_posterior(sample, generator, ridge=ridge, inverse_variance=published_root(sample, asked, ridge) ** 2)
    return Estimate(theta)


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
    asked = privacy.as_add_remove()
    return adaptive_sample(sample, asked, generator, published_constants(asked))


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
_OPS = FloatingMethod("ops", _AS_PRINTED, _NOTHING, _approximate_loss, None, _ops)
_ADAOPS = FloatingMethod("adaops", _AS_PRINTED, _NOTHING, _approximate_loss, None, _adaops)
AS_PUBLISHED: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        "ssp": replace(IN_PARTS["ssp"], calibrations=_AS_PRINTED, loss=_gaussian_loss(SSP_PARTS)),
        "adassp": replace(IN_PARTS["adassp"], calibrations=_AS_PRINTED, loss=_gaussian_loss(ADASSP_PARTS)),
        "ops": _OPS,
        "adaops": _ADAOPS,
    }
)
"""By name, as `regress.METHODS`."""


def method_with(name: str, calibration: NoiseCalibration) -> ExactMethod | FloatingMethod:
    """A method as its paper prints it, where asked for and the product has it otherwise; the product's else."""
    printed = calibration is NoiseCalibration.PUBLISHED and name in AS_PUBLISHED
    return (AS_PUBLISHED if printed else METHODS)[name]
