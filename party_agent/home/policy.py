"""The party's own rules: which proposals it can agree to at all, which by itself, and who is a second person.

A person (docs/design/states.md#two-people) is the one whom a token was made for, or who signed on. In the second case
the name is that of the provider's subject, `SUBJECT at ISSUER`. At the home's socket only the operator's own words say
who is there, so the operator, under whatever name, is one person. Names from different sources cannot be compared, and
two such approvals are not those of two people.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.datasets import Dataset
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import Attribute, as_registered
from commingle.shared.documents.spec import PartySpec, ReleaseSpec, require_plain_text
from commingle.shared.documents.statements import RejectionReason
from commingle.shared.documents.terms import MechanismName
from commingle.shared.dp.accounting import FREE, Cost, rho_left
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import SpecError
from commingle.shared.mechanisms import MECHANISMS, mechanism_of
from commingle.shared.release.ledger_fold import Ruling
from commingle.shared.release.plan import BlockPlan
from commingle.shared.runtime.settings import HomeFile, Settings
from commingle.shared.text import counted, printable, quoted

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Approvals = Literal[1, 2]
EpsilonCap = Annotated[float, Field(gt=0)]
_WEEKDAYS: tuple[Weekday, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_EVERY_OTHER = "*"


class AutoApproval(Settings):
    """Proposals by these keys are approved without a person while all of them together cost at most `max_rho`.

    Attributes:
        proposer: a key's fingerprint, or "*" for any: what all proposers have cost counts then.
        mechanisms: the kinds it is about; never releases whose bounds are trusted.
    """

    proposer: str
    mechanisms: frozenset[MechanismName] = frozenset(MECHANISMS)
    max_rho: Annotated[float, Field(gt=0)]


class OpeningHours(Settings):
    """When budget may be spent: on these days between two times of the wall clock in a time zone.

    Attributes:
        opens, closes: local times, `closes` excluded and later than `opens`.
        time_zone: a name of the IANA database, such as "Europe/Berlin".
    """

    weekdays: frozenset[Weekday] = frozenset(_WEEKDAYS)
    opens: time = time.min
    closes: time = time.max
    time_zone: str = "UTC"

    @field_validator("time_zone")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError("no time zone that this machine knows: write one such as Europe/Berlin") from None
        return name

    @model_validator(mode="after")
    def _opens_before_it_closes(self) -> Self:
        if self.opens.tzinfo or self.closes.tzinfo or self.opens >= self.closes:
            raise ValueError("opens and closes are local times without offset, and closes is the later")
        return self

    def include(self, now: datetime) -> bool:
        local = now.astimezone(ZoneInfo(self.time_zone))
        open_today = _WEEKDAYS[local.weekday()] in self.weekdays
        return open_today and self.opens <= local.time() < self.closes

    def __str__(self) -> str:
        days = " ".join(day for day in _WEEKDAYS if day in self.weekdays)
        return f"{days} {self.opens:%H:%M}-{self.closes:%H:%M} {self.time_zone}"


class RegressionPolicy(Settings):
    """Which regressions this party publishes by itself (docs/regression.md).

    Attributes:
        max_epsilon: the most for one regression, besides the policy's own.
        floating_point_noise: whether methods may run whose noise is floating point, which no proof covers.
    """

    methods: frozenset[RegressionMethod] = frozenset(
        {"two_stage", "ssp", "adassp", "boosted_adassp", "dp_pmtolse", "dp_pmtse"}
    )
    max_epsilon: Annotated[float, Field(gt=0)] = 1.0
    floating_point_noise: bool = False


class Policy(HomeFile):
    """`policy.json`. Everything not allowed here is rejected, or waits where time or a person can mend it.

    Attributes:
        replacement: whether caps also hold for replacement of keyed subjects, if one that stays has other values; they
            always hold for presence.
        dataset_caps: the most epsilon a data set may lose over all releases, by its name; "*" stands for each not
            named. It counts what all data sets lose that share its source or its group of people.
        study_caps: the same for all releases of one study, by its title.
        opening_hours: outside them nothing is approved and nothing is debited; None means always open.
        max_epsilon: the most for one release, as caps count it.
        max_delta: the most for one release or regression; a spec's delta includes what an exchange may fail to hide.
        trusted_bounds: whether releases are allowed in which other members are trusted to keep their bounds.
        max_releases_per_day: approvals, and regressions, within 24 hours, whatever became of them.
        approvals: how many people have to approve a release; with two nothing is approved by itself.
        max_cells: the most in a block, or in all exchanged columns: rows or buckets times the columns of all parties.
        regressions: further rules for regressions; caps, hours, max_delta and min_n hold for them too.

    Caps are at the delta of the ledger's cap, in the unit of the data set (`shared.dp.sensitivity.unit_of`), and rhos
    are summed.
    """

    mechanisms: frozenset[MechanismName] = frozenset(MECHANISMS)
    trusted_bounds: bool = False
    replacement: bool = False
    max_epsilon: Annotated[float, Field(gt=0)] = 3.0
    max_delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    max_cells: Annotated[int, Field(gt=0)] = 100_000_000
    max_lifetime_hours: Annotated[float, Field(gt=0)] = 24.0 * 30
    min_n: Annotated[int, Field(ge=2)] = 2
    dataset_caps: Mapping[str, EpsilonCap] = Field(default_factory=dict)
    study_caps: Mapping[str, EpsilonCap] = Field(default_factory=dict)
    opening_hours: OpeningHours | None = None
    max_releases_per_day: Annotated[int, Field(ge=0)] | None = None
    approvals: Approvals = 1
    auto_approve: tuple[AutoApproval, ...] = ()
    regressions: RegressionPolicy = Field(default_factory=RegressionPolicy)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that speaks against a proposal.

    Attributes:
        rule: the rule of `policy.json`, or what it is about.
        message: for the party's own people, with what mends it.
        reason: the code that would travel in a rejection; None if the party can still put it right itself.
    """

    rule: str
    message: str
    reason: RejectionReason | None


