"""The terms of a release: its noise, its maps of rows and its forecast follow from them alone.

Studies (`release.checks.terms_of`), specs (`ReleaseSpec.terms`) and plans all have them. Only `release.checks.closed`
closes what a study leaves open and what a mechanism adds. `AUTO` is open, and so is None for buckets and bounds.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field
from pydantic_core import PydanticKnownError

from commingle.shared.documents.model import LEFT_OUT, Name, WireModel
from commingle.shared.documents.schema import (
    Attribute,
    EncodedColumn,
    Weighted,
    Whitening,
    encoded_columns,
    party_columns,
    presence_column,
)
from commingle.shared.documents.subsets import Subsets, subset_words
from commingle.shared.dp.accounting import delta_left
from commingle.shared.dp.calibration import Calibration, calibrated_rho
from commingle.shared.dp.fixed_point import FRACTION_BITS
from commingle.shared.dp.sensitivity import Adjacency, Geometry, unit_of
from commingle.shared.dp.two_stages import RadiusRule
from commingle.shared.errors import ParameterError

AUTO: Literal["auto"] = "auto"
MAPPED_ROW_NORM = 1.0  # mapped rows are cut at it; the map decides how much that cuts
MECHANISM_NAMES: tuple[str, ...] = ("rmgm", "dgm", "moments")
"""The names that a document may use. `shared.mechanisms` has one of each; documents know nothing else of them."""


def _known(name: str) -> str:
    if name not in MECHANISM_NAMES:
        *others, last = map(repr, MECHANISM_NAMES)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
    return name


MechanismName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(MECHANISM_NAMES)})]
FirstStageShare = Annotated[float, Field(gt=0, le=0.5)]
CrossWeight = Annotated[int, Field(ge=1, le=4)]
Keyed = Literal["keyed"]
AskedShare = FirstStageShare | Literal["auto"] | None
Projection = Literal["sparse"]
Bounds = Literal["proved", "trusted"]
Number = TypeVar("Number", int, float)
Numbers = TypeVar("Numbers", float, NDArray[np.float64])


def settled(value: Number | Literal["auto"] | None) -> Number | None:
    """A term that is no longer open. Raises ValueError for an open one: nothing may be calibrated by it."""
    if value == AUTO:
        raise ValueError("the terms are still open: close them first")
    return value


class PartyShare(WireModel):
    """What one member is asked to contribute to a release; `AUTO` leaves a share to the mechanism.

    Attributes:
        name: of the member, as enrolled.
        attributes: what it contributes, with public bounds and levels.
        row_norm: bound C on the norm of an encoded row; left out, none.
        whitening: a public map of the encoded rows, applied before they are clipped to `row_norm`; left out, none.
        first_stage_share: the part of its rho spent on sums of its columns, from which the map of its rows follows
            (`shared.documents.row_maps`); null for none.
        weighted: an attribute whose sums get less noise than those of others, 2 to 4 times in relation to them; left
            out, none.
        where: only keyed people who are in all of these subsets count; left out, everybody.
    """

    name: Name
    attributes: tuple[Attribute, ...]
    row_norm: float | None = None
    whitening: Whitening | None = None
    first_stage_share: AskedShare = None
    weighted: Annotated[Weighted | None, LEFT_OUT] = None
    where: Annotated[Subsets, LEFT_OUT] = None

    @property
    def asked(self) -> dict[str, Any]:
        """These fields alone, for another kind of share."""
        return {name: getattr(self, name) for name in PartyShare.model_fields}


class PartyTerms(PartyShare):
    """What one party contributes, as noise and forecasts see it; `AUTO` leaves a weight to the mechanism.

    Attributes:
        cross_weight: of its products with other parties' columns where the sums of its columns have 1, in the noise of
            its block (`mechanisms.moments.entries`); None if sums have 2 and products 1.
        subjects: "keyed" if each row's place follows from its subject's pseudonym and its first column says that it is
            there (docs/proofs/keyed-subjects.md); None if all parties hold one list of subjects.
    """

    cross_weight: CrossWeight | Literal["auto"] | None = AUTO
    subjects: Annotated[Keyed | None, LEFT_OUT] = None

    @property
    def keyed(self) -> bool:
        return self.subjects is not None

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """Its columns without presence: mixtures if rows are whitened, else encoded ones."""
        return party_columns(self.attributes, whitened=True) if self.whitening else encoded_columns(self.attributes)

    @property
    def block_columns(self) -> tuple[EncodedColumn, ...]:
        """The columns of its block, in order; keyed subjects have their presence first."""
        heavy = None if self.weighted is None else self.weighted.attribute
        whitened, scaled = self.whitening is not None, self.mapped_by_sums
        own = party_columns(self.attributes, whitened=whitened, scaled=scaled, weighted=heavy)
        return (presence_column(self.name), *own) if self.keyed else own

    @property
    def mapped_by_sums(self) -> bool:
        """Whether the map of its rows follows from sums that it publishes."""
        return settled(self.first_stage_share) is not None

    @property
    def contrasted(self) -> bool:
        """Whether its levels are contrasts, as they are unless its rows are mapped."""
        return self.whitening is None and not self.mapped_by_sums

    @property
    def geometries(self) -> tuple[Geometry, ...] | None:
        """These bound a row besides `row_norm`; None once rows are mapped."""
        pairs = zip(self.attributes, self.weights, strict=True)
        return tuple(a.geometry.weighted(w) for a, w in pairs) if self.contrasted else None

    @property
    def weights(self) -> tuple[int, ...]:
        """Factors of the columns of each attribute."""
        heavy = self.weighted
        return tuple(heavy.weight if heavy and heavy.attribute == a.name else 1 for a in self.attributes)

    @property
    def clipped_at(self) -> float | None:
        """The norm at which rows are cut before anything is known of them; None if sums suggest a map."""
        return self.row_norm if self.first_stage_share in {None, AUTO} else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A release as far as its noise and its forecast need it; what is not explained is as in `ReleaseSpec`."""

    mechanism: str
    k: int | None  # None for one that is not chosen yet, and for mechanisms that have none
    n: int
    # epsilon, delta: per party, in the adjacency of its subjects
    epsilon: float
    delta: float
    calibration: Calibration
    parties: tuple[PartyTerms, ...]
    projection: Projection | None = None
    seed: str | None = None  # of what rows are mixed with, hex; None until there is a spec
    # bounds, buckets: None also where they are still open
    bounds: Bounds | None = None
    buckets: int | None = None
    fraction_bits: int = FRACTION_BITS
    delta_implementation: float | None = None  # part of delta that noise does not use; None until the terms are closed
    radius: RadiusRule | None = None  # where mapped rows are cut; None until then

    @property
    def keyed(self) -> bool:
        """Whether subjects are, at all parties or at none. A forecast then assumes that parties hold the same n."""
        return self.parties[0].keyed

    @property
    def adjacency(self) -> Adjacency:
        return unit_of(keyed=self.keyed)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(attribute for party in self.parties for attribute in party.attributes)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """All columns but the intercept and presences, in order."""
        return tuple(column for party in self.parties for column in party.columns)

    @property
    def columns_each(self) -> float:
        return len(self.columns) / len(self.parties)

    @property
    def widths(self) -> dict[str, int]:
        """How many columns each party's block has, with its presence."""
        return {p.name: self.keyed + len(p.columns) for p in self.parties}

    @property
    def table_rows(self) -> int:
        """Rows of every party's table if rows have places: one for each subject, or bucket."""
        return self.n if self.buckets is None else self.buckets

    @property
    def rows(self) -> int:
        """Rows of the published matrix: k, or n without a sketch."""
        return self.n if self.k is None else self.k

    @property
    def kept(self) -> int | None:
        """How many of a party's n subjects count; None if all do."""
        return None if self.buckets is None else round(float(expected_kept(float(self.n), self.buckets)))

    @property
    def kept_words(self) -> tuple[str, ...]:
        """`kept` as a sentence; empty if all count."""
        if self.kept is None:
            return ()
        alone = f"those alone in their bucket, of {self.buckets:,}"
        return (f"About {self.kept:,} of a member's {self.n:,} people count: {alone}.",)

    @property
    def subset_words(self) -> tuple[str, ...]:
        """The people whom each member's share is about, if that is not everybody."""
        return tuple(filter(None, (subset_words(party.name, party.where) for party in self.parties)))

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

    def with_subjects(self, *, keyed: bool) -> "Terms":
        if self.keyed is keyed:
            return self
        subjects = {"subjects": "keyed" if keyed else None}
        return replace(self.with_parties(lambda _: subjects), buckets=None, delta_implementation=None)

    def with_parties(self, changes: Callable[[PartyTerms], Mapping[str, object]]) -> "Terms":
        """These terms with the changes of each party."""
        return replace(self, parties=tuple(party.model_copy(update=changes(party)) for party in self.parties))

    def reopened(self, **changes: float | str | None) -> "Terms":
        """Some terms changed, so that k, buckets and weights are to be chosen again."""
        still = {"k": None, "buckets": None, "delta_implementation": None}
        made = self.with_parties(lambda _: {"cross_weight": AUTO})
        return replace(made, **{**still, **changes})  # type: ignore[arg-type] # by field


