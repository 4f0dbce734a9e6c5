"""Answers of the learner."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from commingle.shared.documents.manifest import PrivacyStatement, PublishedColumn
from commingle.shared.documents.schema import Attribute, encoded_columns, presence_column
from commingle.shared.documents.spec import INTERCEPT, ReleaseSpec, StatedPurpose
from commingle.shared.estimation.pairwise import held as counts_of
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.verification import PublishedRelease
from commingle.shared.wire import ReleaseSummary, examples_beside, shown_by

EXAMPLES = examples_beside(__file__)
"""Examples of answers and bodies by model, or by name for an answer without a model."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedRelease:
    """A verified release without its files.

    Attributes:
        pinned: whether the coordinator's key was known beforehand.
    """

    published: PublishedRelease
    prepared: PreparedMoments
    pinned: bool


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_extra=shown_by(EXAMPLES))


class Predictions(_View):
    """Expected target for every row given, in its own unit."""

    release: str
    target: str
    estimator: str
    predictions: list[float]
    warnings: list[str]


class ReleaseItem(_View):
    """One line of the list. `epsilon` and `delta` are per member, in the release's own adjacency."""

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
        names = [party.name for party in summary.parties]
        return cls(**summary.model_dump(include=set(cls.model_fields) - {"parties"}), parties=names)

    @classmethod
    def of_spec(cls, release: str, spec: ReleaseSpec) -> Self:
        facts = spec.model_dump(include=set(cls.model_fields) - {"id", "parties"})
        return cls(id=release, parties=[party.name for party in spec.parties], **facts)


class ReleaseList(_View):
    """Published releases. While the coordinator is away: those this learner kept, all at once."""

    items: list[ReleaseItem]
    next: str | None
    source: Literal["coordinator", "cache"]


class Column(_View):
    """One column of the matrix.

    `signal_to_noise` is the estimated variance of a published entry without its noise, over the variance of the noise:
    near or below 0 the column is buried. Of a whitened column both are those of the attribute in its place, undone.
    """

    name: str
    label: str
    party: str | None
    noise_variance: float
    signal_to_noise: float | None


class SubjectCount(_View):
    """How many people of keyed data sets a member holds or two share, its standard error, and how many count."""

    parties: list[str]
    subjects: float
    error: float
    kept: float


class MemberKey(_View):
    """A member's key; unless it is pinned, the member is only what that key calls itself."""

    name: str
    fingerprint: str
    pinned: bool


class ReleaseDetail(ReleaseItem):
    """A verified release."""

    rows: int
    stated: StatedPurpose
    adjacency: str
    coordinator: str
    coordinator_pinned: bool
    members: list[MemberKey]
    published: datetime
    attributes: list[Attribute]
    columns: list[Column]
    subjects: Literal["listed", "keyed"]
    subject_counts: list[SubjectCount]
    privacy: PrivacyStatement

    @classmethod
    def of(cls, held: LoadedRelease) -> Self:
        spec, manifest, pairs = held.published.spec, held.published.manifest, held.prepared.pairs
        counted = () if pairs is None else counts_of(pairs)
        return cls(
            **ReleaseItem.of_spec(held.published.release, spec).model_dump(),
            rows=held.prepared.rows,
            stated=StatedPurpose(**spec.stated),
            adjacency=spec.terms.adjacency,
            coordinator=held.published.coordinator,
            coordinator_pinned=held.pinned,
            members=[MemberKey.model_validate({"name": name, **key}) for name, key in held.published.members.items()],
            published=manifest.published,
            attributes=list(spec.terms.attributes),
            columns=_columns(held),
            subjects="keyed" if spec.keyed else "listed",
            subject_counts=[SubjectCount.model_validate(asdict(count)) for count in counted],
            privacy=manifest.privacy,
        )


class ReleaseMoments(_View):
    """Estimated second moments S_hat = G - rows V of the encoded attributes, summed over the n people.

    The intercept comes first. An attribute's encoded value is (original - offset) / scale. S_hat may have negative
    eigenvalues where noise outweighs signal. The noise of one row has covariance V: diagonal where no member whitened.
    A moments release publishes S_hat itself, with the variances of the noise E in the entries of what was published;
    S_hat carries the noise T E T^T, T being `mixing`, the identity where no member whitened.
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
    mixing: list[list[float]]
    entry_variance: list[list[float]] | None

    @classmethod
    def of(cls, held: LoadedRelease) -> Self:
        p = held.prepared
        return cls(
            release=held.published.release,
            mechanism=p.mechanism,
            n=p.n,
            rows=p.rows,
            columns=[INTERCEPT, *(column.name for column in encoded_columns(held.published.spec.terms.attributes))],
            labels=list(p.labels),
            offset=p.offset.tolist(),
            scale=p.scale.tolist(),
            second_moments=(p.gram - p.rows * p.V).tolist(),
            noise_variance=np.diag(p.V).tolist(),
            noise_covariance=p.V.tolist(),
            mixing=p.mixing.tolist(),
            entry_variance=None if p.entry_variance is None else p.entry_variance.tolist(),
        )


def _columns(held: LoadedRelease) -> list[Column]:
    """Signal is (G_jj - G_1j^2 / G_11) / (rows - 1) - v_j, the intercept partialled out. Leaves out presences."""
    p = held.prepared
    ones = {INTERCEPT, *(presence_column(party.name).name for party in held.published.spec.parties)}
    first = PublishedColumn(name=INTERCEPT, party=None, sigma=0)
    published = (first, *(column for column in held.published.manifest.columns if column.name not in ones))
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
            published, p.labels, np.diag(p.V).tolist(), spread.tolist(), strict=True
        )
    ]
