"""Checks of a spec by its mechanism, for all code that opens, builds or reads one.

Documents are parsed without a mechanism (`documents.spec`), so nothing may rely on a spec that was not read here. Only
`closed` closes what a study leaves open, and what a mechanism adds to terms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from typing import Any

from pydantic import ValidationError

from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified, VerifyingKey, open_envelope
from commingle.shared.documents.model import decode, explain
from commingle.shared.documents.row_maps import first_stage_of, measured
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.spec import Asked, PartySpec, ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.subsets import Subset
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
from commingle.shared.dp.fixed_point import check_exact_range
from commingle.shared.dp.two_stages import plan_first_stage
from commingle.shared.errors import ParameterError, PrivacyError, SignatureError, SpecError
from commingle.shared.mechanisms import keyed_by_default, mechanism_of, sketched_names


def terms_of(asked: Study) -> Terms:
    """The terms of a study, open where it leaves them so."""
    said = asked.subjects
    keyed = keyed_by_default(asked.mechanism, asked.projection) if said is None else said == "keyed"
    subjects: Keyed | None = "keyed" if keyed else None
    return asked.terms_of(tuple(PartyTerms(**party.asked, subjects=subjects) for party in asked.parties))


def closed(asked: Study | ReleaseSpec | Terms) -> Terms:
    """The terms with nothing open: first stages, weights, bounds and buckets as the mechanism chooses them.

    A k is not among these: it is chosen for a regression (`forecast.with_sketch`). Raises PrivacyError: epsilon, delta
    or a row norm outside its domain, if something is chosen by them.
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
        columns, mechanism = terms.columns_each, mechanism_of(terms)
        weight = None if share is None else mechanism.cross_weight(rho=allowed_rho(terms), n=terms.n, columns=columns)
    closed = {
        "first_stage_share": share,
        "row_norm": MAPPED_ROW_NORM if share is not None and party.row_norm is None else party.row_norm,
        "cross_weight": weight,
    }
    return party.model_copy(update=closed)


def _chosen_share(terms: Terms, party: PartyTerms) -> float | None:
    """The share of a party: as it was asked for, or what suits the release if that was left open.

    Nothing suits beside a row norm or a whitening, which say what a first stage would find out, nor for rows without
    numbers, which have one length (docs/proofs/two-stages.md 5.2), nor if sums or noise leave exact arithmetic.
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


_REMEDY = "Correct the study and try again."


@dataclass(frozen=True, slots=True)
class Member:
    """An enrolled party's public keys, hex."""

    signing_key: str
    sealing_key: str


def open_spec(envelope: Envelope, keys: Iterable[VerifyingKey]) -> Verified[ReleaseSpec]:
    """A verified spec, signed by its proposer, that its mechanism takes. Raises SignatureError, DocumentError."""
    spec = open_envelope(envelope, ReleaseSpec, keys=keys, checks=spec_problems)
    if spec.document.proposer != spec.signer:
        raise SignatureError("the spec names another proposer than its signer", remedy="Propose it again.")
    return spec


def read_spec(payload: bytes) -> ReleaseSpec:
    """A spec whose signature does not matter: it was verified when it was stored, or is only shown.

    Raises DocumentError: the bytes are no spec that its mechanism takes.
    """
    return decode(ReleaseSpec, payload, spec_problems)


def spec_problems(spec: ReleaseSpec) -> list[str]:
    """What makes a spec impossible by its mechanism, a sentence each."""
    mechanism, found = mechanism_of(spec), []
    if not mechanism.sketched:
        with_one = ", ".join(sketched_names())
        given = {"k": spec.k, "projection": spec.projection}
        found = [
            f"{name} belongs to {with_one} only; leave it out for {spec.mechanism}"
            for name, value in given.items()
            if value is not None
        ]
    found += mechanism.problems(spec)
    try:
        terms = closed(spec)
        allowed_rho(terms)
        for party in terms.parties:
            check_exact_range(terms.table_rows, party.row_norm)
            first_stage_of(terms, party)
    except PrivacyError as error:
        found.append(error.diagnostics())
    return found


