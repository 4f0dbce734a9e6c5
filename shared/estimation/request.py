"""What is asked of a release: which fit, and how sure of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from commingle.shared.estimation.errors import ConfidenceError

IntervalFor = Literal["table", "population"]
Coverage = Literal["table", "population", "release", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """One linear model of one attribute.

    Attributes:
        target: name of a numeric or binary attribute.
        features: names of attributes; None for all but the target. `constant` uses none.
        estimator: one of `ESTIMATORS`; None for the one with standard errors: `measurement_error`, or `ols` on
            moments.
        intercept: whether the model in original units has one.
        confidence_level: of the intervals, in (0, 1).
        interval_for: what intervals (but those of `ols` on noisy rows) are to cover: the coefficients of
            the same fit on the full private table, or those of the population it was drawn from.
    """

    target: str
    features: tuple[str, ...] | None = None
    estimator: str | None = None
    intercept: bool = True
    confidence_level: float = 0.95
    interval_for: IntervalFor = "table"


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names of attributes; a text alone is one name and not its letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def require_interval(interval_for: str) -> None:
    """Raises ConfidenceError unless it is one of `IntervalFor`."""
    if interval_for not in get_args(IntervalFor):
        raise ConfidenceError(f"no interval is for {interval_for!r}", remedy="Use 'table' or 'population'.")
