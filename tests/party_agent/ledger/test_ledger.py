"""States, caps, the chain, and what survives a restart."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Barrier, Thread
from typing import Any, TypeVar

import pytest

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger.ledger import Cap, Debit, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.statements import Rejection
from commingle.shared.dp.accounting import FREE, RHO_UNITS, ZERO, Cost, Loss, Rho
from commingle.shared.dp.calibration import rho_of_epsilon
from commingle.shared.release.charge import GENESIS, Charge, ChargeState, ChargeTerms
from commingle.shared.release.rounds import Refused
from tests.world.tampering import NOW

COORDINATOR = "c" * 64
APPROVALS = "a" * 64
TABLE = "d" * 64
CAP = Cap("default", 1.0, 1e-5)
LATER = NOW + timedelta(hours=1)
TERMS = ChargeTerms(dataset="main", study="s", kind="release", expires=LATER)

Answer = TypeVar("Answer")


def named(name: str) -> str:
    """A release's id."""
    return name if len(name) == len(COORDINATOR) else sha256(name.encode()).hexdigest()


R = named("r")


class Book(Ledger):
    """A ledger, and the file that its agent writes."""

    def __init__(self, store: AgentStore, *, cap: Cap, counts_replacement: Callable[[], bool] = lambda: False) -> None:
        super().__init__(store, cap=cap, counts_replacement=counts_replacement)
        self.store = store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[AgentStore]:
    store = AgentStore(path)
    yield store
    store.close()


@pytest.fixture
def ledger(store: AgentStore) -> Book:
    return Book(store, cap=CAP)


