"""Approvals, rejections and withdrawals."""

import structlog

from commingle.coordinator.coordinator import (
    Coordinator,
    advanced,
    record,
    repeated,
    require_release,
    share_of,
    spec_of,
)
from commingle.shared.documents.dsse import Envelope, Verified
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    ApprovalRequest,
    open_alignment,
    open_approval,
    open_rejection,
    require_round_key,
)
from commingle.shared.release.rounds import Alignment, Approve, Reject
from commingle.shared.runtime import faults

_log = structlog.get_logger()


def approve(coordinator: Coordinator, release: str, party: str, request: ApprovalRequest) -> bool:
    """Record a party's approval; whether it is new. The same documents again change nothing.

    Raises:
        UnknownError, SignatureError, DocumentError, OtherBytesError, StateError: it is not recorded.
    """
    spec = _spec(coordinator, release)
    share = share_of(spec, party)
    approval = open_approval(request.approval, share, spec=release)
    require_round_key(approval, spec)
    alignment = open_alignment(request.alignment, share, spec=release)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        recorded, what = found.shares[party], f"approval by {party}"
        again = repeated(recorded.approval, request.approval, what=what)
        if again and repeated(recorded.alignment, request.alignment, what=what):
            return False
        stated = Alignment(alignment.document.subjects, alignment.document.digest)
        after = advanced(found.round, Approve(party, stated), coordinator)
        tx.releases.save_approval(release, party, request.approval, request.alignment, stated)
        record(tx, coordinator, release, after, kind="approval", party=party, document=approval.digest)
    faults.reach("coordinator.approval.committed")
    _log.info("approved", release=release, party=party, state=after.state)
    return True


def reject(coordinator: Coordinator, release: str, party: str, envelope: Envelope) -> bool:
    """Record a party's rejection or withdrawal; whether it is new. The same document again changes nothing.

    Raises:
        UnknownError, SignatureError, DocumentError, OtherBytesError, StateError: it is not recorded.
    """
    rejection = open_rejection(envelope, share_of(_spec(coordinator, release), party), spec=release)
    with coordinator.store.write() as tx:
        found = require_release(tx, release)
        if repeated(found.shares[party].rejection, envelope, what=f"rejection by {party}"):
            return False
        after = advanced(found.round, Reject(party, rejection.document.reason), coordinator)
        tx.releases.save_rejection(release, party, envelope)
        record(tx, coordinator, release, after, kind="rejection", party=party, document=rejection.digest)
    faults.reach("coordinator.rejection.committed")
    _log.info("rejected", release=release, party=party, state=after.state)
    return True


def _spec(coordinator: Coordinator, release: str) -> Verified[ReleaseSpec]:
    with coordinator.store.read() as tx:
        return spec_of(require_release(tx, release))
