"""Bodies of requests to the learner."""

import json
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from commingle.services import analysis, models
from commingle.services.analysis import CrossTable
from commingle.services.analysis.paths import MAX_PENALTIES
from commingle.services.fit import ESTIMATORS, fit_prepared
from commingle.services.learner.views import EXAMPLES
from commingle.services.models import StratifiedTable
from commingle.services.results import Result
from commingle.shared.documents.model import explain
from commingle.shared.documents.spec import MAX_COLUMNS
from commingle.shared.documents.study import Study
from commingle.shared.errors import PlanningError
from commingle.shared.estimation.method import IntervalFor
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.forecast.task import R_SQUARED, Assumptions
from commingle.shared.wire import shown_by

MAX_ROWS = 10_000
MAX_FORMULA = 20_000
_EXACT = 1 << 53

Name = Annotated[str, Field(max_length=200)]
Names = Annotated[list[Name], Field(max_length=MAX_COLUMNS)]
Value = Annotated[int, Field(ge=-_EXACT, le=_EXACT)] | float | Annotated[str, Field(max_length=200)]


def _few(values: object) -> object:
    # count before validation: each wrong value would get a message of its own
    if isinstance(values, dict) and len(values) > MAX_COLUMNS:
        raise ValueError(f"more than {MAX_COLUMNS} values")
    return values


_Given = Annotated[dict[Name, Value], Field(max_length=MAX_COLUMNS), BeforeValidator(_few)]
_Row = Annotated[list[float], Field(max_length=MAX_COLUMNS, fail_fast=True)]
EstimatorName = Annotated[str, Field(max_length=64, json_schema_extra={"enum": list(ESTIMATORS)})]
_TARGET = Field(description="name of a numeric or binary attribute")
_FEATURES = Field(None, description="names of attributes; all but the target where left out")
Penalties = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1, max_length=MAX_PENALTIES)]
_PENALTIES = Field(None, description="on features and a target of variance 1; a grid of 50 where left out")


class RequestBody(BaseModel):
    """A request body: strict, without unknown fields."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, json_schema_extra=shown_by(EXAMPLES)
    )


class FitBody(RequestBody):
    """One linear model of one attribute."""

    target: Name = _TARGET
    features: Names | None = _FEATURES
    estimator: EstimatorName | None = Field(
        None, description="where left out the one with standard errors: measurement_error, or ols on moments"
    )
    intercept: bool = True
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: IntervalFor = Field(
        "population",
        description="what intervals cover and p-values ask about: the population's coefficients, or the same fit on "
        "the private table",
    )


class PredictionBody(FitBody):
    """A model and rows to apply it to, in original units: numbers, or levels as strings, by attribute name."""

    estimator: EstimatorName | None = "shrunken"
    rows: Annotated[list[_Given], Field(min_length=1, max_length=MAX_ROWS, fail_fast=True)]
    extrapolate: Annotated[
        bool, Field(description="Take numbers and predictions as they are, beyond public bounds too.")
    ] = False


def _study(value: object) -> object:
    # as from a study file: a strict model of Python values asks for tuples, which JSON has not
    if not isinstance(value, dict):
        return value
    try:
        return Study.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(explain(error)) from None  # its own text would repeat what was given


class PlanBody(RequestBody):
    """A study, as in a study file, and what is assumed of rows nobody has seen."""

    study: Annotated[Study, BeforeValidator(_study)]
    target: Name | None = Field(None, description="the target; the middle one of all possible targets where left out")
    features: Names | None = _FEATURES
    r_squared: float = Field(R_SQUARED, gt=0, lt=1, description="what the features explain of the target")
    second_moments: Annotated[list[_Row], Field(max_length=MAX_COLUMNS, fail_fast=True)] | None = Field(
        None,
        description="A^T A / n of the encoded rows of a public table, the intercept first; it then says what is "
        "explained, and r_squared is not used",
    )
    public_rows: int | None = Field(
        None,
        ge=2,
        le=10**12,
        description="rows of that table: the forecast then says what so few leave open; without it, moments are exact",
    )

    odds_ratio: float = Field(1.5, gt=0, description="that a table is to show")
    shares: Annotated[dict[Name, dict[Name, float]], Field(max_length=MAX_COLUMNS)] = Field(
        {}, description="of people who have a level, by attribute and level; all levels alike where left out"
    )

    def assumptions(self) -> Assumptions:
        return Assumptions(
            r_squared=self.r_squared,
            target=self.target,
            features=None if self.features is None else tuple(self.features),
            second_moments=_matrix(self.second_moments),
            public_rows=self.public_rows,
            odds_ratio=self.odds_ratio,
            shares=tuple((name, level, share) for name, of in self.shares.items() for level, share in of.items()),
        )


def _matrix(rows: list[list[float]] | None) -> NDArray[np.float64] | None:
    if rows is None:
        return None
    if len({len(row) for row in rows}) != 1:
        raise PlanningError("the second moments are not a matrix", remedy="Give rows of equal length.")
    return np.array(rows)


class RidgePathBody(RequestBody):
    """Ridge regressions over a row of penalties."""

    target: Name = _TARGET
    features: Names | None = _FEATURES
    penalties: Penalties | None = _PENALTIES


class LassoPathBody(RequestBody):
    """Lasso, or elastic net where l1_ratio is below 1, over a row of penalties."""

    target: Name = _TARGET
    features: Names | None = _FEATURES
    l1_ratio: float = Field(1.0, gt=0, le=1)
    penalties: Penalties | None = _PENALTIES


class PcaBody(RequestBody):
    """Principal components."""

    attributes: Names | None = Field(None, description="all where left out")
    standardise: bool = Field(default=True, description="every column to variance 1; otherwise in encoded units")


class PartialCorrelationsBody(RequestBody):
    """Correlation of every pair of columns, all others held fixed."""

    attributes: Names | None = Field(None, description="all where left out")
    interval_for: IntervalFor = "population"


class TwoStageBody(RequestBody):
    """Two-stage least squares."""

    target: Name = _TARGET
    endogenous: Names = Field(description="features that may be correlated with the error")
    instruments: Names = Field(description="attributes that act on the target through the endogenous features only")
    exogenous: Names = Field([], description="other features")
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: IntervalFor = "population"


class CompareBody(RequestBody):
    """Wald's test of what a larger model has beyond a smaller one."""

    target: Name = _TARGET
    larger: Names | None = _FEATURES
    smaller: Names = Field(description="some of the larger model's features; none for the mean alone")
    interval_for: IntervalFor = "population"


