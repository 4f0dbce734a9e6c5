"""What is public about a release before it exists: the part of a study or a spec that a forecast depends on."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.kept import kept_of
from commingle.shared.documents.row_maps import (
    MAPPED_ROW_NORM,
    chosen_cross_weight,
    chosen_share,
    first_stage_of,
    row_map,
)
from commingle.shared.documents.schema import Attribute, EncodedColumn, Whitening, party_columns
from commingle.shared.documents.spec import Projection, ReleaseSpec
from commingle.shared.documents.study import AskedShare, Study
from commingle.shared.documents.terms import allowed_rho, delta_implementation
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.first_stage import MOST_SUBJECTS, expected_sums
from commingle.shared.dp.fixed_point import FRACTION_BITS, SCALE, presence
from commingle.shared.dp.sensitivity import Adjacency, Geometry, squared_sensitivity
from commingle.shared.registry import KEYED, mechanism_of

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyDesign:
    """What one party contributes, as it is asked for; see `ReleaseDesign.parties`."""

    name: str
    attributes: tuple[Attribute, ...]
    row_norm: float | None = None
    whitening: Whitening | None = None
    first_stage_share: AskedShare = None

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """The columns as they are forecast: mixtures where rows are whitened, and encoded ones otherwise."""
        return party_columns(self.attributes, whitened=self.whitening is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedParty:
    """What one party contributes to a release of certain n, epsilon and mechanism, the share of its first stage chosen.

    Attributes:
        row_norm: that of mapped rows where there is a first stage.
    """

    name: str
    attributes: tuple[Attribute, ...]
    columns: tuple[EncodedColumn, ...]
    row_norm: float | None
    whitening: Whitening | None
    first_stage_share: float | None
    cross_weight: int | None
    keyed: bool = False

    @property
    def geometries(self) -> tuple[Geometry, ...] | None:
        """What bounds a row besides `row_norm`; nothing once it is mapped."""
        mapped = self.whitening is not None or self.first_stage_share is not None
        return None if mapped else tuple(a.geometry for a in self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDesign:
    """A release as far as a forecast needs it.

    Attributes:
        k: rows of the sketch; None for one that is not chosen yet, and for mechanisms that have none.
        n: subjects.
        epsilon, delta: per party, in the design's own adjacency.
        projection: as in a spec; expected figures do not depend on it (docs/proofs/projection.md, 3.2).
        proved: whether members prove their bounds, where parties exchange.
        keyed: whether subjects are. A forecast is then for parties that hold the same n, with the noise of keyed ones.
        buckets: of keyed rows that are exchanged, where somebody chose how many.
    """

    mechanism: str
    k: int | None
    n: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    calibration: Calibration
    shares: tuple[PartyDesign, ...]
    projection: Projection | None = None
    proved: bool = True
    keyed: bool = False
    buckets: int | None = None

    @property
    def delta_implementation(self) -> float:
        """The part of delta that is no noise's."""
        return delta_implementation(self)

    @property
    def contributors(self) -> tuple[PartyDesign, ...]:
        """The shares, by the name that all terms have for them."""
        return self.shares

    @property
    def parties(self) -> tuple[PlannedParty, ...]:
        """The shares, with first stages as a study that leaves them open would have them."""
        return _planned(self)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes of all parties, in order."""
        return tuple(attribute for share in self.shares for attribute in share.attributes)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """All published columns but the intercept, in order."""
        return tuple(column for share in self.shares for column in share.columns)

    @property
    def whitened(self) -> tuple[str, ...]:
        """Names of the parties whose rows are whitened."""
        return tuple(share.name for share in self.shares if share.whitening is not None)

    @property
    def cut(self) -> tuple[str, ...]:
        """Names of the parties whose encoded rows may be longer than their row norm.

        Rows that are mapped are not among them.
        """
        longest = {party.name: sum(g.radius_squared for g in party.geometries or ()) for party in self.parties}
        return tuple(p.name for p in self.parties if p.row_norm is not None and p.row_norm**2 < longest[p.name])

    @property
    def table_rows(self) -> int:
        """Rows of every party's table where rows have places: as many as there are subjects, or buckets."""
        return self.with_buckets.buckets or self.n

    @property
    def table_columns(self) -> dict[str, int]:
        """Columns of each party's table, presences of keyed subjects among them."""
        return {party.name: self.keyed + len(party.columns) for party in self.parties}

    @property
    def summed(self) -> int:
        """Subjects that sums run over: in buckets who meets nobody."""
        kept = kept_of(self.with_buckets)
        return self.n if kept is None else max(1, kept)

    @property
    def with_buckets(self) -> "ReleaseDesign":
        """The same with as many buckets as it would have, where it has some."""
        return replace(self, buckets=self.buckets or mechanism_of(self).buckets(self))

    def with_mechanism(self, name: str) -> "ReleaseDesign":
        """The same of another mechanism, without a k; with listed subjects where that one has no others."""
        return replace(self, mechanism=name, k=None).with_subjects(keyed=self.keyed and name in KEYED)

    def with_subjects(self, *, keyed: bool) -> "ReleaseDesign":
        """The same of keyed or of listed subjects, with the adjacency that a study of them has."""
        if self.keyed is keyed:
            return self
        adjacency = Adjacency.ADD_REMOVE if keyed else Adjacency.REPLACE_ONE
        return replace(self, keyed=keyed, buckets=None, adjacency=adjacency)

    @property
    def rows(self) -> int:
        """Rows of the published matrix: k, or n where there is no sketch."""
        return self.n if self.k is None else self.k


