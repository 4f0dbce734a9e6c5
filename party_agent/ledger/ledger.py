"""The durable privacy ledger: debit before noise, and never under-count.

Every change is one entry of a hash chain. `shared.release.ledger_fold` adds the entries up, and we keep the sum in
memory. The chain's head goes into every signature the agent makes. One ledger is one population's: its cap holds over
all that is in it, whichever consortium it was for and whatever the population is called.
"""

import secrets
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeVar

import structlog

from commingle.party_agent.errors import LedgerError, NotFoundError
from commingle.party_agent.ledger.store import RESTORE, AgentStore, catch_up, verify_ledger
from commingle.party_agent.private.snapshot import NO_SNAPSHOT, Debit
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.statements import FIRST_APPROVAL
from commingle.shared.dp.accounting import NOTHING, Cost, Loss, Rho, rho_left
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.release.charge import (
    GENESIS,
    Acknowledge,
    Adopt,
    Charge,
    ChargeState,
    ChargeTerms,
    RecordBlock,
    Redraw,
    Reserve,
    Spend,
    Withdraw,
    adopted_kind,
    advance,
    link_digest,
    link_text,
    refuse_signature,
)
from commingle.shared.release.ledger_fold import REJOINED, LedgerFold, Ruling, entry_facts, sum_of
from commingle.shared.release.rounds import Refused

_log = structlog.get_logger()
Found = TypeVar("Found")
_YET_TO_READ = frozenset({ChargeState.RESERVED, ChargeState.DEBITED})


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
        return self.rho_beside(NOTHING)

    def rho_beside(self, lost: Loss) -> Rho:
        """The cap as rho, rounded down, if losses have used up a delta of it or are not all known to be Gaussian."""
        return rho_left(self.epsilon, self.delta, beside=lost)


@dataclass(frozen=True, slots=True)
class Summit:
    """How far the chain has come (`LedgerFold`); `spent` was debited or adopted and never comes back."""

    height: int
    head: str
    spent: Cost


