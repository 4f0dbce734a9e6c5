"""Releases with their parties' documents in the database."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from sqlalchemy import ColumnElement, Row, and_, bindparam, exists, func, insert, not_, select, update

from commingle.coordinator.store.database import Page, Part, as_recorded
from commingle.coordinator.store.tables import IS_WHOLE, events, keys, releases, shares
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.release.matrix import ReleaseSizes
from commingle.shared.release.rounds import Alignment, Round, State
from commingle.shared.wire import PartyProgress, ReleaseSummary


@dataclass(frozen=True, slots=True)
class ShareRow:
    """One party's documents in one release, as far as they are in.

    Attributes:
        block: the signed statement of it.
        body: digest of the block's bytes in the blob store.
        columns, reply: what it signed in an exchange; while that runs, the bytes of each are kept under its digest.
    """

    party: str
    approval: Envelope | None = None
    alignment: Envelope | None = None
    aligned: Alignment | None = None
    rejection: Envelope | None = None
    block: Envelope | None = None
    body: str | None = None
    columns: Envelope | None = None
    reply: Envelope | None = None


@dataclass(frozen=True, slots=True)
class Files:
    manifest: str
    matrix: str
    moments: str


SignedKind = Literal["approval", "rejection", "columns", "reply", "block"]
"""The documents that a party signs and everybody may see, by the names of their events."""


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """A release with everything recorded about it; `shares` are in the spec's order of parties.

    Attributes:
        spec: None once it was dropped (`Releases.drop_documents`).
    """

    listed: ReleaseSummary
    spec: Envelope | None
    proposer_key: str
    shares: Mapping[str, ShareRow]
    files: Files | None

    @property
    def state(self) -> State:
        return self.listed.state

    @property
    def round(self) -> Round:
        return Round(
            parties=frozenset(self.shares),
            expires=self.listed.expires,
            state=self.state,
            alignments={name: share.aligned for name, share in self.shares.items() if share.aligned is not None},
            stored=frozenset(name for name, share in self.shares.items() if share.body is not None),
            reason=self.listed.reason,
        )

    def signed(self, kind: SignedKind) -> dict[str, Envelope]:
        return {name: found for name, share in self.shares.items() if (found := getattr(share, kind)) is not None}


MOST_WALKED = 1000
"""The most releases that one page goes through in search of a member's."""

FACTS = ("study", "mechanism", "created", "expires", "n", "k", "epsilon", "delta")
"""The facts of a spec that lists show."""

_LISTED = (releases.c.id, releases.c.state, releases.c.reason, *(releases.c[name] for name in FACTS))
_OPEN = tuple(state for state in State if not state.final)
_TO_NOTHING = tuple(state for state in State if state.final and state is not State.PUBLISHED)
_DOCUMENTS = ("approval", "alignment", "rejection", "block", "columns", "reply")
_DROPPED = ""  # in place of a spec
# what every step of a release asks for: to put a statement together costs twice as much as to run it
_RELEASE = select(releases).where(releases.c.id == bindparam("of"))
_SHARES = (
    select(*(column.label(column.key) for column in shares.c))
    .where(shares.c.release == bindparam("of"))
    .order_by(shares.c.position)
)
_SAVE_RELEASE = update(releases).where(releases.c.id == bindparam("of"))
_SAVE_SHARE = update(shares).where(shares.c.release == bindparam("of"), shares.c.party == bindparam("by"))
_BEFORE_IT_IS = and_(releases.c.id == bindparam("of"), releases.c.state != State.PUBLISHED)
_KEPT_BYTES = select(releases.c.kept_bytes).where(_BEFORE_IT_IS).scalar_subquery()
_COUNT_PUBLISHED = (
    update(keys)
    .where(keys.c.signing_key == select(releases.c.proposer_key).where(_BEFORE_IT_IS).scalar_subquery())
    .values(published_bytes=keys.c.published_bytes + _KEPT_BYTES)
)
_NEWEST = select(func.max(releases.c.seq))
_SUMMARY = select(*_LISTED).where(releases.c.id == bindparam("of"))
_PROGRESS = (
    select(shares.c.release, shares.c.party, shares.c.approval.is_not(None), shares.c.body.is_not(None))
    .where(shares.c.release.in_(bindparam("of", expanding=True)))
    .order_by(shares.c.position)
)