@dataclass(frozen=True, slots=True)
class Usage:
    """What has been charged or reserved that the policy limits.

    Attributes:
        datasets, study: sums over the charges of the data set and of each that is related to it, by name
            (`Party.lost_by`), and over the releases of the study, without the release that is looked at.
        approved_today: releases approved and regressions paid for within the last 24 hours, if that is limited.
        replayed: an earlier release with this spec's seed, which every honest proposer draws anew.
        delta: the delta at which caps on epsilon hold.
    """

    datasets: Mapping[str, Cost] = field(default_factory=dict)
    study: Cost = FREE
    approved_today: int = 0
    replayed: str | None = None
    delta: float = 1e-5


@dataclass(frozen=True, slots=True)
class Situation:
    """What the party knows when it looks at a proposal.

    Attributes:
        pins: fingerprints of fellow members, compared out of band.
        dataset: the data set the spec names, if it is registered.
        linked: whether the party has the members' linkage key.
    """

    policy: Policy
    pins: Mapping[str, str]
    dataset: Dataset | None
    now: datetime
    usage: Usage = field(default_factory=Usage)
    linked: bool = True


def examine(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, situation: Situation) -> tuple[Finding, ...]:
    return (
        *_against_text(spec),
        *_against_policy(spec, party, plan, situation),
        *_against_time(spec, situation),
        *_against_usage(spec, party, plan, situation),
        *_against_pins(spec, party, situation.pins),
        *_against_data(spec, party, situation.dataset),
    )


def examine_terms(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, policy: Policy) -> tuple[Finding, ...]:
    """What speaks against it by its text and the policy alone."""
    now = Situation(policy=policy, pins={}, dataset=None, now=spec.created)
    return (*_against_text(spec), *_against_policy(spec, party, plan, now))


def examine_again(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, situation: Situation) -> tuple[Finding, ...]:
    """What speaks against a release that was approved, as policy and pins are now.

    Not what counts approvals; nor the time of day, by which a debit goes (`outside_hours`); nor the data set, which is
    held against the approval where it is read. The ledger and the coordinator end an expired spec.
    """
    return (
        *_against_policy(spec, party, plan, situation),
        *_against_usage(spec, party, plan, situation),
        *_against_pins(spec, party, situation.pins),
    )


def asks_trust(spec: ReleaseSpec) -> bool:
    return mechanism_of(spec).interactive and not spec.terms.proved


def final_reason(findings: Sequence[Finding]) -> RejectionReason | None:
    return next((finding.reason for finding in findings if finding.reason is not None), None)


def approves_itself(policy: Policy, *, spec: ReleaseSpec, plan: BlockPlan, by_it: Cost, by_all: Cost) -> bool:
    """Whether a proposal without findings is approved without a person.

    Never if others' bounds are trusted, nor if two people have to approve. `by_it` and `by_all` are what releases have
    cost or reserved so far: those of its proposer, and all.
    """

    def within(rule: AutoApproval) -> bool:
        total = plan.cost + (by_all if rule.proposer == _EVERY_OTHER else by_it)
        return all(float(loss.rho) <= rule.max_rho for _, loss in total.counted(replacement=policy.replacement))

    by_people = asks_trust(spec) or policy.approvals > 1
    rules = () if by_people else (rule for rule in policy.auto_approve if spec.mechanism in rule.mechanisms)
    return any(rule.proposer in {_EVERY_OTHER, spec.proposer} and within(rule) for rule in rules)


