"""What was decided once is examined again: an edit of policy or pins forbids from then on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commingle.party_agent.home.policy import Policy
from commingle.party_agent.rounds.proposals import Decision
from commingle.party_agent.wire.coordinator_client import MessageKind
from commingle.shared.dp.accounting import ZERO
from commingle.shared.release.charge import ChargeState
from commingle.shared.runtime.errors import UnreachableError
from tests.party_agent.exchanging import PATHS, columned, messages, replied, reply_signed, signed
from tests.party_agent.releasing import approved_by_all, cut_off, look, rejection_of, state_of, stored
from tests.world.consortium import AUTOMATIC, EVERY_KIND, Consortium, Noise, consortium_of, soon
from tests.world.transport import unreachable


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
        assert (waits.decision, agent.ledger.charge(second)) == (Decision.WAITING, None)
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
