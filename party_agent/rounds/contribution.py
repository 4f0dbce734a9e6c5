"""The way of one release through an agent, in the order of the protocol.

Ordering rules (docs/design/states.md#ordering-rules): budget is reserved before an approval is signed; every member's
approval is verified before the debit; noise is drawn after the debit is on disk; what is sent is on disk, and recorded,
before. The agent can crash anywhere, as each look begins anew from what the coordinator shows and the ledger holds.
"""

from dataclasses import dataclass
from functools import partial

import structlog

from commingle.party_agent.errors import LostError
from commingle.party_agent.home.policy import final_reason
from commingle.party_agent.private.privatise import exchanged_rows, privatise
from commingle.party_agent.rounds.blocks import BlockMaker
from commingle.party_agent.rounds.proposals import Proposal
from commingle.party_agent.wire.answers import Stage
from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import DeviationError
from commingle.shared.errors import DocumentError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.messages import Exchange
from commingle.shared.release.charge import Charge, ChargeState
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from commingle.shared.runtime.telemetry import span
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contributor(BlockMaker):
    """A party in one consortium: what it does for a release at each look."""

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
        release = spec.digest
        if proposal.decision == "approved":
            if self.identity.name not in view.approvals:
                self.while_permitted(spec, partial(self.send_approval, release, spec))
            return
        findings = self.examine(spec.document, release)
        self.proposals.find_against(release, findings)
        if (final := final_reason(findings)) is not None:
            self.reject(release, final)
        elif not findings and self.approves_itself(spec.document):
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
        """From the debit to the upload. Asks `permit` before the debit and before each thing that it sends."""
        release, interactive = spec.digest, mechanism_of(spec.document).interactive
        permit = partial(self.permit, spec)
        charge = self.ledger.charge(release)
        if charge is None:
            raise DocumentError("the coordinator counts an approval that is not ours", remedy="Ask its operator why.")
        if charge.state is ChargeState.RESERVED:
            permit()
        if charge.state in {ChargeState.RESERVED, ChargeState.DEBITED}:
            (self._exchange if interactive else self._privatise)(view, spec, charge)
            charge = self.ledger.charge(release)
        if charge is None or charge.state not in {ChargeState.STORED, ChargeState.ACKED}:
            return
        # a coordinator that was set back, or a proxy that answered in its place, may not have what was acknowledged
        if self.identity.name not in view.blocks:
            sent = self.exchanges.send
            if interactive and not (sent(view, "columns", permit) and sent(view, "reply", permit)):
                return
            permit()
            self.upload(release, charge)
        else:
            self.ledger.acknowledge(release)

    def _privatise(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: Charge) -> None:
        debit = self.debit(view, spec, charge)
        if debit is not None:
            block = self.read(spec.document, debit, partial(privatise, draw=self.draw))
            faults.reach("party.drawn")
            self.store_block(spec.document, debit, block)

    def _exchange(self, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: Charge) -> None:
        exchange, release, permit = Exchange.of(spec, view.approvals), spec.digest, partial(self.permit, spec)
        if not self.exchanges.made(release, "columns"):
            debit = self.debit(view, spec, charge)
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
            debit = self.redraw_covered(spec.document, release)
            with span("reply", release):
                self.exchanges.store_reply(exchange, debit, view.signed("columns"), partial(self.noise_for, exchange))
        self.exchanges.require_one_set(exchange, view.signed("columns"))
        if self.exchanges.send(view, "reply", permit):
            with span("open", release):
                self.submit(view, exchange)

    def _finish(self, view: ReleaseDetails, release: str) -> None:
        if self.ledger.charge(release) is not None:
            if self.identity.name in view.blocks:
                self.ledger.acknowledge(release)
            else:
                with self.store.transaction() as db:
                    self.ledger.withdraw(db, release)  # frees what was only reserved
        if view.state is not State.PUBLISHED:
            self.outbox.clear(release)
        self.exchanges.files.clear(release)
        self.jobs.end(release, Stage.PUBLISHED if view.state is State.PUBLISHED else Stage.ENDED)