def _against_text(spec: ReleaseSpec) -> Iterator[Finding]:
    try:
        require_plain_text(spec)
    except SpecError as error:
        yield Finding("text", str(error), "policy")


def _against_policy(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, situation: Situation) -> tuple[Finding, ...]:
    policy = situation.policy
    lifetime = spec.expires - min(spec.created, situation.now)  # a spec may be dated ahead
    cells = mechanism_of(spec).cells(spec.terms, party)
    asked = ((spec.terms.adjacency, spec.epsilon), *epsilons(plan.cost, delta=spec.delta, policy=policy))
    unit, epsilon = max(asked, key=lambda one: one[1])
    checks = (
        ("mechanisms", spec.mechanism in policy.mechanisms, f"mechanism {spec.mechanism} is not allowed"),
        (
            "trusted_bounds",
            policy.trusted_bounds or not asks_trust(spec),
            "other members are trusted to keep their rows within bounds; propose it with bounds: proved",
        ),
        (
            "max_epsilon",
            epsilon <= policy.max_epsilon,
            f"it costs epsilon {epsilon:.6g} ({unit}) > {policy.max_epsilon:g}",
        ),
        ("max_delta", spec.delta <= policy.max_delta, f"delta {spec.delta:g} > {policy.max_delta:g}"),
        ("max_cells", cells <= policy.max_cells, f"{cells} cells to work on > {policy.max_cells}"),
        (
            "max_lifetime_hours",
            lifetime.total_seconds() <= policy.max_lifetime_hours * 3600,
            f"it stays open for {lifetime}, longer than {policy.max_lifetime_hours:g} hours",
        ),
        ("min_n", spec.n >= policy.min_n, f"n = {spec.n} is less than {policy.min_n}"),
    )
    return tuple(Finding(rule, message, "policy") for rule, holds, message in checks if not holds)


def outside_hours(policy: Policy, now: datetime) -> tuple[Finding, ...]:
    hours = policy.opening_hours
    if hours is None or hours.include(now):
        return ()
    return (Finding("opening_hours", f"budget is spent only during {hours}", None),)


def _against_usage(spec: ReleaseSpec, party: PartySpec, plan: BlockPlan, situation: Situation) -> Iterator[Finding]:
    policy, usage = situation.policy, situation.usage
    lost = {party.dataset: FREE, **usage.datasets}
    for rule, caps, name, charged in (
        *(("dataset_caps", policy.dataset_caps, name, charged) for name, charged in sorted(lost.items())),
        ("study_caps", policy.study_caps, spec.study, usage.study),
    ):
        if message := over_cap(caps, name, charged + plan.cost, delta=usage.delta, policy=policy):
            yield Finding(rule, message, "budget")
    if usage.replayed is not None:
        message = f"its seed is that of release {usage.replayed[:16]}: an earlier spec is being replayed"
        yield Finding("seed", message, "policy")


def _against_time(spec: ReleaseSpec, situation: Situation) -> Iterator[Finding]:
    most = situation.policy.max_releases_per_day
    if spec.expired(situation.now):
        yield Finding("expires", "the proposal has expired", "expired")
    if most is not None and situation.usage.approved_today >= most:
        approved = counted(situation.usage.approved_today, "release")
        message = f"{approved} approved within 24 hours, and the policy allows {most}"
        yield Finding("max_releases_per_day", message, None)
    if not situation.linked:
        message = "no linkage key yet; a fellow member sends it: commingle party linkage send"
        yield Finding("linkage_key", message, None)
    yield from outside_hours(situation.policy, situation.now)


def epsilons(cost: Cost, *, delta: float, policy: Policy) -> tuple[tuple[Adjacency, float], ...]:
    return tuple((unit, loss.epsilon(delta)) for unit, loss in cost.counted(replacement=policy.replacement))


def over_cap(caps: Mapping[str, float], name: str, total: Cost, *, delta: float, policy: Policy) -> str | None:
    """In words, if a total loss is more than the cap of that name, at the ledger's delta."""
    cap = caps.get(name, caps.get(_EVERY_OTHER))
    if cap is None:
        return None
    for unit, loss in total.counted(replacement=policy.replacement):
        if loss.rho > rho_left(cap, delta, beside=loss):
            wants = f"{loss.epsilon(delta):.3g}" if loss.delta < delta else "beyond any"
            return f"with it {name!r} would have lost epsilon {wants} ({unit}) at delta {delta:g}, more than {cap:g}"
    return None


