"""The answers of a coordinator: one set of models for the server and for its readers.

The coordinator only constructs these, so it serves every field declared here and no other. A reader ignores fields that
a newer coordinator adds (not states), does without optional ones, and believes only what is signed.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator
from pydantic.config import JsonDict

from commingle.shared.documents import model
from commingle.shared.documents.dsse import Envelope
from commingle.shared.documents.statements import RotationRequest, SignedDocument
from commingle.shared.release.rounds import State
from commingle.shared.text import printable

# version 1 of the interface promises strings; a reader holds them to more
_TEXT = WithJsonSchema({"type": "string"})
_Name = Annotated[model.Name, _TEXT]
_Digest = Annotated[model.Digest, _TEXT]
_Hex32 = Annotated[model.Hex32, _TEXT]


def examples_beside(module: str) -> Mapping[str, Any]:
    """Short examples by the names of models, for OpenAPI and its pages: `examples.json` beside the module."""
    found: Mapping[str, Any] = json.loads(Path(module).with_name("examples.json").read_bytes())
    return found


def shown_by(examples: Mapping[str, Any], **described: bool) -> Callable[[JsonDict, type[Any]], None]:
    """The description of models besides their fields, for `json_schema_extra`."""

    def show(schema: JsonDict, model: type[Any]) -> None:
        schema.update(described)
        if model.__name__ in examples:
            schema["examples"] = [examples[model.__name__]]

    return show


class Answer(BaseModel):
    """A response body or a part of one. Its texts are printable: what is signed stands in the envelopes, unchanged."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="ignore",
        allow_inf_nan=False,
        json_schema_extra=shown_by(examples_beside(__file__), additionalProperties=False),  # described as it is served
        json_schema_serialization_defaults_required=True,
    )

    @field_validator("*")
    @classmethod
    def _printable(cls, value: object) -> object:
        return printable(value) if type(value) is str else value


class CoordinatorIdentity(Answer):
    """Who this coordinator is."""

    name: str
    signing_key: _Hex32
    fingerprint: _Digest
    software: str


class PartyRecord(Answer):
    """A member and its public keys, hex."""

    name: _Name
    signing_key: _Hex32
    sealing_key: _Hex32
    fingerprint: _Digest
    enrolled: datetime
    revoked: datetime | None = None
    identity: Envelope | None = Field(None, description="the keys under the member's own signature")
    departure: Envelope | None = Field(None, description="that it left, under its own signature, where it did")


class PartyPage(Answer):
    """Members in the order they enrolled."""

    items: tuple[PartyRecord, ...]
    next: str | None = None


class PartyKey(Answer):
    """A signing key that a member has or had; `rotation` brought it, None for the key of the enrolment."""

    fingerprint: _Digest
    signing_key: _Hex32
    since: datetime
    rotation: RotationRequest | None = None


class PartyKeys(Answer):
    """A member's signing keys, the oldest first."""

    items: tuple[PartyKey, ...]


class SealedLinkageKey(Answer):
    """A linkage key as one member sealed it to another."""

    sender: _Name
    envelope: Envelope


class SealedLinkageKeys(Answer):
    """Linkage keys that members sent to one of them, in order of senders."""

    items: tuple[SealedLinkageKey, ...]


class LedgerHeads(Answer):
    """Members' statements about how far their ledgers have come."""

    items: tuple[SignedDocument, ...]


class PartyProgress(Answer):
    """How far one member is."""

    name: _Name
    approved: bool
    uploaded: bool


class ReleaseSummary(Answer):
    """A release as listed."""

    id: _Digest
    study: str
    mechanism: str
    state: State
    reason: str | None = None
    created: datetime
    expires: datetime
    n: int
    k: int | None = None
    epsilon: float  # per party, in the release's own adjacency, as is delta
    delta: float
    parties: tuple[PartyProgress, ...]


class ReleasePage(Answer):
    """Releases, the newest first."""

    items: tuple[ReleaseSummary, ...]
    next: str | None = None


class ExchangeProgress(Answer):
    """How far an exchange is: each member's signed statements in it."""

    columns: dict[str, Envelope] = Field(default_factory=dict)
    replies: dict[str, Envelope] = Field(default_factory=dict)


class ReleaseDetails(ReleaseSummary):
    """A release with every signed document about it, except what members stated about their people."""

    spec: Envelope | None = Field(description="null once a release that came to nothing is over since long")
    approvals: dict[str, Envelope]
    blocks: dict[str, Envelope]
    rejections: dict[str, Envelope]
    exchange: ExchangeProgress | None = Field(None, description="where members exchange before they upload")

    @property
    def waits_for(self) -> str:
        """The next step that has to happen, in a sentence; empty if none has."""
        if self.state.final:
            return ""
        if self.state is State.PROPOSED:
            return f"It waits for the approval of {', '.join(p.name for p in self.parties if not p.approved)}."
        exchanged = () if self.exchange is None else (self.exchange.columns, self.exchange.replies)
        uploaded = [party.name for party in self.parties if party.uploaded]
        for what, done in (*zip(("columns", "replies"), exchanged, strict=False), ("block", uploaded)):
            if lacking := [party.name for party in self.parties if party.name not in done]:
                return f"It waits for the {what} of {', '.join(lacking)}."
        return "Everything is in: it is being published."

    def is_as(self, listed: ReleaseSummary) -> bool:
        """Whether a list shows exactly this now. Lists do not show how far an exchange is."""
        exchanging = self.exchange is not None and self.state is not State.PROPOSED
        return not exchanging and all(getattr(self, n) == getattr(listed, n) for n in ReleaseSummary.model_fields)

    def signed(self, kind: str) -> Mapping[str, Envelope]:
        """Statements of one kind that members are said to have signed, by member."""
        exchange = self.exchange or ExchangeProgress()
        return {
            "approval": self.approvals,
            "columns": exchange.columns,
            "reply": exchange.replies,
            "block": self.blocks,
            "rejection": self.rejections,
        }[kind]


class ReleaseSteps(Answer):
    """Releases of a member that took a step after the event asked for; ask next for those after `last`."""

    items: tuple[ReleaseDetails, ...]
    last: int
    heads: tuple[SignedDocument, ...] | None = Field(
        None,
        description="each member's newest ledger head, where a release is over and that member itself asks",
    )


class ReleaseEvent(Answer):
    """One line of a release's history: `kind` is what happened, `state` is the state afterwards."""

    seq: int
    release: _Digest
    at: datetime
    kind: str = Field(description="proposal, approval, rejection, columns, reply, block, published, expired or aborted")
    party: str | None = None
    state: State


class EventPage(Answer):
    """Events after the one asked for; ask next for those after `last`."""

    items: tuple[ReleaseEvent, ...]
    last: int
