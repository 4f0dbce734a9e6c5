"""A ledger with the file that its agent writes, and what is asked of it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

from commingle.party_agent.ledger.ledger import Cap, Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.snapshot import Debit
from commingle.shared.documents.dsse import Envelope, SigningKey, seal
from commingle.shared.documents.statements import Rejection
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.release.charge import GENESIS, Charge, ChargeState, ChargeTerms
from commingle.shared.release.rounds import Refused
from tests.world.tampering import NOW

COORDINATOR = "c" * 64
APPROVALS = "a" * 64
TABLE = "d" * 64
CAP = Cap("default", 1.0, 1e-5)
LATER = NOW + timedelta(hours=1)
TERMS = ChargeTerms(dataset="main", study="s", kind="release", expires=LATER, coordinator="")


def named(name: str) -> str:
    """A release's id."""
    return name if len(name) == len(COORDINATOR) else sha256(name.encode()).hexdigest()


R = named("r")


class Book(Ledger):
    """A ledger, and the file that its agent writes."""

    def __init__(self, store: AgentStore, *, cap: Cap, counts_replacement: Callable[[], bool] = lambda: False) -> None:
        super().__init__(store, cap=cap, counts_replacement=counts_replacement)
        self.store = store


def share(count: int) -> Rho:
    """A charge of which exactly so many fit under the cap."""
    return Rho(CAP.rho.units // count)


def reserve(ledger: Book, release: str, rho: Rho | None = None, *, coordinator: str = COORDINATOR) -> Charge | Refused:
    return reserve_cost(ledger, release, of(share(4) if rho is None else rho), coordinator=coordinator)


def reserve_cost(ledger: Book, release: str, cost: Cost, **facts: Any) -> Charge | Refused:
    with ledger.store.transaction() as db:
        return ledger.reserve(db, named(release), cost, replace(TERMS, **facts), snapshot=TABLE)


def of(rho: Rho) -> Cost:
    """What a listed data set is charged."""
    return Cost(Loss(rho))


def reserve_loss(ledger: Book, release: str, loss: Loss, replacement: Loss | None = None) -> Charge | Refused:
    return reserve_cost(ledger, release, Cost(loss, replacement), kind="regression")


def debit(ledger: Book, release: str) -> Debit | Refused:
    return ledger.debit(named(release), approvals=APPROVALS, now=NOW)


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
