"""What the learner is asked and what it answers, on the wire."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from services.client.answers import ReleaseSummary
from services.estimation import ESTIMATORS, FitRequest
from services.learner.shelf import Held
from shared.protocol.manifest import PrivacyStatement
from shared.protocol.schema import Attribute
from shared.protocol.spec import MAX_COLUMNS, ReleaseSpec

MAX_ROWS = 10_000
_EXACT = 1 << 53

Name = Annotated[str, Field(max_length=200)]
Value = Annotated[int, Field(ge=-_EXACT, le=_EXACT)] | float | Annotated[str, Field(max_length=200)]
EstimatorName = Annotated[str, Field(max_length=64, json_schema_extra={"enum": list(ESTIMATORS)})]


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True)


class FitBody(_Asked):
    """One linear model of one attribute."""

    target: Name = Field(description="name of a numeric or binary attribute")
    features: Annotated[list[Name], Field(max_length=MAX_COLUMNS)] | None = Field(
        None, description="names of attributes; all but the target where left out"
    )
    estimator: EstimatorName = "measurement_error"
    intercept: bool = True
    confidence_level: float = Field(0.95, gt=0, lt=1)
    interval_for: Literal["table", "population"] = Field(
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

    estimator: EstimatorName = "shrunken"
    rows: Annotated[list[dict[Name, Value]], Field(min_length=1, max_length=MAX_ROWS)]


class Predictions(_Answered):
    """Expected target for every row given, in its own unit."""

    release: str
    target: str
    estimator: str
    predictions: list[float]
    warnings: list[str]


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
    near or below 0 the column is buried.
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
    eigenvalues where noise outweighs signal.
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

    @classmethod
    def of(cls, held: Held) -> Self:
        """S_hat and V."""
        p = held.prepared
        return cls(
            release=held.id,
            mechanism=p.mechanism,
            n=p.n,
            rows=p.rows,
            columns=list(held.moments.columns),
            labels=list(p.labels),
            offset=p.offset.tolist(),
            scale=p.scale.tolist(),
            second_moments=(p.gram - p.rows * np.diag(p.noise)).tolist(),
            noise_variance=p.noise.tolist(),
        )


class Problem(_Answered):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str


PROBLEMS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem document (RFC 9457)",
        "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
    }
}


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
            held.manifest.columns, p.labels, p.noise.tolist(), spread.tolist(), strict=True
        )
    ]
