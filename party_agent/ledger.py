"""The durable privacy ledger: debit before noise, and never under-count (protocol.md section 6).

States of a charge: reserved -> debited -> stored -> acked, or released (before the debit), or withdrawn (after it).
Everything but `released` counts against the cap. Every change is an entry of a hash chain in the same transaction; the
chain's head goes into every signature the agent makes.
"""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Literal

from commingle.party_agent.errors import LedgerError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.store import Store
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.dp.accounting import ZERO, Loss, Rho, rho_room
from commingle.shared.mechanisms.moments.exchange.terms import once

GENESIS = "0" * 64
ChargeKind = Literal["release", "regression"]


class ChargeState(StrEnum):
    """Where a charge stands."""

    RESERVED = "reserved"
    DEBITED = "debited"
    STORED = "stored"
    ACKED = "acked"
    RELEASED = "released"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Cap:
    """The most a population's data may ever lose, under replace_one.

    Charges with a delta that were chosen in view of earlier answers add their deltas to it once more
    (docs/proofs/noise-and-accounting.md, 5.5).
    """

    population: str
    epsilon: float
    delta: float

    @property
    def rho(self) -> Rho:
        """The cap in the ledger's unit, rounded down."""
        return self.rho_beside(0.0)

    def rho_beside(self, delta: float) -> Rho:
        """The same where losses have used up a `delta` of the cap's."""
        return rho_room(self.epsilon, self.delta, used=delta)


@dataclass(frozen=True, slots=True)
class Charge:
    """One charge as the ledger has it.

    Attributes:
        release: the release's id, or the regression's.
        delta: with `rho` a delta-approximate rho-zCDP loss; 0 for releases.
    """

    coordinator: str
    release: str
    population: str
    rho: Rho
    state: ChargeState
    attempt: int
    dataset: str
    data_sha256: str = field(repr=False)
    study: str
    expires: datetime
    approvals: str | None
    body_sha256: str | None
    delta: float = 0.0
    kind: ChargeKind = "release"

    @property
    def loss(self) -> Loss:
        """What it costs."""
        return Loss(self.rho, self.delta)


