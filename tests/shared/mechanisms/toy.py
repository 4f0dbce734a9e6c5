"""A mechanism that the product does not have: rows in reverse order, with twice the noise and estimators of its own."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.estimation.estimator import CONSTANT, Estimator
from commingle.shared.estimation.method import FitMethod
from commingle.shared.mechanisms.interface import Placement
from commingle.shared.mechanisms.prediction import Planner, Prediction, RegressionTask
from commingle.shared.mechanisms.rows.block import Dgm

TRUST = "Parties must trust that toys are harmless."


class Reversed(Placement):
    """The last rank comes first."""

    def total(self) -> NDArray[np.int64]:
        return super().total()[::-1]


class ToyPlanner(Planner):
    """Knows nothing, and says so."""

    def predict(self, design: Terms, task: RegressionTask) -> Prediction:
        return Prediction(
            covariance=None,
            level_variance=1.0,
            r_squared=0.5,
            r_squared_constant=-task.yy / design.n,
            told_apart=True,
            reliable=False,
        )


class Toy(Dgm):
    """Published: every subject's row, the last first."""

    publishes = "toy rows"
    trust = TRUST

    def problems(self, spec: ReleaseSpec) -> list[str]:
        return [*super().problems(spec), *(["a toy is for at least 10 subjects"] if spec.n < 10 else [])]

    def squared_sensitivity(self, spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
        return 4 * super().squared_sensitivity(spec, party, adjacency)

    def window(self, spec: ReleaseSpec, columns: int, places: range) -> Placement:  # noqa: ARG002 - as in `Mechanism`
        return Reversed(places, d=columns)

    @property
    def fit(self) -> FitMethod:
        plain = super().fit
        own: dict[str, Estimator] = {"toy_errors": plain.estimators["measurement_error"], "constant": CONSTANT}
        return replace(plain, estimators=own, inference="toy_errors")

    @property
    def planner(self) -> Planner:
        return ToyPlanner()


TOY = Toy()
