"""Proposing a release."""

from datetime import datetime, timedelta

import structlog

from commingle.coordinator.coordinator import Coordinator, require_release
from commingle.coordinator.store.rows import Facts, Release
from commingle.coordinator.store.store import Transaction
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.keys import VerifyingKey
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import open_spec
from commingle.shared.release.plan import plan_blocks
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults

_CLOCKS_APART = timedelta(days=1)
_FURTHEST = timedelta(days=366)
_log = structlog.get_logger()


def propose(coordinator: Coordinator, envelope: Envelope) -> tuple[Release, bool]:
    """Record a proposal; whether it is new. The same bytes again change nothing.

    Raises:
        SignatureError: signed by neither this coordinator nor a member, or not by the proposer it names.
        DocumentError, SpecError: not a release these members could run.
    """
    with coordinator.store.read() as tx:
        keys = _proposers(tx, coordinator, envelope)
    spec = open_spec(envelope, keys)
    plan_blocks(spec.document)  # refuses a spec whose noise leaves exact arithmetic
    with coordinator.store.write() as tx:
        present = tx.releases.get(spec.digest)
        if present is not None:
            return present, False
        _check_times(spec.document, coordinator.clock())
        for party in spec.document.parties:
            _check_member(tx, party)
        release = _record(tx, coordinator, spec, keys)
    faults.reach("coordinator.proposal.committed")
    _log.info("proposed", release=spec.digest)
    return release, True


def _proposers(tx: Transaction, coordinator: Coordinator, envelope: Envelope) -> list[VerifyingKey]:
    member = tx.members.with_key(envelope.signatures[0].keyid)
    own = coordinator.key.verifying_key
    return [own] if member is None or member.revoked is not None else [own, VerifyingKey.from_hex(member.signing_key)]


def _check_times(spec: ReleaseSpec, now: datetime) -> None:
    remedy = "Propose it again with the clock set right."
    if spec.expired(now):
        raise SpecError("expires: the spec has expired already", remedy=remedy)
    if not -_FURTHEST < spec.created - now < _CLOCKS_APART:
        raise SpecError("created: not a time near now", remedy=remedy)
    if spec.expires - now > _FURTHEST:
        raise SpecError(f"expires: more than {_FURTHEST.days} days ahead", remedy="Choose a shorter lifetime.")


def _check_member(tx: Transaction, party: PartySpec) -> None:
    member = tx.members.named(party.name)
    if member is None:
        raise SpecError(f"parties: {party.name} is not enrolled", remedy="Invite and enrol every party first.")
    if member.revoked is not None:
        raise SpecError(f"parties: {party.name} was revoked", remedy="Propose it without that party.")
    if (member.signing_key, member.sealing_key) != (party.signing_key, party.sealing_key):
        raise SpecError(
            f"parties: {party.name} is enrolled with other keys",
            remedy="Take every party's keys from GET /v1/parties.",
        )


def _record(
    tx: Transaction, coordinator: Coordinator, spec: Verified[ReleaseSpec], keys: list[VerifyingKey]
) -> Release:
    document = spec.document
    facts = Facts(
        id=spec.digest,
        study=document.study,
        mechanism=document.mechanism,
        created=document.created,
        expires=document.expires,
        n=document.n,
        k=document.k,
        epsilon=document.epsilon,
        delta=document.delta,
    )
    signer = next(key for key in keys if key.fingerprint == spec.signer)
    parties = [party.name for party in document.parties]
    tx.releases.add(facts, spec=spec.envelope, proposer_key=signer.raw.hex(), parties=parties)
    tx.events.add(
        release=spec.digest,
        at=coordinator.clock(),
        kind="proposal",
        party=None,
        state=State.PROPOSED,
        document=spec.digest,
    )
    return require_release(tx, spec.digest)
