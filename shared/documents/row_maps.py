"""The affine map of a party's rows before they are clipped: none, a public whitening, or one that its sums suggest.

A party with a first stage publishes noisy sums of its own columns for a share of its rho. Everybody who has the spec
and the sums computes the same map. All else about both stages follows from the closed terms of the spec alone
(docs/design/encoding.md#first-stage, docs/proofs/two-stages.md).
"""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.schema import CategoricalAttribute
from commingle.shared.documents.terms import PartyTerms, Terms, allowed_rho, settled
from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.fixed_point import MATRIX_BITS, SCALE, IntegerMap
from commingle.shared.dp.sensitivity import Adjacency, indicators, squared_sensitivity
from commingle.shared.dp.two_stages import (
    FirstStage,
    Kind,
    MeasuredAttribute,
    plan_first_stage,
    radius_squared_for,
    scaling,
    sums_of,
)
from commingle.shared.errors import SpecError

_ROUNDING = 1e-6  # of gains, which are rounded down


def target_rho(terms: Terms) -> Rho:
    """What a party may spend: the rho of (epsilon, delta), rounded down."""
    return Rho(int(allowed_rho(terms) * RHO_UNITS))


def stage_targets(terms: Terms, party: PartyTerms) -> tuple[Rho, Rho]:
    """The split of a party's target: its share for the first stage, rounded down, and the rest."""
    whole = target_rho(terms)
    first = Rho(int(Fraction(settled(party.first_stage_share) or 0) * whole.units))
    return first, whole - first


def first_stage_of(terms: Terms, party: PartyTerms) -> FirstStage | None:
    """The noise of a party's sums; None if it publishes none. Raises ParameterError: they leave exact arithmetic."""
    if party.first_stage_share is None:
        return None
    first, _ = stage_targets(terms, party)
    return plan_first_stage(measured(party), n=terms.n, rho=first, adjacency=terms.adjacency)


def sums_expected(party: PartyTerms) -> int:
    """How many sums a party's first stage has, whatever their noise; 0 if it publishes none."""
    return 0 if party.first_stage_share is None else sums_of(measured(party), keyed=party.keyed)


def measured(party: PartyTerms) -> list[MeasuredAttribute]:
    """A party's attributes as first stages see them."""
    pairs = zip(party.attributes, party.weights, strict=True)
    return [MeasuredAttribute(Kind(a.kind), len(a.columns), Fraction(weight**2)) for a, weight in pairs]


def row_map(terms: Terms, party: PartyTerms, sums: Sequence[int] | None) -> IntegerMap | None:
    """The map of a party's rows by closed terms; None if rows stay as they are encoded.

    Raises SpecError: these are not the sums of its first stage.
    """
    stage = first_stage_of(terms, party)
    if (0 if sums is None else len(sums)) != (0 if stage is None else stage.size):
        raise SpecError(
            f"the sums of {party.name} are not those of its first stage", remedy="Take both from one release."
        )
    if stage is None or sums is None:
        return None if party.whitening is None else party.whitening.integer_map()
    radius = radius_squared(terms, n=stage.count(int(sums[0])))
    return scaling(stage, np.array(sums, np.int64), radius_squared=radius)


def radius_squared(terms: Terms, *, n: int) -> Fraction:
    """r^2 of `scaling` for n people by closed terms, whatever the rows hold. Raises PrivacyError: terms without one."""
    if terms.radius is None:
        raise ValueError("the terms are still open: close them first")
    per_party = Fraction(len(terms.columns), len(terms.parties))
    return radius_squared_for(terms.radius, rho=target_rho(terms), n=n, columns=per_party)


def undone(
    party: PartyTerms, applied: IntegerMap | None, fraction_bits: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """M (d, d) and c (d,) with encoded columns = M @ published ones + c, whatever the map and the code of levels."""
    d = len(party.columns)
    M, c = (np.eye(d), np.zeros(d)) if applied is None else applied.undo()
    start = 0
    for attribute, weight in zip(party.attributes, party.weights, strict=True) if party.contrasted else ():
        own = slice(start, start := start + len(attribute.columns))
        M[own] /= weight
        if isinstance(attribute, CategoricalAttribute):
            forms = indicators(own.stop - own.start + 1, fraction_bits)
            M[own], c[own] = forms[:, 1:] @ M[own], forms[:, 0] + forms[:, 1:] @ c[own]
    return M, c


def may_cut(party: PartyTerms, applied: IntegerMap | None) -> bool:
    """Whether a row within the schema can be longer than the party's row norm once it is mapped."""
    if party.row_norm is None:
        return False
    if applied is None:
        return party.row_norm**2 < sum(g.radius_squared for g in party.geometries or ())
    gains, centre = np.abs(applied.matrix) / (1 << MATRIX_BITS), np.abs(applied.centre) / SCALE
    if not centre.any() and np.array_equal(gains, np.diag(np.diag(gains))):
        starts = np.cumsum([0, *(len(a.columns) for a in party.attributes)])[:-1]
        longest = float(np.maximum.reduceat(np.diag(gains), starts) @ np.maximum.reduceat(np.diag(gains), starts))
    else:
        longest = float(np.sum((gains @ (1 + centre)) ** 2))
    return longest > party.row_norm**2 * (1 + _ROUNDING)


def row_sensitivity(terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
    """Delta_q^2 of one integer row of that party, as `squared_sensitivity` says it."""
    return squared_sensitivity(
        party.geometries, row_norm=party.row_norm, adjacency=adjacency, fraction_bits=terms.fraction_bits
    )


def row_bound(terms: Terms, party: PartyTerms) -> int:
    """c, the largest squared norm of one integer row of that party; for a keyed one with its presence."""
    return row_sensitivity(terms, party, Adjacency.ADD_REMOVE if party.keyed else Adjacency.ZERO_OUT)
