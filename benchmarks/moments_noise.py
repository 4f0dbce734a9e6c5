"""The law of a moments release of one stage, drawn without its protocol (docs/design/exchange.md#allocation)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.release_law import proposed
from commingle.services.fit import PreparedMoments
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.dp.calibration import Calibration
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.plan import plan_blocks

Array = NDArray[np.float64]


def entry_variance(shares: Sequence[PartyShare], *, epsilon: float, delta: float) -> Array:
    """What the mechanism states: variances (p, p) of the noise in S_hat, the intercept first and its count exact.

    Of one stage and calibration `zcdp`, which the pages have that compare with what was measured before.
    """
    parties = (
        StudyParty(name=f"party-{number}", dataset="data", attributes=share.attributes, first_stage_share=None)
        for number, share in enumerate(shares)
    )
    spec = proposed(
        Study(
            study="Benchmark",
            mechanism="moments",
            subjects="listed",
            calibration=Calibration.ZCDP,
            epsilon=epsilon,
            delta=delta,
            n=1000,
            parties=tuple(parties),
        )
    )
    nothing = np.zeros((len(spec.columns),) * 2, np.int64)
    stated = mechanism_of(spec).moments(spec, [plan.sigma for plan in plan_blocks(spec)], nothing).entry_variance
    assert stated is not None  # noqa: S101 - this mechanism states it
    return stated


def noisy_moments(
    S: Array, variance: Array, attributes: tuple[Attribute, ...], random: np.random.Generator
) -> SecondMoments:
    """S + noise as it is published."""
    upper = np.triu(random.standard_normal(S.shape) * np.sqrt(variance))
    return SecondMoments(
        release="0" * 64,
        mechanism="moments",
        columns=(INTERCEPT, *(c.name for c in encoded_columns(attributes))),
        gram=tuple(map(tuple, (S + upper + np.triu(upper, 1).T).tolist())),
        noise_variance=(0.0,) * len(S),
        rows=round(S[0, 0]),
        n=round(S[0, 0]),
        entry_variance=tuple(map(tuple, variance.tolist())),
    )


def moments_release(
    S: Array, variance: Array, attributes: tuple[Attribute, ...], random: np.random.Generator
) -> PreparedMoments:
    """The same as a learner reads it."""
    return PreparedMoments.of(noisy_moments(S, variance, attributes, random), attributes)
