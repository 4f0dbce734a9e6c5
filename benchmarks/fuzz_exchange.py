"""Fuzzing of what parties of a moments release send each other, each with valid documents to start from.

Damage is done as a party who means harm would do it, before signing, and to encrypted columns, replies and the
coordinator's answers on the way, too. Inputs are the same on every run.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256

import httpx
import numpy as np

from benchmarks.exchanged import approved, no_noise
from benchmarks.fuzz_target import Target, signed, unforged
from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.errors import DeviationError, ExchangeError
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import open_spec
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    columns_digest,
    open_columns,
    open_reply_statement,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.products import Received, encrypted_columns, open_part, reply_part
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.runtime.remote import model_of
from commingle.shared.wire import ReleaseDetails

_N, _COLUMNS = 12, 2
_LARGEST = 1 << 40


class Exchanged:
    """A release of two parties with its columns and replies: the first owns, the other evaluates."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        world = approved(_N, _COLUMNS, 2, entropy=random.bytes)
        self.exchange, self.keys, self.seeds, self.entropy = world.exchange, world.keys, world.seeds, random.bytes
        self.owner, self.evaluator = self.exchange.parties
        self.rows = random.integers(-(1 << 14), (1 << 14) + 1, (_N, _COLUMNS), np.int16)
        made = encrypted_columns(
            self.exchange,
            party=self.owner,
            seed=self.seeds[self.owner],
            rows=lambda start, stop: self.rows[start:stop],
            entropy=self.entropy,
        )
        self.ciphertexts = b"".join(made)
        self.columns = {name: self._columns(name) for name in self.exchange.parties}
        self.part = self._reply(self.ciphertexts, signed_under=self.ciphertexts)
        self.replies = {name: self._reply_statement(name) for name in self.exchange.parties}

    def targets(self) -> Mapping[str, Target]:
        """By name."""
        return {
            "columns": Target([encode(self.columns[self.owner])], self._open_columns),
            "ciphertexts": Target([self.ciphertexts], self._evaluate),
            "reply": Target([encode(self.replies[self.evaluator])], self._open_reply),
            "part of a reply": Target([self.part], self._open_part),
            "answers": Target([self._answer()], self._join),
        }

    def _columns(self, party: str) -> ColumnsStatement:
        body = self.ciphertexts if party == self.owner else b""
        return ColumnsStatement(
            spec=self.exchange.spec.digest,
            party=party,
            approvals=self.exchange.approved,
            body_sha256=sha256(body).hexdigest(),
        )

    def _reply_statement(self, party: str) -> ReplyStatement:
        parts = {self.owner: self.part} if party == self.evaluator else {}
        return ReplyStatement(
            spec=self.exchange.spec.digest,
            party=party,
            columns=columns_digest(self.exchange, self._sealed("columns")),
            body_sha256=sha256(b"".join(parts.values())).hexdigest(),
            parts={owner: sha256(part).hexdigest() for owner, part in parts.items()},
        )

    def _sealed(self, kind: str) -> dict[str, Envelope]:
        documents = self.columns if kind == "columns" else self.replies
        return {name: seal(document, kind=kind, key=self.keys[name]) for name, document in documents.items()}

    def _reply(self, received: bytes, *, signed_under: bytes) -> bytes:
        made = reply_part(
            self.exchange,
            owner=self.owner,
            received=Received([received], sender=self.owner, signed=sha256(signed_under).hexdigest()),
            rows=lambda start, stop: self.rows[start:stop],
            noise=no_noise(0, _COLUMNS**2).reshape(_COLUMNS, _COLUMNS),
            entropy=self.entropy,
        )
        return b"".join(made)

    def _open(self, received: bytes, *, signed_under: bytes) -> list[list[int]]:
        opened = open_part(
            self.exchange,
            owner=self.owner,
            evaluator=self.evaluator,
            seed=self.seeds[self.owner],
            received=Received([received], sender=self.evaluator, signed=sha256(signed_under).hexdigest()),
            largest=_LARGEST,
        )
        return [[int(number) for number in row] for row in opened]

    def _open_columns(self, data: bytes) -> None:
        envelope = signed(data, "columns", self.keys[self.owner])
        open_columns(self.exchange, envelope, self.owner)
        columns_digest(self.exchange, {**self._sealed("columns"), self.owner: envelope})

    def _open_reply(self, data: bytes) -> None:
        envelope = signed(data, "reply", self.keys[self.evaluator])
        open_reply_statement(self.exchange, envelope, self.evaluator)
        replies = {**self._sealed("reply"), self.evaluator: envelope}
        transcript(self.exchange, columns=self._sealed("columns"), replies=replies)

    def _evaluate(self, data: bytes) -> None:
        """Signed by who damaged it: refused by name, or replied to. Altered on the way: refused."""
        try:
            reply = self._reply(data, signed_under=data)
        except DeviationError as error:
            unforged(error.party, self.owner)
        else:
            unforged(len(reply), self.exchange.part_size(self.owner, self.evaluator))
        try:
            self._reply(data, signed_under=self.ciphertexts)
        except DeviationError:
            raise AssertionError("a party is blamed for bytes that it did not sign") from None
        unforged(data, self.ciphertexts)

    def _open_part(self, data: bytes) -> None:
        """As `_evaluate`; what opens is within its bound."""
        try:
            opened = self._open(data, signed_under=data)
        except DeviationError as error:
            unforged(error.party, self.evaluator)
        else:
            unforged(max(abs(number) for row in opened for number in row) <= _LARGEST, right=True)
        try:
            opened = self._open(data, signed_under=self.part)
        except DeviationError:
            raise AssertionError("a party is blamed for bytes that it did not sign") from None
        unforged(opened, (self.rows.T.astype(np.int64) @ self.rows).tolist())

    def _answer(self) -> bytes:
        """A release as a coordinator shows it."""
        spec = self.exchange.spec
        asked = spec.document.model_dump(mode="json", include={"study", "mechanism", "created", "expires", "n", "k"})
        view = {
            **asked,
            "epsilon": spec.document.epsilon,
            "delta": spec.document.delta,
            "parties": [{"name": party.name, "approved": True, "uploaded": False} for party in spec.document.parties],
            "id": spec.digest,
            "state": "approved",
            "spec": spec.envelope.model_dump(),
            "approvals": {name: found.envelope.model_dump() for name, found in self.exchange.approvals.items()},
            "blocks": {},
            "rejections": {},
            "exchange": {
                "columns": {name: envelope.model_dump() for name, envelope in self._sealed("columns").items()},
                "replies": {name: envelope.model_dump() for name, envelope in self._sealed("reply").items()},
            },
        }
        return json.dumps(view, default=list).encode()

    def _join(self, data: bytes) -> None:
        """As an agent does with what its coordinator answers."""
        answer = httpx.Response(200, content=data, request=httpx.Request("GET", "http://hub"))
        view = model_of(ReleaseDetails, answer)
        if view.spec is None:
            return
        exchange = Exchange.of(open_spec(view.spec, [self.keys["coordinator"].verifying_key]), view.approvals)
        with suppress(ExchangeError):  # some are not there yet
            transcript(exchange, columns=view.signed("columns"), replies=view.signed("reply"))
