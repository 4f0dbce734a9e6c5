"""Fuzzing of what dealer and parties of a moments release send each other, each with valid documents to start from.

Damage is done as a dealer or party who means harm would do it, before signing and sealing; to masked rows and to the
coordinator's answers on the way. Inputs are the same on every run; HPKE's ephemeral keys, which the operating system
draws, are not, so sealed boxes are made where they are opened.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import httpx
import numpy as np

from benchmarks.exchanged import approved, piece
from benchmarks.fuzz_target import Target, signed, unforged
from commingle.shared.documents.dsse import Verified, seal
from commingle.shared.documents.model import encode
from commingle.shared.documents.statements import open_spec
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import open_package
from commingle.shared.mechanisms.moments.exchange.documents import (
    DealPackage,
    DealStatement,
    MaskStatement,
    open_deal,
    open_mask,
)
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Words, rows_of
from commingle.shared.mechanisms.moments.exchange.sealing import seal_to
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.runtime.remote import model_of
from commingle.shared.wire import ReleaseDetails, SealedPackage

_N, _COLUMNS = 12, 2
_ZEROS = "0" * 64
_BOX = "0" * 224  # as long as a sealed secret


@dataclass(frozen=True, slots=True)
class Sent:
    """A party's masked rows as it sent them."""

    words: Words
    secret: MaskSecret
    body: bytes
    statement: Verified[MaskStatement]


class Exchanged:
    """A release that two parties have approved, dealt, and masked by both."""

    def __init__(self) -> None:
        world = approved(_N, _COLUMNS, 2, entropy=np.random.default_rng(0).bytes)
        self.exchange, self.keys, self.round_keys = world.exchange, world.keys, world.round_keys
        self.first, self.second = self.exchange.parties
        parties = dict.fromkeys(self.exchange.parties, _ZEROS)
        self.deal = DealStatement(spec=self.exchange.spec.digest, approvals=self.exchange.approved, packages=parties)
        self.sent = {name: self._send(name, seed) for seed, name in enumerate(self.exchange.parties)}
        self.transcript = transcript(self.exchange, deal=_ZEROS, masks=self._masks())

    def targets(self) -> Mapping[str, Target]:
        """By name."""
        share = b64encode(np.arange(_COLUMNS * _COLUMNS, dtype="<u8").tobytes()).decode()
        package = DealPackage(pad=_ZEROS, seeds={}, shares={self.first: share})
        mask = self.sent[self.first].statement.document.model_copy(
            update={"keys": dict.fromkeys(self.exchange.parties, _BOX)}
        )
        vote = countersignature(self.exchange, party=self.first, transcript=self.transcript)
        return {
            "deal": Target([encode(self.deal)], self._open_deal),
            "package": Target([encode(package)], self._open_package),
            "mask": Target([encode(mask)], self._open_mask),
            "masked rows": Target([self.sent[self.first].body], self._read_rows),
            "countersignature": Target([encode(vote)], self._agree),
            "answers": Target(self._answers(), self._join),
        }

    def _send(self, party: str, seed: int) -> Sent:
        entropy = np.random.default_rng(seed).bytes
        words = np.frombuffer(entropy(_N * _COLUMNS * 8), np.uint64).reshape(_N, _COLUMNS)
        secret = MaskSecret.draw(entropy)
        sealer = MaskSealer(self.exchange, party=party, secret=secret)
        body = b"".join(sealer.body(rows_of(words)))
        envelope = seal(sealer.statement(_ZEROS), kind="mask", key=self.keys[party])
        return Sent(words, secret, body, open_mask(self.exchange, envelope, party))

    def _masks(self) -> dict[str, Verified[MaskStatement]]:
        return {name: sent.statement for name, sent in self.sent.items()}

    def _open_deal(self, data: bytes) -> None:
        dealer, key = self.keys["dealer"], self.round_keys[self.second]
        deal = open_deal(self.exchange, signed(data, "deal", dealer), dealer.verifying_key)
        with suppress(CommingleError):  # its digests name no package
            open_package(self.exchange, deal, b"", party=self.second, key=key)

    def _open_package(self, data: bytes) -> None:
        dealer, key = self.keys["dealer"], self.round_keys[self.second]
        box = seal_to(key.public, data, self.exchange.info("deal", self.second, key.public))
        packages = {self.first: _ZEROS, self.second: sha256(box).hexdigest()}
        envelope = seal(self.deal.model_copy(update={"packages": packages}), kind="deal", key=dealer)
        deal = open_deal(self.exchange, envelope, dealer.verifying_key)
        open_package(self.exchange, deal, box, party=self.second, key=key)

    def _open_mask(self, data: bytes) -> None:
        mask = open_mask(self.exchange, signed(data, "mask", self.keys[self.first]), self.first)
        with suppress(CommingleError):  # its boxes are nobody's
            open_secret(self.exchange, mask, recipient=self.second, key=self.round_keys[self.second])
        transcript(self.exchange, deal=_ZEROS, masks={**self._masks(), self.first: mask})

    def _read_rows(self, data: bytes) -> None:
        sent = self.sent[self.first]
        reader = MaskReader(self.exchange, party=self.first, secret=sent.secret, read=partial(piece, data))
        check_commitment(self.exchange, sent.statement, reader, secret=sent.secret)
        unforged(reader(0, _N).tolist(), sent.words.tolist())

    def _agree(self, data: bytes) -> None:
        own = countersignature(self.exchange, party=self.second, transcript=self.transcript)
        votes = {
            self.first: signed(data, "countersignature", self.keys[self.first]),
            self.second: seal(own, kind="countersignature", key=self.keys[self.second]),
        }
        agreed(self.exchange, transcript=self.transcript, countersignatures=votes)

    def _answers(self) -> list[bytes]:
        """A release and a hand, as a coordinator shows them."""
        spec, deal = self.exchange.spec, seal(self.deal, kind="deal", key=self.keys["dealer"])
        asked = spec.document.model_dump(mode="json", include={"study", "mechanism", "created", "expires", "n", "k"})
        parties = [{"name": party.name, "approved": True, "uploaded": False} for party in spec.document.parties]
        view = {
            **asked,
            "epsilon": spec.document.epsilon,
            "delta": spec.document.delta,
            "parties": parties,
            "id": spec.digest,
            "state": "approved",
            "spec": spec.envelope.model_dump(),
            "approvals": {name: found.envelope.model_dump() for name, found in self.exchange.approvals.items()},
            "blocks": {},
            "rejections": {},
            "exchange": {"dealt": True, "masks": {}, "countersignatures": {}},
        }
        hand = {"statement": deal.model_dump(), "package": b64encode(b"box").decode()}
        return [json.dumps(document, default=list).encode() for document in (view, hand)]

    def _join(self, data: bytes) -> None:
        """As an agent does with what its coordinator answers."""
        answer = httpx.Response(200, content=data, request=httpx.Request("GET", "http://hub"))
        dealer, found = self.keys["dealer"].verifying_key, list[CommingleError]()
        try:
            view = model_of(ReleaseDetails, answer)
            if view.spec is not None:
                Exchange.of(open_spec(view.spec, [dealer]), view.approvals)
            for sender in self.exchange.parties:
                if (mask := view.signed("mask").get(sender)) is not None:
                    open_mask(self.exchange, mask, sender)
        except CommingleError as error:
            found.append(error)
        try:
            open_deal(self.exchange, model_of(SealedPackage, answer).statement, dealer)
        except CommingleError as error:
            found.append(error)
        if len(found) == 2:  # neither one nor the other
            raise found[0]