@dataclass(frozen=True, slots=True)
class Debit:
    """Proof of a committed debit: what every way out of the private room asks for. Only `Ledger` makes one.

    Attributes:
        attempt: which drawing of noise this debit is for.
        approvals: digest of the set of approvals relied on.
        table: digest of the table as it was registered.
    """

    release: str
    rho_units: int
    attempt: int
    approvals: str
    table: TableDigest = field(repr=False)
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The ledger declines: an expected answer, not a fault."""

    reason: str


class Ledger:
    """The charges of one party under one coordinator."""

    def __init__(self, store: Store, *, cap: Cap, coordinator: str) -> None:
        self._store = store
        self._coordinator = coordinator
        self.cap = cap

    def reserve(
        self,
        db: sqlite3.Connection,
        release: str,
        rho: Rho,
        *,
        dataset: str,
        data_sha256: str,
        study: str,
        expires: datetime,
        delta: float = 0.0,
        kind: ChargeKind = "release",
    ) -> Charge | Refused:
        """Set budget aside for an approval, in the transaction that also records its signature.

        `data_sha256` says which rows the approval was about. It is no part of the chain: heads are published, and
        whoever can guess a row must not be able to test the guess against one.
        """
        if rho.units <= 0:
            return Refused("a charge must be positive")
        if (known := self._find(db, release)) is not None:
            return Refused(f"this release has been charged already ({known.state})")
        if (short := self._shortfall(db, Loss(rho, delta))) is not None:
            return short
        db.execute(
            "INSERT INTO charges VALUES (?, ?, ?, ?, 'reserved', 0, ?, ?, ?, ?, NULL, NULL, ?, ?)",
            (
                self._coordinator,
                release,
                self.cap.population,
                str(rho.units),
                dataset,
                data_sha256,
                study,
                expires.isoformat(),
                delta,
                kind,
            ),
        )
        facts = {"delta": delta} if delta else {}
        self._append(db, "reserved", release, rho_units=str(rho.units), population=self.cap.population, **facts)
        return self.charge_in(db, release)

    def debit(self, release: str, *, approvals: str, table: TableDigest, now: datetime) -> Debit | Refused:
        """Spend a reservation, in one transaction with the checks of cap and expiry.

        The caller has verified every member's approval of this release; `approvals` names that set.
        """
        with self._store.transaction() as db:
            return self.debit_in(db, release, approvals=approvals, table=table, now=now)

    def debit_in(
        self, db: sqlite3.Connection, release: str, *, approvals: str, table: TableDigest, now: datetime
    ) -> Debit | Refused:
        """The same inside a transaction; the debit counts once that is committed."""
        charge = self._find(db, release)
        if charge is None or charge.state is not ChargeState.RESERVED:
            return Refused(f"nothing is reserved for this release ({charge.state if charge else 'no charge'})")
        if now >= charge.expires:
            return Refused("the spec has expired")
        lost = self.lost_in(db)
        if lost.rho > self.cap.rho_beside(lost.delta):
            return Refused("the cap has been lowered below what is reserved")
        self._move(db, release, [ChargeState.RESERVED], ChargeState.DEBITED, attempt=1, approvals=approvals)
        return Debit(release, charge.rho.units, 1, approvals, table, charge.delta)

    def redraw(self, release: str, *, table: TableDigest) -> Debit | Refused:
        """After a crash between debit and storage nothing can have left: draw again under the same charge."""
        with self._store.transaction() as db:
            charge = self._find(db, release)
            if charge is None or charge.state is not ChargeState.DEBITED or charge.approvals is None:
                return Refused("the release is not waiting for its block")
            attempt = charge.attempt + 1
            self._move(db, release, [ChargeState.DEBITED], ChargeState.DEBITED, attempt=attempt)
        return Debit(release, charge.rho.units, attempt, charge.approvals, table, charge.delta)

    def record_block(self, db: sqlite3.Connection, debit: Debit, body_sha256: str) -> bool:
        """Record that this attempt's block is on disk. False if another attempt has taken over."""
        return self._move(
            db,
            debit.release,
            [ChargeState.DEBITED],
            ChargeState.STORED,
            expected_attempt=debit.attempt,
            body_sha256=body_sha256,
        )

    def acknowledge(self, release: str) -> bool:
        """The coordinator has the block."""
        with self._store.transaction() as db:
            return self._move(db, release, [ChargeState.STORED], ChargeState.ACKED)

    def withdraw(self, db: sqlite3.Connection, release: str) -> bool:
        """Give up a release. Before the debit the reservation returns; after it the charge stays."""
        return self._move(db, release, [ChargeState.RESERVED], ChargeState.RELEASED) or self._move(
            db, release, [ChargeState.DEBITED, ChargeState.STORED], ChargeState.WITHDRAWN
        )

    def charge(self, release: str) -> Charge | None:
        """The charge of a release, if there is one."""
        with self._store.reading() as db:
            return self._find(db, release)

    def charge_in(self, db: sqlite3.Connection, release: str) -> Charge:
        """The charge of a release that must have one. Raises LedgerError."""
        charge = self._find(db, release)
        if charge is None:
            raise LedgerError("a charge has vanished", remedy="Stop the agent and restore the ledger's backup.")
        return charge

    def charges(self) -> list[Charge]:
        """All charges under this coordinator and any other, oldest first."""
        with self._store.reading() as db:
            return [_charge(row) for row in db.execute("SELECT * FROM charges ORDER BY rowid")]

    def spent(self) -> Rho:
        """What the population has lost or set aside, over every coordinator."""
        return self.lost().rho

    def lost(self) -> Loss:
        """The same with the deltas of charges that have one."""
        with self._store.reading() as db:
            return self.lost_in(db)

    def lost_in(self, db: sqlite3.Connection) -> Loss:
        """The same, inside a transaction."""
        rows = db.execute(
            "SELECT rho_units, delta FROM charges WHERE population = ? AND state <> 'released'", (self.cap.population,)
        )
        return sum((Loss(Rho(int(row["rho_units"])), row["delta"]) for row in rows), start=Loss(ZERO))

    def shortfall(self, rho: Rho, *, delta: float = 0.0) -> Refused | None:
        """Why a charge would not fit under the cap now, or None."""
        with self._store.reading() as db:
            return self._shortfall(db, Loss(rho, delta))

    def head(self, db: sqlite3.Connection) -> str:
        """Digest of the last entry of the chain."""
        row = db.execute("SELECT digest FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return row["digest"] if row else GENESIS

    def sign_off(self, db: sqlite3.Connection, release: str, kind: str, envelope: Envelope) -> None:
        """Keep a signature of ours, once and for all, with its chain entry."""
        db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?)", (release, kind, envelope.to_json(), envelope.digest))
        self._append(db, "signed", release, document=kind, digest=envelope.digest)

    def receive(self, release: str, kind: str, envelope: Envelope) -> None:
        """Keep what the coordinator signed for a release, with its chain entry: the first, and never another.

        Raises:
            ExchangeError: another one was received before.
        """
        with self._store.transaction() as db:
            held = db.execute(
                "SELECT digest FROM signatures WHERE release = ? AND kind = ?", (release, kind)
            ).fetchone()
            once(held and held["digest"], envelope.digest, what=kind)
            if held is None:
                row = (release, kind, envelope.to_json(), envelope.digest)
                db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?)", row)
                self._append(db, "received", release, document=kind, digest=envelope.digest)

    def signature(self, release: str, kind: str) -> Envelope | None:
        """A signature of ours, as it was made, or what was received."""
        with self._store.reading() as db:
            row = db.execute(
                "SELECT envelope FROM signatures WHERE release = ? AND kind = ?", (release, kind)
            ).fetchone()
        return parse_envelope(row["envelope"]) if row else None

    def history(self) -> tuple[tuple[str, ...], tuple[Envelope, ...]]:
        """The chain's texts and, the oldest first, our signed documents that are published when a release is."""
        with self._store.reading() as db:
            bodies = db.execute("SELECT body FROM entries ORDER BY seq").fetchall()
            signed = db.execute(
                "SELECT envelope FROM signatures WHERE kind IN ('approval', 'block', 'rejection', 'regression') "
                "ORDER BY rowid"
            ).fetchall()
        return tuple(row["body"] for row in bodies), tuple(parse_envelope(row["envelope"]) for row in signed)

    def entries(self) -> list[Mapping[str, Any]]:
        """The chain, verified.

        Raises:
            LedgerError: an entry was altered or is missing.
        """
        with self._store.reading() as db:
            rows = db.execute("SELECT * FROM entries ORDER BY seq").fetchall()
        previous = GENESIS
        found: list[Mapping[str, Any]] = []
        for row in rows:
            intact = sha256(row["body"].encode()).hexdigest() == row["digest"]
            body = json.loads(row["body"]) if intact else {}
            if body.get("previous") != previous:
                raise LedgerError(
                    f"entry {row['seq']} of the ledger's chain was altered", remedy="Restore the ledger's backup."
                )
            previous = row["digest"]
            found.append({**body, "seq": row["seq"], "digest": row["digest"]})
        return found

    def verify(self) -> None:
        """Hold the charges against the chain.

        Raises:
            LedgerError: one of them was altered by something else than this agent.
        """
        told: dict[str, tuple[str, str, float]] = {}
        for entry in self.entries():
            if entry["kind"] in set(ChargeState):
                new = ("", str(entry.get("rho_units")), float(entry.get("delta", 0.0)))
                _, rho, delta = told.get(entry["release"], new)
                told[entry["release"]] = (entry["kind"], rho, delta)
        kept = {charge.release: (charge.state.value, str(charge.rho.units), charge.delta) for charge in self.charges()}
        if told != kept:
            raise LedgerError("the charges are not those of the ledger's chain", remedy="Restore the ledger's backup.")

    def _shortfall(self, db: sqlite3.Connection, loss: Loss) -> Refused | None:
        lost = self.lost_in(db)
        total = lost + loss
        if total.rho <= self.cap.rho_beside(total.delta):
            return None
        if total.delta >= self.cap.delta:
            return Refused(
                f"the budget of population {self.cap.population} does not suffice: it takes a delta of {loss.delta:g} "
                f"in full, and {max(self.cap.delta - lost.delta, 0):g} is left of {self.cap.delta:g}"
            )
        delta = self.cap.delta - total.delta
        wants, has = loss.rho.epsilon(delta), (self.cap.rho_beside(total.delta) - lost.rho).epsilon(delta)
        return Refused(
            f"the budget of population {self.cap.population} does not suffice: the release costs epsilon {wants:.3g} "
            f"and {has:.3g} is left of {self.cap.epsilon:g} (at delta {delta:g}, replace_one)"
        )

    def _find(self, db: sqlite3.Connection, release: str) -> Charge | None:
        row = db.execute(
            "SELECT * FROM charges WHERE coordinator = ? AND release = ?", (self._coordinator, release)
        ).fetchone()
        return _charge(row) if row else None

    def _move(
        self,
        db: sqlite3.Connection,
        release: str,
        sources: list[ChargeState],
        target: ChargeState,
        *,
        expected_attempt: int | None = None,
        **facts: str | int,
    ) -> bool:
        charge = self._find(db, release)
        if charge is None or charge.state not in sources or expected_attempt not in {None, charge.attempt}:
            return False
        assignments = "".join(f", {name} = ?" for name in facts)
        db.execute(
            f"UPDATE charges SET state = ?{assignments} WHERE coordinator = ? AND release = ?",  # noqa: S608 - names are ours
            (target.value, *facts.values(), self._coordinator, release),
        )
        self._append(db, target.value, release, **facts)
        return True

    def _append(self, db: sqlite3.Connection, kind: str, release: str, **facts: str | float) -> None:
        entry = {"kind": kind, "release": release, "previous": self.head(db), **facts}
        body = json.dumps(entry, sort_keys=True)
        db.execute("INSERT INTO entries (body, digest) VALUES (?, ?)", (body, sha256(body.encode()).hexdigest()))


def _charge(row: sqlite3.Row) -> Charge:
    return Charge(
        coordinator=row["coordinator"],
        release=row["release"],
        population=row["population"],
        rho=Rho(int(row["rho_units"])),
        state=ChargeState(row["state"]),
        attempt=row["attempt"],
        dataset=row["dataset"],
        data_sha256=row["data_sha256"],
        study=row["study"],
        expires=datetime.fromisoformat(row["expires"]),
        approvals=row["approvals"],
        body_sha256=row["body_sha256"],
        delta=row["delta"],
        kind=row["kind"],
    )
