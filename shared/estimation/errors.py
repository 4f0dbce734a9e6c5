"""What a fit refuses.

EstimationError                   a fit or a prediction that cannot be computed
├── MomentsMismatchError          the moments and the schema are not of one release
├── RequestError                  a fit nobody can compute as asked
│   ├── UnknownAttributeError     a name that the release does not have
│   ├── UnknownEstimatorError     a name that is not an estimator
│   ├── EstimatorKindError        an estimator for another kind of release
│   ├── CategoricalTargetError    the target has three levels or more
│   ├── ImputedTargetError        its missing cells count as a value, or the release does not tell them apart
│   ├── TargetAmongFeaturesError  the target would predict itself
│   ├── FeaturesError             no features, or one of them twice
│   ├── InterceptError            `constant` without its intercept
│   └── ConfidenceError           not between 0 and 1, or an interval for something unknown
├── TooFewRowsError               fewer published rows than a fit of that size needs
├── NoTablesError                 sums that the release does not hold, in all or for one attribute
├── NoOverlapError                two parties share too few subjects to say anything across them
├── SingularError                 one term is a linear combination of the others
└── RowsError                     rows that cannot be predicted
"""

from collections.abc import Iterable
from difflib import get_close_matches

from commingle.shared.errors import CommingleError


class EstimationError(CommingleError):
    code = "estimation"


class MomentsMismatchError(EstimationError):
    code = "moments-mismatch"


class RequestError(EstimationError):
    code = "fit-request"


class _UnknownNameError(RequestError):
    what = "name"

    def __init__(self, name: str, available: Iterable[str]) -> None:
        self.name = name
        self.available = tuple(available)
        close = get_close_matches(name, self.available)
        guess = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
        super().__init__(f"there is no {self.what} {name!r}", remedy=f"{guess}Available: {', '.join(self.available)}.")


class UnknownAttributeError(_UnknownNameError):
    code = "unknown-attribute"
    what = "attribute"


class UnknownEstimatorError(_UnknownNameError):
    code = "unknown-estimator"
    what = "estimator"


class EstimatorKindError(RequestError):
    code = "estimator-kind"


class CategoricalTargetError(RequestError):
    code = "categorical-target"


class ImputedTargetError(RequestError):
    code = "imputed-target"


class TargetAmongFeaturesError(RequestError):
    code = "target-among-features"


class FeaturesError(RequestError):
    code = "features"


class InterceptError(RequestError):
    code = "intercept"


class ConfidenceError(RequestError):
    code = "confidence"


class TooFewRowsError(EstimationError):
    code = "too-few-rows"


class NoOverlapError(EstimationError):
    code = "no-overlap"


class SingularError(EstimationError):
    code = "singular"


class RowsError(EstimationError):
    code = "rows"


class NoTablesError(EstimationError):
    code = "no-tables"
