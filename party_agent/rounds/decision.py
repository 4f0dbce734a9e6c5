"""What a party says to a release: examined, approved or rejected, and signed.

Budget is reserved before an approval is signed, in one transaction (docs/design/states.md#ordering-rules).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from sqlite3 import Connection

import structlog

from commingle.party_agent.errors import ConflictError, ForbiddenError
from commingle.party_agent.home.home import Membership, PinnedCoordinator
from commingle.party_agent.home.policy import (
    Finding,
    Situation,
    Usage,
    examine_again,
    final_reason,
    require_another,
    require_person,
)
from commingle.party_agent.home.policy import approves_itself as policy_approves
from commingle.party_agent.home.policy import examine as policy_findings
from commingle.party_agent.private.snapshot import Snapshot
from commingle.party_agent.rounds.exchange import Exchanges
from commingle.party_agent.rounds.party import Party
from commingle.party_agent.rounds.proposals import NOT_KNOWN, PROPOSE_AGAIN, Proposal
from commingle.party_agent.rounds.witnesses import Witness
from commingle.party_agent.wire.answers import Stage
from commingle.shared.documents.dsse import Envelope, Verified, VerifyingKey, seal
from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    DeviationError,
    FirstApproval,
    Rejection,
    RejectionReason,
)
from commingle.shared.errors import DocumentError
from commingle.shared.release.charge import ChargeState, ChargeTerms
from commingle.shared.release.checks import open_spec
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.plan import BlockPlan, plan_block, plan_blocks
from commingle.shared.release.rounds import Refused, State
from commingle.shared.runtime import faults
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.runtime.telemetry import span
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider(Party):
    membership: Membership
    client: CoordinatorClient
    coordinator: PinnedCoordinator
    exchanges: Exchanges
    witness: Witness

    def approve(self, release: str, ruling: Ruling | None) -> Proposal:
        """Approve: reserve budget, sign, and send; `step` sends again if sending fails.

        A person's approval first asks the coordinator if it still knows the release: it must answer.

        If two people have to approve, the first approval is noted and nothing else is done.

        `ruling` is that of the person who decided. If nobody has, the policy has to allow it, in view of all else that
        it has decided.
        """
        self.witnesses.ask(self.coordinator.key.fingerprint)
        proposal = self.proposals.get(release)
        if proposal.decision == "approved":
            return proposal
        if proposal.decision == "rejected" or proposal.state != State.PROPOSED:
            raise ConflictError(
                f"the release is {proposal.state}, {proposal.decision} here", remedy="It can no longer be approved."
            )
        if ruling is not None:  # what a policy approves was shown just now
            self._require_known(release)
        spec = proposal.spec
        findings = self.examine(spec, release)
        if findings:
            raise ConflictError("; ".join(f.message for f in findings), remedy="Put this right, then approve again.")
        if ruling is not None and self._is_first_of_two(release, ruling):
            self._sign_first_approval(release, ruling)
            return self.proposals.get(release)
        try:
            self._sign_approval(release, spec, ruling)
        except Exception:
            if ruling is not None:  # the caller learns why, and a person decides again
                self.jobs.end(release, Stage.WAITING)
            raise
        self.send_approval(release)
        return self.proposals.get(release)

    def reject(
        self,
        release: str,
        reason: RejectionReason = "operator",
        ruling: Ruling | None = None,
        *,
        because: DeviationError | None = None,
    ) -> Proposal:
        """Reject, or withdraw after an approval; a charge that was debited stays.

        `reason` goes to the other members, and so does the person's own reason in `ruling`; the name stays in this
        ledger. `because` names the member whose message it is.
        """
        self.witnesses.ask(self.coordinator.key.fingerprint)
        proposal = self.proposals.get(release)
        if State(proposal.state).final:
            raise ConflictError(f"the release is {proposal.state}", remedy="Nothing is left to reject.")
        if self._sign_rejection(release, reason, ruling, because=because):
            self.outbox.clear(release)
            self.exchanges.files.clear(release)
            _log.info("rejected", release=release, reason=reason)
        try:
            self._send_rejection(release)
        except RemoteProblemError as error:
            if not error.says_unknown:
                raise
            self.miss(release)
        return self.proposals.get(release)

    def miss(self, release: str) -> None:
        """Note that the coordinator does not know a release that it has shown, as it was set back.

        It ends here once it is rejected, or past its time. Until then it may come back, and keeps what it has reserved.
        """
        proposal = self.proposals.get(release)
        over = State.REJECTED if proposal.decision == "rejected" else State.EXPIRED
        if over is State.EXPIRED and self.clock() < proposal.spec.expires:
            if self.proposals.lose(release):
                _log.warning("unknown to its coordinator", release=release)
            return
        with self.store.transaction() as db:
            self.ledger.withdraw(db, release)
        self.outbox.clear(release)
        self.exchanges.files.clear(release)
        coordinator = self.coordinator.key.fingerprint
        self.proposals.end(release, state=over, seen=self.clock(), coordinator=coordinator, reason=NOT_KNOWN)
        self.jobs.end(release, Stage.ENDED)

    def _require_known(self, release: str) -> None:
        """Raise ConflictError, before anything is reserved, if the coordinator would not know what it is sent."""
        try:
            self.client.release(release)
        except RemoteProblemError as error:
            if not error.says_unknown:
                raise
            self.miss(release)
            raise ConflictError(NOT_KNOWN, remedy=f"Nothing was reserved. {PROPOSE_AGAIN}") from None

    def plan(self, spec: ReleaseSpec) -> BlockPlan:
        return plan_block(spec, spec.party(self.identity.name))

    def examine(self, spec: ReleaseSpec, release: str) -> tuple[Finding, ...]:
        share, plan = spec.party(self.identity.name), self.plan(spec)
        findings = policy_findings(spec, share, plan, self._situation(spec, share, release))
        return (*findings, *self.beyond_cap(plan.cost))

    def approves_itself(self, spec: ReleaseSpec) -> bool:
        policy = self.home.policy()
        return bool(policy.auto_approve) and policy_approves(
            policy,
            spec=spec,
            plan=self.plan(spec),
            by_it=self.ledger.lost_to_releases(proposer=spec.proposer),
            by_all=self.ledger.lost_to_releases(),
        )

    def permit(self, spec: Verified[ReleaseSpec]) -> None:
        """Hold what was decided against policy and pins as they are now. Raises ForbiddenError."""
        share = spec.document.party(self.identity.name)
        situation = self._situation(spec.document, share, spec.digest)
        findings = examine_again(spec.document, share, self.plan(spec.document), situation)
        if situation.policy.approvals > 1 and self.ledger.first_approval(spec.digest) is None:
            findings += (Finding("approvals", "one has approved it, and two people have to by now", "policy"),)
        if findings:
            self.proposals.find_against(spec.digest, findings)
            raise ForbiddenError("; ".join(finding.message for finding in findings), reason=final_reason(findings))

    def while_permitted(self, spec: Verified[ReleaseSpec], work: Callable[[], None]) -> None:
        """Do the work, and give the release up if that is forbidden by now."""
        try:
            work()
        except ForbiddenError as error:
            _log.warning("forbidden by now", release=spec.digest, final=error.reason is not None)
            if error.reason is not None:
                self.reject(spec.digest, error.reason)

    def open_shown(self, view: ReleaseDetails, release: str) -> Verified[ReleaseSpec]:
        """The spec that the coordinator shows, verified, and planned. Raises DocumentError."""
        keys = [self.coordinator.key, *self.identity.keys]
        if view.spec is None:
            raise DocumentError(
                "the coordinator shows an open release without its spec", remedy="Ask its operator why."
            )
        if view.spec.signatures[0].keyid not in {key.fingerprint for key in keys}:
            known = {key.fingerprint for key in keys[:2]} | set(self.membership.pins().values())
            keys += [key for key in self.client.member_keys() if key.fingerprint in known]
        spec = _open_spec(view.spec, tuple(keys))
        if spec.digest != release:
            raise DocumentError("the coordinator shows another spec under this id", remedy="Ask its operator why.")
        own = spec.document.party(self.identity.name)
        over = view.state.final  # what ended under a former key is still wound up
        if own.verifying_key not in (self.identity.keys if over else self.identity.keys[:1]):
            raise DocumentError("the spec names another key for this member", remedy="Ask the proposer to correct it.")
        return spec

    def rejected_already(self, view: ReleaseDetails, release: str) -> bool:
        if self.ledger.signature(release, "rejection") is None:
            return False
        if self.identity.name not in view.rejections:
            self._send_rejection(release)
        return True

    def give_up(self, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> bool:
        """Reject an approved release that cannot be served any more, so that the others need not wait for its end.

        What a lost branch of the ledger had made for it is not here; or this clock was past its end, and went back.
        """
        charge = self.ledger.charge(spec.digest)
        lapsed = charge is not None and charge.state is ChargeState.RELEASED and self.clock() < spec.document.expires
        if charge is None or not (lapsed or charge.state is ChargeState.ADOPTED):
            return False
        if self.identity.name not in view.blocks:
            self.reject(spec.digest, "expired" if lapsed else "block_lost")
        return True

    def send_approval(self, release: str, permitted: Verified[ReleaseSpec] | None = None) -> None:
        """Send what was signed, or send it again if it is still `permitted`. Raises ForbiddenError."""
        if permitted is not None:
            self.permit(permitted)
        approval = self.ledger.signature(release, "approval")
        alignment = self.ledger.signature(release, "alignment")
        if approval is not None:  # signed in one transaction with the alignment, where there is one
            request = ApprovalRequest(approval=approval, alignment=alignment)
            with span("approve", release):
                self.client.approve(release, self.identity.name, request)
            faults.reach("party.approval.sent")

    def _situation(self, spec: ReleaseSpec, party: PartySpec, release: str) -> Situation:
        policy = self.home.policy()
        usage = Usage(
            datasets=self.lost_by(party.dataset, without=release),
            study=self.ledger.lost_to_study(spec.study, without=release),
            approved_today=0 if policy.max_releases_per_day is None else self.spent_on_today(),
            replayed=self.proposals.charged_with_seed(spec.seed, without=release),
            delta=self.ledger.cap.delta,
        )
        return Situation(
            policy=policy,
            pins=self.membership.pins(),
            dataset=self.datasets.find(party.dataset),
            now=self.clock(),
            usage=usage,
            linked=self.membership.linkage_file.exists(),
        )

    def _sign_approval(self, release: str, spec: ReleaseSpec, ruling: Ruling | None) -> None:
        """Reserve and sign in one transaction. Ids are read before it, so that it stays short."""
        name, plan = self.identity.name, self.plan(spec)
        dataset = self.datasets.get(spec.party(name).dataset)
        snapshot = self.datasets.snapshot(dataset.snapshot)
        alignment = self._align(release, spec, snapshot)
        with self.store.transaction() as db:
            if (decided := self.proposals.get(release).decision) != "waiting":
                raise ConflictError(f"the release has been {decided} meanwhile", remedy="There is nothing to do.")
            if self.datasets.get(dataset.name).snapshot != snapshot.digest:
                raise ConflictError("the data set was read again meanwhile", remedy="Approve it again.")
            if findings := self.examine(spec, release):  # others may have been approved meanwhile
                raise ConflictError("; ".join(f.message for f in findings), remedy="See commingle party ledger.")
            if ruling is None and not self.approves_itself(spec):
                raise ConflictError("automatic approval has no more to give", remedy="Approve it, or reject it.")
            if ruling is not None and self._is_first_of_two(release, ruling):
                raise ConflictError("two people have to approve by now", remedy="Approve it again.")
            terms = ChargeTerms.of(spec, name, coordinator=self.coordinator.key.fingerprint)
            reserved = self.ledger.reserve(db, release, plan.cost, terms, snapshot=snapshot.digest)
            if isinstance(reserved, Refused):
                raise ConflictError(reserved.reason, remedy="See commingle party ledger.")
            approval = Approval(spec=release, party=name, created=self.clock(), ledger_head=self.ledger.head(db))
            self._sign_off(db, approval, ruling)
            if alignment is not None:
                self._sign_off(db, alignment)
        faults.reach("party.approval.signed")
        self.jobs.end(release, Stage.APPROVED)
        _log.info("approved", release=release, rho=float(plan.loss))

    def _is_first_of_two(self, release: str, ruling: Ruling) -> bool:
        if self.home.policy().approvals == 1:
            return False
        first = self.ledger.first_approval(release)
        if first is None:
            require_person(ruling)
        elif first != ruling:  # the same again is the first, sent twice
            require_another(first, ruling)
        return first in {None, ruling}

    def _sign_first_approval(self, release: str, ruling: Ruling) -> None:
        with self.store.transaction() as db:
            if (decided := self.proposals.get(release).decision) != "waiting":
                raise ConflictError(f"the release has been {decided} meanwhile", remedy="There is nothing to do.")
            if (first := self.ledger.first_approval(release)) is not None:
                if first != ruling:
                    raise ConflictError(f"{first.by} has approved meanwhile", remedy="Approve it again.")
                return
            statement = FirstApproval(
                spec=release, party=self.identity.name, created=self.clock(), ledger_head=self.ledger.head(db)
            )
            self._sign_off(db, statement, ruling)
        _log.info("first of two approvals", release=release)

    def _align(self, release: str, spec: ReleaseSpec, snapshot: Snapshot) -> AlignmentStatement | None:
        key = self.membership.linkage_key()  # keyed ones need it, too: without it nothing is approved
        if spec.keyed:
            return None  # no row is read for it
        self.jobs.begin(release, Stage.CHECKING, total=snapshot.n)
        digest = alignment_digest(key, spec_digest=release, subjects=snapshot.n, listed=snapshot.listed())
        return AlignmentStatement(spec=release, party=self.identity.name, subjects=snapshot.n, digest=digest)

    def _sign_rejection(
        self, release: str, reason: RejectionReason, ruling: Ruling | None, *, because: DeviationError | None
    ) -> bool:
        with self.store.transaction() as db:
            if self.ledger.signature(release, "rejection") is not None:
                return False
            self.ledger.withdraw(db, release)
            statement = Rejection(
                spec=release,
                party=self.identity.name,
                reason=reason,
                created=self.clock(),
                ledger_head=self.ledger.head(db),
                said=None if ruling is None else ruling.why or None,
                about=None if because is None else because.party,
                evidence=None if because is None else because.evidence,
            )
            self._sign_off(db, statement, ruling)
        faults.reach("party.rejection.signed")
        return True

    def _send_rejection(self, release: str) -> None:
        rejection = self.ledger.signature(release, "rejection")
        if rejection is not None:
            with span("reject", release):
                self.client.reject(release, self.identity.name, rejection)
            faults.reach("party.rejection.sent")

    def _sign_off(
        self,
        db: Connection,
        document: Approval | FirstApproval | AlignmentStatement | Rejection,
        ruling: Ruling | None = None,
    ) -> None:
        envelope = seal(document, key=self.identity.signing_key)
        self.ledger.sign_off(db, document.spec, document.signed_as(), envelope, ruling)


@lru_cache(maxsize=8)  # every look at a release asks for it, and it never changes
def _open_spec(spec: Envelope, keys: tuple[VerifyingKey, ...]) -> Verified[ReleaseSpec]:
    opened = open_spec(spec, keys)
    plan_blocks(opened.document)  # raises where no noise level serves it
    return opened