class Releases(Part):
    def add(self, spec: Envelope, document: ReleaseSpec, *, proposer_key: str, sizes: ReleaseSizes) -> None:
        release = spec.digest
        values = {name: getattr(document, name) for name in FACTS}
        values |= {"id": release, "spec": _text(spec), "proposer_key": proposer_key, "state": State.PROPOSED}
        values |= {"exchanged_bytes": sizes.exchanged, "kept_bytes": sizes.kept}
        self._connection.execute(insert(releases).values(values))
        self._connection.execute(
            insert(shares),
            [{"release": release, "party": p.name, "position": place} for place, p in enumerate(document.parties)],
        )

    @as_recorded()
    def get(self, release: str) -> ReleaseRow | None:
        row = self._connection.execute(_RELEASE, {"of": release}).one_or_none()
        if row is None:
            return None
        found = {share.party: _share(share) for share in self._connection.execute(_SHARES, {"of": release})}
        progress = tuple(_progress(s.party, s.approval is not None, s.body is not None) for s in found.values())
        return ReleaseRow(
            listed=_summary(row, progress),
            spec=_spec(row.spec),
            proposer_key=row.proposer_key,
            shares=found,
            files=None if row.manifest is None else Files(row.manifest, row.matrix, row.moments),
        )

    @as_recorded()
    def summary(self, release: str) -> ReleaseSummary | None:
        row = self._connection.execute(_SUMMARY, {"of": release}).one_or_none()
        return None if row is None else _summary(row, self._progress([release])[release])

    @as_recorded()
    def page(
        self,
        *,
        state: State | None = None,
        over: bool | None = None,
        party: str | None = None,
        before: int | None = None,
        limit: int,
    ) -> Page[ReleaseSummary]:
        """Releases, the newest first: in a state, over or not, of a party, as far as any of these is given.

        For a party it goes through at most `MOST_WALKED` releases that may be over, so a page can end early.
        """
        query = select(releases.c.seq, *_LISTED).order_by(releases.c.seq.desc())
        if state is not None:
            query = query.where(releases.c.state == state)
        if over is not None:
            query = query.where(releases.c.state.not_in(_OPEN) if over else releases.c.state.in_(_OPEN))
        if party is not None:
            query = query.where(exists().where(shares.c.release == releases.c.id, shares.c.party == party))
        if before is not None:
            query = query.where(releases.c.seq < before)
        least = 0
        if party is not None and over is not False and state not in _OPEN:
            newest = self._connection.execute(_NEWEST).scalar() or 0
            least = min(newest, newest if before is None else before - 1) - MOST_WALKED
            query = query.where(releases.c.seq > least)
        found = self._connection.execute(query.limit(limit + 1)).all()
        progress = self._progress([row.id for row in found[:limit]])
        items = tuple(_summary(row, progress[row.id]) for row in found[:limit])
        if len(found) > limit:
            return Page(items, found[limit - 1].seq)
        return Page(items, least + 1 if least > 0 else None)

    def overdue(self, now: datetime) -> tuple[str, ...]:
        """Ids of releases that have expired without a record of it."""
        query = select(releases.c.id).where(releases.c.state.in_(_OPEN), releases.c.expires <= now)
        return tuple(self._connection.execute(query.order_by(releases.c.seq)).scalars())

    def complete(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Ids of releases that wait for nothing but their publication: all, or those among some."""
        if among is not None and not among:
            return ()
        missing = exists().where(shares.c.release == releases.c.id, shares.c.body.is_(None))
        query = select(releases.c.id).where(releases.c.state == State.COLLECTING, not_(missing))
        if among is not None:
            query = query.where(releases.c.id.in_(among))
        return tuple(self._connection.execute(query.order_by(releases.c.seq)).scalars())

    def over(self, among: Sequence[str]) -> tuple[str, ...]:
        query = select(releases.c.id).where(releases.c.id.in_(among), releases.c.state.not_in(_OPEN))
        return tuple(self._connection.execute(query).scalars())

    def open_with(self, party: str) -> tuple[str, ...]:
        query = select(releases.c.id).join(shares, shares.c.release == releases.c.id)
        found = query.where(shares.c.party == party, releases.c.state.in_(_OPEN)).order_by(releases.c.seq)
        return tuple(self._connection.execute(found).scalars())

    def blobs_in_use(self, among: Sequence[str] | None = None) -> frozenset[str]:
        """Blobs that open or published releases need: all, or those among some. Reads every release."""
        blocks = select(shares.c.body).join(releases, shares.c.release == releases.c.id)
        found = set[str]()
        for column, query in (
            (shares.c.body, blocks.where(releases.c.state.not_in(_TO_NOTHING))),
            *((column, select(column)) for column in (releases.c.manifest, releases.c.matrix, releases.c.moments)),
        ):
            which = column.is_not(None) if among is None else column.in_(among)
            found.update(self._connection.execute(query.where(which)).scalars())
        return frozenset(found)

    def open_by(self, proposer_keys: Sequence[str]) -> int:
        query = select(func.count()).select_from(releases)
        return int(self._connection.execute(query.where(*_open_of(proposer_keys))).scalar_one())

    def bytes_by(self, proposer_keys: Sequence[str], *, since: datetime) -> int:
        """Bytes that releases proposed with these keys take.

        For an open one, all that can come. For a published one, what is kept, which `save` adds up. For one that came
        to nothing after `since` with a block, what is kept.
        """
        all_of_it = select(func.sum(releases.c.exchanged_bytes + releases.c.kept_bytes))
        published = select(func.sum(keys.c.published_bytes)).where(keys.c.signing_key.in_(proposer_keys))
        ended = select(events.c.release).where(events.c.at >= since, events.c.state.in_(_TO_NOTHING))
        late = tuple(self._connection.execute(ended).scalars().unique())
        has_block = exists().where(shares.c.release == releases.c.id, shares.c.block.is_not(None))
        kept = select(func.sum(releases.c.kept_bytes)).where(releases.c.id.in_(late), has_block)
        kept = kept.where(releases.c.state.in_(_TO_NOTHING), releases.c.proposer_key.in_(proposer_keys))
        found = (all_of_it.where(*_open_of(proposer_keys)), published, kept)
        return sum(int(self._connection.execute(query).scalar() or 0) for query in found)

    def ended_before(self, before: datetime) -> tuple[str, ...]:
        """Ids of releases that had come to nothing by then and still have their documents."""
        since = exists().where(events.c.release == releases.c.id, events.c.at >= before)
        return self._whole(not_(since))

    def ended_by(self, proposer_keys: Sequence[str]) -> tuple[str, ...]:
        """Ids of releases proposed with these keys that came to nothing and are whole, the newest first."""
        return self._whole(releases.c.proposer_key.in_(proposer_keys))

    def drop_documents(self, release: str) -> None:
        """Forget the spec of a release that came to nothing, and what parties stated about their subjects.

        Its facts stay, as do the documents that parties signed (an agent whose ledger was set back learns from them),
        and every event with the digest of its document.
        """
        self._connection.execute(update(shares).where(shares.c.release == release).values(alignment=None))
        self._connection.execute(update(releases).where(releases.c.id == release).values(spec=_DROPPED))

    def counts(self) -> dict[State, int]:
        query = select(releases.c.state, func.count()).group_by(releases.c.state)
        found = {State(state): count for state, count in self._connection.execute(query)}
        return {state: found.get(state, 0) for state in State}

    def save(self, release: str, advanced: Round, files: Files | None = None) -> None:
        values: dict[str, object] = {"state": advanced.state, "reason": advanced.reason}
        if files is not None:
            values |= asdict(files)
        if advanced.state is State.PUBLISHED:
            self._connection.execute(_COUNT_PUBLISHED, {"of": release})
        self._connection.execute(_SAVE_RELEASE, {"of": release, **values})

    def save_approval(
        self, release: str, party: str, approval: Envelope, alignment: Envelope | None, to: Alignment
    ) -> None:
        self._save_share(
            release,
            party,
            approval=_text(approval),
            alignment=None if alignment is None else _text(alignment),
            subjects=to.subjects,
            alignment_digest=to.digest,
        )

    def save_block(self, release: str, party: str, block: Envelope, body: str) -> None:
        self._save_share(release, party, block=_text(block), body=body)

    def lose_block(self, release: str, party: str) -> None:
        """Record that a party's block is gone. Its statement stays: no other block is taken."""
        self._save_share(release, party, body=None)

    def save_signed(
        self, release: str, party: str, signed: Envelope, *, kind: Literal["rejection", "columns", "reply"]
    ) -> None:
        self._save_share(release, party, **{kind: _text(signed)})

    def _whole(self, condition: ColumnElement[bool]) -> tuple[str, ...]:
        where = (releases.c.state.in_(_TO_NOTHING), IS_WHOLE, condition)
        query = select(releases.c.id).where(*where).order_by(releases.c.seq.desc())
        return tuple(self._connection.execute(query).scalars())

    def _save_share(self, release: str, party: str, **values: object) -> None:
        self._connection.execute(_SAVE_SHARE, {"of": release, "by": party, **values})

    def _progress(self, ids: Sequence[str]) -> dict[str, tuple[PartyProgress, ...]]:
        found: dict[str, tuple[PartyProgress, ...]] = dict.fromkeys(ids, ())
        for release, party, approved, uploaded in self._connection.execute(_PROGRESS, {"of": ids}):
            found[release] += (_progress(party, bool(approved), bool(uploaded)),)
        return found


def _open_of(proposer_keys: Sequence[str]) -> tuple[ColumnElement[bool], ...]:
    return releases.c.proposer_key.in_(proposer_keys), releases.c.state.in_(_OPEN), IS_WHOLE


def _progress(name: str, approved: bool, uploaded: bool) -> PartyProgress:
    return PartyProgress(name=name, approved=approved, uploaded=uploaded)


def _summary(row: Row[*tuple[Any, ...]], parties: tuple[PartyProgress, ...]) -> ReleaseSummary:
    listed = {column.name: getattr(row, column.name) for column in _LISTED}
    return ReleaseSummary.model_validate(listed | {"state": State(row.state), "parties": parties})


@lru_cache(maxsize=8)  # up to megabytes each
def _spec(text: str) -> Envelope | None:
    return parse_envelope(text.encode()) if text != _DROPPED else None


def _share(row: Row[*tuple[Any, ...]]) -> ShareRow:
    aligned = None if row.alignment_digest is None else Alignment(row.subjects, row.alignment_digest)
    documents = {name: _envelope(getattr(row, name)) for name in _DOCUMENTS}
    return ShareRow(party=row.party, body=row.body, aligned=aligned, **documents)


def _text(envelope: Envelope) -> str:
    return envelope.to_json().decode()


@lru_cache(maxsize=512)  # those of an open release are read at each of its steps
def _envelope(text: str | None) -> Envelope | None:
    return None if text is None else parse_envelope(text.encode())
