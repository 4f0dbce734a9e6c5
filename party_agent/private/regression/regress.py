"""The methods by name, and the one function that turns a table into published regression coefficients.

Adversary: readers of the result, that is everybody. What they learn about one subject's values is bounded by the
charge that was debited before.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from math import ceil, exp
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from commingle.party_agent.private.engine import Progress
from commingle.party_agent.private.regression import floating, sums
from commingle.party_agent.private.regression.measuring import (
    GAUSSIAN,
    Exact,
    Measure,
    NoiseCalibration,
    Privacy,
    gaussian_plan,
    require_calibration,
)
from commingle.party_agent.private.regression.problem import Estimate, RowMap, Sample, on_grid
from commingle.party_agent.private.regression.sums import PublicMoments, transform, two_stage
from commingle.party_agent.private.snapshot import Debit, Snapshot
from commingle.shared.documents.schema import Attribute, NumericAttribute, encoded_columns
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import WIDER as WIDER_IN_STAGES
from commingle.shared.dp.two_stages import TwoStages
from commingle.shared.encoding import narrowed
from commingle.shared.errors import ParameterError

Encoded = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Features (m x d) and label (m) of some rows."""
_GROUP_OF_TWO = 4
_UP = 1 + 2.0**-40
"""More than exp is off, and the product it stands in."""


@dataclass(frozen=True, slots=True)
class Method:
    """What all methods have.

    Attributes:
        name: the paper's name, in lower case.
        calibrations: those whose guarantee is proved.
        guarantee: one sentence for a privacy statement.
        loss: what it costs under the adjacency it is asked for, from public parameters alone.
        wider: its rho under replace_one over that under add_remove; None if it goes by groups of two.
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

        Raises ParameterError: a calibration that it does not know, or groups of two that promise nothing.
        """
        require_calibration(privacy, self.calibrations)
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
    """As `ExactMethod`, on a sample transformed by public second moments (`sums.transform`)."""

    run: Callable[[Sample, PublicMoments, Privacy, Measure], Estimate]


@dataclass(frozen=True, slots=True)
class StagedMethod(Method):
    """`sums.two_stage`, on encoded rows with the label last. It maps rows itself, in stages planned for its loss."""


def _by_its_own_proof(privacy: Privacy) -> Loss:
    privacy.as_add_remove()  # a method that asks for this must not find after the debit that there is none
    return Loss.approximate(privacy.epsilon, privacy.delta)


_ONE_MEASUREMENT = "a Gaussian loss of the stated rho (Dong, Roth, Su 2022)."
_OF_SUMS = f"One Gaussian measurement of X^T X and X^T y together; {_ONE_MEASUREMENT}"
_PUBLISHED = frozenset({NoiseCalibration.PUBLISHED})
METHODS: Mapping[str, ExactMethod | FloatingMethod] = MappingProxyType(
    {
        "ssp": ExactMethod("ssp", GAUSSIAN, _OF_SUMS, sums.sums_loss, sums.WIDER, sums.ssp),
        "adassp": ExactMethod("adassp", GAUSSIAN, _OF_SUMS, sums.sums_loss, sums.WIDER, sums.adassp),
        "boosted_adassp": ExactMethod(
            "boosted_adassp",
            GAUSSIAN,
            "One Gaussian measurement of X^T X and, in rounds, of X^T r for clipped residuals r; " + _ONE_MEASUREMENT,
            sums.sums_loss,
            sums.WIDER,
            sums.boosted_adassp,
        ),
        "adaops": FloatingMethod(
            "adaops",
            frozenset({NoiseCalibration.ANALYTIC}),
            "(epsilon, delta)-DP by two analytic Gaussian measurements and the tail of a posterior sample's privacy "
            "loss.",
            _by_its_own_proof,
            None,
            floating.adaops,
        ),
        "ops": FloatingMethod(
            "ops",
            frozenset({NoiseCalibration.CLASSICAL}),
            "(epsilon, delta)-DP by a bound on the tail of the privacy loss of a Gaussian posterior sample.",
            _by_its_own_proof,
            None,
            floating.ops,
            counted=True,
        ),
        "objpert": FloatingMethod(
            "objpert",
            _PUBLISHED,
            "(epsilon, delta)-DP by a random linear term in a strongly convex objective.",
            _by_its_own_proof,
            None,
            floating.objpert,
        ),
        "noisysgd": FloatingMethod(
            "noisysgd",
            frozenset({NoiseCalibration.ZCDP, NoiseCalibration.ANALYTIC}),
            "Gaussian measurements of the whole gradient, one a step; a Gaussian loss of the stated rho.",
            lambda privacy: gaussian_plan(privacy, floating.STEPS),
            _GROUP_OF_TWO,
            floating.noisysgd,
        ),
        "subagg": FloatingMethod(
            "subagg",
            _PUBLISHED,
            "epsilon-DP: one row is in one block, and each coordinate spends epsilon/d on the blocks' coefficients.",
            lambda privacy: Loss.approximate(privacy.epsilon),
            1,
            floating.subagg,
        ),
    }
)
# DP-OLSE is not here: its radius is never below that of the public bounds, where it is ssp
WITH_PUBLIC_ROWS: Mapping[str, PublicMethod] = MappingProxyType(
    {
        "dp_pmtolse": PublicMethod(
            "dp_pmtolse",
            GAUSSIAN,
            "One Gaussian measurement of the second moment and the cross moment of publicly transformed rows, "
            "together; " + _ONE_MEASUREMENT,
            sums.sums_loss,
            sums.WIDER,
            sums.dp_pmtolse,
        ),
        "dp_pmtse": PublicMethod(
            "dp_pmtse",
            GAUSSIAN,
            "One Gaussian measurement of the second moment of publicly transformed features and label; "
            + _ONE_MEASUREMENT,
            sums.sums_loss,
            sums.PMTSE_WIDER,
            sums.dp_pmtse,
        ),
    }
)
STAGED: Mapping[str, StagedMethod] = MappingProxyType(
    {
        "two_stage": StagedMethod(
            "two_stage",
            GAUSSIAN,
            "Gaussian noise on sums of the columns and on second moments of rows mapped by these sums; both together "
            + _ONE_MEASUREMENT,
            sums.sums_loss,
            WIDER_IN_STAGES,
        )
    }
)


