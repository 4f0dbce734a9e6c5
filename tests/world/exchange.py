"""Honest parties in the exchange of a moments release, over HTTP, every step open to attack."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, parse_envelope, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.statements import open_spec
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Hand, open_package
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement, open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Rows, rows_of, subtracted
from commingle.shared.mechanisms.moments.exchange.submission import mask, share, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.plan import plan_block
from tests.world.coordinator import Block, Honest, Hub, Proposed, key_of
from tests.world.documents import block_statement

OCTETS = "application/octet-stream"


@dataclass(frozen=True)
class Mask:
    """What a party sends to all others."""

    body: bytes
    statement: MaskStatement
    envelope: Envelope


def envelope_of(shown: Any) -> Envelope:
    return parse_envelope(httpx.Response(200, json=shown).content)


def rows_of_party(party: Honest, proposed: Proposed) -> NDArray[np.int64]:
    """Made-up encoded rows (n x d), the same each time."""
    limit = 2**proposed.spec.fraction_bits
    shape = (proposed.spec.n, len(party.share(proposed).columns))
    return np.random.default_rng(len(party.name)).integers(-limit, limit + 1, shape)


@dataclass
class Exchanging:
    """A moments release that every party has approved, and its parties."""

    hub: Hub
    proposed: Proposed
    parties: Sequence[Honest]
    masks: dict[str, Mask] = field(default_factory=dict)

    @cached_property
    def exchange(self) -> Exchange:
        """Asked for once: approvals do not change."""
        spec = open_spec(self.proposed.envelope, [self.hub.key.verifying_key])
        return Exchange.of(spec, self.hub.approvals(self.proposed))

    def path(self, kind: str, party: str) -> str:
        return f"/v1/releases/{self.proposed.id}/{kind}/{party}"

    def get(self, kind: str, party: str, by: str) -> httpx.Response:
        return self.hub.http.get(self.path(kind, party), auth=self.hub.auth(key_of(by)))

    def deal(self) -> Envelope:
        return envelope_of(self.get("deal", self.parties[0].name, self.parties[0].name).json()["statement"])

    def hand(self, party: Honest) -> Hand:
        answer = self.get("deal", party.name, party.name)
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        statement = open_deal(self.exchange, envelope_of(shown["statement"]), self.hub.key.verifying_key)
        package = b64decode(shown["package"], validate=True)
        key = party.round_key(self.proposed)
        return open_package(self.exchange, statement, package, party=party.name, key=key)

    def mask(self, party: Honest, key: SigningKey | None = None, **changes: Any) -> Mask:
        secret = MaskSecret.draw(np.random.default_rng().bytes)
        sealer = MaskSealer(self.exchange, party=party.name, secret=secret)
        rows = rows_of(rows_of_party(party, self.proposed))
        body = b"".join(sealer.body(subtracted(rows, self.hand(party).pad)))
        statement = sealer.statement(self.deal().digest).model_copy(update=changes)
        return Mask(body, statement, seal(statement, kind="mask", key=key or party.key))

    def send(self, party: str, mask: Mask, body: bytes | None = None, *, by: str | None = None) -> httpx.Response:
        headers = {"Content-Type": OCTETS, "Commingle-Mask": mask.envelope.to_json().decode()}
        content = mask.body if body is None else body
        auth = self.hub.auth(key_of(by or party))
        return self.hub.http.put(self.path("masks", party), content=content, headers=headers, auth=auth)

    def masked(self, party: Honest) -> None:
        self.masks[party.name] = self.mask(party)
        answer = self.send(party.name, self.masks[party.name])
        assert answer.status_code == 201, answer.text

    def read(self, recipient: Honest, sender: str) -> tuple[Verified[MaskStatement], Rows]:
        """A mask as its recipient gets it, checked."""
        shown = self.hub.show(self.proposed)["exchange"]["masks"][sender]
        statement = open_mask(self.exchange, envelope_of(shown), sender)
        key = recipient.round_key(self.proposed)
        secret = open_secret(self.exchange, statement, recipient=recipient.name, key=key)
        body = self.get("masks", sender, recipient.name).content
        reader = MaskReader(
            self.exchange, party=sender, secret=secret, read=lambda offset, size: body[offset : offset + size]
        )
        check_commitment(self.exchange, statement, reader, secret=secret)
        return statement, reader

    def transcript(self, party: Honest) -> str:
        masks = {name: self.read(party, name)[0] for name in self.exchange.parties}
        return transcript(self.exchange, deal=self.deal().digest, masks=masks)

    def countersignature(self, party: Honest, key: SigningKey | None = None, **changes: Any) -> Envelope:
        document = countersignature(self.exchange, party=party.name, transcript=self.transcript(party))
        return seal(document.model_copy(update=changes), kind="countersignature", key=key or party.key)

    def countersign(self, party: str, envelope: Envelope, *, by: str | None = None) -> httpx.Response:
        auth = self.hub.auth(key_of(by or party))
        return self.hub.http.put(self.path("countersignatures", party), content=envelope.to_json(), auth=auth)

    def block(self, party: Honest, **changes: Any) -> Block:
        """With noise drawn anew each time: call it once."""
        spec, exchange = self.proposed.spec, self.exchange
        plan = plan_block(spec, party.share(self.proposed))
        shown = self.hub.show(self.proposed)["exchange"]["countersignatures"]
        signed = {name: envelope_of(envelope) for name, envelope in shown.items()}
        agreement = agreed(exchange, transcript=self.transcript(party), countersignatures=signed)
        masked = {name: self.read(party, name)[1] for name in exchange.parties}
        shares = share(exchange, party=party.name, hand=self.hand(party), masked=masked)
        hidden = mask(exchange, party=party.name, key=party.round_key(self.proposed), agreement=agreement)
        noise = mechanism_of(spec).noise(spec, party.share(self.proposed), sigma=plan.sigma, draw=rounded_gaussian)
        integers = submission(shares, hidden, noise)
        body, statement = block_statement(
            spec,
            party.share(self.proposed),
            integers,
            release=self.proposed.id,
            approvals=exchange.approved,
            transcript=agreement.transcript,
        )
        return party.signed(body, statement.model_copy(update=changes))

    def agreed(self) -> None:
        """Every mask sent, every countersignature given."""
        for party in self.parties:
            self.masked(party)
        for party in self.parties:
            answer = self.countersign(party.name, self.countersignature(party))
            assert answer.status_code == 201, answer.text

    def uploaded(self) -> None:
        """Every block sent, too."""
        self.agreed()
        for party in self.parties:
            answer = self.hub.upload(self.proposed, party.name, self.block(party))
            assert answer.status_code == 201, answer.text


def approved(hub: Hub, parties: Sequence[Honest], **changes: Any) -> Exchanging:
    """A moments release that every party has approved; nothing is dealt."""
    proposed = hub.proposed(parties, mechanism="moments", **changes)
    for party in parties:
        answer = hub.approve(proposed, party.name, party.approval(proposed))
        assert answer.status_code == 201, answer.text
    return Exchanging(hub, proposed, parties)


def dealt(hub: Hub, parties: Sequence[Honest], **changes: Any) -> Exchanging:
    """The same, dealt."""
    found = approved(hub, parties, **changes)
    hub.publisher.run_once()
    return found
