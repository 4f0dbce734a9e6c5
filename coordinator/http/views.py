"""What is asked in query strings, and rows of the database as they are answered."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from commingle.coordinator.errors import CursorError
from commingle.coordinator.store.rows import EventRow, KeyRow, PartyRow, ReleaseRow, Summary, as_recorded
from commingle.shared.documents.dsse import parse_envelope
from commingle.shared.documents.ledger_head import NO_HEAD
from commingle.shared.documents.model import Digest, Name, decode
from commingle.shared.documents.spec import MAX_PARTIES
from commingle.shared.documents.statements import RotationRequest
from commingle.shared.mechanisms.registry import mechanism_named
from commingle.shared.release.rounds import State
from commingle.shared.wire import (
    ExchangeProgress,
    PartyKey,
    PartyProgress,
    PartyRecord,
    ReleaseDetails,
    ReleaseEvent,
    ReleaseSummary,
)

_HIGHEST = 1 << 62


class QueryParameters(BaseModel):
    """A query string; a parameter that nobody knows is refused rather than ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PageQuery(QueryParameters):
    """Which page of a list."""

    cursor: Annotated[str, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class HeadsQuery(QueryParameters):
    """Which ledger heads: those of less than a height."""

    below: Annotated[int, Field(ge=0, lt=_HIGHEST)] | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50


class AfterQuery(QueryParameters):
    """The head that another one follows."""

    after: Digest = NO_HEAD


class ReleasesQuery(PageQuery):
    """Which releases: in one state, of those that are over or not, of those that name a party."""

    state: State | None = None
    over: bool | None = None
    party: Name | None = None


class EventsQuery(QueryParameters):
    """Which events, and how long to wait for the first."""

    after: Annotated[int, Field(ge=0, lt=_HIGHEST)] = 0
    wait_seconds: Annotated[float, Field(ge=0, le=30)] = 0


class SendersQuery(QueryParameters):
    """Whose messages of an exchange."""

    of: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_PARTIES)]


def encode_cursor(number: int | None) -> str | None:
    """The cursor to continue after row `number`: opaque to clients."""
    return None if number is None else urlsafe_b64encode(b"v1:%d" % number).decode().rstrip("=")


def decode_cursor(text: str | None) -> int | None:
    """The row number in a cursor. Raises CursorError."""
    if text is None:
        return None
    try:
        version, _, number = urlsafe_b64decode(text + "=" * (-len(text) % 4)).partition(b":")
        value = int(number) if version == b"v1" and number.isdigit() and len(number) < len(str(_HIGHEST)) else None
    except ValueError:
        value = None
    if value is None:
        raise CursorError("not a cursor of this coordinator", remedy="Use `next` of the previous page, or none.")
    return value


@as_recorded()
def party_record(party: PartyRow) -> PartyRecord:
    """A member as answered."""
    return PartyRecord(
        name=party.name,
        signing_key=party.signing_key,
        sealing_key=party.sealing_key,
        fingerprint=party.fingerprint,
        enrolled=party.enrolled,
        revoked=party.revoked,
        identity=None if party.identity is None else parse_envelope(party.identity.encode()),
        departure=None if party.departure is None else parse_envelope(party.departure.encode()),
    )


@as_recorded()
def party_key(key: KeyRow) -> PartyKey:
    """A key as answered."""
    return PartyKey(
        fingerprint=key.fingerprint,
        signing_key=key.signing_key,
        since=key.since,
        rotation=None if key.rotation is None else decode(RotationRequest, key.rotation.encode()),
    )


@as_recorded()
def release_summary(summary: Summary) -> ReleaseSummary:
    """A release as listed."""
    return ReleaseSummary(**_summary(summary))


@as_recorded()
def release_details(release: ReleaseRow) -> ReleaseDetails:
    """A release in full."""
    shares = release.shares.items()
    return ReleaseDetails(
        **_summary(release.summary),
        spec=release.spec,
        approvals={name: share.approval for name, share in shares if share.approval is not None},
        blocks={name: share.statement for name, share in shares if share.statement is not None and share.body},
        rejections={name: share.rejection for name, share in shares if share.rejection is not None},
        exchange=_exchange(release) if mechanism_named(release.facts.mechanism).interactive else None,
    )


@as_recorded()
def release_event(event: EventRow) -> ReleaseEvent:
    """An event as answered."""
    return ReleaseEvent(
        seq=event.seq, release=event.release, at=event.at, kind=event.kind, party=event.party, state=event.state
    )


def _exchange(release: ReleaseRow) -> ExchangeProgress:
    shares = release.shares.items()
    return ExchangeProgress(
        columns={name: share.columns for name, share in shares if share.columns is not None},
        replies={name: share.reply for name, share in shares if share.reply is not None},
    )


def _summary(summary: Summary) -> dict[str, Any]:
    facts = asdict(summary.facts)
    parties = tuple(PartyProgress(**asdict(party)) for party in summary.parties)
    return {**facts, "state": summary.state, "reason": summary.reason, "parties": parties}
