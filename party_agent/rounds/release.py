"""The way of one release through an agent, in the order of the protocol (docs/design/states.md).

Ordering rules: budget is reserved before an approval is signed; every member's approval is verified before the debit;
noise is drawn after the debit is on disk; what is sent is on disk, and recorded, before. It can crash anywhere;
each look begins anew from what the coordinator shows and what the ledger holds. The steps themselves are in `decision`,
`contribution` and `exchange`.
"""

from functools import partial

import structlog

from commingle.party_agent.errors import LostError
from commingle.party_agent.home.policy import final_reason
from commingle.party_agent.ledger.ledger import ChargeRecord
from commingle.party_agent.private.privatise import exchanged_rows, privatise
from commingle.party_agent.rounds.contribution import Contributor
from commingle.party_agent.rounds.jobs import Stage
from commingle.party_agent.rounds.proposals import Decision, Proposal
from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.rounds import State
from commingle.shared.runtime import faults
from commingle.shared.wire import ReleaseDetails

_log = structlog.get_logger()


def handle(own: Contributor, view: ReleaseDetails, release: str) -> None:
    """Do what is due on one release, as its coordinator shows it."""
    coordinator = own.coordinator.key.fingerprint
    own.proposals.require_of(release, coordinator)
    own.require_known_signatures(view, release)
    if view.spec is None and view.state.final:  # for so long that the coordinator has dropped it
        own.finish(view, release)
        own.proposals.end(release, state=view.state, seen=own.clock(), coordinator=coordinator)
        return
    spec = own.open_shown(view, release)
    if view.state.final:
        own.finish(view, release)  # before it is noted, so that a crash in between finishes it again
        faults.reach("party.finished")
    proposal = own.proposals.see(spec, view, seen=own.clock(), coordinator=coordinator)
    if view.state.final or own.rejected_already(view, release) or own.give_up(view, spec):
        return
    if view.state is State.PROPOSED:
        _consider(own, view, spec, proposal)
    else:
        _contribute(own, view, spec)


def _consider(own: Contributor, view: ReleaseDetails, spec: Verified[ReleaseSpec], proposal: Proposal) -> None:
    """Approve or reject what was proposed, where the policy decides; else it waits for a person."""
    release, party = spec.digest, spec.document.party(own.identity.name)
    if proposal.decision is Decision.APPROVED:
        if own.identity.name not in view.approvals:
            own.while_permitted(spec, partial(own.resend_approval, spec))
        return
    findings = own.examine(spec.document, party, release)
    own.proposals.find_against(release, findings)
    if (final := final_reason(findings)) is not None:
        own.reject(release, final)
    elif not findings and own.approves_itself(spec.document, party):
        own.approve(release, None)
    elif (job := own.jobs.get(release)) is None or job.error is not None:  # of an earlier look, which failed
        own.jobs.end(release, Stage.WAITING)
        _log.info("waits for a person", release=release, findings=[finding.rule for finding in findings])


def _contribute(own: Contributor, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> None:
    """What every party has approved is served, or given up where it cannot be any more."""
    try:
        own.while_permitted(spec, partial(_advance, own, view, spec))
    except LostError:
        own.reject(spec.digest, "block_lost")
        raise
    except DeviationError as error:
        own.reject(spec.digest, "exchange", because=error)
        raise


def _advance(own: Contributor, view: ReleaseDetails, spec: Verified[ReleaseSpec]) -> None:
    """From the debit to the uploaded block, as far as what the coordinator shows allows.

    Whether it is still permitted is asked before the debit and before each thing that is sent.
    """
    release, interactive = spec.digest, mechanism_of(spec.document).interactive
    permit = partial(own.permit, spec)
    charge = own.ledger.charge(release)
    if charge is None:
        raise DocumentError("the release is said to be approved without us", remedy="Ask the coordinator why.")
    if charge.state is ChargeState.RESERVED:
        permit()
    if charge.state in {ChargeState.RESERVED, ChargeState.DEBITED}:
        if interactive:
            _exchange(own, view, spec, charge)
        else:
            _privatise(own, view, spec, charge)
        charge = own.ledger.charge(release)
    if charge is None or charge.state not in {ChargeState.STORED, ChargeState.ACKED}:
        return
    # a coordinator that was set back, or a proxy that answered in its place, may not have what was acknowledged
    if own.identity.name not in view.blocks:
        if interactive and not own.exchanged(view, permit):
            return
        permit()
        own.upload(release, charge)
    else:
        own.ledger.acknowledge(release)


def _privatise(own: Contributor, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> None:
    """From rows to a stored block."""
    debit = own.debit_to_read(view, spec, charge)
    if debit is not None:
        block = own.read(spec.document, debit, partial(privatise, draw=own.draw))
        faults.reach("party.drawn")
        own.store_block(spec.document, debit, block)


def _exchange(own: Contributor, view: ReleaseDetails, spec: Verified[ReleaseSpec], charge: ChargeRecord) -> None:
    """From rows to columns, from everybody's columns to a reply, from everybody's replies to a stored block."""
    exchange, release, permit = Exchange.of(spec, view.approvals), spec.digest, partial(own.permit, spec)
    if not own.exchanges.made(release, "columns"):
        debit = own.debit_to_read(view, spec, charge)
        if debit is None:
            return
        rows = own.read(spec.document, debit, partial(exchanged_rows, draw=own.draw))
        own.exchanges.store_columns(exchange, debit, rows)
    own.jobs.end(release, Stage.EXCHANGING)
    if not own.exchanges.send(view, "columns", permit):
        return
    if not own.exchanges.made(release, "reply"):
        permit()
        debit = own.redraw_covered(spec.document, release)
        own.exchanges.store_reply(exchange, debit, view.signed("columns"), partial(own.cross_noise, exchange))
    own.exchanges.require_one_set(exchange, view.signed("columns"))
    if own.exchanges.send(view, "reply", permit):
        own.submit(view, exchange)
