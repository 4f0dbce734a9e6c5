"""Proposing a release, and what parties decide: approvals, rejections and withdrawals."""

from datetime import datetime, timedelta

import structlog

from commingle.coordinator.coordinator import (
    STAYS,
    Coordinator,
    advance_round,
    is_repetition,
    record,
    require_release,
    share_of,
    spec_of,
)
from commingle.coordinator.errors import TooManyProposalsError
from commingle.coordinator.store.releases import ReleaseRow
from commingle.coordinator.store.store import Transaction
from commingle.shared.documents.dsse import Envelope, Fingerprint, Verified, VerifyingKey
from commingle.shared.documents.spec import PartySpec, ReleaseSpec, require_plain_text
from commingle.shared.documents.statements import (
    REJECTED_BECAUSE,
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    Rejection,
    open_statement,
)
from commingle.shared.errors import DocumentError, SpecError
from commingle.shared.mechanisms.moments.exchange.messages import require_evidence
from commingle.shared.release.checks import open_spec
from commingle.shared.release.matrix import ReleaseSizes, release_sizes
from commingle.shared.release.rounds import UNSTATED, Alignment, Approve, Reject
from commingle.shared.runtime import faults
from commingle.shared.text import quoted

_CLOCKS_APART = timedelta(days=1)
_FURTHEST = timedelta(days=366)
_log = structlog.get_logger()


def propose(coordinator: Coordinator, envelope: Envelope) -> tuple[ReleaseRow, bool]:
    """Record a proposal; whether it is new. The same bytes again change nothing."""
    with coordinator.store.read() as tx:
        keys = _proposers(tx, coordinator, envelope)
    spec = open_spec(envelope, keys)
    require_plain_text(spec.document)
    sizes = release_sizes(spec.document)  # refuses a spec whose noise leaves exact arithmetic
    with coordinator.store.write() as tx:
        present = tx.releases.get(spec.digest)
        if present is not None:
            return present, False
        coordinator.quotas.require_accepted(sizes)
        coordinator.disks.require(sizes.exchanged + sizes.kept)
        _make_room(tx, coordinator, spec.signer, sizes)
        _check_times(spec.document, coordinator.clock())
        for party in spec.document.parties:
            _check_member(tx, party)
        proposer = next(key for key in keys if key.fingerprint == spec.signer)
        tx.releases.add(spec.envelope, spec.document, proposer_key=proposer.raw.hex(), sizes=sizes)
        release = require_release(tx, spec.digest)
        record(tx, coordinator, spec.digest, release.round, kind="proposal", document=spec.digest)
    faults.reach("coordinator.proposal.committed")
    _log.info("proposed", release=spec.digest)
    return release, True


def approve(coordinator: Coordinator, release: str, party: str, request: ApprovalRequest) -> bool:
    """Record a party's approval; whether it is new. The same documents again change nothing."""
    spec = _spec(coordinator, release)
    share = share_of(spec, party)
    approval = open_statement(request.approval, Approval, share, spec=release)
    stated = _stated(request, share, spec)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        recorded, what = found.shares[party], f"approval by {party}"
        again = is_repetition(recorded.approval, request.approval, what=what)
        if again and (request.alignment is None or is_repetition(recorded.alignment, request.alignment, what=what)):
            return False
        after = advance_round(found.round, Approve(party, stated), coordinator)
        tx.releases.save_approval(release, party, request.approval, request.alignment, stated)
        record(tx, coordinator, release, after, kind="approval", party=party, document=approval.digest)
    faults.reach("coordinator.approval.committed")
    _log.info("approved", release=release, party=party, state=after.state)
    return True


def _stated(request: ApprovalRequest, share: PartySpec, spec: Verified[ReleaseSpec]) -> Alignment:
    if (request.alignment is None) is not spec.document.keyed:
        raise DocumentError(
            "an approval states its list of people where they are listed, and nothing where they are keyed",
            remedy="Approve with an agent of this version.",
        )
    if request.alignment is None:
        return UNSTATED
    alignment = open_statement(request.alignment, AlignmentStatement, share, spec=spec.digest).document
    return Alignment(alignment.subjects, alignment.digest)


