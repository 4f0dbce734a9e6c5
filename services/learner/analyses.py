"""Which analyses the learner is asked for, on the wire."""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from services import analysis
from services.analysis.paths import MAX_PENALTIES
from services.analysis.result import Result
from services.estimation import PreparedMoments
from services.learner.views import Asked, Name
from shared.protocol.spec import MAX_COLUMNS

Names = Annotated[list[Name], Field(max_length=MAX_COLUMNS)]
Penalties = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MAX_PENALTIES)]
IntervalFor = Literal["table", "population"]
_TARGET = Field(description="name of a numeric or binary attribute")
_FEATURES = Field(None, description="names of attributes; all but the target where left out")
_PENALTIES = Field(None, description="on features and a target of variance 1; a grid of 50 where left out")


class AnalysisBody(Asked):
    """One analysis of a release."""

    @abstractmethod
    def run(self, prepared: PreparedMoments) -> Result:
        """Do it. Raises EstimationError, MissingExtraError."""


class RidgePathBody(AnalysisBody):
    """Ridge regressions."""

    target: Name = _TARGET
    features: Names | None = _FEATURES
    penalties: Penalties | None = _PENALTIES

    def run(self, prepared: PreparedMoments) -> Result:
        """The path."""
        return analysis.ridge_path(prepared, self.target, self.features, penalties=self.penalties)


class LassoPathBody(AnalysisBody):
    """Lasso, or elastic net where l1_ratio is below 1."""

    target: Name = _TARGET
    features: Names | None = _FEATURES
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
    """Partial correlations."""

    attributes: Names | None = Field(None, description="all where left out")
    interval_for: IntervalFor = "table"

    def run(self, prepared: PreparedMoments) -> Result:
        """The matrix."""
        return analysis.partial_correlations(prepared, self.attributes, interval_for=self.interval_for)


class TwoStageBody(AnalysisBody):
    """Two-stage least squares."""

    target: Name = _TARGET
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
    """Two nested models."""

    target: Name = _TARGET
    larger: Names | None = _FEATURES
    smaller: Names = Field(description="some of the larger model's features; none for the mean alone")
    interval_for: IntervalFor = "population"

    def run(self, prepared: PreparedMoments) -> Result:
        """The test."""
        return analysis.compare(prepared, self.target, self.larger, self.smaller, interval_for=self.interval_for)
