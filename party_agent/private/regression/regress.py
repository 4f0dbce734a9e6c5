"""The one function that turns a table into published regression coefficients.

Adversary: readers of the result, that is everybody. What they learn about one subject's values is bounded by the
charge that was debited before.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from commingle.party_agent.private.engine import Progress
from commingle.party_agent.private.regression.measuring import Exact, Privacy
from commingle.party_agent.private.regression.methods import ExactMethod, FloatingMethod, PublicMethod, StagedMethod
from commingle.party_agent.private.regression.problem import Estimate, RowMap, Sample, on_grid
from commingle.party_agent.private.regression.public_moment import PublicMoments, transform
from commingle.party_agent.private.regression.sums import two_stage
from commingle.party_agent.private.snapshot import CommittedCharge, Snapshot
from commingle.shared.documents.schema import Attribute, NumericAttribute, encoded_columns
from commingle.shared.dp.accounting import Cost
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import TwoStages
from commingle.shared.encoding import narrowed

Encoded = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Features (m x d) and label (m) of some rows."""


@dataclass(frozen=True, slots=True)
class PrivateRegression:
    """What to compute, from public quantities alone.

    Attributes:
        cost: the whole charge.
        rows: how encoded rows become those of the regression.
        label_bound: the encoded target is cut to it.
        public: second moments of public rows so mapped; needed by `PublicMethod`.
        n: how many rows there are as everybody may know it: the registered number under replace_one, a public figure
            under add_remove, where the number is private.
        stages: planned for what the method costs; needed by `StagedMethod`.
    """

    method: ExactMethod | FloatingMethod | PublicMethod | StagedMethod
    privacy: Privacy
    cost: Cost
    target: Attribute
    features: tuple[Attribute, ...]
    rows: RowMap
    label_bound: float
    public: PublicMoments | None
    n: int
    stages: TwoStages | None = None

    @property
    def row_bound(self) -> float:
        """Norm of a row with its intercept."""
        return self.rows.bound(len(self.features))


def regress(
    snapshot: Snapshot,
    task: PrivateRegression,
    *,
    charge: CommittedCharge,
    draw: Sampler,
    generator: Callable[[], Generator],
    progress: Progress = lambda _: None,
) -> Estimate:
    """Privatised coefficients in encoded units, the intercept first, 0 where there is none to fit.

    Guarantee: that of `charge` in the unit of the data set (docs/proofs/regression.md;
    docs/proofs/noise-and-accounting.md, 6).
    Noise is drawn once, after the debit that `charge` stands for and after the last row was read.

    Args:
        snapshot: of the data set.
        task: what to compute.
        charge: the committed debit. It must cover the task.
        draw: sampler of Gaussian noise on a lattice, seeded by the operating system.
        generator: makes floating-point noise, for methods that have no other.
        progress: told the rows read.

    Raises:
        LostError: the snapshot is gone or damaged; no noise has been drawn then.
        ValueError: the charge does not cover the task, or is for another snapshot (faults of the caller).
    """
    loss = task.cost.loss
    if charge.rho_units < loss.rho.units or charge.delta < loss.delta or charge.snapshot != snapshot.digest:
        raise ValueError("the charge does not cover the regression")
    encoded = list(_encoded(snapshot, task, progress))
    if isinstance(task.method, StagedMethod):
        q = np.vstack([np.column_stack(rows) for rows in encoded])
        estimate = two_stage(q, _stages(task), task.privacy, draw, intercept=task.rows.intercept)
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
