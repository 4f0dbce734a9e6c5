"""A consortium in memory that runs the whole exchange of a moments release, every step open to attack."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import SigningKey
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
from commingle.shared.documents.statements import Sums
from commingle.shared.documents.terms import fraction_bits_of
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.two_stages import column_sums
from commingle.shared.encoding import bounded_rows
from commingle.shared.release.checks import closed, read_spec
from tests.world.documents import HEAD, publication
from tests.world.noise import no_noise, seeded_noise
from tests.world.ring import seeded
from tests.world.side import Exchanging, agreed

Block = NDArray[np.int64]
NOW = datetime(2025, 1, 1, tzinfo=UTC)
NAMES = ("clinic", "lab", "registry")
KEYS = {name: SigningKey(sha256(name.encode()).digest()) for name in ("coordinator", "stranger", *NAMES)}
NUMBERS = tuple(NumericAttribute(name=name, lower=0, upper=1) for name in ("age", "bmi"))
SEX = BinaryAttribute(name="sex", levels=("f", "m"))
BLOOD = CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB"))
SKEW = Whitening(centre=(0.3, -0.9), matrix=((3.0, -1.0), (0.5, 0.7)))
UNEVEN = Whitening(centre=(0.1, 0.5, 0.0), matrix=((9.0, 0.0, 0.0), (0.0, 0.6, 0.0), (0.0, 0.0, 0.2)))


def party_spec(name: str, *attributes: Attribute, **terms: Any) -> PartySpec:
    key = KEYS[name].verifying_key.raw.hex()
    return PartySpec(name=name, signing_key=key, sealing_key=key, dataset="data", attributes=attributes, **terms)


THREE = (party_spec("clinic", *NUMBERS), party_spec("lab", BLOOD, row_norm=0.75), party_spec("registry", SEX))

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
    bits: Any = fraction_bits_of(14, parties)
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


def start(spec: ReleaseSpec, rows: Mapping[str, Block] | None = None, *, head: str = HEAD) -> Exchanging:
    """Approved; where rows are given there is no first stage."""
    exchange = agreed(spec, KEYS, head=head)
    seeds = {name: sha256(exchange.info("seed", name)).digest() for name in exchange.parties}
    world = Exchanging(exchange, KEYS, seeds, lambda what: seeded(sum(what.encode())), verifies=False)
    for party in spec.parties:
        found = private_rows(spec, party) if rows is None else (rows[party.name], None)
        world.rows[party.name], world.sums[party.name] = found
    return world


def exchanged(
    spec: ReleaseSpec, rows: Mapping[str, Block] | None = None, *, draw: Sampler = no_noise, head: str = HEAD
) -> Exchanging:
    """Approved, everybody's columns sent, and everybody's replies."""
    world = start(spec, rows, head=head)
    for name in world.exchange.parties:
        world.encrypt(name)
    for name in world.exchange.parties:
        world.reply(name, draw)
    return world


def second_moment(world: Exchanging) -> Block:
    """S in steps, computed where all rows are in one place."""
    spec = world.exchange.spec.document
    ones = np.full((spec.n, 1), 2**spec.fraction_bits)
    whole: Block = np.hstack([ones, *(world.rows[name] for name in world.exchange.parties)])
    return whole.T @ whole


def published(
    world: Exchanging, blocks: Mapping[str, Block], transcripts: Mapping[str, str]
) -> tuple[bytes, bytes, bytes]:
    """Manifest, matrix and moments that a coordinator would publish."""
    return publication(
        world.exchange.spec,
        blocks,
        KEYS,
        proposer=KEYS["coordinator"],
        approvals={name: found.envelope for name, found in world.exchange.approvals.items()},
        published=world.exchange.spec.document.created,
        transcripts=transcripts,
        sums=world.sums,
    )
