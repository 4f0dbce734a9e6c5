"""What is published: the manifest that a coordinator signs, and second moments (docs/design/documents.md#manifest)."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, Field

from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.model import LEFT_OUT, Count, Digest, Hex32, Name, Version, WireModel
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import Keyed, MechanismName
from commingle.shared.dp.sensitivity import Adjacency

PROTECTS: Mapping[Adjacency, str] = {
    Adjacency.REPLACE_ONE: "Values are protected; who the people are and how many is not. Neighbouring data sets "
    "share the list of people and differ in one person's attribute values.",
    Adjacency.ADD_REMOVE: "Who is in a member's table is protected, how many they are, and their values. Neighbouring "
    "data sets differ in one person, who is in the table or not, with any values. When a member answers may tell how "
    "large its table is.",
}
TRUST_WITH_NO_ROWS = (
    "Neither the coordinator nor another member is trusted with rows: each block is private before it leaves its "
    "member."
)


class StatedLoss(WireModel):
    """One loss: rho, epsilon at the release's delta, and how often of 100 the best test guesses right at even odds."""

    rho: float
    epsilon: float
    guess_percent: Count


class ScopedLoss(WireModel):
    """A loss in the release's adjacency; for keyed data sets also under replace_one: one stays, with other values."""

    own: StatedLoss
    replacement: Annotated[StatedLoss | None, LEFT_OUT] = None

    @property
    def stated(self) -> tuple[StatedLoss, ...]:
        """The stated losses, the one in the release's adjacency first."""
        return (self.own,) if self.replacement is None else (self.own, self.replacement)


class PartyLoss(WireModel):
    """What one member's publications reveal about its own rows; and the part of its first stage, if it has one."""

    party: Name
    loss: ScopedLoss
    first_stage: Annotated[ScopedLoss | None, LEFT_OUT] = None


class PrivacyStatement(WireModel):
    """What the release costs.

    Attributes:
        delta: of every loss stated here.
        delta_implementation: the part of delta that noise does not use: the chance that an exchange fails to hide what
            it should; left out, none.
        trust: whom a member relies on besides itself.
        per_party: the guarantee of each block by itself (Wu et al. 2022).
        per_subject: the loss of a person, who is a row at every member, to everybody, fellow members included: the sum
            over all members.
        per_subject_outsiders: the loss of a person to those who know no member's noise; only under calibration
            `analytic`.
    """

    adjacency: str
    calibration: str
    delta: float
    delta_implementation: Annotated[float, Field(ge=0, exclude_if=lambda none: none == 0)] = 0.0
    protects: str = PROTECTS[Adjacency.REPLACE_ONE]
    trust: str = TRUST_WITH_NO_ROWS
    per_party: tuple[PartyLoss, ...]
    per_subject: ScopedLoss
    per_subject_outsiders: Annotated[ScopedLoss | None, LEFT_OUT] = None

    @property
    def outsiders(self) -> ScopedLoss:
        """What outsiders learn of a person; if nothing is stated, what everybody learns."""
        return self.per_subject_outsiders or self.per_subject

    @property
    def scopes(self) -> tuple[ScopedLoss, ...]:
        """Every stated loss: of each member, then of a person."""
        parties = (loss for party in self.per_party for loss in (party.loss, party.first_stage))
        stated = (*parties, self.per_subject, self.per_subject_outsiders)
        return tuple(loss for loss in stated if loss is not None)


class PublishedColumn(WireModel):
    """One column of the matrix; `sigma` is its (largest) noise in steps, 0 for the intercept."""

    name: str
    party: Name | None
    sigma: Count


class Manifest(WireModel):
    """Everything an auditor needs to check a release offline, by reference or in full."""

    largest_bytes: ClassVar[int] = 8 << 20  # a spec and 64 statements, each in base64
    type: Literal["commingle/manifest"] = "commingle/manifest"
    version: Version = 1
    release: Digest
    spec: Envelope
    proposer_key: Hex32
    approvals: dict[str, Envelope]
    blocks: dict[str, Envelope]
    rows: Count
    step: Annotated[float, Field(gt=0)]
    columns: tuple[PublishedColumn, ...]
    matrix_sha256: Digest
    moments_sha256: Digest
    privacy: PrivacyStatement
    published: AwareDatetime
    software: str


class SecondMoments(WireModel):
    """An estimate G of S = A^T A of the n encoded rows, in encoded units, and the noise in it.

    E[G] = S + rows * diag(noise_variance). For rmgm and dgm G = P^T P of the published matrix P (rows x p); for moments
    it is S plus noise.

    Attributes:
        columns: p names, the intercept first; for keyed people each member's presence before its own columns.
        gram: p x p, symmetric.
        noise_variance: p variances of one entry's noise in P, 0 for the intercept; all 0 for moments.
        rows: k for rmgm, n for dgm and moments, the buckets for keyed moments.
        n: people; for keyed people about how many a member holds.
        subjects: of the release's members.
        entry_variance: p x p variances of the noise of the entries of G, 0 for exact ones; None for rmgm and dgm.
    """

    type: Literal["commingle/moments"] = "commingle/moments"
    version: Version = 1
    release: Digest
    mechanism: MechanismName
    columns: tuple[str, ...]
    gram: tuple[tuple[float, ...], ...]
    noise_variance: tuple[Annotated[float, Field(ge=0)], ...]
    rows: Count
    n: Count
    entry_variance: tuple[tuple[Annotated[float, Field(ge=0)], ...], ...] | None = None
    subjects: Annotated[Keyed | None, LEFT_OUT] = None

    @classmethod
    def of(
        cls,
        spec: ReleaseSpec,
        release: str,
        *,
        gram: NDArray[np.float64],
        noise_variance: tuple[float, ...],
        rows: int,
        entry_variance: NDArray[np.float64] | None = None,
    ) -> Self:
        return cls(
            release=release,
            mechanism=spec.mechanism,
            columns=tuple(column.name for column in spec.matrix_columns),
            gram=_rows(gram),
            noise_variance=noise_variance,
            rows=rows,
            n=spec.n,
            entry_variance=None if entry_variance is None else _rows(entry_variance),
            subjects="keyed" if spec.keyed else None,
        )

    @property
    def keyed(self) -> bool:
        return self.subjects is not None


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