def build_spec(
    study: Study, *, members: Mapping[str, Member], proposer: Fingerprint, seed: bytes, now: datetime
) -> ReleaseSpec:
    """The release spec of a study, which has its k if its mechanism has one.

    `members` has the keys of the enrolled parties by name, `proposer` is the fingerprint of the key that will sign the
    spec, and `seed` is 32 bytes from the operating system. Raises SpecError: an unknown party, or a study that makes no
    sense; names every field at fault.
    """
    unknown = [party.name for party in study.parties if party.name not in members]
    if unknown:
        raise SpecError(
            f"not enrolled: {', '.join(unknown)}",
            remedy="Correct the name in the study, or invite and enrol that member first.",
        )
    empty = [party.name for party in study.parties if not party.attributes]
    if empty:
        raise SpecError(f"no attributes are asked of {', '.join(empty)}", remedy="Give each at least one attribute.")
    try:
        terms = closed(study)
        pairs = zip(study.parties, terms.parties, strict=True)
        said = {name: getattr(study, name) for name in Asked.model_fields} | {
            "created": now,
            "expires": now + timedelta(hours=study.lifetime_hours),
            "fraction_bits": terms.fraction_bits,
            "seed": seed.hex(),
            "alignment": "keyed" if terms.keyed else "exact",
            "parties": tuple(
                PartySpec(**dict(party), **asdict(members[party.name]), dataset=asked.dataset) for asked, party in pairs
            ),
            "proposer": proposer,
            "bounds": terms.bounds,
            "buckets": terms.buckets,
        }
        return ReleaseSpec.model_validate(said, context=spec_problems)
    except ValidationError as error:
        written = study.model_dump(mode="json")
        raise SpecError(f"the study cannot become a release: {explain(error, written)}", remedy=_REMEDY) from None
    except PrivacyError as error:
        raise SpecError(str(error), remedy=error.remedy) from None


EPSILON, MOST_DELTA = 1.0, 1e-5
_NOBODY = Fingerprint("0" * 64)
_PRECISE_TO = 2  # digits of a number of people


@dataclass(frozen=True, slots=True)
class Share:
    """A member's offer: its public schema, its name for the data set, and the subsets of people for the study."""

    dataset: str
    attributes: tuple[Attribute, ...]
    where: tuple[Subset, ...] = ()


def draft(shares: Mapping[str, Share], *, n: int, columns: Sequence[str] = (), **asked: Any) -> Study:  # noqa: ANN401 - fields of a study
    """A study of these members, to be `tried`; `asked` has other fields of it, where None stands for a default.

    Each member holds about n people (keyed), or exactly n (listed). `columns` are names as `age` or `ward.age`,
    empty for all; members without a wanted column are left out. Delta is below one in the number of people. Raises
    SpecError: a column is not in any schema, or in two; ValidationError: a name or a number is none.
    """
    wanted = _wanted(columns, shares)
    said = {"epsilon": EPSILON} | {name: value for name, value in asked.items() if value is not None}
    n = n if said.get("subjects") == "listed" else two_digits(n)
    return Study(
        delta=min(MOST_DELTA, 10.0 ** -len(str(n))),
        n=n,
        parties=tuple(
            StudyParty(name=name, dataset=share.dataset, attributes=wanted[name], where=share.where or None)
            for name, share in shares.items()
            if wanted[name]
        ),
        **said,
    )


def two_digits(n: int) -> int:
    """A number of people to two digits: nobody needs to know exactly how many a member holds."""
    step: int = 10 ** max(0, len(str(n)) - _PRECISE_TO)
    return max(2, round(n / step) * step)


def tried(study: Study, *, now: datetime) -> ReleaseSpec:
    """The spec that a study would become, with keys that nobody has. Raises SpecError: it cannot become one."""
    members = {
        p.name: Member(*(sha256(f"{what} {p.name}".encode()).hexdigest() for what in "ab")) for p in study.parties
    }
    return build_spec(study, members=members, proposer=_NOBODY, seed=bytes(32), now=now)


def _wanted(columns: Sequence[str], shares: Mapping[str, Share]) -> Mapping[str, tuple[Attribute, ...]]:
    owners = dict[str, list[str]]()
    for name, share in shares.items():
        for attribute in share.attributes:
            if not columns or {attribute.name, f"{name}.{attribute.name}"} & {*columns}:
                owners.setdefault(attribute.name, []).append(name)
    offered = [(owner, a.name) for owner, share in shares.items() for a in share.attributes]
    known = {name for _, name in offered} | {f"{owner}.{name}" for owner, name in offered}
    if unknown := [name for name in columns if name not in known]:
        raise SpecError(
            f"no schema has the column {', '.join(unknown)}",
            remedy=f"There are {', '.join(sorted({name for _, name in offered}))}.",
        )
    if twice := [name for name, found in owners.items() if len(found) > 1]:
        first = twice[0]
        raise SpecError(
            f"the column {first} is in the schemas of {' and '.join(owners[first])}, and a release has each name once",
            remedy=f"Name the columns you want, this one as {owners[first][0]}.{first}; or have one renamed.",
        )
    return {
        name: tuple(a for a in share.attributes if name in owners.get(a.name, ())) for name, share in shares.items()
    }
