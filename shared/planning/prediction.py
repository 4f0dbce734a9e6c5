"""What a mechanism says about fits of a release that is only being planned."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from commingle.shared.planning.design import Array, ReleaseDesign
from commingle.shared.planning.task import RegressionTask


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prediction:
    """Expected figures of one regression, in encoded units.

    Attributes:
        covariance: (q, q) of the slopes of the default fit for inference, around the same fit on the private table;
            None where no fit is possible.
        level_variance: of the mean of the label less the fit, which the intercept adds to the slopes' errors.
        r_squared: of the default fit for prediction, on rows of the same population.
        r_squared_constant: of the label's mean as the release tells it.
        told_apart: whether an F test is expected to tell the fit from that mean, at 5 %; not where a fit is refused.
        reliable: whether the default fit for inference is expected to come without a warning about its signal.
    """

    covariance: Array | None
    level_variance: float
    r_squared: float
    r_squared_constant: float
    told_apart: bool
    reliable: bool


class Planner(ABC):
    """A mechanism's part of the planner."""

    @abstractmethod
    def predict(self, design: ReleaseDesign, task: RegressionTask) -> Prediction:
        """The expected figures of one regression; a sketch must be chosen."""

    def sketch_bounds(self, design: ReleaseDesign) -> tuple[int, int] | None:  # noqa: ARG002 - there is none
        """Least and largest k to consider; None where there is no sketch."""
        return None

    def best_k(self, design: ReleaseDesign, task: RegressionTask) -> int | None:  # noqa: ARG002 - as above
        """The k that suits this regression best; None where there is no sketch."""
        return None

    def shared_error(self, design: ReleaseDesign) -> float | None:  # noqa: ARG002 - as above
        """The standard error of the number of keyed subjects that two parties share, the worst two, if they share all.

        None where subjects are listed, or there is one party. A sketch must be chosen.
        """
        return None
