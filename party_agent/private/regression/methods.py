"""The methods by name: what each costs, what it promises, and what its noise is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import ceil, exp
from types import MappingProxyType

from numpy.random import Generator

from commingle.party_agent.private.regression import floating, posterior, public_moment, sums
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    Measure,
    NoiseCalibration,
    Privacy,
    stated_loss,
)
from commingle.party_agent.private.regression.problem import Estimate, Sample
from commingle.party_agent.private.regression.public_moment import PublicMoments
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.two_stages import WIDER as WIDER_IN_STAGES

_GROUP_OF_TWO = 4
_UP = 1 + 2.0**-40
"""More than exp is off, and the product it stands in."""


@dataclass(frozen=True, slots=True)
class Method:
    """What is common to all.

    Attributes:
        name: the paper's name, in lower case.
        calibrations: those whose guarantee is proved.
        guarantee: one sentence for a privacy statement.
        loss: what it costs under the adjacency it is asked for, from public parameters alone.
        wider: what its rho is under replace_one, over that under add_remove; None where it goes by groups of two.
        counted: whether its guarantee needs the exact number of rows, which is private under add_remove.
    """

    name: str
    calibrations: frozenset[NoiseCalibration]
    guarantee: str
    loss: Callable[[Privacy], Loss]
    wider: Fraction | int | None
    counted: bool = field(default=False, kw_only=True)

    def cost(self, privacy: Privacy) -> Cost:
        """The debit, under add_remove with what the run costs under replace_one (docs/proofs/regression.md, 9).

        Raises:
            ParameterError: a calibration that it does not know, or groups of two that promise nothing.
        """
        own = self.loss(privacy)
        return Cost(own, None if privacy.replaces else self._replacement(own, privacy))

    def _replacement(self, own: Loss, privacy: Privacy) -> Loss:
        if self.wider is not None:
            return Loss(Rho(ceil(own.rho.units * self.wider)), own.delta)
        delta = own.delta * (1 + exp(min(privacy.epsilon, 700.0))) * _UP  # exp(710) is no number
        if delta >= 1:
            raise ParameterError(
                f"epsilon {privacy.epsilon:g} under add_remove leaves no delta under replace_one, which a charge keeps",
                remedy="Ask for a smaller epsilon, or choose another method.",
            )
        return Loss.approximate(2 * privacy.epsilon, delta)


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


@dataclass(frozen=True, slots=True)
class StagedMethod(Method):
    """`sums.two_stage`: on encoded rows, the label last, that it maps itself; of stages planned for its loss."""


def _from_sums(name: str, guarantee: str, run: Callable[[Sample, Privacy, Measure], Estimate]) -> ExactMethod:
    return ExactMethod(name, GAUSSIAN, guarantee, sums.sums_loss, sums.WIDER, run)


def _by_its_own_proof(
    name: str,
    sound: frozenset[NoiseCalibration],
    guarantee: str,
    run: Callable[[Sample, Privacy, Generator], Estimate],
    *,
    counted: bool = False,
) -> FloatingMethod:
    return FloatingMethod(name, sound, guarantee, partial(stated_loss, known=sound), None, run, counted=counted)


METHODS: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        method.name: method
        for method in (
            _from_sums("ssp", sums.SSP_GUARANTEE, sums.ssp),
            _from_sums("adassp", sums.SSP_GUARANTEE, sums.adassp),
            _from_sums("boosted_adassp", sums.BOOSTED_GUARANTEE, sums.boosted_adassp),
            _by_its_own_proof("adaops", posterior.ADAOPS_SOUND, posterior.ADAOPS_GUARANTEE, posterior.adaops),
            _by_its_own_proof("ops", posterior.OPS_SOUND, posterior.OPS_GUARANTEE, posterior.ops, counted=True),
            _by_its_own_proof("objpert", floating.OBJPERT_SOUND, floating.OBJPERT_GUARANTEE, floating.objpert),
            FloatingMethod(
                "noisysgd",
                floating.NOISYSGD_SOUND,
                floating.NOISYSGD_GUARANTEE,
                floating.noisysgd_loss,
                _GROUP_OF_TWO,
                floating.noisysgd,
            ),
            FloatingMethod(
                "subagg", floating.SUBAGG_SOUND, floating.SUBAGG_GUARANTEE, floating.subagg_loss, 1, floating.subagg
            ),
        )
    }
)


# DP-OLSE is not here: its radius is never below that of the public bounds, where it is ssp
WITH_PUBLIC_ROWS: Mapping[str, PublicMethod] = MappingProxyType(
    {
        name: PublicMethod(name, GAUSSIAN, guarantee, sums.sums_loss, wider, run)
        for name, guarantee, wider, run in (
            ("dp_pmtolse", public_moment.PMTOLSE_GUARANTEE, sums.WIDER, public_moment.dp_pmtolse),
            ("dp_pmtse", public_moment.PMTSE_GUARANTEE, public_moment.PMTSE_WIDER, public_moment.dp_pmtse),
        )
    }
)


STAGED: Mapping[str, StagedMethod] = MappingProxyType(
    {"two_stage": StagedMethod("two_stage", GAUSSIAN, sums.TWO_STAGE_GUARANTEE, sums.sums_loss, WIDER_IN_STAGES)}
)