def expected_kept(n: Numbers, buckets: int, others: Numbers | None = None) -> Numbers:
    """How many of n are alone in their bucket of m among u others: n (1 - 1/m)^u.

    See docs/proofs/keyed-subjects.md, 5.2. Without `others` they are n - 1.
    """
    found: Numbers = n * np.exp((n - 1 if others is None else others) * np.log1p(-1 / buckets))
    return found


def fraction_bits_of(most: int, parties: Iterable[PartyTerms]) -> int:
    """The largest f with w 2^f <= 2^most for every weight w: no entry may exceed 2^most."""
    return most - max(((max(p.weights, default=1) - 1).bit_length() for p in parties if p.contrasted), default=0)


def allowed_rho(terms: Terms) -> float:
    """The loss that each party's noise may have: that of epsilon at the delta which is left for noise.

    Raises ParameterError: epsilon or delta outside its domain, or a delta that the exchange takes in full; ValueError:
    the terms are open.
    """
    taken = terms.taken_by_exchange
    if 0 < terms.delta <= taken:
        raise ParameterError(
            f"delta {terms.delta:g} is not above the {taken:.2g} that an exchange of this size takes",
            remedy="Ask for a larger delta, prove bounds, or propose a mechanism whose members exchange nothing.",
        )
    return calibrated_rho(terms.calibration, epsilon=terms.epsilon, delta=delta_left(terms.delta, taken))
