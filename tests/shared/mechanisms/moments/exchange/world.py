"""A consortium in memory that runs the whole exchange of a moments release, every step open to attack."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.model import encode
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Weighted,
    Whitening,
)
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import Approval, Sums
from commingle.shared.documents.terms import fraction_bits_of
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.first_stage import column_sums
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.noise import Sampler
from commingle.shared.encoding import bounded_rows
from commingle.shared.mechanisms.moments.exchange.documents import (
    transcript,
)
from commingle.shared.mechanisms.moments.exchange.messages import Columns, Exchange, Reply, Stored
from commingle.shared.mechanisms.moments.exchange.products import Rows
from commingle.shared.release.checks import open_spec, read_spec
from commingle.shared.release.matrix import assemble
from commingle.shared.release.resolve import closed
from commingle.shared.ring.encryption import Entropy
from tests.world.documents import HEAD, block_statement, published_files
from tests.world.noise import seeded_noise
from tests.world.ring import seeded
from tests.world.side import Side, pieces_of

Block = NDArray[np.int64]
NOW = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("clinic", "lab", "registry")
KEYS = {name: SigningKey(sha256(name.encode()).digest()) for name in ("coordinator", "stranger", *NAMES)}
NUMBERS = tuple(NumericAttribute(name=name, lower=0, upper=1) for name in ("age", "bmi"))
SEX = BinaryAttribute(name="sex", levels=("f", "m"))
BLOOD = CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB"))
SKEW = Whitening(centre=(0.3, -0.9), matrix=((3.0, -1.0), (0.5, 0.7)))
UNEVEN = Whitening(centre=(0.1, 0.5, 0.0), matrix=((9.0, 0.0, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, 0.2)))


def party_spec(
    name: str,
    *attributes: Attribute,
    row_norm: float | None = None,
    whitening: Whitening | None = None,
    first_stage_share: float | None = None,
    cross_weight: int | None = None,
    weighted: Weighted | None = None,
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
        first_stage_share=first_stage_share,
        cross_weight=cross_weight,
        weighted=weighted,
    )


THREE = (
    party_spec("clinic", *NUMBERS),
    party_spec("lab", BLOOD, row_norm=0.75),
    party_spec("registry", SEX),
)

WHITENED = (
    party_spec("clinic", *NUMBERS, row_norm=1.0, whitening=SKEW),
    party_spec("lab", BLOOD, row_norm=0.4, whitening=UNEVEN),
    party_spec("registry", SEX),
)

STAGED = (
    party_spec("clinic", *NUMBERS, row_norm=1.0, first_stage_share=0.2),
    party_spec("lab", BLOOD),
    party_spec("registry", SEX, row_norm=1.0, first_stage_share=0.1),
)


WEIGHTED = (
    party_spec("clinic", *NUMBERS, weighted=Weighted(attribute="age", weight=3)),
    party_spec("lab", BLOOD, row_norm=1.5, weighted=Weighted(attribute="blood", weight=2)),
    party_spec("registry", SEX, row_norm=1.0, first_stage_share=0.1, weighted=Weighted(attribute="sex", weight=4)),
)


def spec_of(parties: tuple[PartySpec, ...] = THREE, *, n: int = 4100, **changes: object) -> ReleaseSpec:
    bits: Any = fraction_bits_of(14, [party.terms for party in parties])
    spec = ReleaseSpec(
        study="Blood",
        created=NOW,
        expires=NOW + timedelta(days=3),
        mechanism="moments",
        fraction_bits=bits,
        seed="5e" * 32,
        calibration=Calibration.ANALYTIC,
        epsilon=1.0,
        delta=1e-5,
        n=n,
        parties=parties,
        proposer=KEYS["coordinator"].fingerprint,
    )
    return read_spec(encode(spec.model_copy(update=changes)))


def numbers(name: str, count: int) -> tuple[NumericAttribute, ...]:
    """Attributes of one column each."""
    return tuple(NumericAttribute(name=f"{name} {i}", lower=-1, upper=1) for i in range(count))


def private_rows(spec: ReleaseSpec, party: PartySpec, seed: int = 0) -> tuple[Block, Sums | None]:
    """A party's integer rows (n x d), as its agent would have them, and the sums of its first stage."""
    random, parts = np.random.default_rng([seed, len(party.name)]), []
    for attribute in party.attributes:
        if isinstance(attribute, CategoricalAttribute):
            levels = random.integers(0, len(attribute.levels), spec.n)
            parts.append(np.eye(len(attribute.levels))[levels][:, 1:])
        else:
            parts.append(random.uniform(-1, 1, (spec.n, 1)))
    cells, stage, sums = quantise(np.hstack(parts)), first_stage_of(closed(spec), party), None
    if stage is not None:
        sums = tuple((column_sums(cells, stage.attributes) + stage.noise(seeded_noise([seed, 5]))).tolist())
    return bounded_rows(party, row_map(closed(spec), party, sums), fraction_bits=spec.fraction_bits)(cells), sums