@dataclass(frozen=True, slots=True, eq=False)
class ColumnLaw:
    """Means and variances, (p - 1,) each, of all columns but the intercept, in encoded units."""

    means: Array
    variances: Array


@lru_cache(maxsize=64)  # asked for by every part of a forecast
def _planned(design: ReleaseDesign) -> tuple[PlannedParty, ...]:
    chosen = [(share, chosen_share(design, share)) for share in design.shares]
    return tuple(
        PlannedParty(
            name=share.name,
            attributes=share.attributes,
            columns=share.columns,
            row_norm=share.row_norm if first is None else MAPPED_ROW_NORM,
            whitening=share.whitening,
            first_stage_share=first,
            cross_weight=None if first is None or design.keyed else chosen_cross_weight(design),
            keyed=design.keyed,
        )
        for share, first in chosen
    )


def design_of(asked: Study | ReleaseSpec) -> ReleaseDesign:
    """The design of a study or of a spec."""
    shares = (
        PartyDesign(
            name=p.name,
            attributes=p.attributes,
            row_norm=None if isinstance(p.first_stage_share, float) else p.row_norm,
            whitening=p.whitening,
            first_stage_share=p.first_stage_share,
        )
        for p in asked.parties
    )
    return ReleaseDesign(
        mechanism=asked.mechanism,
        k=asked.k,
        n=asked.n,
        epsilon=asked.epsilon,
        delta=asked.delta,
        adjacency=asked.adjacency,
        calibration=asked.calibration,
        shares=tuple(shares),
        projection=asked.projection,
        proved=asked.proved,
        keyed=asked.keyed,
        buckets=asked.buckets,
    )


def noise_variance(design: ReleaseDesign) -> Array:
    """(p - 1,) variance of the noise in one published entry of each column but the intercept, in encoded units.

    v = Delta^2 / (2 rho) of noisy rows, mixed or not (docs/design/privacy.md#noise), before sigma is rounded up to an
    integer. Noisy moments have another (`mechanisms.moments`).

    Raises:
        ParameterError: epsilon, delta or a row norm outside its domain.
    """
    rho = allowed_rho(design)
    found: list[float] = []
    for share in design.parties:
        adjacency = Adjacency.ZERO_OUT if design.keyed else design.adjacency
        moved = squared_sensitivity(share.geometries, row_norm=share.row_norm, adjacency=adjacency)
        moved += design.keyed * presence(FRACTION_BITS) ** 2  # docs/proofs/keyed-subjects.md, 2.2
        found += [moved / (SCALE**2 * 2 * rho * (1 - (share.first_stage_share or 0)))] * len(share.columns)
    return np.array(found)


def encoded_noise(design: ReleaseDesign, law: ColumnLaw) -> Array:
    """The same (p - 1,) variances once the maps that first stages suggest are undone."""
    gains, _ = assumed_maps(design, law)
    return np.asarray(noise_variance(design) / gains**2)


def assumed_maps(design: ReleaseDesign, law: ColumnLaw) -> tuple[Array, Array]:
    """Gains and centres, (p - 1,) each: published columns are gain (x - centre) where x have that law.

    Rows that are cut at norm 1 are multiples of themselves; their columns count as multiplied by the root of
    E min(|z|^2, 1) / E |z|^2, |z|^2 being like a gamma law with the degrees of freedom of its columns.
    """
    gains, centres = np.ones(len(law.means)), np.zeros(len(law.means))
    start = 0
    countable = replace(design, n=min(design.n, MOST_SUBJECTS))
    for share in design.parties:
        own = slice(start, start + len(share.columns))
        start = own.stop
        stage = first_stage_of(countable, share)
        if stage is None:
            continue
        means, variances = law.means[own], law.variances[own]
        applied = row_map(countable, share, expected_sums(stage, means, variances + means**2).tolist())
        if applied is None:
            continue
        undone, centres[own] = applied.undo()
        gains[own] = 1 / np.diag(undone)
        gains[own] *= _left_by_cutting(gains[own] ** 2 * (variances + (means - centres[own]) ** 2))
    return gains, centres


def _left_by_cutting(squares: Array) -> float:
    """Of a column that stands in rows with these mean squares, (d,): sqrt(E min(X, t)), X gamma of mean 1, t = 1/sum.

    E min(X, t) = P(k + 1, k t) + t (1 - P(k, k t)) with shape k = (sum)^2 / (2 sum of squares).
    """
    from scipy.special import gammainc  # noqa: PLC0415 - loads slowly, and agents and coordinators start without it

    total = float(squares.sum())
    k, t = total**2 / (2 * float(squares @ squares)), 1 / total
    return float(np.sqrt(gammainc(k + 1, k * t) + t * (1 - gammainc(k, k * t))))
