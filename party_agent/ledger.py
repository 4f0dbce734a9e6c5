"""The durable privacy ledger: debit before noise, and never under-count.

Which moves a charge may make is told by `shared.release.charge`. Every change is an entry of a hash chain in the same
transaction; the chain's head goes into every signature the agent makes. One ledger is one population's, and its cap
holds over all that is in it, whichever consortium it was for and whatever the population is called.
"""

import json
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

import structlog

from commingle.party_agent.charges import COSTS, record_of, sum_of
from commingle.party_agent.charges import ChargeRecord as ChargeRecord  # noqa: PLC0414 - a ledger gives them out
from commingle.party_agent.errors import LedgerError
from commingle.party_agent.ledger_verification import verified_entries, verify_ledger
from commingle.party_agent.rulings import Ruling
from commingle.party_agent.store import RESTORE, AgentStore
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.statements import FIRST_APPROVAL
from commingle.shared.dp.accounting import NOTHING, Cost, Loss, Rho, rho_left
from commingle.shared.release.charge import (
    GENESIS,
    REJOINED,
    Acknowledge,
    Adopt,
    Charge,
    ChargeKind,
    ChargeTerms,
    RecordBlock,
    Redraw,
    Reserve,
    Spend,
    Withdraw,
    adopted_kind,
    advance,
    entry_facts,
    link_digest,
    link_text,
    populations_of,
    refuse_signature,
)
from commingle.shared.release.rounds import Refused

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Cap:
    """The most a population's data may ever lose, in the unit of each data set.

    Charges with a delta that were chosen in view of earlier answers add their deltas to it once more
    (docs/proofs/noise-and-accounting.md, 6.5).
    """

    population: str
    epsilon: float
    delta: float

    @property
    def rho(self) -> Rho:
        """The cap as rho, rounded down."""
        return self.rho_beside(NOTHING)

    def rho_beside(self, lost: Loss) -> Rho:
        """The same where losses have used up a delta of the cap's, or are not all known to be Gaussian."""
        return rho_left(self.epsilon, self.delta, beside=lost)


@dataclass(frozen=True, slots=True)
class Debit:
    """Proof of a committed debit: what every function that reads rows asks for. Only `Ledger` makes one.

    Attributes:
        attempt: which drawing of noise this debit is for.
        approvals: digest of the set of approvals relied on.
        snapshot: digest of the one that may be read.
    """

    release: str
    rho_units: int
    attempt: int
    approvals: str
    snapshot: str = field(repr=False)
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Summit:
    """How far the chain has come.

    Attributes:
        height: see `shared.release.charge.height_after`.
        spent: what was debited or adopted so far and never comes back.
    """

    height: int
    head: str
    spent: Cost


