"""What the local API shows the party's systems and people, Prometheus and auditors: models of `wire`, and metrics."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from math import ceil
from sys import float_info

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.home.datasets import Dataset
from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import Regression
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.forecasts import Forecasts, compute
from commingle.party_agent.rounds.party import Party
from commingle.party_agent.rounds.proposals import Proposal
from commingle.party_agent.wire.answers import (
    ChargeView,
    ConsortiumView,
    CostView,
    DecidedView,
    FirstStageView,
    JobView,
    LedgerView,
    LossView,
    ProposalView,
    RegressionCharge,
    RegressionLine,
    RegressionView,
    StatusView,
    WhiteningView,
)
from commingle.party_agent.wire.owner_words import Viewer, sees_counts
from commingle.shared import __version__
from commingle.shared.documents.manifest import PrivacyStatement
from commingle.shared.documents.model import decode
from commingle.shared.documents.regression import RegressionResult
from commingle.shared.documents.schema import NumericAttribute, as_registered, asked_as, words_for_missing
from commingle.shared.documents.spec import PartySpec, ReleaseSpec, StatedPurpose
from commingle.shared.documents.statements import FIRST_APPROVAL, RotationRequest, SignedDocument
from commingle.shared.dp.accounting import RHO_UNITS, Cost, Loss, Rho
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import first_stage_loss
from commingle.shared.forecast.forecast import exchange_of
from commingle.shared.forecast.result import exchange_words
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.audit import PartyAudit
from commingle.shared.release.charge import GENESIS, Charge, ChargeState, link_digest
from commingle.shared.release.plan import BlockPlan, plan_block, privacy_statement
from commingle.shared.runtime.errors import RemoteError

MOST_AT_ONCE = 200
"""Proposals or charges on one page: to tell of one takes milliseconds."""
_EITHER = "add_remove of keyed data sets, replace_one of listed ones"


def proposal_view(
    party: Party,
    proposal: Proposal,
    forecasts: Forecasts | None,
    viewer: Viewer,
    notes: Mapping[str, list[dict[str, str]]] | None = None,
) -> ProposalView:
    """A proposal for the person who decides: what is asked, what it costs and brings, what speaks against it.

    `decided` says who approved or rejected it, and why, if a person did. The forecast is the agent's own, from the
    spec, so the coordinator's word does not count. Nobody waits for a forecast that is not computed yet; without
    `forecasts` it is computed at once. How many cells are missing follows from rows: only viewers that `sees_counts`
    allows are shown it. `notes` are the ledger's, if several are shown.
    """
    spec = proposal.spec
    outlook = compute(spec) if forecasts is None else forecasts.of(proposal.release, spec)
    decided = (party.ledger.notes() if notes is None else notes).get(proposal.release, [])
    first = any(note["document"] == FIRST_APPROVAL for note in decided)
    share = spec.party(party.identity.name)
    counted = party.datasets.find(share.dataset) if sees_counts(viewer) else None
    plan = plan_block(spec, share)
    privacy, cost = privacy_statement(spec), exchange_of(spec.terms)
    words = () if outlook.state == "computed" else exchange_words(cost, plan.cost.loss.delta)
    return ProposalView(
        id=proposal.release,
        study=spec.study,
        stated=spec.model_dump(mode="json", include=set(StatedPurpose.model_fields)),
        stated_sentences=tuple(spec.stated_sentences),
        state=proposal.state,
        reason=proposal.reason,
        agreed=proposal.agreed,
        decision=proposal.decision,
        decided=tuple(DecidedView(**note) for note in decided),
        approvals_needed=party.home.policy().approvals,
        approvals_given=first + (proposal.decision == "approved"),
        findings=tuple(proposal.findings),
        mechanism=spec.mechanism,
        k=spec.k,
        projection=spec.projection,
        n=spec.n,
        buckets=spec.buckets,
        kept=spec.terms.kept,
        subjects="keyed" if spec.keyed else "listed",
        epsilon=spec.epsilon,
        delta=spec.delta,
        adjacency=spec.terms.adjacency,
        calibration=spec.calibration,
        id_rules=tuple(spec.id_rules_in_force),
        dataset=share.dataset,
        attributes=tuple(map(asked_as, share.attributes)),
        missing=_missing_words(share, counted),
        wide=None if counted is None else tuple(counted.wide_words(_numbers(share))),
        held=counted.n if counted and share.where is None else None,
        leaves=mechanism_of(spec).leaves,
        columns=share.attributes,
        row_norm=share.row_norm,
        whitening=_whitening_view(share),
        first_stage=_first_stage_view(plan, spec),
        parties=tuple(member.name for member in spec.parties),
        proposer=spec.proposer,
        expires=spec.expires.isoformat(),
        cost=_cost_view(plan.cost, lambda loss: loss.epsilon(spec.delta)),
        guess_percent=privacy.per_subject.own.guess_percent,
        guess_after_percent=_guess_after(party, proposal, privacy),
        per_subject_epsilon=privacy.per_subject.own.epsilon,
        per_subject_outsiders_epsilon=privacy.outsiders.own.epsilon,
        protects=privacy.protects,
        trust=privacy.trust,
        forecast=outlook.forecast,
        forecast_state=outlook.state,
        exchange=None if cost is None else asdict(cost),
        outlook=(*outlook.sentences, *words),
    )


def _cost_view(cost: Cost, epsilon: Callable[[Loss], float]) -> CostView:
    other = cost.replacement
    return CostView(
        unit=cost.unit,
        **dict(_loss_view(cost.loss, epsilon(cost.loss))),
        replacement=other and _loss_view(other, epsilon(other)),
    )


def _guess_after(party: Party, proposal: Proposal, privacy: PrivacyStatement) -> int | None:
    if proposal.decision != "waiting":
        return None
    everybody = Loss(Rho(ceil(privacy.per_subject.own.rho * RHO_UNITS)), privacy.delta_implementation)
    return (party.ledger.lost().loss + everybody).guess_percent


def budget_view(ledger: Ledger) -> dict[str, LossView]:
    """Cap, what is spent or set aside, as replacement too, and what is left. Epsilons are at the cap's delta.

    Units: `ledger_unit`; of `replacement` replace_one. What is left is the smaller of the two remainders, if the cap
    holds for both.
    """
    cap, lost = ledger.cap, ledger.lost()
    figures = lost.counted(replacement=ledger.counts_replacement)
    left = min((_left(cap, loss) for _, loss in figures), key=lambda one: one.rho)
    return {
        "cap": LossView(epsilon=cap.epsilon, delta=cap.delta, rho=float(cap.rho)),
        "spent": _spent(cap, lost.loss),
        "replacement": _spent(cap, lost.replaced),
        "remaining": left,
    }


def ledger_unit(ledger: Ledger) -> str:
    """The unit in which it adds up and its cap holds, from its data sets."""
    kinds = ledger.units()
    unit = str(*kinds) if len(kinds) == 1 else _EITHER
    return f"{unit}, and replace_one" if ledger.counts_replacement and unit != Adjacency.REPLACE_ONE else unit


def _spent(cap: Cap, lost: Loss) -> LossView:
    return _loss_view(lost, Loss(lost.rho, gaussian=lost.gaussian).epsilon(_delta_left(cap, lost)))


def _left(cap: Cap, lost: Loss) -> LossView:
    left, delta = Loss(cap.rho_beside(lost) - lost.rho, gaussian=lost.gaussian), _delta_left(cap, lost)
    return LossView(rho=float(left.rho), epsilon=left.epsilon(delta), delta=delta)


def _delta_left(cap: Cap, lost: Loss) -> float:
    return max(cap.delta - lost.delta, float_info.min)


def _loss_view(loss: Loss, epsilon: float) -> LossView:
    return LossView(rho=float(loss.rho), delta=loss.delta, epsilon=epsilon)


def ledger_view(
    ledger: Ledger, release: str | None = None, *, before: str | None = None, most: int = MOST_AT_ONCE
) -> LedgerView:
    """Budget and charges: of one release, or the newest of those before one. Raises NotFoundError."""
    notes, delta, more = ledger.notes(), ledger.cap.delta, False
    if release is None:
        charges = ledger.charges(before=before, most=most + 1)
        more, charges = len(charges) > most, dict([*charges.items()][-most:])
    else:
        charges = {} if (charge := ledger.charge(release)) is None else {release: charge}
    return LedgerView(
        population=ledger.cap.population,
        unit=ledger_unit(ledger),
        **budget_view(ledger),
        charges=tuple(_charge_view(name, c, notes.get(name, []), delta=delta) for name, c in charges.items()),
        entries=ledger.length,
        next=next(iter(charges)) if more else None,
    )


def status_view(agents: Agents, running: Loops | None) -> StatusView:
    """Who this agent is, and how it is; nothing runs if a command answers in its own process."""
    problem = running.problem if running else None
    return StatusView(
        name=agents.identity.name,
        fingerprint=agents.identity.signing_key.fingerprint,
        consortia=tuple(_consortium_view(one, running) for one in agents.consortia),
        running=running is not None,
        trouble=problem.diagnostics() if problem else None,
    )


def _consortium_view(agent: Agent, running: Loops | None) -> ConsortiumView:
    loops = running.all if running else ()
    trouble = next((one.halted or one.trouble for one in loops if one.agent is agent), None)
    return ConsortiumView(
        name=agent.membership.name,
        coordinator=agent.coordinator.url,
        fingerprint=agent.coordinator.key.fingerprint,
        trouble=trouble.diagnostics() if trouble else None,
    )


def job_view(job: JobView, viewer: Viewer) -> JobView:
    """Progress of one release; why reading failed names a column and a count, so only who `sees_counts` is told."""
    if sees_counts(viewer):
        return job
    said = None if job.error is None else "it is tried again, and the operator sees why"
    return job.model_copy(update={"done": None, "total": None, "error": said})


def _charge_view(release: str, charge: Charge, notes: list[dict[str, str]], *, delta: float) -> ChargeView:
    cost = _cost_view(charge.cost, lambda loss: _epsilon(Loss(loss.rho, gaussian=loss.gaussian), delta))
    return ChargeView(
        **dict(cost) | {"unit": _EITHER if charge.terms.kind == "unexplained" else cost.unit},
        release=release,
        kind=charge.terms.kind,
        study=charge.terms.study,
        dataset=charge.terms.dataset,
        state=charge.state,
        attempt=charge.attempt,
        coordinator=charge.terms.coordinator,
        decided=tuple(DecidedView(**note) for note in notes),
    )


@lru_cache(maxsize=1024)  # thousands of charges are of a few sizes
def _epsilon(loss: Loss, delta: float) -> float:
    return loss.epsilon(delta)


def _missing_words(share: PartySpec, counted: Dataset | None) -> tuple[str, ...]:
    if counted is not None:
        return tuple(counted.missing_words(r.name for a in share.attributes for r in as_registered(a)))
    return tuple(words for attribute in share.attributes if (words := words_for_missing(attribute)) is not None)


def _numbers(share: PartySpec) -> list[str]:
    """The registered numbers that are released as numbers: an interval does not depend on bounds."""
    numbers = (a for a in share.attributes if isinstance(a, NumericAttribute))
    return list(dict.fromkeys(r.name for a in numbers for r in as_registered(a)))


def _whitening_view(share: PartySpec) -> WhiteningView | None:
    if share.whitening is None:
        return None
    condition = float(np.linalg.cond(np.array(share.whitening.matrix)))
    return WhiteningView(columns=len(share.whitening.centre), condition_number=condition)


def _first_stage_view(plan: BlockPlan, spec: ReleaseSpec) -> FirstStageView | None:
    if plan.first_stage is None:
        return None
    loss = replace(plan.cost.loss, rho=first_stage_loss(plan.first_stage, spec.terms.adjacency))
    return FirstStageView(sums=plan.first_stage.size, **dict(_loss_view(loss, loss.epsilon(spec.delta))))


def export_audit(agents: Agents) -> SignedDocument:
    """The whole history up to now. It holds no value of any row; rejected and withdrawn releases are in it too.

    Raises:
        RemoteError: a regression in it is not witnessed yet, or the member has replaced its key. The coordinator, which
            cannot be asked, witnesses, and has the signed rotations.
    """
    agents.witnesses.accept(agents.ledger.signed_place("regression"))
    entries, documents = agents.ledger.history()
    audit = PartyAudit(
        party=agents.identity.name,
        coordinator=agents.consortia[0].coordinator.key.fingerprint,
        exported=agents.clock(),
        head=link_digest(entries[-1]) if entries else GENESIS,
        entries=entries,
        documents=documents,
        rotations=_rotations(agents),
    )
    return SignedDocument.of(audit, agents.identity.signing_key)


def _rotations(agents: Agents) -> tuple[RotationRequest, ...]:
    found, failure = [], None
    for one in agents.consortia if agents.identity.former_keys else ():
        try:
            found.append(one.client.rotations(agents.identity.name))
        except RemoteError as error:
            failure = error
    if failure is not None and not found:
        raise failure
    return max(found, key=len, default=())


def metrics_text(agents: Agents, loops: Loops | None) -> bytes:
    """What Prometheus is told, in its exposition format, read from the ledger at this moment. No row is in it.

    If no agent runs, `loops` is None, and what only a running one knows is left out.
    """
    registry, ledger = CollectorRegistry(), agents.ledger

    def gauge(name: str, said: str, *labels: str) -> Gauge:
        return Gauge(f"commingle_agent_{name}", said, labels, registry=registry)

    gauge("info", "Which agent this is.", "party", "version").labels(agents.identity.name, __version__).set(1)
    unit = ledger_unit(ledger)
    for name, budget in budget_view(ledger).items():
        said = Adjacency.REPLACE_ONE if name == "replacement" else unit
        for measure, value in budget:
            gauge(f"{name}_{measure}", f"Budget of the population, {name}; {said}.").set(value)
    states = ledger.states()
    charges = gauge("charges", "Charges in the ledger, by state.", "state")
    for state in ChargeState:
        charges.labels(state).set(states[state])
    waits = [(agents.clock() - seen).total_seconds() for seen in agents.proposals.waiting().values()]
    gauge("waiting_proposals", "Proposals that nobody has decided.").set(len(waits))
    oldest = "How long the oldest of them has waited; 0 for none."
    gauge("oldest_waiting_proposal_seconds", oldest).set(max(waits, default=0.0))
    if loops is not None:
        contact = gauge("last_contact_timestamp_seconds", "When a look last went well.", "consortium")
        postponed = gauge("postponed_releases", "Releases whose work failed and is retried.", "consortium")
        for loop in loops.all:
            contact.labels(loop.agent.membership.name).set(loop.last_contact)
            postponed.labels(loop.agent.membership.name).set(len(loop.releases))
    return generate_latest(registry)


_REGRESSION_STATES = {
    ChargeState.DEBITED: "interrupted: paid for, no result yet; the agent goes on with it while it serves",
    ChargeState.STORED: "published",
}
_UNWITNESSED = "kept: shown as soon as a coordinator has witnessed its charge"


def regression_line(regression: Regression) -> RegressionLine:
    request, charge = regression.request, regression.charge
    kept = charge.state is ChargeState.STORED and regression.document is None
    return RegressionLine(
        id=request.id,
        state=_UNWITNESSED if kept else _REGRESSION_STATES.get(charge.state, charge.state.value),
        dataset=request.dataset,
        target=request.target,
        method=request.method,
        epsilon=request.epsilon,
        delta=request.delta,
        charge=RegressionCharge(unit=charge.cost.unit, rho=float(charge.loss.rho), delta=charge.loss.delta),
    )


def regression_view(regression: Regression) -> RegressionView:
    """A regression as asked, what came out in plain, and the signed document that others can verify."""
    document = regression.document
    result = None if document is None else decode(RegressionResult, document.envelope.payload_bytes)
    return RegressionView(
        **dict(regression_line(regression)),
        request=regression.request.model_dump(mode="json"),
        result=result and result.model_dump(mode="json", exclude={"request"}),
        document=document,
    )
