"""Which analyses the learner is asked for, on the wire."""

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from commingle.services import analysis
from commingle.services.analysis.paths import MAX_PENALTIES
from commingle.services.analysis.result import Result
from commingle.services.fit import PreparedMoments
from commingle.services.learner.views import FEATURES, TARGET, Asked, Name, Names
from commingle.shared.estimation.request import IntervalFor

Penalties = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MAX_PENALTIES)]
_PENALTIES = Field(None, description="on features and a target of variance 1; a grid of 50 where left out")


class AnalysisBody(Asked):
    """One analysis of a release."""

    @abstractmethod
    def run(self, prepared: PreparedMoments) -> Result:
        """Do it. Raises EstimationError, MissingExtraError."""


class RidgePathBody(AnalysisBody):
    """Ridge regressions over a row of penalties."""

    target: Name = TARGET
    features: Names | None = FEATURES
    penalties: Penalties | None = _PENALTIES

    def run(self, prepared: PreparedMoments) -> Result:
        """The path."""
        return analysis.ridge_path(prepared, self.target, self.features, penalties=self.penalties)


class LassoPathBody(AnalysisBody):
    """Lasso, or elastic net where l1_ratio is below 1, over a row of penalties."""

    target: Name = TARGET
    features: Names | None = FEATURES
    l1_ratio: float = Field(1.0, gt=0, le=1)
    penalties: Penalties | None = _PENALTIES

    def run(self, prepared: PreparedMoments) -> Result:
        """The path."""
        return analysis.lasso_path(
            prepared, self.target, self.features, l1_ratio=self.l1_ratio, penalties=self.penalties
        )


class PcaBody(AnalysisBody):
    """Principal components."""

    attributes: Names | None = Field(None, description="all where left out")
    standardise: bool = Field(default=True, description="every column to variance 1; otherwise in encoded units")

    def run(self, prepared: PreparedMoments) -> Result:
        """The components."""
        return analysis.pca(prepared, self.attributes, standardise=self.standardise)


class PartialCorrelationsBody(AnalysisBody):
    """Correlation of every pair of columns, all others held fixed."""

    attributes: Names | None = Field(None, description="all where left out")
    interval_for: IntervalFor = "table"

    def run(self, prepared: PreparedMoments) -> Result:
        """The matrix."""
        return analysis.partial_correlations(prepared, self.attributes, interval_for=self.interval_for)


class TwoStageBody(AnalysisBody):
    """Two-stage least squares."""

    target: Name = TARGET
    endogenous: Names = Field(description="features that may be correlated with the error")
    instruments: Names = Field(description="attributes that act on the target through the endogenous features only")
    exogenous: Names = Field([], description="other features")
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: IntervalFor = "table"

    def run(self, prepared: PreparedMoments) -> Result:
        """Both stages."""
        return analysis.two_stage(
            prepared,
            self.target,
            endogenous=self.endogenous,
            instruments=self.instruments,
            exogenous=self.exogenous,
            confidence_level=self.confidence_level,
            interval_for=self.interval_for,
        )


class CompareBody(AnalysisBody):
    """Wald's test of what a larger model has beyond a smaller one."""

    target: Name = TARGET
    larger: Names | None = FEATURES
    smaller: Names = Field(description="some of the larger model's features; none for the mean alone")
    interval_for: IntervalFor = "population"

    def run(self, prepared: PreparedMoments) -> Result:
        """The test."""
        return analysis.compare(prepared, self.target, self.larger, self.smaller, interval_for=self.interval_for)


ANALYSES: dict[str, type[AnalysisBody]] = {
    "ridge-path": RidgePathBody,
    "lasso-path": LassoPathBody,
    "pca": PcaBody,
    "partial-correlations": PartialCorrelationsBody,
    "two-stage": TwoStageBody,
    "compare": CompareBody,
}
