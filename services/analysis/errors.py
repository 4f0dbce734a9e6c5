"""What an analysis refuses beyond what a fit refuses.

shared.estimation.errors.EstimationError
└── AnalysisError            an analysis that cannot be computed as asked
    ├── PenaltyError         a penalty or an l1_ratio that is none
    ├── NestedError          two models of which neither contains the other as asked
    ├── InstrumentsError     fewer instruments than endogenous features
    ├── LevelError           a level that an attribute does not have, or one attribute twice
    └── NoSignalError        nothing of a column, or of a combination of columns, is left beside the noise
"""

from commingle.shared.estimation.errors import EstimationError


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