@dataclass
class World:
    """The state of everybody. Attackers change fields or give a step something else.

    Attributes:
        sums: of first stages.
        bodies, columns: what each party encrypts, and its statement of that.
        noises: by owner and evaluator, what the evaluator put into its reply.
        answers, replies: what each party replies to all before it, and its statement of that.
    """

    spec: Verified[ReleaseSpec]
    exchange: Exchange
    rows: Mapping[str, Block]
    sums: Mapping[str, Sums | None]
    bodies: dict[str, bytes] = field(default_factory=dict)
    columns: dict[str, Envelope] = field(default_factory=dict)
    noises: dict[tuple[str, str], Block] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    replies: dict[str, Envelope] = field(default_factory=dict)

    def ring_seed(self, party: str) -> bytes:
        """Of that party's key of this release."""
        return sha256(self.exchange.info("seed", party)).digest()

    def side(self, party: str) -> Side:
        return Side(self.exchange, party, self.ring_seed(party), pieces_of(self.rows[party]))

    def sent(self, party: str, body: Stored | None = None) -> Columns:
        return Columns(self.exchange, party, self.bodies[party] if body is None else body)

    def answered(self, party: str, body: Stored | None = None) -> Reply:
        return Reply(self.exchange, party, self.answers[party] if body is None else body)

    def encrypt(self, party: str, entropy: Entropy | None = None) -> None:
        self.bodies[party] = self.side(party).columns(entropy or seeded(hash_of(party)))
        self.columns[party] = self.signed_columns(party)

    def signed_columns(self, party: str, key: SigningKey | None = None, **changes: object) -> Envelope:
        said = self.side(party).says_of_columns(self.bodies[party], self.sums[party])
        return seal(said.model_copy(update=changes), key=key or KEYS[party])

    def answer(
        self,
        party: str,
        noise: Callable[[str], Block],
        *,
        columns: Mapping[str, Columns] | None = None,
        rows: Rows | None = None,
        entropy: Entropy | None = None,
    ) -> bytes:
        """What that party replies, to what it was sent or to other columns, of its rows or of other ones."""
        sent = {name: self.sent(name) for name in (party, *self.exchange.owners(party))} | dict(columns or {})
        return self.side(party).reply(sent, noise, entropy or seeded(hash_of("reply" + party)), rows=rows)

    def reply(self, party: str, draw: Sampler) -> None:
        def noise(owner: str) -> Block:
            self.noises[owner, party] = self.side(party).noise_for(owner, draw)
            return self.noises[owner, party]

        self.answers[party] = self.answer(party, noise)
        self.replies[party] = self.signed_reply(party)

    def signed_reply(self, party: str, key: SigningKey | None = None, **changes: object) -> Envelope:
        said = self.side(party).says_of_reply(self.answers[party], self.columns)
        return seal(said.model_copy(update=changes), key=key or KEYS[party])

    def open(self, owner: str, evaluator: str, body: Stored | None = None) -> Block:
        return self.side(owner).opened(self.answered(evaluator, body))

    def transcript(self) -> str:
        return transcript(self.exchange, columns=self.columns, replies=self.replies)

    def submission(self, party: str, draw: Sampler) -> Block:
        opened = {name: self.open(party, name) for name in self.exchange.evaluators(party)}
        return self.side(party).submission(opened, draw)


def hash_of(name: str) -> int:
    return sum(name.encode())


def silence(_: int, count: int) -> Block:
    """A sampler of nothing."""
    return np.zeros(count, np.int64)


def approval(release: str, party: str, head: str = HEAD) -> Envelope:
    document = Approval(spec=release, party=party, created=NOW, ledger_head=head)
    return seal(document, key=KEYS[party])


def start(spec: ReleaseSpec, rows: Mapping[str, Block] | None = None, *, head: str = HEAD) -> World:
    """Approved; where rows are given there is no first stage."""
    opened = open_spec(seal(spec, key=KEYS["coordinator"]), [KEYS["coordinator"].verifying_key])
    exchange = Exchange.of(opened, {party.name: approval(opened.digest, party.name, head) for party in spec.parties})
    if rows is not None:
        return World(opened, exchange, rows, dict.fromkeys(rows))
    made = {party.name: private_rows(spec, party) for party in spec.parties}
    return World(opened, exchange, {n: found for n, (found, _) in made.items()}, {n: s for n, (_, s) in made.items()})


def exchanged(
    spec: ReleaseSpec, rows: Mapping[str, Block] | None = None, *, draw: Sampler = silence, head: str = HEAD
) -> World:
    """Approved, everybody's columns sent, and everybody's replies."""
    world = start(spec, rows, head=head)
    for name in world.exchange.parties:
        world.encrypt(name)
    for name in world.exchange.parties:
        world.reply(name, draw)
    return world


def second_moment(world: World) -> Block:
    """S in steps, computed where all rows are in one place."""
    spec = world.spec.document
    ones = np.full((spec.n, 1), 2**spec.fraction_bits)
    whole: Block = np.hstack([ones, *(world.rows[name] for name in world.exchange.parties)])
    return whole.T @ whole


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
            sums=world.sums[party.name],
        )[1]
        for party in document.parties
    }
    return published_files(
        world.spec,
        assemble(document, [blocks[name] for name in world.exchange.parties]),
        proposer=key,
        approvals={name: found.envelope for name, found in world.exchange.approvals.items()},
        blocks={name: seal(said, key=KEYS[name]) for name, said in statements.items()},
        published=document.created,
    )