class Ledger:
    def __init__(self, store: AgentStore, *, cap: Cap, counts_replacement: Callable[[], bool] = lambda: False) -> None:
        """`counts_replacement` says whether the cap also holds for replacement of keyed subjects."""
        self._store = store
        self.fold = LedgerFold()
        self._committed = GENESIS
        self._summed, self._sums = GENESIS, dict[tuple[str, ...], Any]()  # what charges came to at that head
        self._counts_replacement = counts_replacement
        self.cap = cap

    @property
    def counts_replacement(self) -> bool:
        return self._counts_replacement()

    def reserve(
        self,
        db: sqlite3.Connection,
        release: str,
        cost: Cost,
        terms: ChargeTerms,
        *,
        snapshot: str,
    ) -> Charge | Refused:
        """Set budget aside for an approval, in the transaction that also records its signature.

        `snapshot` names the one that was approved and that will be read.
        """
        new = Charge(population=self.cap.population, cost=cost, terms=terms)
        told = self._told(db)
        reserved = advance(told.charges.get(release), Reserve(new))
        if isinstance(reserved, Refused):
            return reserved
        if (refused := told.refuse_population(self.cap.population) or self.shortfall(reserved.cost)) is not None:
            return refused
        db.execute("INSERT INTO to_read VALUES (?, ?)", (release, snapshot))
        self._write(db, release, None, reserved)
        return reserved

    def debit(self, release: str, *, approvals: str, now: datetime) -> Debit | Refused:
        """Spend a reservation, in one transaction with the checks of cap and expiry.

        The caller has verified every member's approval of this release; `approvals` names that set.
        """
        with self._store.transaction() as db:
            debit = self.debit_in(db, release, approvals=approvals, now=now)
        if isinstance(debit, Debit):
            _log.info("debited", release=release, rho=float(Rho(debit.rho_units)))
        return debit

    def debit_in(self, db: sqlite3.Connection, release: str, *, approvals: str, now: datetime) -> Debit | Refused:
        """Spend a reservation inside a transaction; the debit counts once that is committed."""
        spent = advance(self._told(db).charges.get(release), Spend(approvals))
        if isinstance(spent, Refused):
            return spent
        charge = self.charge_of(release)
        if now >= charge.terms.expires:
            return Refused("the spec has expired")
        lost = self.lost().counted(replacement=self.counts_replacement)
        if any(loss.rho > self.cap.rho_beside(loss) for _, loss in lost):
            return Refused("the cap has been lowered below what is reserved")
        self._write(db, release, charge, spent)
        return self._proof(db, release, spent)

    def redraw(self, release: str) -> Debit | Refused:
        """Draw again under the same charge: after a crash between debit and storage nothing can have left."""
        with self._store.transaction() as db:
            charge = self._move(db, release, Redraw())
            return charge if isinstance(charge, Refused) else self._proof(db, release, charge)

    def record_block(self, db: sqlite3.Connection, debit: Debit, body_sha256: str) -> bool:
        """Record that this attempt's block is on disk. False if another attempt has taken over."""
        return not isinstance(self._move(db, debit.release, RecordBlock(debit.attempt, body_sha256)), Refused)

    def acknowledge(self, release: str) -> bool:
        with self._store.transaction() as db:
            return not isinstance(self._move(db, release, Acknowledge()), Refused)

    def withdraw(self, db: sqlite3.Connection, release: str) -> bool:
        """Give up a release. Before the debit the reservation returns; after it the charge stays."""
        return not isinstance(self._move(db, release, Withdraw()), Refused)

    def release_expired(self, now: datetime) -> None:
        """Give back what is reserved for specs that have expired: nothing can be debited for them any more."""
        for release, charge in self._charges().items():
            if charge.state is ChargeState.RESERVED and now >= charge.terms.expires:
                with self._store.transaction() as db:
                    self.withdraw(db, release)

    def charge(self, release: str) -> Charge | None:
        with self._reading() as told:
            return told.charges.get(release)

    def charge_of(self, release: str) -> Charge:
        charge = self.charge(release)
        if charge is None:
            raise LedgerError("a charge has vanished", remedy=RESTORE)
        return charge

    def to_read(self, release: str) -> str:
        """Digest of the snapshot that was approved; empty once nothing is read for the release any more."""
        with self._store.reading() as db:
            return _to_read(db, release)

    def charges(self, *, before: str | None = None, most: int | None = None) -> dict[str, Charge]:
        """All by release, oldest first; or the `most` newest of those before the charge of one release.

        Raises NotFoundError: there is no such charge.
        """
        found = self._charges()
        if before is not None and before not in found:
            raise NotFoundError("there is no such charge", remedy="Begin with the newest again.")
        names = list(found)
        end = len(names) if before is None else names.index(before)
        start = 0 if most is None else max(0, end - most)
        return {name: found[name] for name in names[start:end]}

    def states(self) -> Counter[ChargeState]:
        return Counter(charge.state for charge in self._charges().values())

    def units(self) -> frozenset[Adjacency]:
        counted = (charge for charge in self._charges().values() if charge.counts)
        return frozenset(charge.cost.unit for charge in counted if charge.terms.kind != "unexplained")

    def spent(self) -> Rho:
        return self.lost().loss.rho

    def lost(self) -> Cost:
        """What was lost or set aside, over every consortium."""
        with self._reading() as told:
            return self._once(told, ("lost",), lambda: told.lost)

    def lost_by(self, datasets: Collection[str], *, without: str | None) -> Cost:
        """What these data sets have lost or set aside, but for one release."""

        def add_up() -> Cost:
            return self._lost_where(lambda release, charge: charge.terms.dataset in datasets and release != without)

        with self._reading() as told:
            return add_up() if without in told.charges else self._once(told, ("of", *sorted(datasets)), add_up)

    def lost_to_study(self, study: str, *, without: str) -> Cost:
        with self._reading() as told:
            studies = self._once(told, ("studies",), lambda: _by_study(told.charges))
            return sum_of(charge for release, charge in studies.get(study, ()) if release != without)

    def lost_to_releases(self, *, proposer: str | None = None) -> Cost:
        """What releases have cost or set aside: those of one proposer, or all."""
        if proposer is None:
            return self._lost_where(lambda _, charge: charge.terms.kind == "release")
        whose = "spec <> x'' AND json_extract(CAST(spec AS TEXT), '$.proposer') = ?"  # the index's words
        with self._store.reading() as db:
            proposed = db.execute(f"SELECT release FROM proposals WHERE {whose}", (proposer,))  # noqa: S608 - ours
            those = {row["release"] for row in proposed}
        return self._lost_where(lambda release, charge: charge.terms.kind == "release" and release in those)

    def _once(self, told: LedgerFold, key: tuple[str, ...], find: Callable[[], Found]) -> Found:
        if told.head != self._summed:
            self._summed, self._sums = told.head, {}
        if key not in self._sums:
            self._sums[key] = find()
        found: Found = self._sums[key]
        return found

    def _lost_where(self, counted: Callable[[str, Charge], bool]) -> Cost:
        charges = self._charges().items()
        return sum_of(charge for name, charge in charges if charge.counts and counted(name, charge))

    def charged_units(self, dataset: str) -> frozenset[Adjacency]:
        """The units in which a data set was charged: both if that has changed."""
        charges = self._charges().values()
        return frozenset(each.cost.unit for each in charges if each.counts and each.terms.dataset == dataset)

    def interrupted_regressions(self) -> tuple[str, ...]:
        charges = self._charges().items()
        return tuple(r for r, c in charges if c.terms.kind == "regression" and c.state is ChargeState.DEBITED)

    def shortfall(self, cost: Cost) -> Refused | None:
        """Why a charge would not fit under the cap now, or None."""
        lost, asked = (one.counted(replacement=self.counts_replacement) for one in (self.lost(), cost))
        found = (self._short(lost[i][1], loss, unit) for i, (unit, loss) in enumerate(asked))
        return next((short for short in found if short is not None), None)

    def head(self, db: sqlite3.Connection) -> str:
        return self._told(db).head

    @property
    def length(self) -> int:
        with self._reading() as told:
            return told.length

    def summit(self) -> Summit:
        with self._reading() as told:
            return Summit(told.height, told.head, told.spent)

    def knows(self, head: str) -> bool:
        """Whether the chain had this head, or has rejoined a branch with it."""
        with self._reading() as told:
            return told.knows(head)

    def place(self, head: str) -> int:
        """How many entries led to this head; 0 if the chain never had it."""
        with self._reading() as told:
            return told.places.get(head, 0)

    def signed_place(self, kind: str, release: str | None = None) -> int:
        """The entry of the chain with our newest signature of a kind, about that release; 0 for none."""
        with self._reading() as told:
            if release is None:
                return told.newest.get(kind, 0)
            entry = told.signed.get((release, kind))
            return 0 if entry is None else entry.place

    def adopt(
        self,
        charges: Iterable[tuple[str, Cost, ChargeTerms]],
        signed: Iterable[tuple[str, str, Envelope]],
        heads: Iterable[str],
        *,
        height: int,
    ) -> None:
        """Take over what witnesses can show of a lost branch, in one transaction.

        What is charged here already stays so and is never made again. `signed` has release, kind and envelope of what
        the branch signed. The last of its heads, as witnessed, is the furthest, and has the height.
        """
        rejoined = tuple(heads)
        with self._store.transaction() as db:
            for release, kind, envelope in signed:
                self._keep(db, "received", release, adopted_kind(kind), envelope)
            for release, cost, terms in charges:
                current = self._told(db).charges.get(release)
                new = Charge(population=self.cap.population, cost=cost, terms=terms)
                adopted = advance(current, Adopt(new))
                if isinstance(adopted, Refused):
                    raise LedgerError(adopted.reason, remedy="Report this.")
                self._write(db, release, current, adopted)
            if rejoined:
                beyond = max(height, self._told(db).height) + 1
                self._append(db, REJOINED, rejoined[-1], heads=rejoined, height=beyond)

    def sign_off(
        self, db: sqlite3.Connection, release: str, kind: str, envelope: Envelope, ruling: Ruling | None = None
    ) -> None:
        """Keep a signature of ours, once and for all, with its chain entry.

        `ruling` is that of the person who decided; None if nobody did.

        Raises LedgerError: the charge is not at a point where this may be signed (a fault of the caller).
        """
        if (refused := refuse_signature(self._told(db).charges.get(release), kind)) is not None:
            raise LedgerError(refused.reason, remedy="Report this.")
        # heads are published: the salt keeps a name from being tested against one
        note = {} if ruling is None else {"ruling": asdict(ruling), "salt": secrets.token_hex(16)}
        self._keep(db, "signed", release, kind, envelope, **note)

    def notes(self) -> Mapping[str, list[dict[str, str]]]:
        """Who decided, and why, by release: for each document that a person decided, the oldest first."""
        found = defaultdict[str, list[dict[str, str]]](list)
        with self._reading() as told:
            for (release, document), entry in told.signed.items():
                if entry.ruling is not None:
                    found[release].append({"document": document, "by": entry.ruling.by, "why": entry.ruling.why})
        return found

    def first_approval(self, release: str) -> Ruling | None:
        """The first of two approvals of a release that waits for the second or has had it."""
        with self._reading() as told:
            entry = told.signed.get((release, FIRST_APPROVAL))
        return None if entry is None else entry.ruling

    def signature(self, release: str, kind: str) -> Envelope | None:
        """A signature of ours, as it was made; or of a lost branch of this ledger."""
        with self._store.reading() as db:
            row = db.execute(
                "SELECT envelope FROM signatures WHERE release = ? AND kind = ?", (release, kind)
            ).fetchone()
        return parse_envelope(row["envelope"]) if row else None

    def history(self) -> tuple[tuple[str, ...], tuple[Envelope, ...]]:
        """The chain's texts, and our signed documents that are published with a release, the oldest first."""
        with self._store.reading() as db:
            bodies = db.execute("SELECT body FROM entries ORDER BY seq").fetchall()
            signed = db.execute(
                "SELECT envelope FROM signatures WHERE kind IN ('approval', 'block', 'rejection', 'regression') "
                "ORDER BY rowid"
            ).fetchall()
        return tuple(row["body"] for row in bodies), tuple(parse_envelope(row["envelope"]) for row in signed)

    def verify(self) -> None:
        """Hold all that is in the file against the chain and the checks. Raises LedgerError."""
        with self._store.reading() as db:
            self.fold = verify_ledger(db, population=self.cap.population)

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
            f"the budget of population {self.cap.population} does not suffice: this costs epsilon {wants:.3g} "
            f"and {has:.3g} is left of {self.cap.epsilon:g} (at delta {delta:g}, {unit})"
        )

    def _proof(self, db: sqlite3.Connection, release: str, spent: Charge) -> Debit:
        if spent.approvals is None:
            raise LedgerError("a debit names no approvals", remedy=RESTORE)
        loss = spent.loss
        return Debit(release, loss.rho.units, spent.attempt, spent.approvals, _to_read(db, release), loss.delta)

    @contextmanager
    def _reading(self) -> Iterator[LedgerFold]:
        with self._store.reading() as db:
            yield self._told(db)

    def _charges(self) -> dict[str, Charge]:
        with self._reading() as told:
            return dict(told.charges)

    def _told(self, db: sqlite3.Connection) -> LedgerFold:
        """What all entries tell, those of this transaction and of another process included."""
        last = db.execute("SELECT digest FROM entries ORDER BY seq DESC LIMIT 1").fetchone()
        if (GENESIS if last is None else last["digest"]) != self.fold.head:
            before, self.fold = self.fold, LedgerFold()  # what was interrupted halfway is not gone on with
            self.fold = catch_up(db, before)
        if self._committed not in self.fold.places:
            raise LedgerError("the ledger's file was set back while the agent runs", remedy=RESTORE)
        if not db.in_transaction:
            self._committed = self.fold.head
        return self.fold

    def _move(
        self, db: sqlite3.Connection, release: str, event: Redraw | RecordBlock | Acknowledge | Withdraw
    ) -> Charge | Refused:
        charge = self._told(db).charges.get(release)
        moved = advance(charge, event)
        if not isinstance(moved, Refused):
            self._write(db, release, charge, moved)
        return moved

    def _write(self, db: sqlite3.Connection, release: str, before: Charge | None, after: Charge) -> None:
        self._append(db, after.state.value, release, **entry_facts(before, after))
        if after.state not in _YET_TO_READ:
            db.execute("DELETE FROM to_read WHERE release = ?", (release,))

    def _keep(
        self, db: sqlite3.Connection, verb: str, release: str, kind: str, envelope: Envelope, **note: object
    ) -> None:
        db.execute("INSERT INTO signatures VALUES (?, ?, ?, ?)", (release, kind, envelope.to_json(), envelope.digest))
        self._append(db, verb, release, document=kind, digest=envelope.digest, **note)

    def _append(self, db: sqlite3.Connection, kind: str, release: str, **facts: Any) -> None:  # noqa: ANN401 - JSON
        body = link_text(self.head(db), {"kind": kind, "release": release, **facts})
        db.execute("INSERT INTO entries (body, digest) VALUES (?, ?)", (body, link_digest(body)))
        self._told(db)  # an entry that the fold would refuse is refused before it is committed


def _by_study(charges: Mapping[str, Charge]) -> Mapping[str, list[tuple[str, Charge]]]:
    found = defaultdict[str, list[tuple[str, Charge]]](list)
    for release, charge in charges.items():
        if charge.counts and charge.terms.kind == "release":
            found[charge.terms.study].append((release, charge))
    return found


def _to_read(db: sqlite3.Connection, release: str) -> str:
    row = db.execute("SELECT snapshot FROM to_read WHERE release = ?", (release,)).fetchone()
    return row["snapshot"] if row else NO_SNAPSHOT
