"""Fuzzing of what parties of a moments release send each other, each with valid documents to start from.

Damage is done as a party who means harm would do it, before signing, and to the coordinator's answers on the way, too.
Encrypted columns and replies that were altered on the way are no target: an agent reads none whose digest is not the
signed one. Inputs are the same on every run.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache

import httpx
import numpy as np

from commingle.shared.documents.statements import DeviationError
from commingle.shared.documents.terms import Bounds
from commingle.shared.errors import ExchangeError
from commingle.shared.mechanisms.moments.exchange.messages import (
    Exchange,
    columns_digest,
    open_columns,
    open_reply_statement,
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.products import open_part, verify_bounds, verify_reply
from commingle.shared.release.checks import open_spec
from commingle.shared.runtime.remote import model_of
from commingle.shared.wire import ReleaseDetails
from tests.tools.fuzz_mutations import Target, unforged
from tests.world.documents import sign_bytes
from tests.world.noise import no_noise
from tests.world.side import approved

_N, _COLUMNS = 12, 2
_LARGEST = 1 << 40


def targets() -> Mapping[str, Target]:
    return {**Exchanged("trusted").targets(), **_proved().proof_targets()}


class Exchanged:
    """A release of two parties with its columns and replies: the first owns, the other evaluates."""

    def __init__(self, bounds: Bounds) -> None:
        random = np.random.default_rng(0)
        self.world = approved(_N, _COLUMNS, 2, bounds=bounds, entropy=random.bytes)
        self.exchange, self.keys = self.world.exchange, self.world.keys
        self.owner, self.evaluator = self.exchange.parties
        rows = random.integers(-(1 << 14), (1 << 14) + 1, (_N, _COLUMNS), np.int16)
        for name in self.exchange.parties:
            self.world.encrypt(name, rows)
        for name in self.exchange.parties:
            self.world.reply(name, no_noise)
        self.bodies, self.answers = self.world.bodies, self.world.answers

    def targets(self) -> Mapping[str, Target]:
        return {
            "columns": Target([self.world.columns[self.owner].payload_bytes], self._open_columns),
            "ciphertexts": Target([self.bodies[self.owner]], self._evaluate),
            "reply": Target([self.world.replies[self.evaluator].payload_bytes], self._open_reply),
            "body of a reply": Target([self.answers[self.evaluator]], self._open_body),
            "answers": Target([self._answer()], self._join),
        }

    def proof_targets(self) -> Mapping[str, Target]:
        return {
            "proved columns": Target([self.bodies[self.owner]], self._verify_bounds),
            "proved reply": Target([self.answers[self.evaluator]], self._verify_reply),
        }

    def _reply(self, received: bytes) -> bytes:
        side = self.world.side(self.evaluator)
        sent = {self.evaluator: self.world.sent(self.evaluator), self.owner: self.world.sent(self.owner, received)}
        return side.reply(sent, lambda owner: side.noise_for(owner, no_noise), self.world.entropy("reply"))

    def _open(self, received: bytes) -> list[list[int]]:
        reply = self.world.answered(self.evaluator, received)
        opened = open_part(reply, owner=self.owner, seed=self.world.seeds[self.owner], largest=_LARGEST)
        return [[int(number) for number in row] for row in opened]

    def _open_columns(self, data: bytes) -> None:
        envelope = sign_bytes(data, kind="columns", key=self.keys[self.owner])
        open_columns(self.exchange, envelope, self.owner)
        columns_digest(self.exchange, {**self.world.columns, self.owner: envelope})

    def _open_reply(self, data: bytes) -> None:
        envelope = sign_bytes(data, kind="reply", key=self.keys[self.evaluator])
        open_reply_statement(self.exchange, envelope, self.evaluator)
        replies = {**self.world.replies, self.evaluator: envelope}
        transcript(self.exchange, columns=self.world.columns, replies=replies)

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
            verify_bounds(self.world.sent(self.owner, received))
        except DeviationError as error:
            unforged(error.party, self.owner)
        else:
            unforged(received, self.bodies[self.owner])

    def _verify_reply(self, data: bytes) -> None:
        """As `_verify_bounds`."""
        received = data[: len(self.answers[self.evaluator])]
        try:
            verify_reply(
                self.world.answered(self.evaluator, received),
                {name: self.world.sent(name) for name in self.exchange.parties},
            )
        except DeviationError as error:
            unforged(error.party, self.evaluator)
        else:
            unforged(received, self.answers[self.evaluator])

    def _answer(self) -> bytes:
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
                "columns": {name: envelope.model_dump() for name, envelope in self.world.columns.items()},
                "replies": {name: envelope.model_dump() for name, envelope in self.world.replies.items()},
            },
        }
        return json.dumps(view, default=list).encode()

    def _join(self, data: bytes) -> None:
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
