"""What is answered as JSON."""

from datetime import datetime
from typing import Any

from pydantic import Field

from commingle.coordinator.store.rows import EventRow, KeyRow, PartyRow, Release, Summary
from commingle.shared.documents.dsse import Envelope, parse_envelope
from commingle.shared.documents.model import WireModel, decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import RotationRequest
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.forecast.result import Forecast
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.rounds import State


class CoordinatorView(WireModel):
    """Who this coordinator is."""

    name: str
    signing_key: str
    fingerprint: str
    software: str


class PartyView(WireModel):
    """A member and its public keys, hex."""

    name: str
    signing_key: str
    sealing_key: str
    fingerprint: str
    enrolled: datetime
    revoked: datetime | None
    identity: Envelope | None = Field(description="the keys under the member's own signature")


class PartyPage(WireModel):
    """Members in the order they enrolled."""

    items: tuple[PartyView, ...]
    next: str | None


class KeyView(WireModel):
    """A signing key a member has or had; `rotation` is what brought it, None for the key of the enrolment."""

    fingerprint: str
    signing_key: str
    since: datetime
    rotation: RotationRequest | None


class KeyPage(WireModel):
    """A member's signing keys, the oldest first."""

    items: tuple[KeyView, ...]


class SealedKeyView(WireModel):
    """A linkage key as one member sealed it to another."""

    sender: str
    envelope: Envelope


class SealedKeyPage(WireModel):
    """What members sent to one of them, in order of senders."""

    items: tuple[SealedKeyView, ...]


class ProgressView(WireModel):
    """How far one party is."""

    name: str
    approved: bool
    uploaded: bool


class ReleaseSummary(WireModel):
    """A release as listed."""

    id: str
    study: str
    mechanism: str
    state: State
    reason: str | None
    created: datetime
    expires: datetime
    n: int
    k: int | None
    epsilon: float
    delta: float
    parties: tuple[ProgressView, ...]


class ReleasePage(WireModel):
    """Releases, the newest first."""

    items: tuple[ReleaseSummary, ...]
    next: str | None


class ExchangeView(WireModel):
    """How far an exchange is: whether it is dealt, and what each party has signed in it."""

    dealt: bool
    masks: dict[str, Envelope]
    countersignatures: dict[str, Envelope]


class HandView(WireModel):
    """The signed deal of an exchange, and a party's sealed package in base64."""

    statement: Envelope
    package: str


class ReleaseView(ReleaseSummary):
    """A release with every signed document about it, except what parties stated about their subjects."""

    spec: Envelope
    forecast: Forecast | None = Field(description="what to expect of it, from the spec alone; none without a label")
    approvals: dict[str, Envelope]
    blocks: dict[str, Envelope]
    rejections: dict[str, Envelope]
    exchange: ExchangeView | None = Field(description="where parties exchange before they upload")


class EventView(WireModel):
    """One line of a release's history: `kind` is what happened, `state` where that left the release."""

    seq: int
    release: str
    at: datetime
    kind: str = Field(
        description="proposal, approval, rejection, deal, mask, countersignature, block, published, expired or aborted"
    )
    party: str | None
    state: State


class EventPage(WireModel):
    """Events after the one asked for; ask for those after `last` next."""

    items: tuple[EventView, ...]
    last: int


def party_view(party: PartyRow) -> PartyView:
    """A member as answered."""
    return PartyView(
        name=party.name,
        signing_key=party.signing_key,
        sealing_key=party.sealing_key,
        fingerprint=party.fingerprint,
        enrolled=party.enrolled,
        revoked=party.revoked,
        identity=None if party.identity is None else parse_envelope(party.identity.encode()),
    )


def key_view(key: KeyRow) -> KeyView:
    """A key as answered."""
    return KeyView(
        fingerprint=key.fingerprint,
        signing_key=key.signing_key,
        since=key.since,
        rotation=None if key.rotation is None else decode(RotationRequest, key.rotation.encode()),
    )


def summary_view(summary: Summary) -> ReleaseSummary:
    """A release as listed."""
    return ReleaseSummary.model_validate(_summary(summary))


def release_view(release: Release) -> ReleaseView:
    """A release in full."""
    shares = release.shares.items()
    return ReleaseView(
        **_summary(release.summary),
        spec=release.spec,
        forecast=forecast_of(decode(ReleaseSpec, release.spec.payload_bytes)),
        approvals={name: share.approval for name, share in shares if share.approval is not None},
        blocks={name: share.statement for name, share in shares if share.statement is not None},
        rejections={name: share.rejection for name, share in shares if share.rejection is not None},
        exchange=_exchange(release) if mechanism_of(release.facts).interactive else None,
    )


def _exchange(release: Release) -> ExchangeView:
    shares = release.shares.items()
    return ExchangeView(
        dealt=release.deal is not None,
        masks={name: share.mask for name, share in shares if share.mask is not None},
        countersignatures={n: share.countersignature for n, share in shares if share.countersignature is not None},
    )


def event_view(event: EventRow) -> EventView:
    """An event as answered."""
    return EventView(
        seq=event.seq, release=event.release, at=event.at, kind=event.kind, party=event.party, state=event.state
    )


def _summary(summary: Summary) -> dict[str, Any]:
    facts = summary.facts
    return {
        "id": facts.id,
        "study": facts.study,
        "mechanism": facts.mechanism,
        "state": summary.state,
        "reason": summary.reason,
        "created": facts.created,
        "expires": facts.expires,
        "n": facts.n,
        "k": facts.k,
        "epsilon": facts.epsilon,
        "delta": facts.delta,
        "parties": tuple(ProgressView(name=p.name, approved=p.approved, uploaded=p.uploaded) for p in summary.parties),
    }
