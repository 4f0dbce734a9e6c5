"""Nothing is decided, spent or sent before every release was looked back at. Here no head is left that could tell."""

from collections.abc import Callable
from typing import Any

import pytest

from commingle.party_agent.edge.loop import Loop
from commingle.party_agent.errors import StaleLedgerError, UnwitnessedError
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.rounds.agents import Agents
from commingle.shared.runtime.errors import RemoteError
from tests.hostile.actors import HostileCoordinator, LocalUser
from tests.party_agent.regression.asking import request
from tests.party_agent.releasing import publish
from tests.world.consortium import BY_A_PERSON, Consortium, Noise, strictly
from tests.world.transport import answering, no_fault, unreachable

PROBLEM = b'{"type": "urn:commingle:problem:storage", "title": "x", "status": 503, "detail": "the database is away"}'
ATTEMPTS: dict[str, Callable[[Agents, str], object]] = {
    "a look": lambda agents, _: agents.consortia[0].step(strictly),
    "an approval": lambda agents, waiting: agents.consortia[0].approve(waiting, BY_A_PERSON),
    "a rejection": lambda agents, waiting: agents.consortia[0].reject(waiting),
    "a regression": lambda agents, _: Regressions(agents.consortia[0]).ask(request()),
}


@pytest.fixture
def set_back(pair: Consortium) -> tuple[Consortium, str, str]:
    """A clinic whose ledger lacks a release that was published, and has an open one to decide; and both ids."""
    backup = LocalUser(pair).back_up()
    past = publish(pair)
    waiting = pair.propose(title="waits")
    HostileCoordinator(pair).forget_heads()
    LocalUser(pair).restore(backup)
    with pair.agent("clinic") as agent, agent.store.reading() as db:
        assert db.execute("SELECT * FROM proposals").fetchall() == []
    return pair, past, waiting


def require_nothing_done(pair: Consortium, waiting: str, noise: Noise) -> None:
    with pair.agent("clinic") as agent:
        assert (agent.ledger.charges(), agent.ledger.length, noise.calls) == ([], 0, [])
    found = pair.coordinator.found(waiting)
    assert (found.approvals, found.rejections) == ({}, {})
    with pair.coordinator.hub.store.read() as tx:
        assert tx.heads.newest_of_each() == ()


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=list(ATTEMPTS))
def test_old_ledger_does_nothing_with_an_open_proposal_over_two_starts(
    set_back: tuple[Consortium, str, str], attempt: Callable[[Agents, str], object]
) -> None:
    pair, _, waiting = set_back
    noise = Noise()
    for _ in range(2):
        with pair.agents("clinic", draw=noise) as agents, pytest.raises(StaleLedgerError):
            attempt(agents, waiting)
    require_nothing_done(pair, waiting, noise)


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=list(ATTEMPTS))
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda past: unreachable("GET", past), id="no answer"),
        pytest.param(
            lambda past: answering(503, PROBLEM, part=past, content_type="application/problem+json"), id="storage"
        ),
    ],
)
def test_look_back_that_is_not_complete_lets_nothing_happen(
    set_back: tuple[Consortium, str, str],
    attempt: Callable[[Agents, str], object],
    fault: Callable[[str], Any],
) -> None:
    pair, past, waiting = set_back
    noise = Noise()
    with pair.agents("clinic", draw=noise) as agents:
        pair.coordinator.before = fault(past)
        for _ in range(2):
            with pytest.raises((RemoteError, UnwitnessedError)):
                attempt(agents, waiting)
        pair.coordinator.before = no_fault
        with pytest.raises(StaleLedgerError):
            attempt(agents, waiting)
    require_nothing_done(pair, waiting, noise)


def test_look_back_is_repeated_when_touch_was_lost(pair: Consortium) -> None:
    copy = LocalUser(pair).copy()
    with pair.agents("clinic") as agents:
        agents.consortia[0].step(strictly)  # looked back at nothing
        past = pair.propose(title="ends before it is seen here")
        with pair.agents("clinic", home=copy) as other:
            other.consortia[0].step(strictly)
            other.reject(past, BY_A_PERSON)
        HostileCoordinator(pair).forget_heads()
        waiting = pair.propose(title="waits")
        agents.witnesses.lose(agents.consortia[0].coordinator.key.fingerprint)
        with pytest.raises(StaleLedgerError):
            agents.consortia[0].step(strictly)
        with pytest.raises(StaleLedgerError):
            agents.consortia[0].approve(waiting, BY_A_PERSON)
    assert pair.coordinator.found(waiting).approvals == {}


def test_connection_that_fails_is_followed_by_another_look_back(pair: Consortium) -> None:
    release = pair.propose()
    with pair.agent("clinic") as agent:
        loop = Loop(agent)
        loop.turn()
        looked = pair.coordinator.requests.count(f"GET /v1/releases/{release}")
        agent.witnesses.ask(agent.coordinator.key.fingerprint)
        assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == looked
        pair.coordinator.before = unreachable("GET", f"/v1/releases/{release}")
        agent.step(loop.attend)  # one release only, whose failure is its own
        pair.coordinator.before = no_fault
        agent.witnesses.ask(agent.coordinator.key.fingerprint)
        assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == looked + 2


def test_release_that_is_hidden_or_nonsense_does_not_keep_from_others(pair: Consortium) -> None:
    hidden, nonsense, good = (pair.propose(title=title) for title in ("hidden", "nonsense", "good"))
    liar = HostileCoordinator(pair)
    liar.hide(hidden)
    liar.lie(f"/{nonsense}", lambda _: {"nonsense": True})
    with pair.agent("clinic") as agent:
        Loop(agent).turn()
    assert "clinic" in pair.coordinator.found(good).approvals
    assert "clinic" not in pair.coordinator.found(hidden).approvals


def test_release_that_ended_unseen_is_ended_here_once(pair: Consortium) -> None:
    release = pair.propose()
    pair.withdraw(release, "insurer")
    with pair.agent("clinic") as agent:
        for _ in range(2):
            agent.step(strictly)
        assert agent.proposals.get(release).state == "rejected"
    assert pair.coordinator.requests.count(f"GET /v1/releases/{release}") == 2  # looked back at, and ended