@dataclass(frozen=True, slots=True)
class PrivateRegression:
    """What to compute, from public quantities alone.

    Attributes:
        rows: how encoded rows become those of the regression.
        label_bound: the encoded target is cut to it.
        public: second moments of public rows so mapped; needed by `PublicMethod`.
        n: how many rows there are as everybody may know it: the registered number under replace_one, a public
            figure under add_remove, which keeps the number private.
        stages: planned for what the method costs; needed by `StagedMethod`.
    """

    method: ExactMethod | FloatingMethod | PublicMethod | StagedMethod
    privacy: Privacy
    target: Attribute
    features: tuple[Attribute, ...]
    rows: RowMap
    label_bound: float
    public: PublicMoments | None
    n: int
    stages: TwoStages | None = None

    @property
    def cost(self) -> Cost:
        return self.method.cost(self.privacy)

    @property
    def row_bound(self) -> float:
        return self.rows.bound(len(self.features))


def regress(
    snapshot: Snapshot,
    task: PrivateRegression,
    *,
    charge: Debit,
    draw: Sampler,
    generator: Callable[[], Generator],
    progress: Progress = lambda _: None,
) -> Estimate:
    """Privatised coefficients in encoded units, the intercept first, 0 if there is none to fit.

    Guarantee: that of `charge` in the unit of the data set (docs/proofs/regression.md;
    docs/proofs/noise-and-accounting.md, 6). Noise is drawn once, after the debit that `charge` stands for and after the
    last row was read.

    Args:
        snapshot: of the data set.
        task: what to compute.
        charge: the committed debit. It must cover the task.
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system.
        generator: makes floating-point noise, for methods that have no other.
        progress: takes the number of rows read.

    Raises:
        LostError: the snapshot is gone or damaged; no noise has been drawn then.
        ParameterError: a calibration that the method does not know; nothing has been read then.
        ValueError: the charge does not cover the task, or is for another snapshot (faults of the caller).
    """
    loss = task.cost.loss
    if charge.rho_units < loss.rho.units or charge.delta < loss.delta or charge.snapshot != snapshot.digest:
        raise ValueError("the charge does not cover the regression")
    encoded = list(_encoded(snapshot, task, progress))
    if isinstance(task.method, StagedMethod):
        q = np.vstack([np.column_stack(rows) for rows in encoded])
        estimate = two_stage(q, _stages(task), draw, intercept=task.rows.intercept)
    else:
        estimate = _run(task, task.method, _sample(encoded, task), draw, generator)
    if task.rows.intercept:
        return estimate
    return replace(estimate, coefficients=np.concatenate([[0.0], estimate.coefficients]))


def _run(
    task: PrivateRegression,
    method: ExactMethod | FloatingMethod | PublicMethod,
    sample: Sample,
    draw: Sampler,
    generator: Callable[[], Generator],
) -> Estimate:
    if isinstance(method, FloatingMethod):
        return method.run(sample, task.privacy, generator())
    measure = Exact(draw)
    if isinstance(method, ExactMethod):
        return method.run(sample, task.privacy, measure)
    return method.run(sample, _public(task), task.privacy, measure)


def _encoded(snapshot: Snapshot, task: PrivateRegression, progress: Progress) -> Iterator[Encoded]:
    asked, known = (task.target, *task.features), {attribute.name: attribute for attribute in snapshot.attributes}
    registered = [known[attribute.name] for attribute in asked]
    width = len(encoded_columns((task.target,)))
    # nobody first: a table that is empty has a result as one of a single person has
    nobody = np.empty((0, len(encoded_columns(asked))), np.int64)
    batches = (rows for _, rows in snapshot.choose(registered).records(progress))
    for rows in chain([nobody], batches):
        start = 0
        for one, narrower in zip(registered, asked, strict=True):
            if isinstance(one, NumericAttribute) and isinstance(narrower, NumericAttribute):
                rows[:, start] = narrowed(one, narrower, rows[:, start])
            start += len(encoded_columns((one,)))
        yield rows[:, width:], rows[:, 0]


def _sample(encoded: list[Encoded], task: PrivateRegression) -> Sample:
    mapped = [task.rows.apply(*batch) for batch in encoded]
    x, y = np.concatenate([rows for rows, _ in mapped]), np.concatenate([labels for _, labels in mapped])
    if isinstance(task.method, PublicMethod):
        labels = np.clip(y, -task.label_bound, task.label_bound)
        return transform(x, labels, _public(task), make=on_grid, public_n=task.n)
    return on_grid(x, y, row_bound=task.row_bound, label_bound=task.label_bound, public_n=task.n)


def _public(task: PrivateRegression) -> PublicMoments:
    if task.public is None:
        raise ValueError("this method needs public second moments")
    return task.public


def _stages(task: PrivateRegression) -> TwoStages:
    if task.stages is None:
        raise ValueError("this method needs its stages planned")
    return task.stages
