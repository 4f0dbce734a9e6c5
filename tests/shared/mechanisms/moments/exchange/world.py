"""A consortium in memory that runs the whole exchange of a moments release, every step open to attack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Whitening,
)
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Approval, open_spec
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.agreement import Agreement, agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Dealt, Hand, deal, open_package
from commingle.shared.mechanisms.moments.exchange.documents import MaskStatement, open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Rows, rows_of, subtracted
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.submission import mask, share, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.matrix import assemble, encode_matrix, second_moments
from tests.world.documents import HEAD, block_statement, manifest, signed_document

Block = NDArray[np.int64]
NOW = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("clinic", "lab", "registry")
KEYS = {name: SigningKey(sha256(name.encode()).digest()) for name in ("coordinator", "stranger", *NAMES)}
NUMBERS = tuple(NumericAttribute(name=name, lower=0, upper=1) for name in ("age", "bmi"))
SEX = BinaryAttribute(name="sex", levels=("f", "m"))
BLOOD = CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB"))


def party_spec(
    name: str, *attributes: Attribute, row_norm: float | None = None, whitening: Whitening | None = None
) -> PartySpec:
    key = KEYS[name].verifying_key.raw.hex()
    return PartySpec(
        name=name,
        signing_key=key,
        sealing_key=key,
        dataset="data",
        attributes=attributes,
        row_norm=row_norm,
        whitening=whitening,
    )


THREE = (
    party_spec("clinic", *NUMBERS),
    party_spec("lab", BLOOD, row_norm=0.75),
    party_spec("registry", SEX),
)

SKEW = Whitening(centre=(0.3, -0.9), matrix=((3.0, -1.0), (0.5, 0.7)))
UNEVEN = Whitening(centre=(0.1, 0.5, 0.0), matrix=((9.0, 0.0, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, 0.2)))
WHITENED = (
    party_spec("clinic", *NUMBERS, row_norm=1.0, whitening=SKEW),
    party_spec("lab", BLOOD, row_norm=0.4, whitening=UNEVEN),
    party_spec("registry", SEX),
)


def spec_of(parties: tuple[PartySpec, ...] = THREE, *, n: int = 4100, **changes: object) -> ReleaseSpec:
    spec = ReleaseSpec(
        study="Blood",
        created=NOW,
        expires=NOW + timedelta(days=3),
        mechanism="moments",
        fraction_bits=14,
        seed="5e" * 32,
        calibration=Calibration.ANALYTIC,
        epsilon=1.0,
        delta=1e-5,
        n=n,
        parties=parties,
        proposer=KEYS["coordinator"].fingerprint,
    )
    return decode(ReleaseSpec, encode(spec.model_copy(update=changes)))


def private_rows(party: PartySpec, n: int, seed: int = 0) -> Block:
    """A party's integer rows (n x d), as its agent would have them."""
    random = np.random.default_rng([seed, len(party.name)])
    parts = []
    for attribute in party.attributes:
        if isinstance(attribute, CategoricalAttribute):
            parts.append(np.eye(len(attribute.levels))[random.integers(0, len(attribute.levels), n)][:, 1:])
        else:
            parts.append(random.uniform(-1, 1, (n, 1)))
    mapped = None if party.whitening is None else party.whitening.integer_map()
    return bounded_rows(party.row_norm, mapped, fraction_bits=14)(quantise(np.hstack(parts)))


def entropy(seed: int = 0) -> Callable[[int], bytes]:
    """Bytes like the operating system's, but the same each time."""
    return np.random.default_rng(seed).bytes


