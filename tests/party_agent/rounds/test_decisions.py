"""What an agent agrees to, refuses, and leaves to a person."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.policy import AutoApproval, Policy
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.proposals import Decision
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import Bounds
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.errors import RemoteProblemError
from tests.party_agent.releasing import rejection_of
from tests.world.consortium import (
    AUTOMATIC,
    BY_A_PERSON,
    BY_HAND,
    SCHEMAS,
    Consortium,
    consortium_of,
    rows_of,
    strictly,
    write_csv,
)
from tests.world.waiting import at_once


def test_policy_without_automatic_approval_waits_for_a_person(consortium: Consortium) -> None:
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.step(strictly)
        proposal = agent.proposals.get(release)
        assert (proposal.decision, proposal.findings, agent.ledger.charges()) == (Decision.WAITING, (), [])
        agent.approve(release, BY_A_PERSON)
        assert agent.approve(release, BY_A_PERSON).decision is Decision.APPROVED
        charge = agent.ledger.charge(release)
        assert charge is not None
        assert charge.loss.rho == plan_block(proposal.spec, proposal.spec.party("clinic")).loss
    assert list(consortium.coordinator.found(release).approvals) == ["clinic"]


def test_proposer_not_named_in_the_policy_waits_for_a_person(tmp_path: Path) -> None:
    policy = Policy(auto_approve=(AutoApproval(proposer="0" * 64, max_rho=100),))
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=policy)
    release = consortium.propose()
    consortium.step("clinic")
    assert not consortium.coordinator.found(release).approvals


def test_person_rejects_and_nothing_is_spent(consortium: Consortium) -> None:
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.reject(release).decision is Decision.REJECTED
        assert agent.reject(release).decision is Decision.REJECTED
        with pytest.raises(ConflictError, match="rejected here"):
            agent.approve(release, BY_A_PERSON)
        agent.step(strictly)
        assert agent.ledger.spent() == ZERO
    assert rejection_of(consortium, release, "clinic").reason == "operator"
    assert consortium.state(release) == "rejected"


def test_rejection_after_approval_gives_the_reservation_back(pair: Consortium) -> None:
    release = pair.propose()
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.ledger.spent() > ZERO
        agent.reject(release)
        assert agent.ledger.spent() == ZERO
        assert agent.ledger.charge(release).state is ChargeState.RELEASED  # type: ignore[union-attr]
    assert pair.state(release) == "rejected"


def test_rejection_of_a_release_that_is_over_is_refused(pair: Consortium) -> None:
    release = pair.propose()
    pair.step("clinic")
    pair.withdraw(release, "insurer")
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        with pytest.raises(ConflictError, match="the release is rejected"):
            agent.reject(release)
        with pytest.raises(NotFoundError):
            agent.reject("0" * 64)
        with pytest.raises(NotFoundError):
            agent.approve("0" * 64, BY_A_PERSON)


@pytest.mark.parametrize(
    ("choices", "reason", "rule"),
    [
        ({"epsilon": 3.5}, "policy", "max_epsilon"),
        ({"mechanism": "moments", "bounds": "trusted"}, "policy", "trusted_bounds"),
        ({"n": 41}, "subjects", "subjects"),
    ],
)
def test_what_the_policy_or_the_data_rules_out_is_rejected_by_itself(
    pair: Consortium, choices: dict[str, Any], reason: str, rule: str
) -> None:
    pair.homes["clinic"].save_policy(AUTOMATIC.model_copy(update={"trusted_bounds": False}))
    release = pair.propose(**choices)
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        proposal = agent.proposals.get(release)
        assert proposal.decision is Decision.REJECTED
        assert proposal.findings[0].startswith(rule)
        assert agent.ledger.charges() == []
    assert rejection_of(pair, release, "clinic").reason == reason


@pytest.mark.parametrize(("bounds", "decision"), [("trusted", Decision.WAITING), ("proved", Decision.APPROVED)])
def test_trusted_bounds_wait_for_a_person_where_proved_ones_are_approved_by_themselves(
    tmp_path: Path, bounds: Bounds, decision: Decision
) -> None:
    policy = AUTOMATIC.model_copy(update={"trusted_bounds": True})
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=policy)
    release = consortium.propose(mechanism="moments", bounds=bounds)
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        proposal = agent.proposals.get(release)
        assert (proposal.decision, proposal.findings) == (decision, ())
        assert len(agent.ledger.charges()) == (1 if decision is Decision.APPROVED else 0)
        assert agent.approve(release, BY_A_PERSON).decision is Decision.APPROVED


def test_budget_that_does_not_suffice_is_rejected_by_itself(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path)
    for name, cap in (("clinic", 1.5), ("insurer", 10.0)):
        consortium.add(name, policy=AUTOMATIC, epsilon_cap=cap)
        consortium.equip(name)
    consortium.pin_everybody()
    releases = [consortium.propose(title=str(i)) for i in range(4)]
    consortium.step("clinic")
    approved = [r for r in releases if "clinic" in consortium.coordinator.found(r).approvals]
    rejected = [r for r in releases if "clinic" in consortium.coordinator.found(r).rejections]
    assert (len(approved), len(rejected)) == (2, 2)  # 2 rho(1) <= rho(1.5) < 3 rho(1)
    assert all(rejection_of(consortium, r, "clinic").reason == "budget" for r in rejected)
    with consortium.agent("clinic") as agent:
        assert agent.ledger.spent() <= agent.ledger.cap.rho


def test_local_words_do_not_travel_with_a_rejection(pair: Consortium) -> None:
    release = pair.propose(n=41)
    pair.step("clinic")
    sent = pair.coordinator.found(release).rejections["clinic"].payload_bytes
    assert b"registered" not in sent
    assert b"data set" not in sent


WIDER = (NumericAttribute(name="age", lower=0, upper=99),)


def register_wider(pair: Consortium, agent: Agent) -> None:
    pair.register(agent, replace=True, attributes=WIDER)


def pin(pair: Consortium, _: Agent) -> None:
    pair.pin_everybody()


WAITS: dict[str, tuple[Callable[[Home], object], dict[str, Any], str, Callable[[Consortium, Agent], None]]] = {
    "another schema": (
        lambda _: None, {"schemas": {**SCHEMAS, "clinic": WIDER}}, "attribute age is asked for with", register_wider,
    ),
    "no pin": (
        lambda home: home.consortium().pins_file.unlink(),
        {}, "insurer is not pinned; .* commingle party pin insurer", pin,
    ),
    "another pin": (
        lambda home: home.consortium().pin({"insurer": "0" * 64}, replace=True), {}, "pinned with another key", pin,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WAITS)
def test_what_can_be_put_right_waits_and_goes_on_once_it_is(pair: Consortium, what: str) -> None:
    spoil, choices, said, mend = WAITS[what]
    spoil(pair.homes["clinic"])
    release = pair.propose(**choices)
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        waiting = agent.proposals.get(release)
        assert (waiting.decision, len(waiting.findings)) == (Decision.WAITING, 1)
        assert re.search(said, waiting.findings[0])
        with pytest.raises(ConflictError, match=said):
            agent.approve(release, BY_A_PERSON)
        mend(pair, agent)
        agent.step(strictly)
        going_on = agent.proposals.get(release)
        assert (going_on.decision, going_on.findings) == (Decision.APPROVED, ())


def test_dataset_that_is_not_registered_waits_and_goes_on_once_registered(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path)
    for name in ("clinic", "insurer"):
        consortium.add(name)
        write_csv(consortium.table(name), rows_of(name))
    consortium.pin_everybody()
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        assert "not registered" in agent.proposals.get(release).findings[0]
        consortium.register(agent)
        agent.step(strictly)
        assert agent.proposals.get(release).decision is Decision.APPROVED


def test_listed_subjects_of_a_data_set_that_is_declared_as_keyed_wait_for_a_person(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        declared = agent.datasets.declaration("main").model_copy(update={"subjects": "keyed"})
        agent.datasets.register(declared, replace=True)
        release = pair.propose()
        agent.step(strictly)
        assert agent.proposals.get(release).decision is Decision.WAITING
        assert "with --listed" in agent.proposals.get(release).findings[0]


def test_approval_that_failed_is_up_to_a_person_again(pair: Consortium) -> None:
    pair.homes["clinic"].save_policy(BY_HAND)
    release = pair.propose()
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        for path in agent.datasets.folder.iterdir():
            path.unlink()
        with pytest.raises(LostError):
            agent.approve(release, BY_A_PERSON)
        job = agent.jobs.get(release)
    assert job is not None
    assert (job.stage, job.error) == ("waiting for a person", None)


@pytest.mark.parametrize("proposer", ["clinic", "insurer"])
def test_proposal_of_ones_own_or_by_a_pinned_member_is_considered(pair: Consortium, proposer: str) -> None:
    release = pair.propose(key=pair.homes[proposer].identity().signing_key)
    pair.step("clinic")
    assert "clinic" in pair.coordinator.found(release).approvals


def test_approval_and_rejection_at_the_same_moment_end_in_one_decision(consortium: Consortium) -> None:
    for i in range(8):
        release = consortium.propose(title=str(i))
        with consortium.agent("clinic") as agent:
            agent.step(strictly)

            def decide(decision: Callable[[str], object], release: str = release) -> None:
                with suppress(ConflictError, RemoteProblemError):
                    decision(release)

            approve = partial(agent.approve, ruling=BY_A_PERSON)
            at_once(*(partial(decide, decision) for decision in 2 * (approve, agent.reject)))
            approved = agent.ledger.signature(release, "approval") is not None
            proposal, charge = agent.proposals.get(release), agent.ledger.charge(release)
            assert proposal.decision is Decision.REJECTED  # a rejection is always the last word
            assert (charge is not None) == approved
            assert charge is None or charge.state is ChargeState.RELEASED
            assert agent.ledger.spent() == ZERO
