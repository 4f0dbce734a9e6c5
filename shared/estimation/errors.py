"""What a fit refuses."""

from collections.abc import Iterable
from difflib import get_close_matches

from commingle.shared.errors import CommingleError


class EstimationError(CommingleError):  # a fit or a prediction that cannot be computed
    code = "estimation"


class MomentsMismatchError(EstimationError):  # the moments and the schema are not of one release
    code = "moments-mismatch"


class RequestError(EstimationError):  # a fit nobody can compute as asked
    code = "fit-request"


class _UnknownNameError(RequestError):
    what = "name"

    def __init__(self, name: str, available: Iterable[str]) -> None:
        self.name = name
        self.available = tuple(available)
        close = get_close_matches(name, self.available)
        guess = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
        super().__init__(f"there is no {self.what} {name!r}", remedy=f"{guess}Available: {', '.join(self.available)}.")


class UnknownAttributeError(_UnknownNameError):  # a name that the release does not have
    code = "unknown-attribute"
    what = "attribute"


class UnknownEstimatorError(_UnknownNameError):  # a name that is not an estimator
    code = "unknown-estimator"
    what = "estimator"


class EstimatorKindError(RequestError):  # an estimator for another kind of release
    code = "estimator-kind"


class CategoricalTargetError(RequestError):  # the target has three levels or more
    code = "categorical-target"


class ImputedTargetError(RequestError):  # the target's missing cells count as a value, or cannot be told apart
    code = "imputed-target"


class TargetAmongFeaturesError(RequestError):  # the target would predict itself
    code = "target-among-features"


class FeaturesError(RequestError):  # no features, or one of them twice
    code = "features"


class InterceptError(RequestError):  # the estimator `constant` without an intercept
    code = "intercept"


class ConfidenceError(RequestError):  # a confidence level not between 0 and 1, or an interval for something unknown
    code = "confidence"


class TooFewRowsError(EstimationError):  # fewer published rows than a fit of that size needs
    code = "too-few-rows"


class NoOverlapError(EstimationError):  # two parties share too few subjects to say anything across them
    code = "no-overlap"


class SingularError(EstimationError):  # one term is a linear combination of the others
    code = "singular"


class RowsError(EstimationError):  # rows that cannot be predicted
    code = "rows"


class NoTablesError(EstimationError):  # the release does not hold the sums that this needs
    code = "no-tables"
