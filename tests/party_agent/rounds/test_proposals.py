"""What an agent keeps of proposals: those it approved for ever, of others the id and for a while the rest."""

from datetime import timedelta

import pytest

from commingle.coordinator.publisher import prune
from commingle.party_agent.errors import NotFoundError
from commingle.party_agent.rounds.proposals import RETENTION
from commingle.shared.documents.errors import DocumentError
from tests.world.consortium import BY_A_PERSON, BY_HAND, Consortium, soon, strictly


@pytest.fixture
def pair(pair: Consortium) -> Consortium:
    pair.homes["clinic"].save_policy(BY_HAND)
    return pair


def specs_kept(pair: Consortium) -> dict[str, int]:
    """Bytes of the spec in each row of the record."""
    with pair.agent("clinic") as agent, agent.store.reading() as db:
        return {row["release"]: len(row["spec"]) for row in db.execute("SELECT release, spec FROM proposals")}


def over(pair: Consortium, title: str) -> str:
    release = pair.propose(title=title)
    pair.step("clinic")
    pair.withdraw(release, "insurer")
    pair.step("clinic")
    return release


def test_spec_that_is_over_and_was_never_approved_is_dropped_when_a_later_one_comes(pair: Consortium) -> None:
    old = over(pair, "old")
    soon(pair, hours=RETENTION / timedelta(hours=1) + 1)
    assert specs_kept(pair)[old] > 0
    new = pair.propose(title="new")
    pair.step("clinic")
    kept = specs_kept(pair)
    assert (kept[old], kept[new] > 0) == (0, True)
    with pair.agent("clinic") as agent:
        assert [p.release for p in agent.proposals.all()] == [new]
        assert old in agent.proposals.finished(agent.coordinator.key.fingerprint)
        with pytest.raises(NotFoundError):
            agent.proposals.get(old)


def test_approved_spec_is_kept_however_old(pair: Consortium) -> None:
    release = pair.propose(title="approved")
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
    pair.withdraw(release, "insurer")
    pair.step("clinic")
    soon(pair, hours=RETENTION / timedelta(hours=1) + 1)
    pair.propose(title="new")
    pair.step("clinic")
    assert specs_kept(pair)[release] > 0


def test_release_whose_spec_the_coordinator_has_dropped_is_wound_up(pair: Consortium) -> None:
    release = pair.propose(title="approved")
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
        reserved = agent.ledger.spent()
    pair.withdraw(release, "insurer")
    soon(pair, hours=24 * 31)
    assert prune(pair.coordinator.hub.coordinator) == 1
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        assert agent.ledger.spent() < reserved
        assert agent.proposals.get(release).state == "rejected"


def test_agent_that_never_saw_a_dropped_release_notes_its_end_once(pair: Consortium) -> None:
    release = pair.propose(title="missed")
    pair.withdraw(release, "insurer")
    soon(pair, hours=24 * 31)
    prune(pair.coordinator.hub.coordinator)
    with pair.agent("clinic") as agent:
        agent.step(strictly)
        assert release in agent.proposals.finished(agent.coordinator.key.fingerprint)
        assert agent.proposals.all() == []


def test_open_release_shown_without_its_spec_is_refused(pair: Consortium) -> None:
    release = pair.propose(title="odd")
    pair.coordinator.shown = lambda view: view | {"spec": None}
    with pair.agent("clinic") as agent, pytest.raises(DocumentError, match="without its spec"):
        agent.handle(agent.client.release(release), release)
