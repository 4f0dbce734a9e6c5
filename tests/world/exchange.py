"""Honest parties in the exchange of a moments release, over HTTP, every step open to attack."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, SigningKey, parse_envelope, seal
from commingle.shared.documents.row_maps import row_bound
from commingle.shared.dp.fixed_point import clip_rows
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms.moments.exchange.messages import (
    Columns,
    ColumnsStatement,
    Exchange,
    Reply,
    ReplyStatement,
    open_columns,
    open_reply_statement,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.products import verify_bounds, verify_reply
from commingle.shared.release.checks import open_spec
from tests.world.coordinator import Block, Honest, Hub, Proposed, key_of
from tests.world.documents import block_statement
from tests.world.side import Side, pieces_of

OCTETS = "application/octet-stream"
PATHS: Mapping[str, str] = {"columns": "columns", "reply": "replies"}
"""Where each kind of message is sent."""
Kind: TypeAlias = Literal["columns", "reply"]
EARLIER: Mapping[Kind, tuple[Kind, ...]] = {"columns": (), "reply": ("columns",)}
"""What everybody has sent before a message of a kind is due."""
SENDER: Mapping[Kind, int] = {"columns": 0, "reply": 1}
"""Who has something to say in it: the last party encrypts nothing, the first replies nothing."""
Statement: TypeAlias = ColumnsStatement | ReplyStatement


@dataclass(frozen=True)
class Message:
    """What a party sends in an exchange."""

    kind: Kind
    body: bytes
    statement: Statement
    envelope: Envelope

    @property
    def reply(self) -> ReplyStatement:
        assert isinstance(self.statement, ReplyStatement)
        return self.statement

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Type": OCTETS, "Commingle-Statement": self.envelope.to_json().decode()}


def message(statement: Statement, body: bytes, key: SigningKey, **changes: Any) -> Message:
    """Those bytes under that statement, with changes to it, signed with that key."""
    kind: Kind = "columns" if isinstance(statement, ColumnsStatement) else "reply"
    changed = statement.model_copy(update=changes)
    return Message(kind, body, changed, seal(changed, key=key))


def envelope_of(shown: Any) -> Envelope:
    return parse_envelope(httpx.Response(200, json=shown).content)


def rows_of_party(party: Honest, proposed: Proposed) -> NDArray[np.int64]:
    """Made-up encoded rows (n x d) within their bound, the same each time."""
    limit, share = 2**proposed.spec.fraction_bits, party.share(proposed)
    made = np.random.default_rng(len(party.name)).integers(-limit, limit + 1, (proposed.spec.n, len(share.columns)))
    return clip_rows(made, row_bound(proposed.spec.terms, share))


@dataclass
class Relayed:
    """A moments release that all parties have approved, relayed by a coordinator; parties in the spec's order."""

    hub: Hub
    proposed: Proposed
    parties: Sequence[Honest]
    sent: dict[tuple[Kind, str], Message] = field(default_factory=dict)

    @cached_property
    def exchange(self) -> Exchange:
        """Asked for once: approvals do not change."""
        spec = open_spec(self.proposed.envelope, [self.hub.key.verifying_key])
        return Exchange.of(spec, self.hub.approvals(self.proposed))

    def path(self, *parts: str) -> str:
        return "/".join((f"/v1/releases/{self.proposed.id}", *parts))

    def get(self, *parts: str, by: str) -> httpx.Response:
        return self.hub.http.get(self.path(*parts), auth=self.hub.auth(key_of(by)))

    def signed(self, kind: Kind) -> dict[str, Envelope]:
        """What everybody is shown of one kind, by party."""
        shown = self.hub.show(self.proposed)["exchange"][PATHS[kind]]
        return {name: envelope_of(envelope) for name, envelope in shown.items()}

    def side(self, party: Honest) -> Side:
        """That party's, with made-up rows and a key that is the same each time."""
        seed = sha256(f"{party.name} {self.proposed.id}".encode()).digest()
        return Side(self.exchange, party.name, seed, pieces_of(rows_of_party(party, self.proposed)))

    def columns(self, party: Honest, key: SigningKey | None = None, /, **changes: Any) -> Message:
        side = self.side(party)
        body = side.columns(os.urandom)
        return message(side.says_of_columns(body), body, key or party.key, **changes)

    def received(self, kind: Kind, sender: str, *, by: str) -> bytes:
        """A message as a party gets it, held against what its sender signed."""
        envelope = self.signed(kind)[sender]
        statement = (open_columns if kind == "columns" else open_reply_statement)(self.exchange, envelope, sender)
        answer = self.get(PATHS[kind], sender, by=by)
        assert answer.status_code == 200, answer.text
        assert sha256(answer.content).hexdigest() == statement.document.body_sha256
        return answer.content

    def received_columns(self, *, by: str) -> dict[str, Columns]:
        """Encrypted columns as a party gets them, its own too. Raises DeviationError where a bound is not kept."""
        senders = self.exchange.senders(by)
        found = {name: Columns(self.exchange, name, self.received("columns", name, by=by)) for name in senders}
        for columns in found.values():
            if self.exchange.proved and columns.party != by:
                verify_bounds(columns)
        return found

    def reply_body(self, party: Honest) -> bytes:
        """What a party replies to those before it, with noise drawn anew each time. Raises DeviationError."""
        side = self.side(party)
        sent = self.received_columns(by=party.name)
        return side.reply(sent, lambda owner: side.noise_for(owner, rounded_gaussian), os.urandom)

    def reply(self, party: Honest, key: SigningKey | None = None, /, **changes: Any) -> Message:
        body = self.reply_body(party)
        said = self.side(party).says_of_reply(body, self.signed("columns"))
        return message(said, body, key or party.key, **changes)

    def make(self, kind: Kind, party: Honest, key: SigningKey | None = None) -> Message:
        return self.columns(party, key) if kind == "columns" else self.reply(party, key)

    def send(self, party: str, made: Message, body: bytes | None = None, *, by: str | None = None) -> httpx.Response:
        content, auth = made.body if body is None else body, self.hub.auth(key_of(by or party))
        path = self.path(PATHS[made.kind], party)
        return self.hub.http.put(path, content=content, headers=made.headers, auth=auth)

    def send_of(self, kind: Kind, party: Honest) -> Message:
        """Make and send what is due, and remember it."""
        made = self.make(kind, party)
        answer = self.send(party.name, made)
        assert answer.status_code == 201, answer.text
        self.sent[kind, party.name] = made
        return made

    def due(self, kind: Kind) -> tuple[Honest, Message]:
        """A message that nobody has sent yet, with its sender, and everything before it sent."""
        self.send_all(*EARLIER[kind])
        sender = self.parties[SENDER[kind]]
        return sender, self.make(kind, sender)

    def fetched(self, kind: Kind) -> httpx.Response:
        """What the other one of two parties gets of the message of `due`."""
        sender, reader = self.parties if kind == "columns" else self.parties[::-1]
        return self.get(PATHS[kind], sender.name, by=reader.name)

    def kept(self) -> list[Path]:
        """What the coordinator has on its disk of all exchanges that run."""
        return [path for path in (self.hub.home / "blobs" / "running").rglob("*") if path.is_file()]

    def send_all(self, *kinds: Kind) -> None:
        for kind in kinds:
            for party in self.parties:
                self.send_of(kind, party)

    def opened(self, owner: Honest, evaluator: str) -> NDArray[np.int64]:
        """What a party reads in a reply: inner products and the evaluator's noise. Raises DeviationError."""
        reply = Reply(self.exchange, evaluator, self.received("reply", evaluator, by=owner.name))
        if self.exchange.proved:
            verify_reply(reply, self.received_columns(by=owner.name))
        return self.side(owner).opened(reply)

    def transcript(self) -> str:
        return transcript(self.exchange, columns=self.signed("columns"), replies=self.signed("reply"))

    def block(self, party: Honest, **changes: Any) -> Block:
        """With noise drawn anew each time: call it once."""
        spec, share = self.proposed.spec, party.share(self.proposed)
        opened = {name: self.opened(party, name) for name in self.exchange.evaluators(party.name)}
        integers = self.side(party).submission(opened, rounded_gaussian)
        body, statement = block_statement(
            spec,
            share,
            integers,
            release=self.proposed.id,
            approvals=self.exchange.approved,
            transcript=self.transcript(),
        )
        return party.signed(body, statement.model_copy(update=changes))

    def upload_all(self) -> None:
        self.send_all("columns", "reply")
        for party in self.parties:
            answer = self.hub.upload(self.proposed, party.name, self.block(party))
            assert answer.status_code == 201, answer.text


def approved(hub: Hub, parties: Sequence[Honest], **changes: Any) -> Relayed:
    proposed = hub.proposed(parties, mechanism="moments", **changes)
    for party in parties:
        answer = hub.approve(proposed, party.name, party.approval(proposed))
        assert answer.status_code == 201, answer.text
    return Relayed(hub, proposed, parties)


def exact_moments(proposed: Proposed, parties: Sequence[Honest]) -> NDArray[np.int64]:
    """S of the made-up rows (p x p), in steps, without noise."""
    intercept = np.full((proposed.spec.n, 1), 2**proposed.spec.fraction_bits)
    rows = np.hstack([intercept, *(rows_of_party(party, proposed) for party in parties)])
    found: NDArray[np.int64] = rows.T @ rows
    return found


def of_three(hub: Hub, parties: Sequence[Honest], **changes: Any) -> Relayed:
    return approved(hub, [*parties, hub.enrolled("lab")], **changes)
