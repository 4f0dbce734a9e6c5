"""What an agent agrees to, refuses, and leaves to a person; what was decided once is examined again."""

import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commingle.party_agent.errors import ConflictError, LostError, NotFoundError
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.policy import Policy
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.proposals import NOT_KNOWN
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.plan import plan_block
from commingle.shared.runtime.coordinator_client import MessageKind
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.party_agent.exchanging import PATHS, columned, messages, replied, reply_signed, signed
from tests.party_agent.releasing import (
    approved_by_all,
    cut_off,
    look,
    proposed_and_lost,
    rejection_of,
    restore,
    state_of,
    stored,
)
from tests.world.consortium import (
    AUTOMATIC,
    BY_A_PERSON,
    BY_HAND,
    EVERY_KIND,
    SCHEMAS,
    Consortium,
    Noise,
    consortium_of,
    soon,
    strictly,
)
from tests.world.transport import answering, no_fault, unreachable
from tests.world.waiting import at_once


def test_policy_without_automatic_approval_waits_for_a_person(consortium: Consortium) -> None:
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.step(strictly)
        proposal = agent.proposals.get(release)
        assert (proposal.decision, proposal.findings, agent.ledger.charges()) == ("waiting", (), {})
        agent.approve(release, BY_A_PERSON)
        assert agent.approve(release, BY_A_PERSON).decision == "approved"
        charge = agent.ledger.charge(release)
        assert charge is not None
        assert charge.loss.rho == plan_block(proposal.spec, proposal.spec.party("clinic")).loss
    assert list(consortium.coordinator.found(release).approvals) == ["clinic"]


def test_person_rejects_and_nothing_is_spent(consortium: Consortium) -> None:
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.reject(release).decision == "rejected"
        assert agent.reject(release).decision == "rejected"
        with pytest.raises(ConflictError, match="rejected here"):
            agent.approve(release, BY_A_PERSON)
        agent.step(strictly)
        assert agent.ledger.spent() == ZERO
    assert rejection_of(consortium, release, "clinic").reason == "operator"
    assert consortium.state(release) == "rejected"


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
        assert proposal.decision == "rejected"
        assert proposal.findings[0].startswith(rule)
        assert agent.ledger.charges() == {}
    assert rejection_of(pair, release, "clinic").reason == reason


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
        assert (waiting.decision, len(waiting.findings)) == ("waiting", 1)
        assert re.search(said, waiting.findings[0])
        with pytest.raises(ConflictError, match=said):
            agent.approve(release, BY_A_PERSON)
        mend(pair, agent)
        agent.step(strictly)
        going_on = agent.proposals.get(release)
        assert (going_on.decision, going_on.findings) == ("approved", ())


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
            assert proposal.decision == "rejected"  # a rejection is always the last word
            assert (charge is not None) == approved
            assert charge is None or charge.state is ChargeState.RELEASED
            assert agent.ledger.spent() == ZERO


def forbid(consortium: Consortium, party: str = "clinic") -> None:
    """Its operator allows no kind of release any more."""
    consortium.homes[party].save_policy(AUTOMATIC.model_copy(update={"mechanisms": frozenset()}))


def test_release_forbidden_after_its_approval_is_not_debited(pair: Consortium) -> None:
    release, noise = approved_by_all(pair), Noise()
    forbid(pair)
    pair.step("clinic", draw=noise)
    assert (noise.calls, state_of(pair, release)) == ([], ChargeState.RELEASED)
    assert rejection_of(pair, release, "clinic").reason == "policy"


def test_block_of_a_release_forbidden_after_the_debit_is_never_sent(pair: Consortium) -> None:
    release = stored(pair)
    forbid(pair)
    for _ in range(2):
        pair.step("clinic")
    assert "clinic" not in pair.coordinator.found(release).blocks
    assert state_of(pair, release) is ChargeState.WITHDRAWN
    assert pair.state(release) == "aborted"


