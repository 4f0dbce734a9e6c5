"""What any mechanism's part of the planner says about one regression."""

from dataclasses import dataclass

from commingle.shared.planning.design import Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prediction:
    """Expected figures of one regression, in encoded units.

    Attributes:
        covariance: (q, q) of the slopes of the default fit for inference, around the same fit on the private table;
            None where no fit is possible.
        level_variance: of the mean of the label less the fit, which the intercept adds to the slopes' errors.
        r_squared: of the default fit for prediction, on rows of the same population.
        r_squared_constant: of the label's mean as the release tells it.
        told_apart: whether an F test is expected to tell the fit from that mean, at 5 %.
        reliable: whether the default fit for inference is expected to come without a warning about its signal.
    """

    covariance: Array | None
    level_variance: float
    r_squared: float
    r_squared_constant: float
    told_apart: bool
    reliable: bool
