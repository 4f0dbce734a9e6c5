"""Fuzzing of what parties of a moments release send each other, each with valid documents to start from.

Damage is done as a party who means harm would do it, before signing, and to the coordinator's answers on the way, too.
Encrypted columns and replies that were altered on the way are no target: an agent reads none whose digest is not the
signed one. Inputs are the same on every run.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.errors import ExchangeError
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import DeviationError
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.exchange.documents import (
    ColumnsStatement,
    ReplyStatement,
    columns_digest,
    open_columns,
    open_reply_statement,
    quotations,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Reply
from commingle.shared.mechanisms.moments.exchange.products import (
    encrypted_columns,
    open_part,
    reply_pieces,
    verify_bounds,
    verify_reply,
)
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.checks import open_spec
from commingle.shared.runtime.remote import model_of
from commingle.shared.wire import ReleaseDetails
from tests.tools.exchanged import approved, no_noise
from tests.tools.fuzz_target import Target, signed, unforged

_N, _COLUMNS = 12, 2
_LARGEST = 1 << 40


def targets() -> Mapping[str, Target]:
    """Every target by name."""
    return {**Exchanged("trusted").targets(), **_proved().proof_targets()}


class Exchanged:
    """A release of two parties with its columns and replies: the first owns, the other evaluates."""

    def __init__(self, bounds: Bounds) -> None:
        random = np.random.default_rng(0)
        world = approved(_N, _COLUMNS, 2, bounds=bounds, entropy=random.bytes)
        self.exchange, self.keys, self.seeds, self.entropy = world.exchange, world.keys, world.seeds, random.bytes
        self.owner, self.evaluator = self.exchange.parties
        self.rows = random.integers(-(1 << 14), (1 << 14) + 1, (_N, _COLUMNS), np.int16)
        self.bodies = {name: b"".join(self._encrypt(name)) for name in self.exchange.parties}
        self.columns = {name: self._columns(name) for name in self.exchange.parties}
        self.answers = {self.owner: b"", self.evaluator: self._reply(self.bodies[self.owner])}
        self.replies = {name: self._reply_statement(name) for name in self.exchange.parties}

    def targets(self) -> Mapping[str, Target]:
        """By name."""
        return {
            "columns": Target([encode(self.columns[self.owner])], self._open_columns),
            "ciphertexts": Target([self.bodies[self.owner]], self._evaluate),
            "reply": Target([encode(self.replies[self.evaluator])], self._open_reply),
            "body of a reply": Target([self.answers[self.evaluator]], self._open_body),
            "answers": Target([self._answer()], self._join),
        }

    def proof_targets(self) -> Mapping[str, Target]:
        """Of a release whose bounds are proved, by name."""
        return {
            "proved columns": Target([self.bodies[self.owner]], self._verify_bounds),
            "proved reply": Target([self.answers[self.evaluator]], self._verify_reply),
        }

    def _encrypt(self, party: str) -> Iterator[bytes]:
        return encrypted_columns(
            self.exchange, party=party, seed=self.seeds[party], rows=self._rows, entropy=self.entropy
        )

    def _rows(self, start: int, stop: int) -> NDArray[np.int16]:
        return self.rows[start:stop]

    def _columns(self, party: str) -> ColumnsStatement:
        return ColumnsStatement(
            spec=self.exchange.spec.digest,
            party=party,
            approvals=self.exchange.approved,
            body_sha256=sha256(self.bodies[party]).hexdigest(),
        )

    def _reply_statement(self, party: str) -> ReplyStatement:
        return ReplyStatement(
            spec=self.exchange.spec.digest,
            party=party,
            columns=quotations(self.exchange, self._sealed("columns")),
            body_sha256=sha256(self.answers[party]).hexdigest(),
        )

    def _sealed(self, kind: str) -> dict[str, Envelope]:
        documents = self.columns if kind == "columns" else self.replies
        return {name: seal(document, kind=kind, key=self.keys[name]) for name, document in documents.items()}

    def _reply(self, received: bytes) -> bytes:
        made = reply_pieces(
            self._sent(self.evaluator),
            {self.owner: self._sent(self.owner, received)},
            seed=self.seeds[self.evaluator],
            rows=self._rows,
            noise=lambda _: no_noise(0, _COLUMNS**2).reshape(_COLUMNS, _COLUMNS),
            entropy=self.entropy,
        )
        return b"".join(made)

    def _sent(self, party: str, received: bytes | None = None) -> Columns:
        return Columns(self.exchange, party, self.bodies[party] if received is None else received)

    def _open(self, received: bytes) -> list[list[int]]:
        reply = Reply(self.exchange, self.evaluator, received)
        opened = open_part(reply, owner=self.owner, seed=self.seeds[self.owner], largest=_LARGEST)
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
        """Signed by who damaged it, and no longer than an agent reads: refused by name, or replied to."""
        received = data[: len(self.bodies[self.owner])]
        try:
            reply = self._reply(received)
        except DeviationError as error:
            unforged(error.party, self.owner)
        else:
            unforged(len(reply), self.exchange.reply_size(self.evaluator))

    def _open_body(self, data: bytes) -> None:
        """As `_evaluate`; what opens is within its bound."""
        try:
            opened = self._open(data[: len(self.answers[self.evaluator])])
        except DeviationError as error:
            unforged(error.party, self.evaluator)
        else:
            unforged(max(abs(number) for row in opened for number in row) <= _LARGEST, right=True)

    def _verify_bounds(self, data: bytes) -> None:
        """Refused by name, unless they are the proved ones."""
        received = data[: len(self.bodies[self.owner])]
        try:
            verify_bounds(self._sent(self.owner, received))
        except DeviationError as error:
            unforged(error.party, self.owner)
        else:
            unforged(received, self.bodies[self.owner])

    def _verify_reply(self, data: bytes) -> None:
        """As `_verify_bounds`."""
        received = data[: len(self.answers[self.evaluator])]
        try:
            verify_reply(
                Reply(self.exchange, self.evaluator, received),
                {name: self._sent(name) for name in self.exchange.parties},
            )
        except DeviationError as error:
            unforged(error.party, self.evaluator)
        else:
            unforged(received, self.answers[self.evaluator])

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


@cache
def _proved() -> Exchanged:
    """Made once: proofs take a while."""
    return Exchanged("proved")
