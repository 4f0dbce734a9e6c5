"""States, the chain, what survives a restart, and what was altered."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial, reduce
from hashlib import sha256
from operator import getitem
from pathlib import Path

import pytest

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger.ledger import Cap
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.shared.dp.accounting import Loss, Rho
from commingle.shared.release.charge import GENESIS, Charge, ChargeState, link_digest
from commingle.shared.release.rounds import Refused
from tests.party_agent.ledger.book import (
    APPROVALS,
    CAP,
    TABLE,
    Book,
    R,
    debit,
    debited,
    named,
    rejected,
    reserve,
    reserve_loss,
    share,
    state,
    store_block,
    withdraw,
)
from tests.world.waiting import at_once


def test_every_redraw_is_another_attempt_and_only_the_last_can_store(ledger: Book) -> None:
    first = debited(ledger, "r")
    second = ledger.redraw(R)
    assert isinstance(second, Debit)
    assert (second.attempt, second.approvals, second.rho_units) == (2, APPROVALS, share(4).units)
    assert not store_block(ledger, first)
    assert store_block(ledger, second)
    assert ledger.spent() == share(4)


def test_restart_keeps_everything(ledger: Book, path: Path) -> None:
    debited(ledger, "r")
    envelope = rejected(ledger)
    before = ledger.charges(), ledger.spent(), ledger.history()
    ledger.store.close()
    store = AgentStore(path)
    again = Book(store, cap=CAP)
    assert (again.charges(), again.spent(), again.history()) == before
    assert again.signature(R, "rejection") == envelope
    assert again.signature(R, "approval") is None
    store.close()


def test_signature_is_kept_once_and_for_all(ledger: Book) -> None:
    rejected(ledger)
    with pytest.raises(sqlite3.IntegrityError):
        rejected(ledger)
    assert ledger.length == 1


def test_chain_links_every_change_and_never_holds_the_data_digest(ledger: Book) -> None:
    with ledger.store.reading() as db:
        assert ledger.head(db) == GENESIS
    done = debited(ledger, "r")
    assert done == Debit(R, share(4).units, 1, APPROVALS, TABLE)
    assert store_block(ledger, done)
    assert ledger.acknowledge(R)
    assert (state(ledger, "r"), ledger.spent()) == ("acked", share(4))
    texts, _ = ledger.history()
    entries = [json.loads(text) for text in texts]
    assert [entry["kind"] for entry in entries] == ["reserved", "debited", "stored", "acked"]
    digests = [link_digest(text) for text in texts]
    assert [entry["previous"] for entry in entries] == [GENESIS, *digests[:-1]]
    with ledger.store.reading() as db:
        assert ledger.head(db) == digests[-1]
    assert "f" * 64 not in str(entries)
    assert TABLE not in str(entries)


def test_one_reservation_is_debited_by_one_of_many_threads(ledger: Book) -> None:
    reserve(ledger, "r", CAP.rho)
    answers = at_once(*8 * [partial(debit, ledger, "r")])
    assert sum(isinstance(answer, Debit) for answer in answers) == 1


def test_withdrawal_and_debit_at_once_never_lose_a_charge_that_was_debited(store: AgentStore) -> None:
    ledger = Book(store, cap=Cap("default", 10.0, 1e-5))
    for i in range(20):
        release = f"r{i}"
        reserve(ledger, release, Rho(1000))
        moves: list[Callable[[], object]] = [partial(debit, ledger, release), partial(withdraw, ledger, release)]
        answers = at_once(*moves)
        was_debited = any(isinstance(answer, Debit) for answer in answers)
        assert (state(ledger, release) == "withdrawn") == was_debited
    charges = ledger.charges()
    assert ledger.spent() == Rho(1000 * sum(c.state is ChargeState.WITHDRAWN for c in charges.values()))


ALTERED = {
    "charge.population": "other",
    "charge.loss.rho_units": "1",
    "charge.loss.loss_delta": 0.0,
    "charge.replacement.rho_units": "3",
    "charge.replacement.loss_delta": 0.0,
    "charge.gaussian": False,
    "charge.terms.dataset": "other",
    "charge.terms.study": "other",
    "charge.terms.kind": "release",
    "charge.terms.expires": "2036-01-02T00:00:00+00:00",
    "charge.terms.coordinator": "other",
    "kind": "released",
    "release": "b" * 64,
}


@pytest.mark.parametrize("fact", ALTERED)
@pytest.mark.parametrize("linked", [False, True])
def test_charge_of_which_any_fact_was_altered_is_noticed(ledger: Book, fact: str, linked: bool) -> None:
    """Also where the forger has made the entry's own digest fit."""
    reserve_loss(ledger, "a" * 64, Loss(Rho(2), CAP.delta / 2), Loss(Rho(7), CAP.delta / 3))
    ledger.verify()
    entry = json.loads(ledger.history()[0][0])
    *above, last = fact.split(".")
    said = reduce(getitem, above, entry)
    assert said[last] != ALTERED[fact]
    said[last] = ALTERED[fact]
    body = json.dumps(entry, sort_keys=True)
    digest = sha256(body.encode()).hexdigest() if linked else ledger.summit().head
    edit(ledger, "UPDATE entries SET body = ?, digest = ?", body, digest)
    with pytest.raises(LedgerError):
        ledger.verify()