def test_approval_forbidden_before_it_was_sent_stays_here(pair: Consortium) -> None:
    release = pair.propose()
    cut_off(pair, "clinic", "/approvals/")
    forbid(pair)
    pair.step("clinic")
    assert "clinic" not in pair.coordinator.found(release).approvals
    assert (pair.state(release), state_of(pair, release)) == ("rejected", ChargeState.RELEASED)


@pytest.mark.parametrize(
    ("stage", "party", "kind"), [(signed, "clinic", "columns"), (reply_signed, "insurer", "reply")]
)
def test_message_of_a_release_forbidden_meanwhile_is_not_sent(
    pair: Consortium, stage: Callable[[Consortium], str], party: str, kind: MessageKind
) -> None:
    release = stage(pair)
    forbid(pair, party)
    pair.step(party)
    assert party not in messages(pair, release, kind)
    assert pair.state(release) == "aborted"


@pytest.mark.parametrize("stage", [columned, replied])
@pytest.mark.parametrize("party", ["clinic", "insurer"])
def test_nothing_more_of_an_exchange_is_sent_once_it_is_forbidden(
    pair: Consortium, stage: Callable[[Consortium], str], party: str
) -> None:
    release = stage(pair)
    before = {kind: messages(pair, release, kind) for kind in PATHS}
    forbid(pair, party)
    pair.step(party)
    assert {kind: messages(pair, release, kind) for kind in PATHS} == before
    assert pair.coordinator.found(release).blocks == {}
    assert state_of(pair, release, party) is ChargeState.WITHDRAWN
    assert rejection_of(pair, release, party).reason == "policy"


def test_release_of_a_member_pinned_otherwise_meanwhile_waits_until_that_is_put_right(pair: Consortium) -> None:
    release, home, noise = approved_by_all(pair), pair.homes["clinic"], Noise()
    pinned = home.consortium().pins()["insurer"]
    home.consortium().pin({"insurer": "0" * 64}, replace=True)
    pair.step("clinic", draw=noise)
    assert (noise.calls, state_of(pair, release)) == ([], ChargeState.RESERVED)
    with pair.agent("clinic") as agent:
        assert "another key" in agent.proposals.get(release).findings[0]
    home.consortium().pin({"insurer": pinned}, replace=True)
    look(pair, "clinic", "insurer", "clinic")
    assert pair.state(release) == "published"


def test_cap_lowered_below_what_was_approved_ends_the_release_and_counts_it_once(pair: Consortium) -> None:
    release = approved_by_all(pair)
    enough = AUTOMATIC.model_copy(update={"dataset_caps": {"main": 1.0}})  # it costs epsilon 1, counted once
    pair.homes["clinic"].save_policy(enough)
    pair.step("clinic")
    assert state_of(pair, release) is ChargeState.ACKED
    pair.homes["clinic"].save_policy(AUTOMATIC)
    other = approved_by_all(pair, title="another")
    pair.homes["insurer"].save_policy(AUTOMATIC.model_copy(update={"study_caps": {"another": 0.5}}))
    pair.step("insurer")
    assert rejection_of(pair, other, "insurer").reason == "budget"


def test_approvals_of_releases_that_others_aborted_count_for_the_day(tmp_path: Path) -> None:
    policy = AUTOMATIC.model_copy(update={"max_releases_per_day": 1})
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=policy)
    first = consortium.propose(title="first")
    consortium.step("clinic")
    consortium.withdraw(first, "insurer")
    consortium.step("clinic")
    assert state_of(consortium, first) is ChargeState.RELEASED
    second = consortium.propose(title="second")
    with consortium.agent("clinic") as agent:
        agent.handle(agent.client.release(second), second)
        waits = agent.proposals.get(second)
        assert (waits.decision, agent.ledger.charge(second)) == ("waiting", None)
        assert "within 24 hours" in waits.findings[0]
    soon(consortium, hours=25)
    consortium.step("clinic")
    assert state_of(consortium, second) is ChargeState.RESERVED


