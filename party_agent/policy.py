"""The party's own rules: which proposals it can agree to at all, and which it agrees to by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from party_agent.datasets import Dataset
from shared.privacy.accounting import Rho
from shared.privacy.sensitivity import Adjacency
from shared.protocol.plan import BlockPlan
from shared.protocol.spec import PartySpec, ReleaseSpec
from shared.protocol.statements import RejectionReason
from shared.runtime.settings import Settings


class AutoApproval(Settings):
    """Proposals by this key are approved without a person while all of them together cost at most `max_rho`.

    Attributes:
        proposer: a key's fingerprint, or "*" for any pinned key.
    """

    proposer: str
    max_rho: Annotated[float, Field(gt=0)]


class Policy(Settings):
    """`policy.json`. Everything not allowed here is rejected."""

    mechanisms: frozenset[Literal["rmgm", "dgm"]] = frozenset({"rmgm", "dgm"})
    adjacencies: frozenset[Adjacency] = frozenset(Adjacency)
    max_epsilon: Annotated[float, Field(gt=0)] = 3.0
    max_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_cells: Annotated[int, Field(gt=0)] = 100_000_000
    max_lifetime_hours: Annotated[float, Field(gt=0)] = 24.0 * 30
    auto_approve: tuple[AutoApproval, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that speaks against a proposal.

    Attributes:
        rule: the rule of `policy.json`, or what it is about.
        message: for the party's own people.
        reason: the code that would travel in a rejection; None where the party can still put it right itself.
    """

    rule: str
    message: str
    reason: RejectionReason | None


@dataclass(frozen=True, slots=True)
class Situation:
    """What the party knows when it looks at a proposal.

    Attributes:
        pins: fingerprints of fellow members, compared out of band.
        dataset: the data set the spec names, if it is registered.
    """

    policy: Policy
    pins: Mapping[str, str]
    dataset: Dataset | None
    now: datetime


def examine(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, situation: Situation) -> tuple[Finding, ...]:
    """Everything that speaks against approving, field by field. Empty: nothing does."""
    return (
        *_against_policy(spec, plan, situation),
        *_against_pins(spec, party, situation.pins),
        *_against_data(spec, party, situation.dataset),
    )


def approves_itself(policy: Policy, *, proposer: str, plan: BlockPlan, charged: Rho) -> bool:
    """Whether a proposal without findings is approved without a person.

    `charged` is what this proposer's releases have cost or reserved so far.
    """
    total = float(charged + plan.charge)
    return any(rule.proposer in {"*", proposer} and total <= rule.max_rho for rule in policy.auto_approve)


def _against_policy(spec: ReleaseSpec, plan: BlockPlan, situation: Situation) -> tuple[Finding, ...]:
    policy = situation.policy
    lifetime = spec.expires - min(spec.created, situation.now)  # a spec may be dated ahead
    cells = plan.rows * len(plan.columns)
    checks = (
        ("mechanisms", spec.mechanism in policy.mechanisms, f"mechanism {spec.mechanism} is not allowed"),
        ("adjacencies", spec.adjacency in policy.adjacencies, f"adjacency {spec.adjacency} is not allowed"),
        ("max_epsilon", spec.epsilon <= policy.max_epsilon, f"epsilon {spec.epsilon:g} > {policy.max_epsilon:g}"),
        ("max_delta", spec.delta <= policy.max_delta, f"delta {spec.delta:g} > {policy.max_delta:g}"),
        ("max_cells", cells <= policy.max_cells, f"a block of {cells} cells > {policy.max_cells}"),
        (
            "max_lifetime_hours",
            lifetime.total_seconds() <= policy.max_lifetime_hours * 3600,
            f"it stays open for {lifetime}, longer than {policy.max_lifetime_hours:g} hours",
        ),
    )
    findings = [Finding(rule, message, "policy") for rule, holds, message in checks if not holds]
    if spec.expired(situation.now):
        findings.append(Finding("expires", "the proposal has expired", "expired"))
    return tuple(findings)


def _against_pins(spec: ReleaseSpec, party: PartySpec, pins: Mapping[str, str]) -> tuple[Finding, ...]:
    findings = []
    for member in spec.parties:
        if member.name == party.name:
            continue
        pinned = pins.get(member.name)
        if pinned is None:
            message = f"{member.name} is not pinned; compare fingerprints, then: commingle party pin {member.name} …"
            findings.append(Finding("pins", message, None))
        elif pinned != member.verifying_key.fingerprint:
            message = f"{member.name} is pinned with another key than the proposal names"
            findings.append(Finding("pins", message, "policy"))
    return tuple(findings)


def _against_data(spec: ReleaseSpec, party: PartySpec, dataset: Dataset | None) -> tuple[Finding, ...]:
    if dataset is None:
        message = f"data set {party.dataset} is not registered; register it: commingle party datasets add"
        return (Finding("dataset", message, None),)
    own = {attribute.name: attribute for attribute in dataset.attributes}
    findings = []
    for attribute in party.attributes:
        if attribute.name not in own:
            message = f"data set {dataset.name} has no attribute {attribute.name}"
            findings.append(Finding("schema", message, "schema"))
        elif own[attribute.name] != attribute:
            message = f"attribute {attribute.name} has other bounds, levels or kind than it is registered with here"
            findings.append(Finding("schema", message, "schema"))
    if dataset.n != spec.n:
        message = f"the proposal is about {spec.n} subjects, data set {dataset.name} has {dataset.n}"
        findings.append(Finding("subjects", message, "subjects"))
    return tuple(findings)
