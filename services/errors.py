"""What goes wrong with published releases.

ServicesError              something about a published release that a person can act on
├── ReleaseDirectoryError    a directory that does not hold a release, or cannot be written
├── UnknownReleaseError      the coordinator has no release of that id
├── UnpublishedError         the release exists, its matrix does not yet or never will
├── UnknownCursorError       not a cursor of the coordinator's list
├── TableError               a table that nothing can be planned or simulated on
└── OutputError              a file or a directory that cannot be written to

shared.estimation.errors.EstimationError
├── AnalysisError            an analysis that cannot be computed as asked
│   ├── PenaltyError         a penalty or an l1_ratio that is none
│   ├── NestedError          two models, and neither contains the other as asked
│   ├── InstrumentsError     fewer instruments than endogenous features
│   ├── LevelError           a level that an attribute does not have, or one attribute where two are needed
│   └── NoSignalError        nothing of a column, or of a combination of columns, is left beside the noise
└── RequestError
    ├── FormulaError         a text that is no formula
    ├── InteractionError     a product of features: with the outcome three attributes, and a release has sums of two
    ├── FamilyError          a family that there is not, or an outcome that it cannot have
    └── RowCountError        no synthetic rows, or too many

A release whose signatures or digests do not hold is `shared.documents.errors.VerificationError`, a coordinator that
does not answer `shared.runtime.errors.RemoteError`.
"""

from commingle.shared.errors import CommingleError
from commingle.shared.estimation.errors import EstimationError, RequestError


class ServicesError(CommingleError):
    code = "services"


class ReleaseDirectoryError(ServicesError):
    code = "release-directory"


class UnknownReleaseError(ServicesError):
    code = "unknown-release"


class UnpublishedError(ServicesError):
    code = "not-published"


class UnknownCursorError(ServicesError):
    code = "cursor"


class TableError(ServicesError):
    code = "simulation-table"


class OutputError(ServicesError):
    code = "simulation-output"


class AnalysisError(EstimationError):
    code = "analysis"


class PenaltyError(AnalysisError):
    code = "penalty"


class NestedError(AnalysisError):
    code = "not-nested"


class InstrumentsError(AnalysisError):
    code = "instruments"


class LevelError(AnalysisError):
    code = "level"


class NoSignalError(AnalysisError):
    code = "no-signal"


class FormulaError(RequestError):
    code = "formula"


class InteractionError(RequestError):
    code = "interaction"


class FamilyError(RequestError):
    code = "family"


class RowCountError(RequestError):
    code = "row-count"
