"""The affine map of a party's rows before they are clipped: none, a public whitening, or one that its sums suggest.

A party with a first stage publishes noisy sums of its own columns for a share of its rho. Whoever has the spec and the
sums computes the same map, and everything else about both stages follows from the spec alone
(docs/design/encoding.md#first-stage, docs/proofs/two-stages.md).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.schema import Attribute, Whitening
from commingle.shared.documents.terms import Terms, allowed_rho
from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.first_stage import FirstStage, Kind, MeasuredAttribute, plan_first_stage, scaling
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.whitening import MATRIX_BITS, IntegerMap
from commingle.shared.registry import mechanism_of

AUTO: Literal["auto"] = "auto"
_ROUNDING = 1e-6  # of gains, which are rounded down
MAPPED_ROW_NORM = 1.0
"""Mapped rows are cut at it; what is cut is up to the map."""


class AskedParty(Protocol):
    """A party whose share may be left to the mechanism."""

    @property
    def attributes(self) -> Sequence[Attribute]: ...
    @property
    def row_norm(self) -> float | None: ...
    @property
    def whitening(self) -> Whitening | None: ...
    @property
    def first_stage_share(self) -> float | Literal["auto"] | None: ...


def chosen_share(asked: Terms, party: AskedParty) -> float | None:
    """The share of a party: as it was asked for, or what suits the release where that was left open.

    Nothing suits beside a row norm or a whitening, which say what a first stage would find out, nor where sums or their
    noise would leave exact arithmetic.
    """
    if party.first_stage_share != AUTO:
        return party.first_stage_share
    if party.row_norm is not None or party.whitening is not None:
        return None
    rho, columns = _rho_and_columns(asked)
    share = mechanism_of(asked).first_stage_share(rho=rho, n=asked.n, columns=columns)
    if share is None:
        return None
    first = Rho(int(Fraction(share) * int(rho * RHO_UNITS)))
    try:
        plan_first_stage(_measured(party.attributes), n=asked.n, rho=first, adjacency=asked.adjacency)
    except ParameterError:
        return None
    return share


def chosen_cross_weight(asked: Terms) -> int | None:
    """That of a party with a first stage."""
    rho, columns = _rho_and_columns(asked)
    return mechanism_of(asked).cross_weight(rho=rho, n=asked.n, columns=columns)


def _rho_and_columns(asked: Terms) -> tuple[float, float]:
    """What a party may spend, and its columns, on average."""
    columns = sum(len(a.columns) for p in asked.contributors for a in p.attributes) / len(asked.contributors)
    return allowed_rho(asked), columns


class MappedParty(Protocol):
    """What a map depends on of a party: its part of a spec, or of a release that is only being planned."""

    @property
    def name(self) -> str: ...
    @property
    def attributes(self) -> Sequence[Attribute]: ...
    @property
    def whitening(self) -> Whitening | None: ...
    @property
    def first_stage_share(self) -> float | None: ...


class MappedRelease(Terms, Protocol):
    """What maps depend on of a release."""

    @property
    def parties(self) -> Sequence[MappedParty]: ...


def target_rho(spec: MappedRelease) -> Rho:
    """What a party may spend: the rho of (epsilon, delta), rounded down."""
    return Rho(int(allowed_rho(spec) * RHO_UNITS))


def stage_targets(spec: MappedRelease, party: MappedParty) -> tuple[Rho, Rho]:
    """How a party's target is split: its share for the first stage, rounded down, and the rest."""
    whole = target_rho(spec)
    first = Rho(int(Fraction(party.first_stage_share or 0) * whole.units))
    return first, whole - first


def first_stage_of(spec: MappedRelease, party: MappedParty) -> FirstStage | None:
    """The noise of a party's sums; None where it publishes none.

    Raises:
        ParameterError: sums or noise leave exact arithmetic.
    """
    if party.first_stage_share is None:
        return None
    first, _ = stage_targets(spec, party)
    return plan_first_stage(_measured(party.attributes), n=spec.n, rho=first, adjacency=spec.adjacency)


def _measured(attributes: Sequence[Attribute]) -> list[MeasuredAttribute]:
    return [MeasuredAttribute(Kind(a.kind), len(a.columns)) for a in attributes]


def row_map(spec: MappedRelease, party: MappedParty, sums: Sequence[int] | None) -> IntegerMap | None:
    """The map of a party's rows; None where they are taken as they are encoded.

    Raises:
        SpecError: sums that its first stage does not have, or none where it has one.
    """
    stage = first_stage_of(spec, party)
    if (0 if sums is None else len(sums)) != (0 if stage is None else stage.size):
        raise SpecError(
            f"the sums of {party.name} are not those of its first stage", remedy="Take both from one release."
        )
    if stage is None or sums is None:
        return None if party.whitening is None else party.whitening.integer_map()
    columns = [len(a.columns) for p in spec.parties for a in p.attributes]
    per_party = Fraction(sum(columns), len(spec.parties))
    n = stage.count(int(sums[0]))
    radius = mechanism_of(spec).radius_squared(rho=target_rho(spec), n=n, columns=per_party)
    return scaling(stage, np.array(sums, np.int64), radius_squared=radius)


def may_cut(party: AskedParty, applied: IntegerMap | None) -> bool:
    """Whether a row within the schema can be longer than the party's row norm once it is mapped."""
    if party.row_norm is None:
        return False
    if applied is None:
        return party.row_norm**2 < sum(a.geometry.radius_squared for a in party.attributes)
    gains, centre = np.abs(applied.matrix) / (1 << MATRIX_BITS), np.abs(applied.centre) / SCALE
    if not centre.any() and np.array_equal(gains, np.diag(np.diag(gains))):
        starts = np.cumsum([0, *(len(a.columns) for a in party.attributes)])[:-1]
        longest = float(np.maximum.reduceat(np.diag(gains), starts) @ np.maximum.reduceat(np.diag(gains), starts))
    else:
        longest = float(np.sum((gains @ (1 + centre)) ** 2))
    return longest > party.row_norm**2 * (1 + _ROUNDING)
