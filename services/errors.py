"""What goes wrong with published releases.

ServicesError
├── ReleaseDirectoryError    a directory that does not hold a release, or cannot be written
├── UnknownReleaseError      the coordinator has no release of that id
├── UnpublishedError         the release exists, its matrix does not yet or never will
├── UnknownCursorError       not a cursor of the coordinator's list
├── TableError               a table that nothing can be planned or simulated on
└── OutputError              a file or a directory that cannot be written to

shared.estimation.errors.EstimationError
├── AnalysisError            an analysis that cannot be computed as asked
│   ├── PenaltyError         a penalty or an l1_ratio that is none
│   ├── NestedError          two models of which neither contains the other as asked
│   ├── InstrumentsError     fewer instruments than endogenous features
│   ├── LevelError           a level that an attribute does not have, or one attribute twice
│   └── NoSignalError        nothing of a column, or of a combination of columns, is left beside the noise
└── RequestError
    ├── FormulaError         a text that is no formula
    ├── InteractionError     a product of features, which sums of pairs cannot tell
    ├── FamilyError          a family that there is not, or an outcome that it cannot have
    └── RowCountError        no synthetic rows, or too many

A release whose signatures or digests do not hold is `shared.documents.errors.VerificationError`, a coordinator that
does not answer `shared.runtime.errors.RemoteError`.
"""

from commingle.shared.errors import CommingleError
from commingle.shared.estimation.errors import EstimationError, RequestError


class ServicesError(CommingleError):
    """Something about a published release that a person can act on."""

    code = "services"


class ReleaseDirectoryError(ServicesError):
    """A directory that does not hold a release, or cannot be written."""

    code = "release-directory"


class UnknownReleaseError(ServicesError):
    """The coordinator has no release of that id."""

    code = "unknown-release"


class UnpublishedError(ServicesError):
    """The release exists, its matrix does not yet or never will."""

    code = "not-published"


class UnknownCursorError(ServicesError):
    """Not a cursor of the coordinator's list."""

    code = "cursor"


class TableError(ServicesError):
    """A table that nothing can be planned or simulated on."""

    code = "simulation-table"


class OutputError(ServicesError):
    """A file or a directory that cannot be written to."""

    code = "simulation-output"


class AnalysisError(EstimationError):
    """An analysis that cannot be computed as asked."""

    code = "analysis"


class PenaltyError(AnalysisError):
    """A penalty or an l1_ratio that is none."""

    code = "penalty"


class NestedError(AnalysisError):
    """Two models of which neither contains the other as asked."""

    code = "not-nested"


class InstrumentsError(AnalysisError):
    """Fewer instruments than endogenous features."""

    code = "instruments"


class LevelError(AnalysisError):
    """A level that an attribute does not have, or one attribute where two are needed."""

    code = "level"


class NoSignalError(AnalysisError):
    """Nothing of a column, or of a combination of columns, is left beside the noise."""

    code = "no-signal"


class FormulaError(RequestError):
    """A text that is no formula."""

    code = "formula"


class InteractionError(RequestError):
    """A product of features: with the outcome it is one of three attributes, and a release has sums of two."""

    code = "interaction"


class FamilyError(RequestError):
    """A family that there is not, or an outcome that it cannot have."""

    code = "family"


class RowCountError(RequestError):
    """No synthetic rows, or too many."""

    code = "row-count"