def test_reservation_ends_with_its_spec_though_the_coordinator_never_says_so(pair: Consortium) -> None:
    release = pair.propose()
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        agent.witnesses.ask(agent.coordinator.key.fingerprint)  # on a ledger that was set back nothing is given back
        pair.coordinator.before = unreachable("GET", "/v1/releases")
        soon(pair, hours=100)
        with pytest.raises(UnreachableError):
            agent.step(lambda _, work: work())
        assert agent.ledger.spent() == ZERO
        agent.ledger.verify()
    assert state_of(pair, release) is ChargeState.RELEASED


def test_edited_policy_that_allows_it_still_changes_nothing(pair: Consortium) -> None:
    release = approved_by_all(pair)
    narrow = Policy(mechanisms=frozenset({"rmgm"}), max_epsilon=1.0, max_releases_per_day=0)
    assert narrow.mechanisms < EVERY_KIND
    for name in ("clinic", "insurer"):
        pair.homes[name].save_policy(narrow)
        pair.step(name)
    assert pair.state(release) in {"collecting", "published"}


def test_rejection_of_a_release_that_the_coordinator_lost_is_done_here_and_returns_its_budget(pair: Consortium) -> None:
    release = proposed_and_lost(pair, "clinic")
    assert state_of(pair, release) is ChargeState.RESERVED
    with pair.agent("clinic") as agent:
        rejected = agent.reject(release, ruling=BY_A_PERSON)
        assert (rejected.decision, rejected.state, rejected.reason) == ("rejected", "rejected", NOT_KNOWN)
        assert agent.ledger.spent() == ZERO
        agent.step(strictly)
        assert agent.proposals.unfinished(agent.coordinator.key.fingerprint) == []
        agent.ledger.verify()


def test_rejection_that_another_service_does_not_know_is_sent_again(pair: Consortium) -> None:
    release = pair.propose()
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        body = b'{"type": "urn:commingle:problem:http", "detail": "nothing is here"}'
        pair.coordinator.before = answering(404, body, part="/rejections/")
        with pytest.raises(RemoteProblemError):
            agent.reject(release)
        pair.coordinator.before = no_fault
        assert agent.proposals.get(release).state == "proposed"
        agent.step(strictly)
    assert pair.state(release) == "rejected"


def test_release_that_the_coordinator_lost_is_named_and_its_approval_reserves_nothing(pair: Consortium) -> None:
    pair.homes["clinic"].save_policy(BY_HAND)
    release = proposed_and_lost(pair, "clinic")
    with pair.agent("clinic") as agent:
        with pytest.raises(ConflictError, match="coordinator does not know it") as refused:
            agent.approve(release, BY_A_PERSON)
        assert refused.value.remedy.startswith("Nothing was reserved. Have it proposed again")
        assert agent.ledger.charges() == {}
        (said,) = agent.proposals.get(release).findings
        assert said.startswith(f"coordinator: {NOT_KNOWN}")


def test_release_that_the_coordinator_knows_again_goes_on(pair: Consortium) -> None:
    release = proposed_and_lost(pair, "clinic", "insurer")
    look(pair, "clinic")
    with pair.agent("clinic") as agent:
        assert NOT_KNOWN in agent.proposals.get(release).findings[0]
    assert state_of(pair, release) is ChargeState.RESERVED
    pair.coordinator.close()
    shutil.rmtree(pair.coordinator.root)
    (pair.root / "newest backup of the coordinator").rename(pair.coordinator.root)
    look(pair, "clinic")
    with pair.agent("clinic") as agent:
        assert agent.proposals.get(release).findings == ()
    look(pair, "insurer", "clinic")
    assert pair.state(release) == "published"


def test_release_that_the_coordinator_lost_ends_with_its_time_and_what_it_kept_goes(pair: Consortium) -> None:
    backup = pair.root / "backup of the coordinator"
    pair.enrol_everybody()
    pair.coordinator.close()
    shutil.copytree(pair.coordinator.root, backup)
    release = stored(pair)
    restore(pair, backup)
    soon(pair, hours=100)
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        over = agent.proposals.get(release)
        assert (over.state, over.reason, over.findings) == ("expired", NOT_KNOWN, ())
        assert list(agent.home.outbox.iterdir()) == []
    assert state_of(pair, release) is ChargeState.WITHDRAWN
