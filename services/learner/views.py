"""What the learner is asked and what it answers, on the wire."""

import json
from datetime import datetime
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from commingle.services.fit import ESTIMATORS, FitRequest
from commingle.services.learner.shelf import Held
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.model import explain
from commingle.shared.documents.schema import Attribute, encoded_columns
from commingle.shared.documents.spec import INTERCEPT, MAX_COLUMNS, ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.planning.errors import PlanningError
from commingle.shared.planning.task import R_SQUARED, Assumptions
from commingle.shared.wire import ReleaseSummary

MAX_ROWS = 10_000
_EXACT = 1 << 53

Name = Annotated[str, Field(max_length=200)]
Names = Annotated[list[Name], Field(max_length=MAX_COLUMNS)]
Value = Annotated[int, Field(ge=-_EXACT, le=_EXACT)] | float | Annotated[str, Field(max_length=200)]
_Row = Annotated[list[float], Field(max_length=MAX_COLUMNS)]
EstimatorName = Annotated[str, Field(max_length=64, json_schema_extra={"enum": list(ESTIMATORS)})]
TARGET = Field(description="name of a numeric or binary attribute")
FEATURES = Field(None, description="names of attributes; all but the target where left out")


class Asked(BaseModel):
    """A request body: strict, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True)


class FitBody(Asked):
    """One linear model of one attribute."""

    target: Name = TARGET
    features: Names | None = FEATURES
    estimator: EstimatorName | None = Field(
        None, description="where left out the one with standard errors: measurement_error, or ols on moments"
    )
    intercept: bool = True
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: IntervalFor = Field(
        "table", description="what intervals cover: the same fit on the private table, or the population's coefficients"
    )

    def request(self) -> FitRequest:
        """As the estimators take it."""
        features = None if self.features is None else tuple(self.features)
        return FitRequest(
            target=self.target,
            features=features,
            estimator=self.estimator,
            intercept=self.intercept,
            confidence_level=self.confidence_level,
            interval_for=self.interval_for,
        )


class PredictionBody(FitBody):
    """A model and rows to apply it to, in original units: numbers, or levels as strings, by attribute name."""

    estimator: EstimatorName | None = "shrunken"
    rows: Annotated[list[dict[Name, Value]], Field(min_length=1, max_length=MAX_ROWS)]


class Predictions(_Answered):
    """Expected target for every row given, in its own unit."""

    release: str
    target: str
    estimator: str
    predictions: list[float]
    warnings: list[str]


def _study(value: object) -> object:
    """What a study file with these contents is: JSON has no tuples, which a strict model of Python values asks for."""
    if not isinstance(value, dict):
        return value
    try:
        return Study.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise ValueError(explain(error)) from None  # its own text would repeat what was given


class PlanBody(Asked):
    """A study, as in a study file, and what is assumed of rows nobody has seen."""

    study: Annotated[Study, BeforeValidator(_study)]
    target: Name | None = Field(None, description="the label; the middle one of all possible labels where left out")
    features: Names | None = FEATURES
    r_squared: float = Field(R_SQUARED, gt=0, lt=1, description="what the features explain of the label")
    second_moments: Annotated[list[_Row], Field(max_length=MAX_COLUMNS)] | None = Field(
        None,
        description="A^T A / n of the encoded rows of a public table, the intercept first; it then says what is "
        "explained, and r_squared is not used",
    )

    def assumptions(self) -> Assumptions:
        """As the planner takes them."""
        return Assumptions(
            r_squared=self.r_squared,
            target=self.target,
            features=None if self.features is None else tuple(self.features),
            second_moments=_matrix(self.second_moments),
        )


def _matrix(rows: list[list[float]] | None) -> NDArray[np.float64] | None:
    if rows is None:
        return None
    if len({len(row) for row in rows}) != 1:
        raise PlanningError("the second moments are not a matrix", remedy="Give rows of equal length.")
    return np.array(rows)


class ReleaseItem(_Answered):
    """One line of the list. `epsilon` and `delta` are per party, in the release's own adjacency."""

    id: str
    study: str
    mechanism: str
    n: int
    k: int | None
    epsilon: float
    delta: float
    parties: list[str]

    @classmethod
    def of_summary(cls, summary: ReleaseSummary) -> Self:
        """As a coordinator lists it."""
        names = [party.name for party in summary.parties]
        return cls(**summary.model_dump(include=set(cls.model_fields) - {"parties"}), parties=names)

    @classmethod
    def of_spec(cls, release: str, spec: ReleaseSpec) -> Self:
        """As its verified spec says."""
        facts = spec.model_dump(include=set(cls.model_fields) - {"id", "parties"})
        return cls(id=release, parties=[party.name for party in spec.parties], **facts)