def reject(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> bool:
    """Record a party's rejection or withdrawal; whether it is new. The same document again changes nothing."""
    spec = _spec(coordinator, release)
    rejection = open_statement(envelope, Rejection, share_of(spec, party), spec=release)
    require_evidence(spec, rejection.document)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if is_repetition(found.shares[party].rejection, envelope, what=f"rejection by {party}"):
            return False
        after = advance_round(found.round, Reject(party, _why(rejection.document)), coordinator)
        tx.releases.save_signed(release, party, envelope, kind="rejection")
        record(tx, coordinator, release, after, kind="rejection", party=party, document=rejection.digest)
    faults.reach("coordinator.rejection.committed")
    _log.info("rejected", release=release, party=party, state=after.state)
    return True


def _why(rejection: Rejection) -> str:
    said = REJECTED_BECAUSE[rejection.reason]
    if rejection.reason == "exchange" and rejection.about is not None:
        said = f"messages of {rejection.about} do not follow the exchange"
    if rejection.evidence is not None:
        said += f", and {rejection.about} signed two sets of columns"
    if rejection.said is None:
        return said
    own = quoted(rejection.said, longest=2000)
    return own if rejection.reason == "operator" else f"{said}: {own}"


def _proposers(tx: Transaction, coordinator: Coordinator, envelope: Envelope) -> list[VerifyingKey]:
    member = tx.members.by_key(envelope.signatures[0].keyid)
    own = coordinator.key.verifying_key
    return [own] if member is None or member.revoked is not None else [own, VerifyingKey.from_hex(member.signing_key)]


def _make_room(tx: Transaction, coordinator: Coordinator, signer: Fingerprint, sizes: ReleaseSizes) -> None:
    """No member fills the disk: so many open proposals of its, so many ended ones kept whole, and so many bytes."""
    member = tx.members.owner_of(signer)
    if member is None:  # the coordinator itself
        return
    keys, most = [key.signing_key for key in tx.members.keys(member)], coordinator.most_proposals
    if tx.releases.open_by(keys) >= most:
        raise TooManyProposalsError(
            f"{most} proposals of {member} are open already",
            remedy="Wait until one is published or expires, or have a member reject one; then propose again.",
        )
    taken = tx.releases.bytes_by(keys, since=coordinator.clock() - STAYS)
    coordinator.quotas.require_share(member, taken, sizes)
    for release in tx.releases.ended_by(keys)[most:]:
        tx.releases.drop_documents(release)


def _check_times(spec: ReleaseSpec, now: datetime) -> None:
    remedy = "Propose it again with the clock set right."
    if spec.expired(now):
        raise SpecError("expires: the spec has expired already", remedy=remedy)
    if not -_FURTHEST < spec.created - now < _CLOCKS_APART:
        raise SpecError("created: not a time near now", remedy=remedy)
    if spec.expires - now > _FURTHEST:
        raise SpecError(f"expires: more than {_FURTHEST.days} days ahead", remedy="Choose a shorter lifetime.")


def _check_member(tx: Transaction, party: PartySpec) -> None:
    member = tx.members.get(party.name)
    if member is None:
        raise SpecError(f"parties: {party.name} is not enrolled", remedy="Invite and enrol every member first.")
    if member.revoked is not None:
        how = "was revoked" if member.departure is None else f"left on {member.revoked:%Y-%m-%d}"
        raise SpecError(f"parties: {party.name} {how}", remedy="Propose it without that member.")
    if (member.signing_key, member.sealing_key) != (party.signing_key, party.sealing_key):
        raise SpecError(
            f"parties: {party.name} is enrolled with other keys",
            remedy="Take every party's keys from GET /v1/parties.",
        )


def _spec(coordinator: Coordinator, release: str) -> Verified[ReleaseSpec]:
    with coordinator.store.read() as tx:
        return spec_of(require_release(tx, release))
