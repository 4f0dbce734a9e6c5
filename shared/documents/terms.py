"""The terms of a release: everything that its noise, its maps of rows and its forecast follow from.

Studies, specs and plans all say them (`release.resolve.terms_of`). What a study leaves open (`AUTO`, or None of buckets
and bounds) and what a mechanism adds is closed by `release.resolve.closed` and nowhere else.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from commingle.shared.documents.schema import (
    Attribute,
    EncodedColumn,
    Weighted,
    Whitening,
    encoded_columns,
    party_columns,
)
from commingle.shared.dp.accounting import delta_left
from commingle.shared.dp.calibration import Calibration, calibrated_rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.first_stage import RadiusRule
from commingle.shared.dp.fixed_point import FRACTION_BITS
from commingle.shared.dp.sensitivity import Adjacency, Geometry, unit_of

AUTO: Literal["auto"] = "auto"
MAPPED_ROW_NORM = 1.0
"""Mapped rows are cut at it; what is cut is up to the map."""
MECHANISM_NAMES: tuple[str, ...] = ("rmgm", "dgm", "moments")
"""What a document may name. `mechanisms.registry` has one of each name; documents know nothing else of them."""


def _known(name: str) -> str:
    if name not in MECHANISM_NAMES:
        *others, last = map(repr, MECHANISM_NAMES)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
    return name


MechanismName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(MECHANISM_NAMES)})]
FirstStageShare = Annotated[float, Field(gt=0, le=0.5)]
AskedShare = FirstStageShare | Literal["auto"] | None
Projection = Literal["sparse"]
Bounds = Literal["proved", "trusted"]
Number = TypeVar("Number", int, float)


def settled(value: Number | Literal["auto"] | None) -> Number | None:
    """A term that is no longer open. Raises ValueError for one that is: nothing may be calibrated by it."""
    if value == AUTO:
        raise ValueError("the terms are still open: close them first")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyTerms:
    """One party's part; the attributes are as in `PartySpec`.

    Attributes:
        first_stage_share, cross_weight: `AUTO` where they are left to the mechanism.
        weighted: the attribute whose columns are multiplied; in rows that sums map, its share of a row grows.
    """

    name: str
    attributes: tuple[Attribute, ...]
    row_norm: float | None = None
    whitening: Whitening | None = None
    first_stage_share: float | Literal["auto"] | None = None
    cross_weight: int | Literal["auto"] | None = AUTO
    weighted: Weighted | None = None
    keyed: bool = False

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """The columns without presence: mixtures where rows are whitened, and encoded ones otherwise."""
        return party_columns(self.attributes, whitened=True) if self.whitening else encoded_columns(self.attributes)

    @property
    def contrasted(self) -> bool:
        """Whether its levels are contrasts, as they are where its rows are not mapped."""
        return self.whitening is None and settled(self.first_stage_share) is None

    @property
    def geometries(self) -> tuple[Geometry, ...] | None:
        """What bounds a row besides `row_norm`; nothing once it is mapped."""
        pairs = zip(self.attributes, self.weights, strict=True)
        return tuple(a.geometry.weighted(w) for a, w in pairs) if self.contrasted else None

    @property
    def weights(self) -> tuple[int, ...]:
        """What the columns of each attribute are multiplied by."""
        heavy = self.weighted
        return tuple(heavy.weight if heavy and heavy.attribute == a.name else 1 for a in self.attributes)

    @property
    def clipped_at(self) -> float | None:
        """The norm at which rows are cut before anything is known of them: None where sums suggest a map."""
        return self.row_norm if self.first_stage_share in {None, AUTO} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A release as far as its noise and its forecast need it; what is not explained is as in `ReleaseSpec`.

    Attributes:
        k: None for one that is not chosen yet, and for mechanisms that have none.
        epsilon, delta: per party, in the adjacency.
        keyed: whether subjects are. A forecast is then for parties that hold the same n.
        bounds, buckets: None also where they are still open.
        delta_implementation: the part of delta that is no noise's; None until the terms are closed.
        radius: where mapped rows are cut; None until then.
    """

    mechanism: str
    k: int | None
    n: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    calibration: Calibration
    parties: tuple[PartyTerms, ...]
    projection: Projection | None = None
    keyed: bool = False
    bounds: Bounds | None = None
    buckets: int | None = None
    fraction_bits: int = FRACTION_BITS
    delta_implementation: float | None = None
    radius: RadiusRule | None = None

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """All attributes of all parties, in order."""
        return tuple(attribute for party in self.parties for attribute in party.attributes)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """All columns but the intercept and presences, in order."""
        return tuple(column for party in self.parties for column in party.columns)

    @property
    def columns_each(self) -> float:
        """Encoded columns of a party, on average."""
        return sum(len(a.columns) for a in self.attributes) / len(self.parties)

    @property
    def table_columns(self) -> dict[str, int]:
        """Encoded columns of each party's table, its presence among them."""
        return {p.name: self.keyed + sum(len(a.columns) for a in p.attributes) for p in self.parties}

    @property
    def table_rows(self) -> int:
        """Rows of every party's table where rows have places: as many as there are subjects, or buckets."""
        return self.n if self.buckets is None else self.buckets

    @property
    def rows(self) -> int:
        """Rows of the published matrix: k, or n where there is no sketch."""
        return self.n if self.k is None else self.k

    @property
    def proved(self) -> bool:
        """Whether each party proves that it keeps its rows within bounds and follows the exchange."""
        return self.bounds == "proved"

    @property
    def taken_by_exchange(self) -> float:
        """`delta_implementation` of closed terms. Raises ValueError for others."""
        if self.delta_implementation is None:
            raise ValueError("the terms are still open: close them first")
        return self.delta_implementation

    @property
    def whitened(self) -> tuple[str, ...]:
        """Names of the parties whose rows are whitened."""
        return tuple(party.name for party in self.parties if party.whitening is not None)

    @property
    def cut(self) -> tuple[str, ...]:
        """Names of the parties whose encoded rows may be longer than their row norm.

        Rows that are mapped are not among them.
        """
        longest = {party.name: sum(g.radius_squared for g in party.geometries or ()) for party in self.parties}
        return tuple(p.name for p in self.parties if p.row_norm is not None and p.row_norm**2 < longest[p.name])

    def with_subjects(self, *, keyed: bool) -> "Terms":
        """These terms for keyed or for listed subjects, in the adjacency that a study of them has."""
        if self.keyed is keyed:
            return self
        return replace(self, keyed=keyed, buckets=None, delta_implementation=None, adjacency=unit_of(keyed=keyed))

    def reopened(self, **changes: float | str | None) -> "Terms":
        """Some terms changed, so that k, buckets and weights are to be chosen again."""
        parties = tuple(replace(party, cross_weight=AUTO) for party in self.parties)
        still = {"k": None, "buckets": None, "delta_implementation": None}
        return replace(self, **{**still, **changes}, parties=parties)  # type: ignore[arg-type] # by field


def fraction_bits_of(most: int, parties: Iterable[PartyTerms]) -> int:
    """The largest f, where no entry may exceed 2^most, with w 2^f within it for every weight w."""
    return most - max(((max(p.weights, default=1) - 1).bit_length() for p in parties if p.contrasted), default=0)


def allowed_rho(terms: Terms) -> float:
    """The loss that each party's noise may have: that of epsilon at the delta which is left for noise.

    Raises:
        ParameterError: epsilon or delta outside its domain, or a delta that the exchange takes in full.
        ValueError: the terms are open.
    """
    taken = terms.taken_by_exchange
    if 0 < terms.delta <= taken:
        raise ParameterError(
            f"delta {terms.delta:g} is not above the {taken:.2g} that an exchange of this size takes",
            remedy="Ask a larger delta, prove bounds, or propose a mechanism whose members exchange nothing.",
        )
    return calibrated_rho(terms.calibration, epsilon=terms.epsilon, delta=delta_left(terms.delta, taken))