class ReleaseList(_Answered):
    """Published releases. While the coordinator is away: those this learner kept, all at once."""

    items: list[ReleaseItem]
    next: str | None
    source: Literal["coordinator", "cache"]


class Column(_Answered):
    """One column of the matrix.

    `signal_to_noise` is the estimated variance of a published entry without its noise, over the variance of the noise:
    near or below 0 the column is buried. Of a whitened column both are those of the attribute in its place, undone.
    """

    name: str
    label: str
    party: str | None
    noise_variance: float
    signal_to_noise: float | None


class ReleaseDetail(ReleaseItem):
    """A verified release."""

    rows: int
    adjacency: str
    coordinator: str
    coordinator_pinned: bool
    published: datetime
    attributes: list[Attribute]
    columns: list[Column]
    privacy: PrivacyStatement

    @classmethod
    def of(cls, held: Held) -> Self:
        """All that can be said about it."""
        return cls(
            **ReleaseItem.of_spec(held.id, held.spec).model_dump(),
            rows=held.prepared.rows,
            adjacency=held.spec.adjacency,
            coordinator=held.coordinator,
            coordinator_pinned=held.pinned,
            published=held.manifest.published,
            attributes=list(held.spec.attributes),
            columns=_columns(held),
            privacy=held.manifest.privacy,
        )


class Moments(_Answered):
    """Estimated second moments S_hat = G - rows V of the encoded attributes, summed over the n subjects.

    The intercept comes first. An attribute's encoded value is (original - offset) / scale. S_hat may have negative
    eigenvalues where noise outweighs signal. The noise of one row has covariance V: diagonal where no party whitened.
    A moments release publishes S_hat itself, with the variances of the noise in its entries.
    """

    release: str
    mechanism: str
    n: int
    rows: int
    columns: list[str]
    labels: list[str]
    offset: list[float]
    scale: list[float]
    second_moments: list[list[float]]
    noise_variance: list[float]
    noise_covariance: list[list[float]]
    entry_variance: list[list[float]] | None

    @classmethod
    def of(cls, held: Held) -> Self:
        """S_hat and V."""
        p = held.prepared
        return cls(
            release=held.id,
            mechanism=p.mechanism,
            n=p.n,
            rows=p.rows,
            columns=[INTERCEPT, *(column.name for column in encoded_columns(held.spec.attributes))],
            labels=list(p.labels),
            offset=p.offset.tolist(),
            scale=p.scale.tolist(),
            second_moments=(p.gram - p.rows * p.V).tolist(),
            noise_variance=np.diag(p.V).tolist(),
            noise_covariance=p.V.tolist(),
            entry_variance=None if p.entry_variance is None else p.entry_variance.tolist(),
        )


def _columns(held: Held) -> list[Column]:
    """Signal: (G_jj - G_1j^2 / G_11) / (rows - 1) - v_j, the intercept partialled out."""
    p = held.prepared
    spread = (np.diag(p.gram) - p.gram[0] ** 2 / p.gram[0, 0]) / (p.rows - 1)
    return [
        Column(
            name=column.name,
            label=label,
            party=column.party,
            noise_variance=noise,
            signal_to_noise=(variance - noise) / noise if noise > 0 else None,
        )
        for column, label, noise, variance in zip(
            held.manifest.columns, p.labels, np.diag(p.V).tolist(), spread.tolist(), strict=True
        )
    ]
