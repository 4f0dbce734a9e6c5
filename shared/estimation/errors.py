"""What a fit refuses.

EstimationError
├── MomentsMismatchError          the moments and the schema are not of one release
├── RequestError                  a fit nobody can compute as asked
│   ├── UnknownAttributeError     a name that the release does not have
│   ├── UnknownEstimatorError     a name that is not an estimator
│   ├── EstimatorKindError        an estimator for another kind of release
│   ├── CategoricalTargetError    the target has three levels or more
│   ├── ImputedTargetError        its missing cells count as a value, or cannot be left out
│   ├── TargetAmongFeaturesError  the target would predict itself
│   ├── FeaturesError             no features, or one of them twice
│   ├── InterceptError            `constant` without its intercept
│   └── ConfidenceError           not between 0 and 1, or an interval for something unknown
├── TooFewRowsError               fewer published rows than a fit of that size needs
├── NoTablesError                 sums that the release does not hold
├── NoOverlapError                two parties share too few subjects to say anything across them
├── SingularError                 one term is a linear combination of the others
└── RowsError                     rows that cannot be predicted
"""

from collections.abc import Iterable
from difflib import get_close_matches

from commingle.shared.errors import CommingleError


class EstimationError(CommingleError):
    """A fit or a prediction that cannot be computed."""

    code = "estimation"


class MomentsMismatchError(EstimationError):
    """The moments and the schema are not of one release."""

    code = "moments-mismatch"


class RequestError(EstimationError):
    """A fit nobody can compute as asked."""

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
    """A name that the release does not have."""

    code = "unknown-attribute"
    what = "attribute"


class UnknownEstimatorError(_UnknownNameError):
    """A name that is not an estimator."""

    code = "unknown-estimator"
    what = "estimator"


class EstimatorKindError(RequestError):
    """An estimator for another kind of release."""

    code = "estimator-kind"


class CategoricalTargetError(RequestError):
    """The target has three levels or more."""

    code = "categorical-target"


class ImputedTargetError(RequestError):
    """Missing cells of the target count as a value, or the release does not tell them apart."""

    code = "imputed-target"


class TargetAmongFeaturesError(RequestError):
    """The target would predict itself."""

    code = "target-among-features"


class FeaturesError(RequestError):
    """No features, or one of them twice."""

    code = "features"


class InterceptError(RequestError):
    """`constant` without its intercept."""

    code = "intercept"


class ConfidenceError(RequestError):
    """Not between 0 and 1, or an interval for something unknown."""

    code = "confidence"


class TooFewRowsError(EstimationError):
    """Fewer published rows than a fit of that size needs."""

    code = "too-few-rows"


class NoOverlapError(EstimationError):
    """Two parties share too few subjects to say anything across them."""

    code = "no-overlap"


class SingularError(EstimationError):
    """One term is a linear combination of the others."""

    code = "singular"


class RowsError(EstimationError):
    """Rows that cannot be predicted."""

    code = "rows"


class NoTablesError(EstimationError):
    """What is asked needs sums that the release does not hold, in all or for one attribute."""

    code = "no-tables"
