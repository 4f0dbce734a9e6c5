"""What an approval takes does not grow with what was approved before."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from commingle.party_agent.ledger import ledger
from commingle.party_agent.rounds import proposals
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.release.checks import read_spec
from tests.world.consortium import Consortium, strictly


class Counted:
    """Statements that the ledger's file was asked, and documents that were read of it."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.documents = 0


@contextmanager
def counting(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    counted = Counted()

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        def read_one(*given: Any) -> Any:
            counted.documents += 1
            return read(*given)

        return read_one

    with monkeypatch.context() as patch:
        patch.setattr(proposals, "read_spec", reading(read_spec))
        patch.setattr(ledger, "parse_envelope", reading(parse_envelope))
        agent.store._connection.set_trace_callback(counted.statements.append)
        yield counted
        agent.store._connection.set_trace_callback(None)


def publish(pair: Consortium, title: str) -> None:
    release = pair.propose(title=title)
    for name in [*pair.homes] * 3:
        pair.step(name)
    assert pair.state(release) == "published"


def approval(pair: Consortium, title: str, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """What one takes the clinic, which then gives it up."""
    release = pair.propose(title=title)
    with pair.agent("clinic") as agent:
        agent.step(lambda _, __: None)  # it has looked back
        with counting(agent, monkeypatch) as counted:
            agent.step(strictly)
        agent.reject(release)
    assert "clinic" in pair.coordinator.found(release).approvals
    return counted


def test_approval_asks_as_many_statements_and_documents_after_many_releases_as_after_one(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(pair, "first")
    few = approval(pair, "after one", monkeypatch)
    for number in range(4):
        publish(pair, f"another {number}")
    many = approval(pair, "after five", monkeypatch)
    assert few.documents > 0
    assert (len(many.statements), many.documents) == (len(few.statements), few.documents)


def test_no_statement_of_an_approval_reads_the_past(pair: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pair, "first")
    asked = approval(pair, "second", monkeypatch).statements
    with pair.agent("clinic") as agent:
        scanned = [
            statement
            for statement in asked
            if statement.startswith("SELECT") and not statement.endswith("LIMIT 1")
            for row in agent.store._connection.execute(f"EXPLAIN QUERY PLAN {statement}")
            if row["detail"].startswith("SCAN")
        ]
    declared = ("SELECT body FROM datasets",)  # as many as the operator declared, whatever was released
    assert asked
    assert [statement for statement in scanned if not statement.startswith(declared)] == []