class Ledger:
    """The charges of one party, over all its consortia."""

    def __init__(self, store: AgentStore, *, cap: Cap, counts_replacement: Callable[[], bool] = lambda: False) -> None:
        """On a store.

        Args:
            store: the file.
            cap: of all charges.
            counts_replacement: whether the cap holds for replacement of keyed subjects besides: the policy says so.
        """
        self._store = store
        self._counts_replacement = counts_replacement
        self.cap = cap

    @property
    def counts_replacement(self) -> bool:
        """As the policy says now."""
        return self._counts_replacement()

    def reserve(
        self,
        db: sqlite3.Connection,
        release: str,
        cost: Cost,
        *,
        dataset: str,
        snapshot: str,
        study: str,
        expires: datetime,
        kind: ChargeKind = "release",
        coordinator: str = "",
    ) -> ChargeRecord | Refused:
        """Set budget aside for an approval, in the transaction that also records its signature.

        `snapshot` names the one that was approved and that will be read.
        """
        terms = ChargeTerms(dataset=dataset, study=study, kind=kind, expires=expires, coordinator=coordinator)
        reserved = advance(self._find(db, release), Reserve(self.cap.population, cost, terms))
        if isinstance(reserved, Refused):
            return reserved
        if (refused := self._other_population(db) or self._shortfall(db, reserved.cost)) is not None:
            return refused
        self._add(db, release, reserved, terms, snapshot=snapshot)
        return self.charge_in(db, release)

    def debit(self, release: str, *, approvals: str, snapshot: str, now: datetime) -> Debit | Refused:
        """Spend a reservation, in one transaction with the checks of cap and expiry.

        The caller has verified every member's approval of this release; `approvals` names that set.
        """
        with self._store.transaction() as db:
            debit = self.debit_in(db, release, approvals=approvals, snapshot=snapshot, now=now)
        if isinstance(debit, Debit):
            _log.info("debited", release=release, rho=float(Rho(debit.rho_units)))
        return debit

    def debit_in(
        self, db: sqlite3.Connection, release: str, *, approvals: str, snapshot: str, now: datetime
    ) -> Debit | Refused:
        """The same inside a transaction; the debit counts once that is committed."""
        spent = advance(self._find(db, release), Spend(approvals))
        if isinstance(spent, Refused):
            return spent
        charge = self.charge_in(db, release)
        if now >= charge.expires:
            return Refused("the spec has expired")
        lost = self.lost_in(db).counted(replacement=self.counts_replacement)
        if any(loss.rho > self.cap.rho_beside(loss) for _, loss in lost):
            return Refused("the cap has been lowered below what is reserved")
        self._write(db, charge, spent)
        return Debit(release, charge.rho.units, spent.attempt, approvals, snapshot, charge.delta)

    def redraw(self, release: str, *, snapshot: str) -> Debit | Refused:
        """After a crash between debit and storage nothing can have left: draw again under the same charge."""
        with self._store.transaction() as db:
            charge = self._move(db, release, Redraw())
        if isinstance(charge, Refused):
            return charge
        if charge.approvals is None:
            raise LedgerError("a debit names no approvals", remedy=RESTORE)
        return Debit(release, charge.rho.units, charge.attempt, charge.approvals, snapshot, charge.delta)

    def record_block(self, db: sqlite3.Connection, debit: Debit, body_sha256: str) -> bool:
        """Record that this attempt's block is on disk. False if another attempt has taken over."""
        return not isinstance(self._move(db, debit.release, RecordBlock(debit.attempt, body_sha256)), Refused)

    def acknowledge(self, release: str) -> bool:
        """The coordinator has the block."""
        with self._store.transaction() as db:
            return not isinstance(self._move(db, release, Acknowledge()), Refused)

    def withdraw(self, db: sqlite3.Connection, release: str) -> bool:
        """Give up a release. Before the debit the reservation returns; after it the charge stays."""
        return not isinstance(self._move(db, release, Withdraw()), Refused)

    def release_expired(self, now: datetime) -> None:
        """Give back what is reserved for specs that have expired: nothing can be debited for them any more."""
        with self._store.reading() as db:
            reserved = db.execute("SELECT release, expires FROM charges WHERE state = 'reserved'").fetchall()
        for row in reserved:
            if now >= datetime.fromisoformat(row["expires"]):
                with self._store.transaction() as db:
                    self.withdraw(db, row["release"])

    def charge(self, release: str) -> ChargeRecord | None:
        """The charge of a release, if there is one."""
        with self._store.reading() as db:
            return self._find(db, release)

    def charge_in(self, db: sqlite3.Connection, release: str) -> ChargeRecord:
        """The charge of a release that must have one. Raises LedgerError."""
        charge = self._find(db, release)
        if charge is None:
            raise LedgerError("a charge has vanished", remedy=RESTORE)
        return charge

    def charges(self) -> list[ChargeRecord]:
        """All of them, oldest first."""
        with self._store.reading() as db:
            return [record_of(row) for row in db.execute("SELECT * FROM charges ORDER BY rowid")]

    def spent(self) -> Rho:
        """Rho of `lost`, each charge in the unit of its data set."""
        return self.lost().loss.rho

    def lost(self) -> Cost:
        """What was lost or set aside, over every consortium."""
        with self._store.reading() as db:
            return self.lost_in(db)

    def lost_in(self, db: sqlite3.Connection) -> Cost:
        """The same, inside a transaction."""
        return sum_of(db.execute(f"SELECT {COSTS} FROM charges WHERE state <> 'released'"))  # noqa: S608 - ours

    def lost_by(self, datasets: Collection[str], *, without: str | None) -> Cost:
        """What these data sets have lost or set aside, but for one release."""
        places = ", ".join("?" * len(datasets))
        return self._lost_where(f"dataset IN ({places}) AND release IS NOT ?", *datasets, without)

    def lost_to_study(self, study: str, *, without: str) -> Cost:
        """What releases of a study have cost or set aside, but for one."""
        return self._lost_where("kind = 'release' AND study = ? AND release <> ?", study, without)

    def lost_to_releases(self, *, proposer: str | None = None) -> Cost:
        """What releases have cost or set aside: those of one proposer, or all."""
        proposed = (
            "SELECT release FROM proposals WHERE spec <> x'' AND json_extract(CAST(spec AS TEXT), '$.proposer') = ?"
        )
        those = () if proposer is None else (proposer,)
        return self._lost_where(f"kind = 'release' AND {f'release IN ({proposed})' if those else 'TRUE'}", *those)

    def _lost_where(self, condition: str, *values: str | None) -> Cost:
        which = f"SELECT {COSTS} FROM charges WHERE state <> 'released' AND {condition}"  # noqa: S608 - ours
        with self._store.reading() as db:
            return sum_of(db.execute(which, values))

    def interrupted_regressions(self) -> tuple[str, ...]:
        """Ids of regressions that are paid for and have no result."""
        which = "SELECT release FROM charges WHERE kind = 'regression' AND state = 'debited'"
        with self._store.reading() as db:
            return tuple(row["release"] for row in db.execute(which))

    @property
    def populations(self) -> tuple[str, ...]:
        """Whose data the charges are about: one, but for ledgers of an earlier version."""
        return populations_of(self.charges())

    def shortfall(self, cost: Cost) -> Refused | None:
        """Why a charge would not fit under the cap now, or None."""
        with self._store.reading() as db:
            return self._shortfall(db, cost)

    def head(self, db: sqlite3.Connection) -> str:
        """Digest of the last entry of the chain."""
        row = db.execute("SELECT digest FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        return row["digest"] if row else GENESIS

    @property
    def length(self) -> int:
        """How many entries the chain has."""
        with self._store.reading() as db:
            return int(db.execute("SELECT COUNT(*) FROM entries").fetchone()[0])

    def summit(self) -> Summit:
        """How far the chain has come."""
        with self._store.reading() as db:
            entries = self.length
            rejoined = _rejoined(db)
            since = entries - rejoined[-1]["seq"] if rejoined else entries
            height = json.loads(rejoined[-1]["body"])["height"] + since if rejoined else entries
            spent = f"SELECT {COSTS} FROM charges WHERE state NOT IN ('reserved', 'released')"  # noqa: S608 - ours
            return Summit(height, self.head(db), sum_of(db.execute(spent)))

    def knows(self, head: str) -> bool:
        """Whether the chain had this head, or has rejoined a branch with it."""
        with self._store.reading() as db:
            if head == GENESIS or db.execute("SELECT 1 FROM entries WHERE digest = ?", (head,)).fetchone():
                return True
            return any(head in json.loads(row["body"])["heads"] for row in _rejoined(db))

    def place(self, head: str) -> int:
        """How many entries led to this head; 0 where it is none of the chain's own."""
        with self._store.reading() as db:
            row = db.execute("SELECT seq FROM entries WHERE digest = ?", (head,)).fetchone()
        return row["seq"] if row else 0

    def signed_place(self, kind: str, release: str | None = None) -> int:
        """Which entry of the chain records our newest signature of a kind, about that release; 0 for none."""
        which = "SELECT seq, json_extract(body, '$.release') AS release FROM entries "
        with self._store.reading() as db:
            rows = db.execute(
                which + "WHERE json_extract(body, '$.kind') = 'signed' AND json_extract(body, '$.document') = ? "
                "ORDER BY seq DESC",
                (kind,),
            )
            return next((row["seq"] for row in rows if release in {None, row["release"]}), 0)

    def adopt(
        self,
        charges: Iterable[tuple[str, Cost, ChargeTerms]],
        signed: Iterable[tuple[str, str, Envelope]],
        heads: Iterable[str],
        *,
        height: int,
    ) -> None:
        """Take over what witnesses can show of a lost branch, in one transaction.

        Args:
            charges: id, cost and terms; what is charged here already stays at that and is never made again.
            signed: release, kind and envelope of what the branch signed.
            heads: the branch's, as witnessed; the last is the furthest.
            height: its.
        """
        rejoined = tuple(heads)
        with self._store.transaction() as db:
            for release, kind, envelope in signed:
                self._keep(db, "received", release, adopted_kind(kind), envelope)
            for release, cost, terms in charges:
                current = self._find(db, release)
                adopted = advance(current, Adopt(self.cap.population, cost, terms))
                if isinstance(adopted, Refused):
                    raise LedgerError(adopted.reason, remedy="Report this.")
                if current is None:
                    self._add(db, release, adopted, terms, snapshot="")
                else:
                    self._write(db, current, adopted)
            if rejoined:
                beyond = max(height, self.summit().height) + 1
                self._append(db, REJOINED, rejoined[-1], heads=rejoined, height=beyond)

    def sign_off(
        self, db: sqlite3.Connection, release: str, kind: str, envelope: Envelope, ruling: Ruling | None = None
    ) -> None:
        """Keep a signature of ours, once and for all, with its chain entry.

        Args:
            db: the transaction.
            release: what it is about.
            kind: of the document.
            envelope: of the document.
            ruling: of the person who decided it; None where nobody did.

        Raises:
            LedgerError: the charge is not where this may be signed (a fault of the caller).
        """
        if (refused := refuse_signature(self._find(db, release), kind)) is not None:
            raise LedgerError(refused.reason, remedy="Report this.")
        # heads are published: the salt keeps a name from being tested against one
        note = {} if ruling is None else {**asdict(ruling), "salt": secrets.token_hex(16)}
        self._keep(db, "signed", release, kind, envelope, **note)

    def notes(self) -> Mapping[str, list[dict[str, str]]]:
        """By whom and why documents were signed, by release, where a person decided it; the oldest first."""
        told = ", ".join(f"json_extract(body, '$.{name}') AS {name}" for name in ("release", "document", "by", "why"))
        found = defaultdict[str, list[dict[str, str]]](list)
        with self._store.reading() as db:
            which = "WHERE json_extract(body, '$.by') IS NOT NULL ORDER BY seq"
            for row in db.execute(f"SELECT {told} FROM entries {which}"):  # noqa: S608 - names of ours
                found[row["release"]].append({name: row[name] for name in ("document", "by", "why")})
        return found

    def first_approval(self, release: str) -> Ruling | None:
        """The first of two approvals of a release, where it waits for the second or has had it."""
        signed = "json_extract(body, '$.kind') = 'signed' AND json_extract(body, '$.document') = ?"  # the index's words
        which = f"SELECT body FROM entries WHERE {signed} AND json_extract(body, '$.release') = ?"  # noqa: S608 - ours
        with self._store.reading() as db:
            row = db.execute(which, (FIRST_APPROVAL, release)).fetchone()
        said = {} if row is None else json.loads(row["body"])
        return Ruling(**{each.name: said[each.name] for each in fields(Ruling)}) if said else None

    def signature(self, release: str, kind: str) -> Envelope | None:
        """A signature of ours, as it was made; or of a lost branch of this ledger."""
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
            return verified_entries(db)

    def verify(self) -> None:
        """Hold all that is in the file against the chain and the checks. Raises LedgerError (`ledger_verification`)."""
        with self._store.reading() as db:
            verify_ledger(db, population=self.cap.population)

    def _shortfall(self, db: sqlite3.Connection, cost: Cost) -> Refused | None:
        lost, asked = (one.counted(replacement=self.counts_replacement) for one in (self.lost_in(db), cost))
        found = (self._short(lost[i][1], loss, unit) for i, (unit, loss) in enumerate(asked))
        return next((short for short in found if short is not None), None)

    def _short(self, lost: Loss, loss: Loss, unit: str) -> Refused | None:
        total = lost + loss
        if total.rho <= self.cap.rho_beside(total):
            return None
        if total.delta >= self.cap.delta:
            return Refused(
                f"the budget of population {self.cap.population} does not suffice: it takes a delta of {loss.delta:g} "
                f"in full, and {max(self.cap.delta - lost.delta, 0):g} is left of {self.cap.delta:g}"
            )
        delta = self.cap.delta - total.delta
        left = self.cap.rho_beside(total) - lost.rho
        wants, has = (Loss(rho, gaussian=total.gaussian).epsilon(delta) for rho in (loss.rho, left))
        return Refused(
            f"the budget of population {self.cap.population} does not suffice: the release costs epsilon {wants:.3g} "
            f"and {has:.3g} is left of {self.cap.epsilon:g} (at delta {delta:g}, {unit})"
        )

    def _find(self, db: sqlite3.Connection, release: str) -> ChargeRecord | None:
        row = db.execute("SELECT * FROM charges WHERE release = ?", (release,)).fetchone()
        return record_of(row) if row else None

    def _other_population(self, db: sqlite3.Connection) -> Refused | None:
        known = [row["population"] for row in db.execute("SELECT DISTINCT population FROM charges")]
        if not known or self.cap.population in known:
            return None
        return Refused(f"this ledger is that of population {known[0]}, not of {self.cap.population}")

    def _add(self, db: sqlite3.Connection, release: str, charge: Charge, terms: ChargeTerms, *, snapshot: str) -> None:
        other = charge.cost.replacement
        columns = {
            "coordinator": terms.coordinator,
            "release": release,
            "population": charge.population,
            "rho_units": str(charge.rho.units),
            "replacement_units": None if other is None else str(other.rho.units),
            "replacement_delta": 0.0 if other is None else other.delta,
            "state": charge.state.value,
            "attempt": charge.attempt,
            "dataset": terms.dataset,
            "snapshot": snapshot,
            "study": terms.study,
            "expires": terms.expires.isoformat(),
            "delta": charge.delta,
            "kind": terms.kind,
            "gaussian": charge.loss.gaussian,
        }
        places = ", ".join(f":{name}" for name in columns)
        db.execute(f"INSERT INTO charges ({', '.join(columns)}) VALUES ({places})", columns)  # noqa: S608 - names of ours
        self._append(db, charge.state.value, release, **entry_facts(None, charge))

    def _move(
        self, db: sqlite3.Connection, release: str, event: Redraw | RecordBlock | Acknowledge | Withdraw
    ) -> Charge | Refused:
        moved = advance(self._find(db, release), event)
        if not isinstance(moved, Refused):
            self._write(db, self.charge_in(db, release), moved)
        return moved

    def _write(self, db: sqlite3.Connection, charge: ChargeRecord, moved: Charge) -> None:
        db.execute(
            "UPDATE charges SET state = ?, attempt = ?, approvals = ?, body_sha256 = ?, gaussian = ? WHERE release = ?",
            (
                moved.state.value,
                moved.attempt,
                moved.approvals,
                moved.body_sha256,
                moved.loss.gaussian,
                charge.release,
            ),
        )
        self._append(db, moved.state.value, charge.release, **entry_facts(charge, moved))

    def _keep(
        self, db: sqlite3.Connection, verb: str, release: str, kind: str, envelope: Envelope, **note: str
    ) -> None:
        db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?)", (release, kind, envelope.to_json(), envelope.digest))
        self._append(db, verb, release, document=kind, digest=envelope.digest, **note)

    def _append(self, db: sqlite3.Connection, kind: str, release: str, **facts: Any) -> None:  # noqa: ANN401 - JSON
        body = link_text(self.head(db), {"kind": kind, "release": release, **facts})
        db.execute("INSERT INTO entries (body, digest) VALUES (?, ?)", (body, link_digest(body)))


def _rejoined(db: sqlite3.Connection) -> list[sqlite3.Row]:
    return db.execute(
        f"SELECT seq, body FROM entries WHERE json_extract(body, '$.kind') = '{REJOINED}' ORDER BY seq"  # noqa: S608 - ours
    ).fetchall()