def share(count: int) -> Rho:
    """A charge of which exactly so many fit under the cap."""
    return Rho(CAP.rho.units // count)


def reserve(ledger: Book, release: str, rho: Rho | None = None, *, coordinator: str = COORDINATOR) -> Charge | Refused:
    return reserve_cost(ledger, release, of(share(4) if rho is None else rho), coordinator=coordinator)


def reserve_cost(ledger: Book, release: str, cost: Cost, **facts: Any) -> Charge | Refused:
    about: dict[str, Any] = {"dataset": "main", "snapshot": "f" * 64, "study": "s", "expires": LATER, **facts}
    with ledger.store.transaction() as db:
        return ledger.reserve(db, named(release), cost, **about)


def of(rho: Rho) -> Cost:
    """What a listed data set is charged."""
    return Cost(Loss(rho))


def reserve_loss(ledger: Book, release: str, loss: Loss, replacement: Loss | None = None) -> Charge | Refused:
    return reserve_cost(ledger, release, Cost(loss, replacement), kind="regression")


def debit(ledger: Book, release: str) -> Debit | Refused:
    return ledger.debit(named(release), approvals=APPROVALS, snapshot=TABLE, now=NOW)


def debited(ledger: Book, release: str) -> Debit:
    assert isinstance(reserve(ledger, release), Charge)
    done = debit(ledger, release)
    assert isinstance(done, Debit)
    return done


def store_block(ledger: Book, done: Debit) -> bool:
    with ledger.store.transaction() as db:
        return ledger.record_block(db, done, "b" * 64)


def withdraw(ledger: Book, release: str) -> bool:
    with ledger.store.transaction() as db:
        return ledger.withdraw(db, named(release))


def rejected(ledger: Book) -> Envelope:
    """What this party signs about release R."""
    statement = Rejection(spec=R, party="p", reason="operator", created=NOW, ledger_head=GENESIS)
    envelope = seal(statement, key=SigningKey(b"\x01" * 32))
    with ledger.store.transaction() as db:
        ledger.sign_off(db, R, "rejection", envelope)
    return envelope


def state(ledger: Book, release: str) -> ChargeState | None:
    charge = ledger.charge(named(release))
    return charge.state if charge else None


def test_charge_goes_from_reserved_to_acked(ledger: Book) -> None:
    assert isinstance(reserve(ledger, "r"), Charge)
    states = [state(ledger, "r")]
    done = debit(ledger, "r")
    assert done == Debit(R, share(4).units, 1, APPROVALS, TABLE)
    assert isinstance(done, Debit)
    states.append(state(ledger, "r"))
    assert store_block(ledger, done)
    states.append(state(ledger, "r"))
    assert ledger.acknowledge(R)
    states.append(state(ledger, "r"))
    assert states == ["reserved", "debited", "stored", "acked"]
    assert ledger.spent() == share(4)


def test_moves_that_do_not_fit_the_state_change_nothing(ledger: Book) -> None:
    done = debited(ledger, "r")
    head = ledger.entries()[-1]["digest"]
    assert isinstance(debit(ledger, "r"), Refused)
    assert isinstance(debit(ledger, "unknown"), Refused)
    assert isinstance(ledger.redraw("unknown", snapshot=TABLE), Refused)
    assert isinstance(reserve(ledger, "r"), Refused)
    assert not ledger.acknowledge(R)
    assert not withdraw(ledger, "unknown")
    assert ledger.entries()[-1]["digest"] == head
    assert store_block(ledger, done)
    assert not store_block(ledger, done)
    assert ledger.acknowledge(R)
    assert not ledger.acknowledge(R)
    assert not withdraw(ledger, "r")
    assert isinstance(ledger.redraw(R, snapshot=TABLE), Refused)


@pytest.mark.parametrize("units", [0, -1, -(1 << 70)])
def test_charge_that_is_not_positive_is_refused(ledger: Book, units: int) -> None:
    assert reserve(ledger, "r", Rho(units)) == Refused("a charge must be positive")
    assert ledger.spent() == ZERO


def test_cap_holds_exactly_and_one_unit_more_is_refused(ledger: Book) -> None:
    assert isinstance(reserve(ledger, "most", Rho(CAP.rho.units - 1)), Charge)
    assert isinstance(reserve(ledger, "over", Rho(2)), Refused)
    assert isinstance(reserve(ledger, "fits", Rho(1)), Charge)
    refused = reserve(ledger, "none", Rho(1))
    assert isinstance(refused, Refused)
    assert "budget of population default does not suffice" in refused.reason
    assert ledger.spent() == CAP.rho
    assert ledger.shortfall(of(Rho(1))) is not None


def test_refusal_says_what_it_costs_and_what_is_left(ledger: Book) -> None:
    reserve(ledger, "r", share(2))
    refused = ledger.shortfall(of(CAP.rho))
    assert refused is not None
    assert "costs epsilon 1 and 0.684 is left of 1 " in refused.reason


def test_reservation_given_back_is_free_again_and_cannot_be_made_twice(ledger: Book) -> None:
    reserve(ledger, "r", CAP.rho)
    assert withdraw(ledger, "r")
    assert (state(ledger, "r"), ledger.spent()) == ("released", ZERO)
    assert isinstance(reserve(ledger, "r"), Refused)
    assert isinstance(debit(ledger, "r"), Refused)
    assert isinstance(reserve(ledger, "other", CAP.rho), Charge)


@pytest.mark.parametrize("stored", [False, True])
def test_withdrawal_after_the_debit_keeps_the_charge(ledger: Book, stored: bool) -> None:
    done = debited(ledger, "r")
    if stored:
        store_block(ledger, done)
    assert withdraw(ledger, "r")
    assert (state(ledger, "r"), ledger.spent()) == ("withdrawn", share(4))
    assert not store_block(ledger, done)
    assert isinstance(ledger.redraw(R, snapshot=TABLE), Refused)


def test_debit_of_an_expired_spec_is_refused(ledger: Book) -> None:
    reserve(ledger, "r")
    refused = ledger.debit(R, approvals=APPROVALS, snapshot=TABLE, now=LATER)
    assert refused == Refused("the spec has expired")
    assert state(ledger, "r") == "reserved"


def test_debit_above_a_cap_that_was_lowered_is_refused(ledger: Book) -> None:
    reserve(ledger, "r", CAP.rho)
    lowered = Book(ledger.store, cap=Cap("default", 0.5, 1e-5))
    assert isinstance(debit(lowered, "r"), Refused)
    assert state(ledger, "r") == "reserved"
    shortfall = lowered.shortfall(of(Rho(1)))
    assert shortfall is not None
    assert "and 0 is left" in shortfall.reason


def test_every_redraw_is_another_attempt_and_only_the_last_can_store(ledger: Book) -> None:
    first = debited(ledger, "r")
    second = ledger.redraw(R, snapshot=TABLE)
    assert isinstance(second, Debit)
    assert (second.attempt, second.approvals, second.rho_units) == (2, APPROVALS, share(4).units)
    assert not store_block(ledger, first)
    assert store_block(ledger, second)
    assert ledger.spent() == share(4)


def test_cap_is_the_populations_over_every_coordinator(ledger: Book) -> None:
    reserve(ledger, "r", share(2))
    assert isinstance(reserve(ledger, "s", share(2), coordinator="e" * 64), Charge)
    assert ledger.spent() == share(2) + share(2)
    assert isinstance(reserve(ledger, "t", share(2), coordinator="f" * 64), Refused)
    assert [charge.terms.coordinator for charge in ledger.charges()] == [COORDINATOR, "e" * 64]


def test_population_under_another_name_has_no_budget_of_its_own(ledger: Book) -> None:
    reserve(ledger, "a" * 64, share(2))
    renamed = Book(ledger.store, cap=Cap("staff", 1.0, 1e-5))
    assert renamed.spent() == share(2)
    refused = reserve(renamed, "b" * 64)
    assert isinstance(refused, Refused)
    assert "belongs to population default, not to staff" in refused.reason
    with pytest.raises(LedgerError, match="population default, and the settings name staff") as told:
        renamed.verify()
    assert "Set population back to default" in told.value.remedy


def test_losses_beyond_64_bits_are_kept_exactly(store: AgentStore) -> None:
    ledger = Book(store, cap=Cap("default", 1e8, 1e-5))
    huge = Rho(10**7 * RHO_UNITS + 1)
    assert huge.units.bit_length() > 64
    reserve(ledger, "a", huge)
    reserve(ledger, "b", huge)
    assert ledger.spent().units == 2 * huge.units
    assert ledger.shortfall(of(Rho(RHO_UNITS << 64))) is not None


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 10.0, 1e3])
def test_cap_never_allows_more_epsilon_than_was_said(epsilon: float) -> None:
    assert Cap("p", epsilon, 1e-5).rho.epsilon(1e-5) <= epsilon


