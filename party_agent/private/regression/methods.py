"""The methods by name: what each costs, what it promises, and what its noise is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from numpy.random import Generator

from commingle.party_agent.private.regression import floating, posterior, public_moment, sufficient
from commingle.party_agent.private.regression.calibration import GAUSSIAN, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.measuring import Measure
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.shared.dp.accounting import Loss


@dataclass(frozen=True, slots=True)
class Method:
    """What is common to all.

    Attributes:
        name: the paper's name, in lower case.
        calibrations: those whose guarantee is proved.
        guarantee: one sentence for a privacy statement.
        loss: the debit, from public parameters alone.
    """

    name: str
    calibrations: frozenset[NoiseCalibration]
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
    """As `ExactMethod`, on a sample transformed by public second moments (`public_moment.transform`)."""

    run: Callable[[Sample, PublicMoments, Privacy, Measure], Estimate]


METHODS: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        method.name: method
        for method in (
            ExactMethod("ssp", GAUSSIAN, sufficient.SSP_GUARANTEE, sufficient.ssp_loss, sufficient.ssp),
            ExactMethod("adassp", GAUSSIAN, sufficient.ADASSP_GUARANTEE, sufficient.adassp_loss, sufficient.adassp),
            ExactMethod(
                "boosted_adassp",
                GAUSSIAN,
                sufficient.BOOSTED_GUARANTEE,
                sufficient.boosted_adassp_loss,
                sufficient.boosted_adassp,
            ),
            FloatingMethod(
                "adaops", posterior.ADAOPS_SOUND, posterior.ADAOPS_GUARANTEE, posterior.adaops_loss, posterior.adaops
            ),
            FloatingMethod("ops", posterior.OPS_SOUND, posterior.OPS_GUARANTEE, posterior.ops_loss, posterior.ops),
            FloatingMethod(
                "objpert", floating.OBJPERT_SOUND, floating.OBJPERT_GUARANTEE, floating.objpert_loss, floating.objpert
            ),
            FloatingMethod(
                "noisysgd",
                floating.NOISYSGD_SOUND,
                floating.NOISYSGD_GUARANTEE,
                floating.noisysgd_loss,
                floating.noisysgd,
            ),
            FloatingMethod(
                "subagg", floating.SUBAGG_SOUND, floating.SUBAGG_GUARANTEE, floating.subagg_loss, floating.subagg
            ),
        )
    }
)


def _pmtolse_loss(privacy: Privacy) -> Loss:
    return public_moment.dp_pmtolse_loss(public_moment.share_of(privacy))


def _pmtolse(sample: Sample, public: PublicMoments, privacy: Privacy, measure: Measure) -> Estimate:
    return public_moment.dp_pmtolse(sample, public, public_moment.share_of(privacy), measure)


# DP-OLSE is not here: its radius is never below that of the public bounds, where it is ssp
WITH_PUBLIC_ROWS: Mapping[str, PublicMethod] = MappingProxyType(
    {
        "dp_pmtolse": PublicMethod(
            "dp_pmtolse", public_moment.PMTOLSE_SOUND, public_moment.PMTOLSE_GUARANTEE, _pmtolse_loss, _pmtolse
        )
    }
)