def test_fold_follows_what_another_has_appended_to_the_file_before_it_decides(ledger: Book) -> None:
    other = Book(ledger.store, cap=CAP)
    assert isinstance(reserve(ledger, "a", share(2)), Charge)
    assert isinstance(reserve(other, "b", share(2)), Charge)
    assert isinstance(reserve(ledger, "c", share(2)), Refused)
    assert isinstance(debit(other, "a"), Debit)
    assert isinstance(debit(ledger, "a"), Refused)
    assert (state(ledger, "a"), ledger.spent(), ledger.summit()) == ("debited", other.spent(), other.summit())


def test_transaction_that_was_rolled_back_is_forgotten_in_memory_too(ledger: Book) -> None:
    reserve(ledger, "a")
    before = ledger.summit(), ledger.charges(), ledger.lost()

    def half() -> None:
        with ledger.store.transaction() as db:
            ledger.withdraw(db, named("a"))
            assert state(ledger, "a") == "released"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert (ledger.summit(), ledger.charges(), ledger.lost()) == before
    assert isinstance(debit(ledger, "a"), Debit)
    ledger.verify()


def edit(ledger: Book, statement: str, *values: str) -> None:
    """Of somebody else: the row's digest stays what it was."""
    with ledger.store.reading() as db:
        path = db.execute("PRAGMA database_list").fetchone()["file"]
    with closing(sqlite3.connect(path)) as other, other:
        other.execute(statement, values)


@pytest.mark.parametrize(
    ("tampering", "said"),
    [
        ("UPDATE entries SET body = replace(body, 'reserved', 'released') WHERE seq = 1", "altered"),
        ("UPDATE entries SET body = '\"garbage\"' WHERE seq = 2", "altered"),
        ("UPDATE entries SET body = 'garbage' WHERE seq = 2", "altered"),
        ("UPDATE entries SET digest = upper(digest) WHERE seq = 3", "altered"),
        ("DELETE FROM entries WHERE seq = 1", "altered"),
        ("DELETE FROM entries WHERE seq = 2", "altered"),
        ("UPDATE entries SET seq = -seq", "altered"),
        ("DELETE FROM entries WHERE seq > 4", "altered or is missing"),
        ("DELETE FROM entries", "."),
        ("DELETE FROM to_read", "."),
        ("DELETE FROM signatures", "."),
        ("UPDATE signatures SET digest = 'x'", "."),
        ("UPDATE signatures SET kind = 'approval'", "."),
        ("UPDATE to_read SET snapshot = 'another'", "."),
        ("UPDATE entries SET body = replace(body, 'reserved', 'unheard of')", "."),
        ("DROP TABLE to_read", "."),
    ],
)
def test_what_was_altered_is_noticed(ledger: Book, tampering: str, said: str) -> None:
    store_block(ledger, debited(ledger, "r"))
    rejected(ledger)
    reserve(ledger, "not debited yet")
    ledger.verify()
    edit(ledger, tampering)
    with pytest.raises(LedgerError, match=said):
        ledger.verify()


def test_move_that_was_interrupted_halfway_is_not_gone_on_with(ledger: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        assert isinstance(reserve(ledger, f"r{number}"), Charge)

    def exhausted(_: str) -> str:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("commingle.shared.release.ledger_fold.link_digest", exhausted)
        with pytest.raises(MemoryError):
            withdraw(ledger, "r0")
    assert isinstance(reserve(ledger, "r5"), Refused)
    assert state(ledger, "r0") is ChargeState.RESERVED


def test_file_that_is_set_back_under_a_running_agent_is_refused_from_then_on(ledger: Book, path: Path) -> None:
    def pragma(what: str) -> None:
        with ledger.store.reading() as db:
            db.execute(f"PRAGMA {what}")

    def on_disk() -> bytes:
        pragma("wal_checkpoint(TRUNCATE)")
        return path.read_bytes()

    debited(ledger, "r0")
    old = on_disk()
    debited(ledger, "r1")
    assert ledger.summit().height
    on_disk()
    with path.open("r+b") as file:
        file.write(old)
    pragma("shrink_memory")
    for _ in range(2):
        with pytest.raises(LedgerError, match="set back while the agent runs"):
            reserve(ledger, "r2")


def test_failure_that_passes_is_not_called_damage(ledger: Book) -> None:
    debited(ledger, "r0")
    other, calls = Book(ledger.store, cap=CAP), iter([0])
    with ledger.store.reading() as db:
        db.set_progress_handler(lambda: next(calls, 1), 12)
        with pytest.raises(sqlite3.OperationalError):
            other.lost()
        db.set_progress_handler(None, 0)
    assert other.lost() == ledger.lost()