def test_restart_keeps_everything(ledger: Book, path: Path) -> None:
    debited(ledger, "r")
    envelope = rejected(ledger)
    before = ledger.charges(), ledger.spent(), ledger.entries()
    ledger.store.close()
    store = AgentStore(path)
    again = Book(store, cap=CAP)
    assert (again.charges(), again.spent(), again.entries()) == before
    assert again.signature(R, "rejection") == envelope
    assert again.signature(R, "approval") is None
    store.close()


def test_signature_is_kept_once_and_for_all(ledger: Book) -> None:
    rejected(ledger)
    with pytest.raises(sqlite3.IntegrityError):
        rejected(ledger)
    assert len(ledger.entries()) == 1


def test_chain_links_every_change_and_never_holds_the_data_digest(ledger: Book) -> None:
    with ledger.store.reading() as db:
        assert ledger.head(db) == GENESIS
    done = debited(ledger, "r")
    store_block(ledger, done)
    ledger.acknowledge(R)
    entries = ledger.entries()
    assert [entry["kind"] for entry in entries] == ["reserved", "debited", "stored", "acked"]
    assert [entry["previous"] for entry in entries] == [GENESIS, *(entry["digest"] for entry in entries[:-1])]
    with ledger.store.reading() as db:
        assert ledger.head(db) == entries[-1]["digest"]
    assert "f" * 64 not in str(entries)
    assert TABLE not in str(entries)


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE entries SET body = replace(body, 'reserved', 'released') WHERE seq = 1",
        "UPDATE entries SET body = '\"garbage\"' WHERE seq = 2",
        "UPDATE entries SET body = 'garbage' WHERE seq = 2",
        "UPDATE entries SET digest = upper(digest) WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 1",
        "DELETE FROM entries WHERE seq = 2",
        "UPDATE entries SET seq = -seq",
    ],
)
def test_altered_chain_is_noticed(ledger: Book, tampering: str) -> None:
    store_block(ledger, debited(ledger, "r"))
    assert len(ledger.entries()) == 3
    edit(ledger, tampering)
    with pytest.raises(LedgerError, match="altered"):
        ledger.entries()


def test_exchange_at_the_whole_cap_fits_under_it_once(ledger: Book) -> None:
    """Its noise is that of the cap's epsilon at what its own delta leaves: no rounding refuses it."""
    taken = 1e-12
    rho = CAP.rho_beside(Loss(ZERO, taken))
    assert ledger.shortfall(Cost(Loss(CAP.rho, taken))) is not None
    assert ledger.shortfall(Cost(Loss(rho, taken))) is None
    answer = reserve_loss(ledger, "r", Loss(rho, taken))
    assert isinstance(answer, Charge)
    assert (answer.loss.delta, ledger.lost().loss.delta) == (taken, taken)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    assert isinstance(reserve(ledger, "another", Rho(1)), Refused)


def test_reservations_of_many_threads_do_not_pass_a_cap_that_holds_one(ledger: Book) -> None:
    answers = _at_once(8, lambda i: reserve(ledger, f"r{i}", CAP.rho))
    assert sum(isinstance(answer, Charge) for answer in answers) == 1
    assert ledger.spent() == CAP.rho