class TableBody(RequestBody):
    """Two attributes with levels: counts, a test that knows the noise, risk differences, risk and odds ratios."""

    row: Name = Field(description="an attribute with levels")
    column: Name = Field(description="another, whose shares are compared between levels of the first")
    event: Name | None = Field(None, description="the level of `column` that is compared; the last where left out")
    reference: Name | None = Field(
        None, description="the level of `row` with which others are compared; the first where left out"
    )
    within: Name | None = Field(
        None, description="a third attribute: odds ratios are pooled over people who have the same level of it"
    )
    confidence_level: float = Field(0.95, gt=0, lt=1)


class DescribeBody(RequestBody):
    """Who is in the data: each attribute's levels and means, by group where you name one."""

    attributes: Names | None = Field(None, description="all where left out")
    by: Name | None = Field(None, description="an attribute with levels")
    confidence_level: float = Field(0.95, gt=0, lt=1)


class SurvivalBody(RequestBody):
    """Kaplan-Meier curves of a crossed attribute, time by event; by group with a log-rank test that knows the noise."""

    outcome: Name = Field(description="a crossed attribute: intervals of time by whether the event came")
    by: Name | None = Field(None, description="an attribute with levels")
    confidence_level: float = Field(0.95, gt=0, lt=1)


class HazardRatiosBody(RequestBody):
    """Hazard ratios of a crossed attribute, time by event, with a test of whether they change with time."""

    outcome: Name = Field(description="a crossed attribute: intervals of time by whether the event came")
    features: Names = Field(description="attributes with levels")
    event: Name | None = Field(None, description="a level of how it ended; any but the first where left out")
    confidence_level: float = Field(0.95, gt=0, lt=1)


class GlmBody(RequestBody):
    """A generalised linear model: odds or rate ratios, with intervals that count noise and sampling."""

    formula: Annotated[str, Field(max_length=MAX_FORMULA)] = Field(
        description="outcome ~ features with + between them, or . for all others; outcome[level] names the event"
    )
    family: Annotated[str, Field(max_length=64, json_schema_extra={"enum": list(models.FAMILIES)})] = "binomial"
    offset: Name | None = Field(None, description="of a count: a number such as years, and rates are per unit of it")
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: IntervalFor = "population"


class RowsBody(RequestBody):
    """Synthetic rows, whose tables of two attributes are near those of the release."""

    rows: int = Field(ge=1, le=MAX_ROWS)
    attributes: Names | None = Field(None, description="all that have levels where left out")


def _table(
    prepared: PreparedMoments,
    *,
    within: str | None,
    **asked: Any,  # noqa: ANN401 - of TableBody
) -> CrossTable | StratifiedTable:
    if within is None:
        return analysis.cross_table(prepared, **asked)
    return models.stratified(prepared, within=within, **asked)


# Each takes the moments of a release, and the fields of a body by name.
ANALYSES: dict[str, tuple[type[RequestBody], Callable[..., Result]]] = {
    "ridge-path": (RidgePathBody, analysis.ridge_path),
    "lasso-path": (LassoPathBody, analysis.lasso_path),
    "pca": (PcaBody, analysis.pca),
    "partial-correlations": (PartialCorrelationsBody, analysis.partial_correlations),
    "two-stage": (TwoStageBody, analysis.two_stage),
    "compare": (CompareBody, analysis.compare),
    "table": (TableBody, _table),
    "describe": (DescribeBody, analysis.describe),
    "survival": (SurvivalBody, analysis.survival),
    "hazard-ratios": (HazardRatiosBody, models.hazard_ratios),
    "glm": (GlmBody, models.glm),
}
QUESTIONS: dict[str, tuple[type[RequestBody], Callable[..., Result]]] = ANALYSES | {
    "fit": (FitBody, fit_prepared),
    "synthesize": (RowsBody, models.synthesize),
}