@dataclass
class World:
    """The state of everybody. Attackers change fields or override a step."""

    spec: Verified[ReleaseSpec]
    exchange: Exchange
    round_keys: Mapping[str, RoundKey]
    rows: dict[str, Block]
    dealt: Dealt
    deal: Envelope
    bodies: dict[str, bytes] = field(default_factory=dict)
    masks: dict[str, Envelope] = field(default_factory=dict)

    def hand(self, party: str) -> Hand:
        statement = open_deal(self.exchange, self.deal, KEYS["coordinator"].verifying_key)
        return open_package(
            self.exchange, statement, self.dealt.packages[party], party=party, key=self.round_keys[party]
        )

    def masked(self, party: str, seed: int = 1) -> None:
        sealer = MaskSealer(self.exchange, party=party, secret=MaskSecret.draw(entropy(hash_of(party) + seed)))
        rows = subtracted(rows_of(self.rows[party]), self.hand(party).pad)
        self.bodies[party] = b"".join(sealer.body(rows))
        self.masks[party] = seal(sealer.statement(self.deal.digest), kind="mask", key=KEYS[party])

    def read(self, recipient: str, sender: str) -> tuple[Verified[MaskStatement], Rows]:
        """A mask as its recipient sees it, checked."""
        statement = open_mask(self.exchange, self.masks[sender], sender)
        secret = open_secret(self.exchange, statement, recipient=recipient, key=self.round_keys[recipient])
        body = self.bodies[sender]
        reader = MaskReader(
            self.exchange, party=sender, secret=secret, read=lambda offset, size: body[offset : offset + size]
        )
        check_commitment(self.exchange, statement, reader, secret=secret)
        return statement, reader

    def seen(self, party: str) -> str:
        masks = {name: self.read(party, name)[0] for name in self.exchange.parties}
        return transcript(self.exchange, deal=self.deal.digest, masks=masks)

    def countersigned(self, party: str) -> Envelope:
        statement = countersignature(self.exchange, party=party, transcript=self.seen(party))
        return seal(statement, kind="countersignature", key=KEYS[party])

    def agreement(self, party: str) -> Agreement:
        signed = {name: self.countersigned(name) for name in self.exchange.parties}
        return agreed(self.exchange, transcript=self.seen(party), countersignatures=signed)

    def submission(self, party: str, noise: Block) -> Block:
        readers = {name: self.read(party, name)[1] for name in self.exchange.parties}
        shares = share(self.exchange, party=party, hand=self.hand(party), masked=readers)
        hidden = mask(self.exchange, party=party, key=self.round_keys[party], agreement=self.agreement(party))
        return submission(shares, hidden, noise)


def hash_of(name: str) -> int:
    return sum(name.encode())


def approval(release: str, party: str, round_key: str | None) -> Envelope:
    document = Approval(spec=release, party=party, created=NOW, ledger_head=HEAD, round_key=round_key)
    return seal(document, kind="approval", key=KEYS[party])


def start(spec: ReleaseSpec, rows: dict[str, Block] | None = None, seed: int = 0) -> World:
    """Approved and dealt."""
    names = [party.name for party in spec.parties]
    opened = open_spec(seal(spec, kind="spec", key=KEYS["coordinator"]), [KEYS["coordinator"].verifying_key])
    draw = entropy(seed)
    round_keys = {name: RoundKey(draw(32)) for name in names}
    exchange = Exchange.of(opened, {name: approval(opened.digest, name, round_keys[name].public) for name in names})
    dealt = deal(exchange, entropy=draw)
    signed = seal(dealt.statement, kind="deal", key=KEYS["coordinator"])
    rows = rows or {party.name: private_rows(party, spec.n, seed) for party in spec.parties}
    return World(opened, exchange, round_keys, rows, dealt, signed)


def exchanged(spec: ReleaseSpec, rows: dict[str, Block] | None = None, seed: int = 0) -> World:
    """Approved, dealt, and every mask sent."""
    world = start(spec, rows, seed)
    for name in world.exchange.parties:
        world.masked(name)
    return world


def redealt(world: World, seed: int) -> World:
    """The same round with another deal."""
    dealt = deal(world.exchange, entropy=entropy(seed))
    return replace(
        world,
        dealt=dealt,
        deal=seal(dealt.statement, kind="deal", key=KEYS["coordinator"]),
        bodies=dict(world.bodies),
        masks=dict(world.masks),
    )


def published(world: World, blocks: Mapping[str, Block], transcripts: Mapping[str, str]) -> tuple[bytes, bytes, bytes]:
    """Manifest, matrix and moments that a coordinator would publish."""
    document, key = world.spec.document, KEYS["coordinator"]
    statements = {
        party.name: block_statement(
            document,
            party,
            blocks[party.name],
            release=world.spec.digest,
            approvals=world.exchange.approved,
            transcript=transcripts.get(party.name),
        )[1]
        for party in document.parties
    }
    integers = assemble(document, [blocks[name] for name in world.exchange.parties])
    matrix = encode_matrix(document, world.spec.digest, integers)
    moments = encode(second_moments(document, world.spec.digest, integers))
    said = manifest(
        world.spec,
        matrix,
        moments,
        rows=mechanism_of(document).rows(document),
        proposer=key,
        approvals={name: found.envelope for name, found in world.exchange.approvals.items()},
        blocks={name: seal(said, kind="block", key=KEYS[name]) for name, said in statements.items()},
        published=document.created,
    )
    return encode(signed_document(said, "manifest", key)), matrix, moments
