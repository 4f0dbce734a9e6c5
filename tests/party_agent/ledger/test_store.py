"""The SQLite file: durable, exclusive, usable after every failure; and what an approval asks of it does not grow."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from commingle.party_agent.errors import AgentRunningError, LedgerError
from commingle.party_agent.ledger import ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds import proposals
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.dp.accounting import Cost
from commingle.shared.release import ledger_fold
from commingle.shared.release.charge import Charge
from commingle.shared.release.checks import read_spec
from commingle.shared.release.ledger_fold import sum_of
from tests.party_agent.releasing import publish
from tests.world.consortium import Consortium, strictly
from tests.world.waiting import at_once


def names(store: AgentStore) -> list[str]:
    with store.reading() as db:
        return [row["name"] for row in db.execute("SELECT name FROM datasets ORDER BY name")]


def test_second_store_on_the_same_file_is_refused_until_the_first_is_closed(store: AgentStore, tmp_path: Path) -> None:
    with pytest.raises(AgentRunningError):
        AgentStore(tmp_path / "ledger.sqlite")
    store.close()
    AgentStore(tmp_path / "ledger.sqlite").close()


def test_store_that_is_closed_in_time_makes_room_for_one_that_waits(store: AgentStore, tmp_path: Path) -> None:
    Timer(0.3, store.close).start()
    AgentStore(tmp_path / "ledger.sqlite", patience_seconds=60).close()


@pytest.mark.slow
def test_second_process_is_refused(store: AgentStore, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from commingle.party_agent.ledger.store import AgentStore\n"
        "AgentStore(Path(sys.argv[1]))"
    )
    path = str(tmp_path / "ledger.sqlite")
    second = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "AgentRunningError" in second.stderr
    assert names(store) == []


@pytest.mark.slow
def test_lock_ends_with_the_process_that_was_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from commingle.party_agent.ledger.store import AgentStore\n"
        "s = AgentStore(Path(sys.argv[1]))\n"
        "with s.transaction() as db: db.execute(\"INSERT INTO datasets VALUES ('kept', '{}')\")\n"
        "with s.transaction() as db:\n"
        "    db.execute(\"INSERT INTO datasets VALUES ('lost', '{}')\"); os.kill(os.getpid(), 9)"
    )
    path = tmp_path / "ledger.sqlite"
    killed = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=False)
    assert killed.returncode == -9
    store = AgentStore(path)
    assert names(store) == ["kept"]
    store.close()


def test_durability_settings_are_in_force(store: AgentStore) -> None:
    with store.reading() as db:
        shown = {p: db.execute(f"PRAGMA {p}").fetchone()[0] for p in ("journal_mode", "synchronous", "user_version")}
    assert shown == {"journal_mode": "wal", "synchronous": 2, "user_version": 1}


def test_files_can_be_read_by_their_owner_only(store: AgentStore, tmp_path: Path) -> None:
    with store.transaction() as db:
        db.execute("INSERT INTO datasets VALUES ('a', '{}')")
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


def interrupted(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO datasets VALUES ('half', '{}')")
    raise KeyboardInterrupt


def too_much(db: sqlite3.Connection) -> None:
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages + 1}")
    for i in range(200):
        db.execute("INSERT INTO datasets VALUES (?, ?)", (f"n{i}", "x" * 3000))


def found_out_at_commit(db: sqlite3.Connection) -> None:
    db.execute("CREATE TABLE child (of TEXT REFERENCES datasets (name) DEFERRABLE INITIALLY DEFERRED)")
    db.execute("INSERT INTO child VALUES ('nobody')")


@pytest.mark.parametrize(
    ("failing", "kind", "said"),
    [
        (interrupted, KeyboardInterrupt, None),
        (too_much, sqlite3.OperationalError, "full"),
        (found_out_at_commit, sqlite3.IntegrityError, None),
    ],
)
def test_transaction_that_fails_says_why_and_leaves_nothing_and_the_store_usable(
    store: AgentStore, failing: Callable[[sqlite3.Connection], None], kind: type[BaseException], said: str | None
) -> None:
    def fail() -> None:
        with store.transaction() as db:
            failing(db)

    with pytest.raises(kind, match=said):
        fail()
    with store.transaction() as db:
        db.execute("PRAGMA max_page_count = 100000")
        db.execute("INSERT INTO datasets VALUES ('later', '{}')")
    assert names(store) == ["later"]


@pytest.mark.parametrize("content", [b"this is no database at all, and long enough to be seen as none", b"\x00" * 8192])
def test_file_that_is_no_ledger_is_an_error_and_unlocked(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(LedgerError, match="is not a ledger"):
            AgentStore(path)


@pytest.mark.parametrize("version", [-7, 2, 9])
def test_ledger_of_another_version_is_refused_with_a_remedy_and_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "ledger.sqlite"
    AgentStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(LedgerError, match=f"of format {version}, and this agent reads format 1") as refused:
        AgentStore(path)
    assert "commingle --version" in refused.value.remedy
    with closing(sqlite3.connect(path)) as left:
        assert left.execute("PRAGMA user_version").fetchone()[0] == version


def test_writers_of_many_threads_wait_for_each_other(store: AgentStore) -> None:
    def write(number: int) -> None:
        for i in range(20):
            with store.transaction() as db:
                db.execute("INSERT INTO datasets VALUES (?, '{}')", (f"{number}-{i}",))

    at_once(*(partial(write, number) for number in range(4)))
    assert len(names(store)) == 80


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
        with agent.store.reading() as db:
            db.set_trace_callback(counted.statements.append)
        yield counted
        with agent.store.reading() as db:
            db.set_trace_callback(None)


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
    publish(pair, title="first")
    few = approval(pair, "after one", monkeypatch)
    for number in range(4):
        publish(pair, title=f"another {number}")
    many = approval(pair, "after five", monkeypatch)
    assert few.documents > 0
    assert (len(many.statements), many.documents) == (len(few.statements), few.documents)


def test_no_statement_of_an_approval_reads_the_past(pair: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(pair, title="first")
    asked = approval(pair, "second", monkeypatch).statements
    with pair.agent("clinic") as agent, agent.store.reading() as db:
        scanned = [
            statement
            for statement in asked
            if statement.startswith("SELECT") and not statement.endswith("LIMIT 1")
            for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")
            if row["detail"].startswith("SCAN")
        ]
    declared = ("SELECT body FROM datasets",)  # as many as the operator declared, whatever was released
    assert asked
    assert [statement for statement in scanned if not statement.startswith(declared)] == []


def test_waiting_proposals_are_examined_without_adding_up_all_charges_for_each(
    pair: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        publish(pair, title=f"study {number}")
    waiting = [pair.spec(title=f"waits {number}") for number in range(2)]
    added = list[Charge]()

    def counted(charges: Iterable[Charge]) -> Cost:
        added.extend(of := list(charges))
        return sum_of(of)

    monkeypatch.setattr(ledger, "sum_of", counted)
    monkeypatch.setattr(ledger_fold, "sum_of", counted)
    with pair.agent("clinic") as agent:
        before = agent.ledger.lost()
        for number, spec in enumerate(waiting):
            assert agent.examine(spec, f"{number:064}") == ()
            if number == 0:
                assert len(added) >= 2 * 4
                added.clear()
        assert added == []
        assert agent.ledger.lost_by(["main"], without=None) == before
        (of_study,) = (charge for charge in agent.ledger.charges().values() if charge.terms.study == "study 1")
        assert agent.ledger.lost_to_study("study 1", without="") == of_study.cost
    publish(pair, title="one more")
    with pair.agent("clinic") as agent:
        assert agent.ledger.lost().loss.rho > before.loss.rho