def test_one_reservation_is_debited_by_one_of_many_threads(ledger: Book) -> None:
    reserve(ledger, "r", CAP.rho)
    answers = _at_once(8, lambda _: debit(ledger, "r"))
    assert sum(isinstance(answer, Debit) for answer in answers) == 1


def test_withdrawal_and_debit_at_once_never_lose_a_charge_that_was_debited(store: AgentStore) -> None:
    ledger = Book(store, cap=Cap("default", 10.0, 1e-5))
    for i in range(20):
        release = f"r{i}"
        reserve(ledger, release, Rho(1000))
        moves: list[Callable[[], object]] = [partial(debit, ledger, release), partial(withdraw, ledger, release)]
        answers = _at_once(2, lambda j, moves=moves: moves[j]())  # type: ignore[misc]
        was_debited = any(isinstance(answer, Debit) for answer in answers)
        assert (state(ledger, release) == "withdrawn") == was_debited
    charges = ledger.charges()
    assert ledger.spent() == Rho(1000 * sum(c.state is ChargeState.WITHDRAWN for c in charges))


def _at_once(count: int, work: Callable[[int], Answer]) -> list[Answer]:
    barrier = Barrier(count)
    answers: list[Answer] = []

    def run(i: int) -> None:
        barrier.wait()
        answers.append(work(i))

    threads = [Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_cap_holds_for_rhos_and_deltas_together(ledger: Book) -> None:
    half = Loss(Rho(CAP.rho_beside(Loss(ZERO, CAP.delta / 2)).units // 2), CAP.delta / 4)
    assert isinstance(reserve_loss(ledger, "a", half), Charge)
    assert isinstance(debit(ledger, "a"), Debit)
    assert isinstance(reserve_loss(ledger, "b", half), Charge)
    assert ledger.lost() == Cost(half + half)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    assert ledger.lost().loss.epsilon(CAP.delta) == pytest.approx(CAP.epsilon, rel=1e-6)
    # the rho alone would fit under the cap at its whole delta
    assert half.rho + half.rho + Rho(RHO_UNITS // 1000) <= CAP.rho
    assert isinstance(reserve(ledger, "c", Rho(RHO_UNITS // 1000)), Refused)


def test_cap_beside_a_charge_that_is_not_known_to_be_gaussian_is_that_of_zcdp(ledger: Book) -> None:
    older = Loss(Rho(int(rho_of_epsilon(CAP.epsilon, CAP.delta) * RHO_UNITS) // 2), gaussian=False)
    ledger.adopt([("a" * 64, Cost(older), TERMS)], [], ["e" * 64], height=1)
    assert (ledger.lost().loss.gaussian, ledger.charges()[0].loss) == (False, older)
    rest = Rho(int(rho_of_epsilon(CAP.epsilon, CAP.delta) * RHO_UNITS)) - older.rho
    assert older.rho + rest < CAP.rho
    assert isinstance(reserve(ledger, "b" * 64, rest + Rho(1)), Refused)
    assert isinstance(reserve(ledger, "b" * 64, rest), Charge)
    assert ledger.lost().loss.epsilon(CAP.delta) <= CAP.epsilon
    ledger.verify()


def test_own_charge_that_a_lost_branch_used_too_is_not_known_to_be_gaussian_any_more(ledger: Book) -> None:
    assert isinstance(reserve(ledger, "a" * 64), Charge)
    ledger.adopt([("a" * 64, Cost(Loss(share(4), gaussian=False)), TERMS)], [], ["e" * 64], height=1)
    assert ledger.lost() == Cost(Loss(share(4), gaussian=False))
    ledger.verify()


def test_ledger_of_gaussian_charges_reaches_the_cap_by_the_exact_curve(ledger: Book) -> None:
    debited(ledger, "a")
    assert isinstance(reserve(ledger, "b", CAP.rho - share(4)), Charge)
    assert ledger.lost().loss.epsilon(CAP.delta) == pytest.approx(CAP.epsilon, rel=1e-9)
    assert float(CAP.rho) > 1.1 * rho_of_epsilon(CAP.epsilon, CAP.delta)


def test_delta_that_is_used_up_is_refused_in_words(ledger: Book) -> None:
    refused = reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta))
    assert isinstance(refused, Refused)
    assert "takes a delta of 1e-05 in full, and 1e-05 is left of 1e-05" in refused.reason
    assert isinstance(reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta * 0.9)), Charge)
    assert isinstance(reserve_loss(ledger, "b", Loss(Rho(1), CAP.delta * 0.2)), Refused)


def test_released_charge_gives_its_delta_back(ledger: Book) -> None:
    reserve_loss(ledger, "a", Loss(Rho(1), CAP.delta / 2))
    withdraw(ledger, "a")
    assert ledger.lost() == FREE


def test_sums_of_both_figures_are_those_of_their_charges(ledger: Book) -> None:
    """Of keyed data sets each by itself; of a listed one both are what it was charged."""
    keyed = [(Loss(Rho(5), 1e-7), Loss(Rho(9), 2e-7)), (Loss(Rho(4)), Loss(Rho(1)))]
    for place, (loss, replacement) in enumerate(keyed):
        assert isinstance(reserve_loss(ledger, str(place) * 64, loss, replacement), Charge)
    assert ledger.lost() == Cost(Loss(Rho(9), 1e-7), Loss(Rho(10), 2e-7))
    assert isinstance(reserve_loss(ledger, "a" * 64, Loss(Rho(100))), Charge)
    assert ledger.lost() == Cost(Loss(Rho(109), 1e-7), Loss(Rho(110), 2e-7))
    ledger.adopt([("1" * 64, Cost(*keyed[1]), TERMS)], [], ["e" * 64], height=1)
    assert [charge.cost for charge in ledger.charges()][1] == Cost(*keyed[1]).approximate()
    assert ledger.summit().spent == Cost(*keyed[1]).approximate()
    ledger.verify()


@pytest.mark.parametrize(("loss", "replacement"), [(3, 1), (1, 3)])
@pytest.mark.parametrize("counts", [False, True])
def test_cap_counts_the_second_figure_where_the_policy_says_so_and_the_first_always(
    ledger: Book, loss: int, replacement: int, *, counts: bool
) -> None:
    book = Book(ledger.store, cap=CAP, counts_replacement=lambda: counts)
    quarter = share(4).units
    for release in "ab":
        answer = reserve_loss(book, release, Loss(Rho(loss * quarter)), Loss(Rho(replacement * quarter)))
        if release == "a" or (loss == 1 and not counts):
            assert isinstance(answer, Charge)
        else:
            assert isinstance(answer, Refused)
            assert ("add_remove" if loss == 3 else "replace_one") in answer.reason


def test_debit_of_a_second_figure_that_the_policy_has_come_to_count_is_refused(ledger: Book) -> None:
    assert isinstance(reserve_loss(ledger, "r", Loss(share(4)), Loss(share(1) + share(4))), Charge)
    stricter = Book(ledger.store, cap=CAP, counts_replacement=lambda: True)
    assert isinstance(debit(stricter, "r"), Refused)
    assert isinstance(debit(ledger, "r"), Debit)


ALTERED = {
    "population": "other",
    "rho_units": "1",
    "delta": 0.0,
    "replacement_units": "3",
    "replacement_delta": 0.0,
    "kind": "released",
    "dataset": "other",
    "study": "other",
    "purpose": "release",
    "expires": "2036-01-02T00:00:00+00:00",
    "coordinator": "other",
    "release": "b" * 64,
}


@pytest.mark.parametrize("fact", ALTERED)
@pytest.mark.parametrize("linked", [False, True])
def test_charge_of_which_any_fact_was_altered_is_noticed(ledger: Book, fact: str, linked: bool) -> None:
    """Also where the forger has made the entry's own digest fit."""
    reserve_loss(ledger, "a" * 64, Loss(Rho(2), CAP.delta / 2), Loss(Rho(7), CAP.delta / 3))
    ledger.verify()
    body = json.dumps({**json.loads(ledger.history()[0][0]), fact: ALTERED[fact]}, sort_keys=True)
    digest = sha256(body.encode()).hexdigest() if linked else ledger.summit().head
    edit(ledger, "UPDATE entries SET body = ?, digest = ?", body, digest)
    with pytest.raises(LedgerError):
        ledger.verify()


def test_newest_entries_that_were_removed_are_noticed(ledger: Book) -> None:
    store_block(ledger, debited(ledger, "r"))
    edit(ledger, "DELETE FROM entries WHERE seq > 1")
    with pytest.raises(LedgerError, match="altered or is missing"):
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
    "tampering",
    [
        "DELETE FROM entries",
        "DELETE FROM to_read",
        "DELETE FROM signatures",
        "UPDATE signatures SET digest = 'x'",
        "UPDATE signatures SET kind = 'approval'",
        "UPDATE to_read SET snapshot = 'another'",
        "UPDATE entries SET body = replace(body, 'reserved', 'unheard of')",
        "DROP TABLE to_read",
    ],
)
def test_what_else_was_altered_is_a_clear_refusal(ledger: Book, tampering: str) -> None:
    reserve(ledger, "r")
    rejected(ledger)
    ledger.verify()
    edit(ledger, tampering)
    with pytest.raises(LedgerError):
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
