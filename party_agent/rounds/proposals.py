"""What this party has been asked: its own record, for its own people. Its signatures tell what it decided."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from sqlite3 import Connection, Row
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.home.policy import Finding
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.wire.answers import DecisionName
from commingle.shared.documents.dsse import Verified
from commingle.shared.documents.model import WireModel
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.release.checks import read_spec
from commingle.shared.text import printable
from commingle.shared.wire import ReleaseSummary

# the ledger's signatures tell what was decided
_SELECT = """
SELECT release, spec, state, findings,
    coordinator, reason, agreed,
    EXISTS (SELECT 1 FROM signatures s WHERE s.release = p.release AND s.kind = 'approval') AS approved,
    EXISTS (SELECT 1 FROM signatures s WHERE s.release = p.release AND s.kind = 'rejection') AS rejected
FROM proposals p WHERE spec <> x''
"""
_WAITS = (
    "state = 'proposed' AND NOT EXISTS "
    "(SELECT 1 FROM signatures s WHERE s.release = p.release AND s.kind IN ('approval', 'rejection'))"
)
_LONGEST_REASON = 3000
_UNFINISHED = "state IN ('proposed', 'approved', 'collecting')"
NOT_KNOWN = "its coordinator does not know it, as after a restore from an older backup"
PROPOSE_AGAIN = "Have it proposed again, with another Idempotency-Key."
REJECT_IT = (
    f"If budget is only reserved for it, reject it, which returns that. {PROPOSE_AGAIN} If its budget is spent, wait: "
    "it goes on once the coordinator knows it again."
)
_LOST = (Finding("coordinator", f"{NOT_KNOWN}. {REJECT_IT}", None),)
RETENTION = timedelta(days=30)
"""How long we keep the spec of a release that ended and was never charged here. Its id, and charged ones, stay."""


def _shown_as_it_is(text: str) -> str:
    if printable(text) != text:
        raise ValueError("has characters that cannot be shown")
    return text


class DecisionNote(WireModel):
    """Who decided and why: for this member's own chain.

    Attributes:
        by: who decides; a token that is used is named beside it. It is sent to nobody.
        why: the reason. A rejection's is sent to the members, the proposer among them.
    """

    by: Annotated[str, StringConstraints(max_length=200), AfterValidator(_shown_as_it_is)] = ""
    why: Annotated[str, StringConstraints(max_length=2000), AfterValidator(_shown_as_it_is)] = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A release this member is named in.

    Attributes:
        spec: as verified when it was first seen.
        state, reason, agreed: the coordinator's word on where the release stands, why it ended and who had approved
            it.
        decision: what the member said. A rejection is the last word, even after an approval.
        coordinator: fingerprint of the one that showed it.
    """

    release: str
    spec: ReleaseSpec
    state: str
    reason: str | None
    agreed: tuple[str, ...]
    decision: DecisionName
    findings: tuple[str, ...]
    coordinator: str


