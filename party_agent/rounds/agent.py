"""The way of one release through an agent, in the order of the protocol (docs/design/states.md#ordering-rules).

Ordering rules: budget is reserved before an approval is signed; every member's approval is verified before the debit;
noise is drawn after the debit is on disk; what is sent is on disk, and recorded, before. It can crash anywhere;
each look begins anew from what the coordinator shows and what the ledger holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError
from commingle.party_agent.home.policy import final_reason, outside_hours
from commingle.party_agent.ledger.ledger import ChargeRecord
from commingle.party_agent.private.privatise import BlockRequest, ExchangedRows, PrivateBlock, exchanged_rows, privatise
from commingle.party_agent.private.snapshot import NO_SNAPSHOT, Debit
from commingle.party_agent.rounds.decision import Decider
from commingle.party_agent.rounds.jobs import Stage
from commingle.party_agent.rounds.linkage import receive_linkage_key
from commingle.party_agent.rounds.proposals import Decision, Proposal
from commingle.shared.documents.dsse import Verified, seal
from commingle.shared.documents.errors import DocumentError, ProtocolError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, DeviationError, approval_set_digest, open_approvals
from commingle.shared.mechanisms.moments.block import largest_opening
from commingle.shared.mechanisms.moments.entries import cross_noise
from commingle.shared.mechanisms.moments.exchange.documents import transcript
from commingle.shared.mechanisms.moments.exchange.messages import Exchange
from commingle.shared.mechanisms.moments.exchange.products import submission
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.matrix import content_digest, encode_block
from commingle.shared.release.plan import plan_block
from commingle.shared.release.rounds import Refused, State
from commingle.shared.runtime import faults
from commingle.shared.runtime.tracing import span
from commingle.shared.wire import ReleaseDetails, ReleaseSteps

_log = structlog.get_logger()
Made = TypeVar("Made", PrivateBlock, ExchangedRows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent(Decider):
    """A party's agent in one consortium: it looks at releases, and does each step that is due."""

    def step(self, attend: Callable[[str, Callable[[], None]], None], seen: ReleaseSteps | None = None) -> None:
        """Look at every release that concerns this party and do what is due, or only at those that took a step.

        Releases that were over when the agent looked back, and were never seen to end here, are ended here too.

        Args:
            attend: runs the work on one release and decides what its failure means.
            seen: the steps as the coordinator shows them now; where there are none it is asked for all releases.

        Raises:
            RemoteError: the coordinator, or too many of the ledger's witnesses, cannot be asked.
            StaleLedgerError: the ledger was set back; nothing was signed.
        """
        own = self.coordinator.key.fingerprint
        self.witnesses.ask(own)
        self.ledger.release_expired(self.clock())
        if not self.membership.linkage_file.exists():
            self._receive_linkage_key()
        going_on = self.proposals.unfinished(own)
        if seen is None:
            open_ones = self.client.releases(self.identity.name, over_too=False)
            ended = self.witness.ended
            unseen = set(ended) - self.proposals.finished(own) if ended else ()
            for release in dict.fromkeys([*open_ones, *going_on, *unseen]):
                attend(release, partial(self._look, release))
        for view in seen.items if seen else ():
            attend(view.id, partial(self.handle, view, view.id))
        if kept_long := set(self.outbox.past_keeping(self.clock())):
            for release in kept_long & set(self.proposals.finished(own)):
                self.outbox.clear(release)
        if not set(going_on) <= set(self.proposals.unfinished(own)):
            self.witnesses.collect(own, seen.heads if seen else None)  # a round is over: every member has gone on

    def _receive_linkage_key(self) -> None:
        try:
            received = receive_linkage_key(
                self.home, self.membership, self.client, coordinator=self.coordinator.key.fingerprint
            )
        except (ProtocolError, ConflictError) as error:  # somebody's forgery must not keep the agent from its work
            _log.warning("no linkage key taken over", error=error.code)
            return
        if received is not None:
            _log.info("linkage key taken over", sender=received.sender, check=received.check)

    def _look(self, release: str) -> None:
        self.handle(self.client.release(release), release)

    def _debit_to_read(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> Debit | None:
        release = spec.digest
        if charge.state is ChargeState.RESERVED:
            shut = outside_hours(self.home.policy(), self.clock())
            self.proposals.find_against(release, shut)
            if shut:
                return None
        if charge.state is ChargeState.DEBITED:
            debit = self._redraw(release, charge.snapshot)
        else:
            approvals = approval_set_digest(open_approvals(view.approvals, spec))
            debit = self.ledger.debit(release, approvals=approvals, snapshot=charge.snapshot, now=self.clock())
        if isinstance(debit, Refused):
            _log.warning("not debited", release=release, reason=debit.reason)
            return None
        faults.reach("party.debited")
        return debit

    def read(self, spec: ReleaseSpec, debit: Debit, reading: Callable[..., Made]) -> Made:
        request = self._request(spec)
        try:
            snapshot = self.datasets.snapshot(debit.snapshot).choose(request.party.attributes)
        except NotFoundError:
            raise LostError(
                "the snapshot that was approved is lost, so the release was given up",
                remedy="Read the data set again: commingle party datasets read NAME. A new release costs budget again.",
            ) from None
        self.jobs.begin(debit.release, Stage.PRIVATISING, total=request.readings * snapshot.n)
        with span("read", debit.release):
            return reading(snapshot, request, charge=debit, progress=self.jobs.progress(debit.release))

    def _request(self, spec: ReleaseSpec) -> BlockRequest:
        party = spec.party(self.identity.name)
        key = self.membership.linkage_key() if spec.keyed else None
        return BlockRequest(spec, party, plan_block(spec, party), key)

    def _cross_noise(self, exchange: Exchange, owner: str) -> NDArray[np.int64]:
        request = self._request(exchange.spec.document)
        return cross_noise(
            request.spec.terms, request.party, exchange.width(owner), sigma=request.plan.sigma, draw=self.draw
        )

    def _submit(self, view: ReleaseDetails, exchange: Exchange) -> None:
        """From everybody's replies to a stored block: noise is drawn, the table not read."""
        spec, release = exchange.spec.document, exchange.spec.digest
        agreed = transcript(exchange, columns=view.signed("columns"), replies=view.signed("reply"))

        def largest(name: str) -> int:
            return largest_opening(spec.terms, spec.party(name), sigma=plan_block(spec, spec.party(name)).sigma)

        opened = self.exchanges.open(exchange, view, largest)
        moments = self.exchanges.rows(exchange).moments()
        debit = self._redraw_covered(spec, release)
        sigma = self._request(spec).plan.sigma
        integers = submission(
            exchange, party=self.identity.name, moments=moments, opened=opened, sigma=sigma, draw=self.draw
        )
        faults.reach("party.drawn")
        block = PrivateBlock(integers, self.exchanges.sums(release))
        self._store_block(spec, debit, block, transcript=agreed)

    def _redraw_covered(self, spec: ReleaseSpec, release: str) -> Debit:
        debit = self._redraw(release, NO_SNAPSHOT)
        if isinstance(debit, Refused):
            raise ConflictError(debit.reason, remedy="Nothing is to be done.")
        if debit.rho_units < self._request(spec).plan.loss.units:
            raise ConflictError("the charge does not cover the block", remedy="Give it up: commingle party reject.")
        return debit

    def _store_block(
        self, spec: ReleaseSpec, debit: Debit, block: PrivateBlock, *, transcript: str | None = None
    ) -> None:
        """Keep a block, sign it and record it: the point after which it is sent, and none other made."""
        release, plan = debit.release, self._request(spec).plan
        body = encode_block(block.integers, plan.columns)
        digest = self.outbox.put(release, body)
        faults.reach("party.written")
        with self.store.transaction() as db:
            statement = BlockStatement(
                spec=release,
                approvals=debit.approvals,
                party=plan.party,
                rows=plan.rows,
                columns=plan.columns,
                sigma=plan.sigma,
                body_sha256=digest,
                content_sha256=content_digest(block.integers),
                ledger_head=self.ledger.head(db),
                transcript=transcript,
                sums=block.sums,
            )
            if not self.ledger.record_block(db, debit, digest):
                raise ConflictError("another attempt has taken over this block", remedy="Nothing is to be done.")
            self.ledger.sign_off(db, release, "block", seal(statement, key=self.identity.signing_key))
        faults.reach("party.stored")
        _log.info("stored", release=release, rows=plan.rows, columns=len(plan.columns))

    def _upload(self, release: str, charge: ChargeRecord) -> None:
        statement = self.ledger.signature(release, "block")
        body = self.outbox.get(release, charge.body_sha256 or "")
        if statement is None or body is None:
            raise LostError(
                "the stored block is lost or damaged, so the release was given up; its charge stays",
                remedy="Check the outbox's disk. A new release costs budget again.",
            )
        self.jobs.begin(release, Stage.UPLOADING, total=len(body))
        self.witnesses.accept(self.ledger.signed_place("block", release))
        with span("upload", release):
            self.client.upload(release, self.identity.name, statement, body)
        faults.reach("party.uploaded")
        self.ledger.acknowledge(release)
        faults.reach("party.acknowledged")
        self.jobs.end(release, Stage.UPLOADED)
        _log.info("uploaded", release=release, bytes=len(body))

    def _redraw(self, release: str, snapshot: str) -> Debit | Refused:
        self.outbox.clear(release)
        return self.ledger.redraw(release, snapshot=snapshot)

    def _finish(self, view: ReleaseDetails, release: str) -> None:
        charge = self.ledger.charge(release)
        if charge is not None and self.identity.name in view.blocks:
            self.ledger.acknowledge(release)
        elif charge is not None:
            with self.store.transaction() as db:
                self.ledger.withdraw(db, release)
        if view.state is not State.PUBLISHED:
            self.outbox.clear(release)
        self.exchanges.files.clear(release)
        self.jobs.end(release, Stage.PUBLISHED if view.state is State.PUBLISHED else Stage.ENDED)

    def handle(self, view: ReleaseDetails, release: str) -> None:
        """Do what is due on one release, as its coordinator shows it."""
        coordinator = self.coordinator.key.fingerprint
        self.proposals.require_of(release, coordinator)
        self.witnesses.require_known(view, release)
        if view.spec is None and view.state.final:  # for so long that the coordinator has dropped it
            self._finish(view, release)
            self.proposals.end(release, state=view.state, seen=self.clock(), coordinator=coordinator)
            return
        spec = self.open_shown(view, release)
        if view.state.final:
            self._finish(view, release)  # before it is noted, so that a crash in between finishes it again
            faults.reach("party.finished")
        proposal = self.proposals.see(spec, view, seen=self.clock(), coordinator=coordinator)
        if view.state.final or self.rejected_already(view, release) or self.give_up(view, spec):
            return
        if view.state is State.PROPOSED:
            self._consider(view, spec, proposal)
        else:
            self._contribute(view, spec)

    def _consider(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], proposal: Proposal) -> None:
        release, party = spec.digest, spec.document.party(self.identity.name)
        if proposal.decision is Decision.APPROVED:
            if self.identity.name not in view.approvals:
                self.while_permitted(spec, partial(self.send_approval, release, spec))
            return
        findings = self.examine(spec.document, party, release)
        self.proposals.find_against(release, findings)
        if (final := final_reason(findings)) is not None:
            self.reject(release, final)
        elif not findings and self.approves_itself(spec.document, party):
            self.approve(release, None)
        elif (job := self.jobs.get(release)) is None or job.error is not None:  # of an earlier look, which failed
            self.jobs.end(release, Stage.WAITING)
            _log.info("waits for a person", release=release, findings=[finding.rule for finding in findings])

    def _contribute(self, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> None:
        try:
            self.while_permitted(spec, partial(self._advance, view, spec))
        except LostError:
            self.reject(spec.digest, "block_lost")
            raise
        except DeviationError as error:
            self.reject(spec.digest, "exchange", because=error)
            raise

    def _advance(self, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> None:
        """From the debit to the uploaded block, as far as what the coordinator shows allows.

        Whether it is still permitted is asked before the debit and before each thing that is sent.
        """
        release, interactive = spec.digest, mechanism_of(spec.document).interactive
        permit = partial(self.permit, spec)
        charge = self.ledger.charge(release)
        if charge is None:
            raise DocumentError("the release is said to be approved without us", remedy="Ask the coordinator why.")
        if charge.state is ChargeState.RESERVED:
            permit()
        if charge.state in {ChargeState.RESERVED, ChargeState.DEBITED}:
            if interactive:
                self._exchange(view, spec, charge)
            else:
                self._privatise(view, spec, charge)
            charge = self.ledger.charge(release)
        if charge is None or charge.state not in {ChargeState.STORED, ChargeState.ACKED}:
            return
        # a coordinator that was set back, or a proxy that answered in its place, may not have what was acknowledged
        if self.identity.name not in view.blocks:
            sent = self.exchanges.send
            if interactive and not (sent(view, "columns", permit) and sent(view, "reply", permit)):
                return
            permit()
            self._upload(release, charge)
        else:
            self.ledger.acknowledge(release)

    def _privatise(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> None:
        debit = self._debit_to_read(view, spec, charge)
        if debit is not None:
            block = self.read(spec.document, debit, partial(privatise, draw=self.draw))
            faults.reach("party.drawn")
            self._store_block(spec.document, debit, block)

    def _exchange(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> None:
        exchange, release, permit = Exchange.of(spec, view.approvals), spec.digest, partial(self.permit, spec)
        if not self.exchanges.made(release, "columns"):
            debit = self._debit_to_read(view, spec, charge)
            if debit is None:
                return
            rows = self.read(spec.document, debit, partial(exchanged_rows, draw=self.draw))
            with span("encrypt", release):
                self.exchanges.store_columns(exchange, debit, rows)
        self.jobs.end(release, Stage.EXCHANGING)
        if not self.exchanges.send(view, "columns", permit):
            return
        if not self.exchanges.made(release, "reply"):
            permit()
            debit = self._redraw_covered(spec.document, release)
            with span("reply", release):
                self.exchanges.store_reply(
                    exchange, debit, view.signed("columns"), partial(self._cross_noise, exchange)
                )
        self.exchanges.require_one_set(exchange, view.signed("columns"))
        if self.exchanges.send(view, "reply", permit):
            with span("open", release):
                self._submit(view, exchange)