def _against_pins(spec: ReleaseSpec, party: PartySpec, pins: Mapping[str, str]) -> Iterator[Finding]:
    for member in spec.parties:
        shown, pinned = member.verifying_key.fingerprint, pins.get(member.name)
        if member.name == party.name or pinned == shown:
            continue
        message = f"{member.name} is not pinned; compare fingerprints, then: commingle party pin {member.name} …"
        if pinned is not None:
            message = (
                f"{member.name} is pinned with another key than the proposal names; if it has replaced its key, "
                f"compare the new fingerprint over another channel, then: commingle party pin --replace {member.name} "
                f"{shown}"
            )
        yield Finding("pins", message, None)


def _against_data(spec: ReleaseSpec, party: PartySpec, dataset: Dataset | None) -> Iterator[Finding]:
    if dataset is None:
        message = f"data set {party.dataset} is not registered; register it: commingle party datasets add"
        yield Finding("dataset", message, None)
        return
    own = {attribute.name: attribute for attribute in dataset.attributes}
    if dataset.unit is not spec.terms.adjacency:
        asked, option = ("keyed", "without") if spec.keyed else ("listed", "with")
        message = (
            f"data set {dataset.name} is {dataset.subjects}, and {asked} ones are asked for: "
            f"propose it of a data set of such; one that was never charged may be registered anew: --replace, {option} "
            "--listed"
        )
        yield Finding("subjects", message, None)
    asked_for = (*party.attributes, *(subset.attribute for subset in party.where or ()))
    for attribute in dict.fromkeys(registered for asked in asked_for for registered in as_registered(asked)):
        if (difference := _difference(attribute, own.get(attribute.name))) is not None:
            message = f"{difference}; correct the study, or register data set {dataset.name} anew with --replace"
            yield Finding("schema", message, None)
    if dataset.key.rules != spec.id_rules_in_force:
        asked, registered = (", ".join(rules) for rules in (spec.id_rules_in_force, dataset.key.rules))
        message = (
            f"the study matches people by ids as {asked} writes them, and data set {dataset.name} is registered with "
            f"{registered}; all members need the same: agree on rules that suit everybody's ids, and correct the study "
            "or, where it is your data set that differs, register that anew: --replace, with --id-rule"
        )
        yield Finding("id_rules", message, None)
    elif dataset.n != spec.n and not spec.keyed:
        message = f"the proposal is about {spec.n} people, and data set {dataset.name} has another number of them"
        yield Finding("subjects", message, "subjects")


def _difference(asked: Attribute, own: Attribute | None) -> str | None:
    if own is None:
        return f"there is no attribute {asked.name} here"
    here, there = own.model_dump(mode="json"), asked.model_dump(mode="json")
    names = [name for name in dict.fromkeys((*there, *here)) if there.get(name) != here.get(name)]
    if not names:
        return None
    said = (f"{name} {_said(there.get(name))} where it is {_said(here.get(name))} here" for name in names)
    return f"attribute {asked.name} is asked for with {', '.join(said)}"


def _said(value: object) -> str:
    if isinstance(value, list):
        return quoted(" | ".join(map(str, value)), longest=120)
    return "none" if value is None else printable(str(value))


def require_person(ruling: Ruling) -> None:
    """Raise ConflictError if two people have to approve and nobody knows whether this is one."""
    if not _folded(ruling.person):
        raise ConflictError(
            "two people have to approve, and this token was made for none",
            remedy="Make one for a person: commingle party token create --person NAME --scope decide",
        )


def require_another(first: Ruling, second: Ruling) -> None:
    """Raise ConflictError if the second of two approvals may be by the first one's person or token again."""
    require_person(second)
    if _provider(first) != _provider(second):
        raise ConflictError(
            f"{first.by} has approved already, and nobody can tell whether that is another person: one of the two "
            "signed on and the other did not, or at another provider",
            remedy="The second person approves in the way of the first. Anybody can reject it.",
        )
    if first.token == second.token or _folded(first.person) == _folded(second.person):
        whose = "one person" if first.token or second.token else "the operator, who is one person here,"
        raise ConflictError(
            f"{whose} has approved already ({first.by}), and another one has to",
            remedy="The second person approves with a token, console link or sign-in of their own",
        )


def is_signed_on(person: str) -> bool:
    """Whether the person signed on: no other name has an address in it."""
    return "://" in person


def _provider(ruling: Ruling) -> str:
    return ruling.person.rpartition(" at ")[2] if ruling.token and is_signed_on(ruling.person) else ""


def _folded(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())