@dataclass(frozen=True, slots=True)
class Proposals:
    store: AgentStore
    ledger: Ledger

    def see(self, spec: Verified[ReleaseSpec], view: ReleaseSummary, *, seen: datetime, coordinator: str) -> Proposal:
        """Note a verified proposal and where it stands; a new one replaces those that ended long ago."""
        reason = None if view.reason is None else view.reason[:_LONGEST_REASON]
        agreed = json.dumps([party.name for party in view.parties if party.approved])
        with self.store.transaction() as db:
            row = (spec.digest, seen.isoformat(), spec.payload, view.state, coordinator, reason, agreed)
            if db.execute("INSERT OR IGNORE INTO proposals VALUES (?, ?, ?, ?, '[]', ?, ?, ?)", row).rowcount:
                over = f"SELECT release FROM proposals WHERE spec <> x'' AND seen < ? AND NOT {_UNFINISHED}"  # noqa: S608 - ours
                since_long = [row["release"] for row in db.execute(over, ((seen - RETENTION).isoformat(),))]
                free = [(one,) for one in since_long if self.ledger.charge(one) is None]  # nor adopted as one
                db.executemany("UPDATE proposals SET spec = x'', findings = '[]' WHERE release = ?", free)
            else:
                known = (view.state, spec.payload, coordinator, reason, agreed, spec.digest)
                told = "state = ?, spec = ?, coordinator = ?, reason = ?, agreed = ?"
                db.execute(f"UPDATE proposals SET {told} WHERE release = ?", known)  # noqa: S608 - ours
                found = "UPDATE proposals SET findings = '[]' WHERE release = ? AND findings = ?"  # it knows it again
                db.execute(found, (spec.digest, _found(_LOST)))
        return self.get(spec.digest)

    def end(self, release: str, *, state: str, seen: datetime, coordinator: str, reason: str | None = None) -> None:
        """Note that a release is over that its coordinator shows without its spec, or does not know."""
        with self.store.transaction() as db:
            db.execute(
                "INSERT INTO proposals VALUES (?, ?, x'', ?, '[]', ?, ?, '[]') ON CONFLICT (release) DO UPDATE SET "
                "state = excluded.state, reason = coalesce(excluded.reason, reason), "
                "findings = iif(findings = ?, '[]', findings)",
                (release, seen.isoformat(), state, coordinator, reason, _found(_LOST)),
            )

    def lose(self, release: str) -> bool:
        """Note that its coordinator does not know it. Whether that is new."""
        return self.find_against(release, _LOST)

    def require_of(self, release: str, coordinator: str) -> None:
        """Raise ConflictError if another coordinator has shown this release: it is of that consortium."""
        with self.store.reading() as db:
            row = db.execute("SELECT coordinator FROM proposals WHERE release = ?", (release,)).fetchone()
        if row is not None and row["coordinator"] != coordinator:
            raise ConflictError("the release is of another consortium", remedy="Ask its proposer for one of its own.")

    def find_against(self, release: str, findings: tuple[Finding, ...]) -> bool:
        """Note what speaks against it. Whether that is new."""
        messages = _found(findings)
        with self.store.transaction() as db:
            which = "WHERE release = ? AND findings <> ?"  # nothing is written where nothing has changed
            new = db.execute(f"UPDATE proposals SET findings = ? {which}", (messages, release, messages))  # noqa: S608 - ours
            return new.rowcount > 0

    def get(self, release: str) -> Proposal:
        found = self._select("AND release = ?", release)
        if not found:
            raise NotFoundError("no such proposal", remedy="List them: commingle party proposals")
        return found[0]

    def all(self) -> list[Proposal]:
        """All whose spec is kept, newest first."""
        return self.page(limit=-1)

    def page(self, *, waiting: bool | None = None, after: str | None = None, limit: int) -> list[Proposal]:
        """Some of them, after one: all, those that wait for a decision, or the others. Raises NotFoundError."""
        which = "" if waiting is None else f"AND ({_WAITS}) = {waiting:d} "
        if after is not None:
            self.get(after)
            which += "AND (seen, release) < (SELECT seen, release FROM proposals WHERE release = ?) "
        given = () if after is None else (after,)
        return self._select(f"{which}ORDER BY seen DESC, release DESC LIMIT {limit:d}", *given)

    def waiting(self) -> dict[str, datetime]:
        """When each open proposal that nobody has decided was first seen, by release."""
        query = f"SELECT release, seen FROM proposals p WHERE {_WAITS}"  # noqa: S608 - ours
        with self.store.reading() as db:
            return {row["release"]: datetime.fromisoformat(row["seen"]) for row in db.execute(query)}

    def charged_with_seed(self, seed: str, *, without: str) -> str | None:
        """Another release that was charged and whose spec has this seed; None if there is none."""
        which = "spec <> x'' AND json_extract(CAST(spec AS TEXT), '$.seed') = ? AND release <> ?"  # the index's words
        with self.store.reading() as db:
            rows = db.execute(f"SELECT release FROM proposals WHERE {which}", (seed, without)).fetchall()  # noqa: S608 - ours
        found = ((row["release"], self.ledger.charge(row["release"])) for row in rows)
        return next((release for release, charge in found if charge is not None and charge.counts), None)

    def unfinished(self, coordinator: str) -> list[str]:
        return self._releases(coordinator, _UNFINISHED)

    def finished(self, coordinator: str) -> frozenset[str]:
        return frozenset(self._releases(coordinator, f"NOT {_UNFINISHED}"))

    def _releases(self, coordinator: str, which: str) -> list[str]:
        query = f"SELECT release FROM proposals WHERE coordinator = ? AND {which}"  # noqa: S608 - ours
        with self.store.reading() as db:
            return [row["release"] for row in db.execute(query, (coordinator,))]

    def _select(self, clause: str, *values: str) -> list[Proposal]:
        with self.store.reading() as db:
            rows = db.execute(_SELECT + clause, values).fetchall()
        return [
            Proposal(
                release=row["release"],
                spec=_spec(row["spec"]),
                state=row["state"],
                reason=row["reason"],
                agreed=tuple(json.loads(row["agreed"])),
                decision=_decision(row),
                findings=tuple(json.loads(row["findings"])),
                coordinator=row["coordinator"],
            )
            for row in rows
        ]


@lru_cache(maxsize=16)  # of a release, at each of its steps
def _spec(payload: bytes) -> ReleaseSpec:
    return read_spec(payload)


def _decision(row: Row) -> DecisionName:
    if row["rejected"]:
        return "rejected"
    return "approved" if row["approved"] else "waiting"


def lost(db: Connection, coordinators: Collection[str]) -> list[str]:
    """The releases that go on here, and that their coordinators, of these fingerprints, do not know."""
    query = f"SELECT * FROM proposals WHERE findings = ? AND {_UNFINISHED} ORDER BY seen"  # noqa: S608 - ours
    found = db.execute(query, (_found(_LOST),))
    return [row["release"] for row in found if row["coordinator"] in coordinators]


def _found(findings: Iterable[Finding]) -> str:
    return json.dumps(in_words(findings))


def in_words(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(f"{finding.rule}: {finding.message}" for finding in findings)
