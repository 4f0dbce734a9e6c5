"""What the local API shows: plain values for the party's own systems and people."""

from typing import Any

from party_agent.jobs import Job
from party_agent.ledger import Charge, Ledger
from party_agent.proposals import Proposal
from shared.protocol.manifest import PROTECTS, privacy_statement
from shared.protocol.plan import plan_block


def proposal_view(proposal: Proposal, *, party: str) -> dict[str, Any]:
    """A proposal as the person who decides needs it: what is asked, what it costs, what speaks against it."""
    spec = proposal.spec
    share = spec.party(party)
    plan = plan_block(spec, share)
    subject = privacy_statement(spec).per_subject
    return {
        "id": proposal.release,
        "study": spec.study,
        "state": proposal.state,
        "decision": proposal.decision,
        "findings": list(proposal.findings),
        "mechanism": spec.mechanism,
        "k": spec.k,
        "n": spec.n,
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "adjacency": spec.adjacency,
        "calibration": spec.calibration,
        "dataset": share.dataset,
        "attributes": [attribute.name for attribute in share.attributes],
        "row_norm": share.row_norm,
        "parties": [member.name for member in spec.parties],
        "proposer": spec.proposer,
        "expires": spec.expires.isoformat(),
        "cost": {
            "rho": float(plan.charge),
            "epsilon": plan.charge.epsilon(spec.delta),
            "unit": "replace_one, this party's ledger",
        },
        "per_subject_epsilon": subject.replace_one.epsilon,
        "protects": PROTECTS,
        "usefulness": _usefulness(proposal),
    }


def ledger_view(ledger: Ledger) -> dict[str, Any]:
    """Charges and what is left. Units: rho-zCDP under replace_one; epsilon at the cap's delta."""
    cap, spent = ledger.cap, ledger.spent()
    left = cap.rho - spent
    return {
        "population": cap.population,
        "cap": {"epsilon": cap.epsilon, "delta": cap.delta, "rho": float(cap.rho)},
        "spent": {"rho": float(spent), "epsilon": spent.epsilon(cap.delta)},
        "remaining": {"rho": float(left), "epsilon": left.epsilon(cap.delta)},
        "charges": [_charge_view(charge, cap.delta) for charge in ledger.charges()],
        "entries": len(ledger.entries()),
    }


def job_view(job: Job) -> dict[str, Any]:
    """Progress of one release."""
    return {
        "release": job.release,
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
        "error": job.error,
    }


def _charge_view(charge: Charge, delta: float) -> dict[str, Any]:
    return {
        "release": charge.release,
        "study": charge.study,
        "dataset": charge.dataset,
        "state": charge.state,
        "rho": float(charge.rho),
        "epsilon": charge.rho.epsilon(delta),
        "attempt": charge.attempt,
        "coordinator": charge.coordinator,
    }


def _usefulness(proposal: Proposal) -> str:
    """One honest sentence on what the noise leaves, from public quantities: signal to noise of a uniform attribute."""
    spec = proposal.spec
    uniform = spec.n / 3  # sum of squares of n values uniform on [-1, 1]
    ratios = []
    for party in spec.parties:
        plan = plan_block(spec, party)
        ratios.append(uniform / (plan.rows * (plan.sigma * plan.step) ** 2))
    worst = min(ratios)
    said = f"signal to noise of the noisiest party's columns about {worst:.2g} (uniform attribute)"
    if worst < 1:
        return f"{said}: fits of this release will probably not beat predicting the mean"
    return f"{said}: plain fits are attenuated by about {1 / (1 + 1 / worst):.0%}"
