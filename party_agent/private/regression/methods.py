"""The methods by name: what each costs, what it promises, and what its noise is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from numpy.random import Generator

from commingle.party_agent.private.regression import (
    adaops,
    adassp,
    boosted_adassp,
    dp_pmtolse,
    noisysgd,
    objpert,
    ops,
    ssp,
    subagg,
)
from commingle.party_agent.private.regression.calibration import Calibration, Privacy
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.pmt import PublicMoments
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.shared.dp.accounting import Loss


@dataclass(frozen=True, slots=True)
class Method:
    """What is common to all.

    Attributes:
        name: the paper's name, in lower case.
        calibrations: those whose guarantee is proved; the product takes no other.
        benchmark_only: further ones, for reproducing a paper.
        guarantee: one sentence for a privacy statement.
        loss: the debit, from public parameters alone.
    """

    name: str
    calibrations: frozenset[Calibration]
    benchmark_only: frozenset[Calibration]
    guarantee: str
    loss: Callable[[Privacy], Loss]


@dataclass(frozen=True, slots=True)
class ExactMethod(Method):
    """All its noise is Gaussian on sums, so `measuring.Exact` can draw it exactly from a sample made `on_grid`."""

    run: Callable[[Sample, Privacy, Measure], Estimate]


@dataclass(frozen=True, slots=True)
class FloatingMethod(Method):
    """Its noise is floating point (Mironov 2012): the product asks for explicit consent."""

    run: Callable[[Sample, Privacy, Generator], Estimate]


@dataclass(frozen=True, slots=True)
class PublicMethod(Method):
    """As `ExactMethod`, on a sample transformed by public second moments (`pmt.transformed`)."""

    run: Callable[[Sample, PublicMoments, Privacy, Measure], Estimate]


_PUBLISHED = frozenset({Calibration.PUBLISHED})
_NONE: frozenset[Calibration] = frozenset()

METHODS: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        method.name: method
        for method in (
            ExactMethod("ssp", ssp.SOUND, _PUBLISHED, ssp.GUARANTEE, ssp.ssp_loss, ssp.ssp),
            ExactMethod("adassp", adassp.SOUND, _PUBLISHED, adassp.GUARANTEE, adassp.adassp_loss, adassp.adassp),
            ExactMethod(
                "boosted_adassp",
                boosted_adassp.SOUND,
                _PUBLISHED,
                boosted_adassp.GUARANTEE,
                boosted_adassp.boosted_adassp_loss,
                boosted_adassp.boosted_adassp,
            ),
            FloatingMethod("adaops", adaops.SOUND, _PUBLISHED, adaops.GUARANTEE, adaops.adaops_loss, adaops.adaops),
            FloatingMethod("ops", ops.SOUND, _PUBLISHED, ops.GUARANTEE, ops.ops_loss, ops.ops),
            FloatingMethod("objpert", objpert.SOUND, _NONE, objpert.GUARANTEE, objpert.objpert_loss, objpert.objpert),
            FloatingMethod(
                "noisysgd", noisysgd.SOUND, _NONE, noisysgd.GUARANTEE, noisysgd.noisysgd_loss, noisysgd.noisysgd
            ),
            FloatingMethod("subagg", subagg.SOUND, _NONE, subagg.GUARANTEE, subagg.subagg_loss, subagg.subagg),
        )
    }
)


def _pmtolse_loss(privacy: Privacy) -> Loss:
    return dp_pmtolse.dp_pmtolse_loss(dp_pmtolse.share_of(privacy))


def _pmtolse(sample: Sample, public: PublicMoments, privacy: Privacy, measure: Measure) -> Estimate:
    return dp_pmtolse.dp_pmtolse(sample, public, dp_pmtolse.share_of(privacy), measure)


# DP-OLSE is not here: its radius is never below that of the public bounds, where it is ssp
WITH_PUBLIC_ROWS: Mapping[str, PublicMethod] = MappingProxyType(
    {"dp_pmtolse": PublicMethod("dp_pmtolse", dp_pmtolse.SOUND, _NONE, dp_pmtolse.GUARANTEE, _pmtolse_loss, _pmtolse)}
)
