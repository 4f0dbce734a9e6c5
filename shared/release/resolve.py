"""What a study leaves open, and what a mechanism adds to terms, closed in one place: `closed`.

Specs are closed documents; of their terms only what their mechanism adds is found here.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from commingle.shared.documents.row_maps import measured
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import (
    AUTO,
    MAPPED_ROW_NORM,
    Keyed,
    PartyTerms,
    Terms,
    allowed_rho,
    fraction_bits_of,
)
from commingle.shared.dp.accounting import RHO_UNITS, Rho
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.first_stage import plan_first_stage
from commingle.shared.mechanisms.registry import keyed_by_default, mechanism_of


def terms_of(asked: Study) -> Terms:
    """The terms of a study, open where it leaves them so."""
    said = asked.subjects
    keyed = keyed_by_default(asked.mechanism, asked.projection) if said is None else said == "keyed"
    subjects: Keyed | None = "keyed" if keyed else None
    return asked.terms_of(tuple(PartyTerms(**party.asked, subjects=subjects) for party in asked.parties))


def closed(asked: Study | ReleaseSpec | Terms) -> Terms:
    """The terms with nothing open: first stages, weights, bounds and buckets as the mechanism chooses them.

    A k is none of it: it is chosen for a regression (`forecast.with_sketch`).

    Raises:
        PrivacyError: epsilon, delta or a row norm outside its domain, where something is chosen by them.
    """
    if isinstance(asked, Study):
        asked = terms_of(asked)
    return _closed(asked.terms if isinstance(asked, ReleaseSpec) else asked)


@lru_cache(maxsize=16)  # asked for at every step of a release, by every part of a forecast; some have megabytes
def _closed(terms: Terms) -> Terms:
    mechanism = mechanism_of(terms)
    bounds = terms.bounds or ("proved" if mechanism.interactive else None)
    terms = replace(terms, bounds=bounds, radius=mechanism.radius)
    terms = replace(terms, buckets=terms.buckets or mechanism.buckets(terms))
    if terms.delta_implementation is None:
        columns = tuple(terms.widths.values())
        taken = mechanism.delta_implementation(terms.table_rows, columns, proved=terms.proved)
        terms = replace(terms, delta_implementation=taken)
    parties = tuple(_closed_party(terms, party) for party in terms.parties)
    return replace(terms, parties=parties, fraction_bits=fraction_bits_of(mechanism.fraction_bits, parties))


def _closed_party(terms: Terms, party: PartyTerms) -> PartyTerms:
    share = _chosen_share(terms, party)
    weight = party.cross_weight
    if weight == AUTO:
        weight = None if share is None else _chosen_weight(terms)
    closed = {
        "first_stage_share": share,
        "row_norm": MAPPED_ROW_NORM if share is not None and party.row_norm is None else party.row_norm,
        "cross_weight": weight,
    }
    return party.model_copy(update=closed)


def _chosen_share(terms: Terms, party: PartyTerms) -> float | None:
    """The share of a party: as it was asked for, or what suits the release where that was left open.

    Nothing suits beside a row norm or a whitening, which say what a first stage would find out, nor rows without
    numbers, which have one length (docs/proofs/two-stages.md 5.2), nor where sums or noise leave exact arithmetic.
    """
    if party.first_stage_share != AUTO:
        return party.first_stage_share
    has_numbers = any(isinstance(attribute, NumericAttribute) for attribute in party.attributes)
    if party.row_norm is not None or party.whitening is not None or not has_numbers:
        return None
    rho = allowed_rho(terms)
    share = mechanism_of(terms).first_stage_share(rho=rho, n=terms.n, columns=terms.columns_each)
    if share is None:
        return None
    first = Rho(int(Fraction(share) * int(rho * RHO_UNITS)))
    try:
        plan_first_stage(measured(party), n=terms.n, rho=first, adjacency=terms.adjacency)
    except ParameterError:
        return None
    return share


def _chosen_weight(terms: Terms) -> int | None:
    return mechanism_of(terms).cross_weight(rho=allowed_rho(terms), n=terms.n, columns=terms.columns_each)
