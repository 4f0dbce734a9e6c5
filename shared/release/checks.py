"""What makes a spec impossible by its mechanism, asked by everybody who opens, builds or reads one.

Documents are parsed without a mechanism (`documents.spec`), so nothing may rely on a spec that was not read here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from commingle.shared.documents.dsse import Envelope, Verified, open_envelope
from commingle.shared.documents.errors import SignatureError, SpecError
from commingle.shared.documents.explained import explain
from commingle.shared.documents.keys import Fingerprint, VerifyingKey
from commingle.shared.documents.model import decode
from commingle.shared.documents.row_maps import first_stage_of
from commingle.shared.documents.spec import Asked, PartySpec, ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import allowed_rho
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.dp.fixed_point import check_exact_range
from commingle.shared.mechanisms.registry import mechanism_of, sketched_names
from commingle.shared.release.resolve import closed

_REMEDY = "Correct the study and try again."


@dataclass(frozen=True, slots=True)
class Member:
    """An enrolled party's public keys, hex."""

    signing_key: str
    sealing_key: str


def open_spec(envelope: Envelope, keys: Iterable[VerifyingKey]) -> Verified[ReleaseSpec]:
    """A verified spec, signed by the proposer it names, that its mechanism takes.

    Raises:
        SignatureError, DocumentError: it is not.
    """
    spec = open_envelope(envelope, ReleaseSpec, keys=keys, checks=spec_problems)
    if spec.document.proposer != spec.signer:
        raise SignatureError("the spec names another proposer than its signer", remedy="Propose it again.")
    return spec


def read_spec(payload: bytes) -> ReleaseSpec:
    """A spec whose signature is not asked for: one that was opened when it was stored, or is only shown.

    Raises:
        DocumentError: the bytes are no spec that its mechanism takes.
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
    """The release spec of a study.

    Args:
        study: what is asked, with its k, where its mechanism has one.
        members: keys of the enrolled parties, by name.
        proposer: fingerprint of the key that will sign the spec.
        seed: 32 bytes from the operating system.
        now: when it is proposed.

    Raises:
        SpecError: an unknown party, or a study that makes no sense; names every field at fault.
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
