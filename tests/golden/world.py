"""Everything that goes into the frozen documents: keys, times, rows and noise that are the same on every machine.

What the operating system or a library's version decides (a box, a nonce, files of pyarrow) is `drawn` once and kept.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from commingle.party_agent.private.privatise import BlockRequest, PrivateBlock, exchanged_rows, privatise
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.snapshot import Debit, Snapshot, write_snapshot
from commingle.party_agent.private.sources import SourceTable
from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, seal
from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    Whitening,
)
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import AlignmentStatement, Sums, approval_set_digest, open_approvals
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.documents.terms import AUTO, AskedShare, Bounds
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.messages import Exchange
from commingle.shared.release.checks import Member, build_spec, open_spec
from commingle.shared.release.matrix import assemble, encode_block, encode_matrix
from commingle.shared.release.plan import plan_block
from tests.world.documents import approvals_of, block_statement, published_files
from tests.world.side import Exchanging

Block = NDArray[np.int64]
Drawn = dict[str, Any]
"""What was drawn once, as JSON: by release, then by what it is."""

N = 48
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
GENESIS = "0" * 64
SOFTWARE = "commingle golden"
MECHANISMS = ("rmgm", "dgm", "moments")
TWO_STAGES = "two_stages"
RELEASES = (*MECHANISMS, "rmgm_sparse", TWO_STAGES)
"""A release of each mechanism, one of rows that are mixed sparsely, and one of rmgm whose parties have first stages."""
KEYED = ("rmgm_keyed", "moments_keyed")
"""Releases over keyed subjects; the parties hold different ones, and some of them two or three do."""
NAMES = ("clinic", "lab", "insurer")
HELD = {"clinic": range(40), "lab": range(4, 48), "insurer": range(2, 44)}

FOLDER = Path(__file__).parent


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def secret(label: str) -> bytes:
    return sha256(f"golden {label}".encode()).digest()


COORDINATOR = SigningKey(secret("coordinator"))
KEYS = {name: SigningKey(secret(f"signing {name}")) for name in NAMES}
SEALING = {name: X25519PrivateKey.from_private_bytes(secret(f"sealing {name}")) for name in NAMES}
SEALING_PUBLIC = {name: key.public_key().public_bytes_raw().hex() for name, key in SEALING.items()}
MEMBERS = {name: Member(key.verifying_key.raw.hex(), SEALING_PUBLIC[name]) for name, key in KEYS.items()}
LINKAGE_KEY = secret("linkage")

WHITENING = Whitening(centre=(0.1, -0.2), matrix=((0.34, -0.17), (-0.17, 0.51)))
AGE = NumericAttribute(name="age", lower=20, upper=80, unit="years", missing="midpoint")
SMOKER = BinaryAttribute(name="smoker", levels=("no", "yes"), missing="midpoint")
BLOOD = CategoricalAttribute(name="blood group", levels=("0", "A", "B", "AB"))
BMI = NumericAttribute(name="bmi", lower=15, upper=45)
SUGAR = NumericAttribute(name="sugar", lower=3.5, upper=11.25, unit="mmol/l")
CHARGES = NumericAttribute(name="charges, yearly", lower=0, upper=200)
ATTRIBUTES = {"clinic": (AGE, SMOKER, BLOOD), "lab": (BMI, SUGAR), "insurer": (CHARGES,)}


def uniform(label: str, count: int) -> list[float]:
    """Multiples of 2^-16 in [0, 1)."""
    return [int.from_bytes(sha256(f"{label} {i}".encode()).digest()[:2], "big") / 2**16 for i in range(count)]


def sampler(label: str) -> Callable[[int, int], Block]:
    """Integers within twice sigma instead of noise, the same for the same label."""
    calls = iter(range(1 << 30))

    def draw(sigma: int, count: int) -> Block:
        call = next(calls)
        digests = (sha256(f"{label} {call} {i}".encode()).digest() for i in range(count))
        return np.array([int.from_bytes(d[:16], "big") % (4 * sigma + 1) - 2 * sigma for d in digests], np.int64)

    return draw


def entropy(label: str) -> Callable[[int], bytes]:
    """Bytes as the operating system would give, the same for the same label."""
    calls = iter(range(1 << 30))
    return lambda size: sha256(f"{label} {next(calls)}".encode()).digest()[:size]


@cache
def cells() -> Mapping[str, "pa.Array[Any]"]:
    """A table of every kind of attribute: out of bounds, missing, numbers as text; subjects out of order."""
    draw = {name: uniform(name, N) for name in ("age", "bmi", "sugar", "smoker", "blood", "noise")}
    age = [15 + 70 * u for u in draw["age"]]
    smoker = ["yes" if u < 0.4 else "no" for u in draw["smoker"]]
    charges = [2 * a + (12 if s == "yes" else 0) + 20 * u for a, s, u in zip(age, smoker, draw["noise"], strict=True)]
    empty = {3, 17}
    columns: dict[str, tuple[list[Any], Any]] = {
        "id": ([f"{'é' if i % 5 == 0 else 'p'}{(29 * i) % N:03d} " for i in range(N)], pa.string()),
        "age": ([None if i in empty else a for i, a in enumerate(age)], pa.float64()),
        "smoker": ([None if i in empty else s for i, s in enumerate(smoker)], pa.string()),
        "blood group": ([BLOOD.levels[int(4 * u)] for u in draw["blood"]], pa.string()),
        "bmi": ([round(15 + 30 * u) for u in draw["bmi"]], pa.int64()),
        "sugar": ([f" {3 + 8 * u} " for u in draw["sugar"]], pa.string()),
        "charges, yearly": (charges, pa.float64()),
    }
    return {name: pa.array(values, kind) for name, (values, kind) in columns.items()}


def read(names: Sequence[str], rows: range = range(N)) -> Iterator[RawBatch]:
    """The table, or some rows of it, 20 at a time."""
    for start in rows[::20]:
        count = min(20, rows.stop - start)
        yield RawBatch({name: cells()[name].slice(start, count) for name in names}, count)


def snapshot_of(read: RawReader, attributes: Sequence[Attribute]) -> Snapshot:
    """As a data set's that reads the same, whatever its cells are."""
    found = SourceTable([read], SubjectKey.of("id"), attributes).scan(strict=False)
    return write_snapshot(Path(mkdtemp()), bytes(32), tuple(attributes), iter(found.sorter))


@cache
def snapshot(party: str, release: str = "") -> Snapshot:
    """The columns of one party, of everybody, or of those whom it holds where subjects are keyed."""
    rows = HELD[party] if release in KEYED else range(N)
    return snapshot_of(partial(read, rows=rows), ATTRIBUTES[party])


def debit(release: str, snapshot: str) -> Debit:
    """That covers everything."""
    return Debit(release, 1 << 200, 1, "", snapshot, 0.5)


def study(name: str, bounds: Bounds | None = None) -> Study:
    """Of a mechanism and its projection, or with two stages."""
    return two_stage_study() if name == TWO_STAGES else one_stage_study(name, bounds)


def two_stage_study() -> Study:
    """One share that was asked for, one left to the mechanism, and a party without; the calibration of today."""
    asked = one_stage_study("rmgm")
    shares: dict[str, AskedShare] = {"clinic": 0.25, "lab": AUTO, "insurer": None}
    parties = tuple(
        StudyParty(name=p.name, dataset=p.dataset, attributes=p.attributes, first_stage_share=shares[p.name])
        for p in asked.parties
    )
    changes = {"study": "Golden “two stages” study", "calibration": "analytic", "epsilon": 100.0}
    return Study.model_validate({**dict(asked), **changes, "parties": parties})


def one_stage_study(release: str, bounds: Bounds | None = None) -> Study:
    """The lab's rows are whitened where that can be; the clinic's are clipped."""
    mechanism, _, kind = release.partition("_")
    whiten = mechanism != "moments"
    asked = {
        "study": f"Golden “{release}” study",
        "mechanism": mechanism,
        "k": 16 if mechanism == "rmgm" else None,
        "projection": "sparse" if kind == "sparse" else None,
        "subjects": "keyed" if kind == "keyed" else "listed",
        "buckets": 2 * N if release == "moments_keyed" else None,
        "calibration": "zcdp",
        "epsilon": 5000.0,
        "delta": 1e-5,
        "n": N,
        "bounds": "trusted" if release == "moments_keyed" else bounds,
        "parties": (
            StudyParty(name="clinic", dataset="patients", attributes=ATTRIBUTES["clinic"], row_norm=1.25),
            StudyParty(
                name="lab",
                dataset="blood",
                attributes=ATTRIBUTES["lab"],
                whitening=WHITENING if whiten else None,
                row_norm=1.0 if whiten else None,
                first_stage_share=AUTO if whiten else None,
            ),
            StudyParty(name="insurer", dataset="claims", attributes=ATTRIBUTES["insurer"], first_stage_share=None),
        ),
    }
    return Study.model_validate(asked)


@cache
def signed_spec(mechanism: str, bounds: Bounds | None = None) -> Verified[ReleaseSpec]:
    asked, seed = study(mechanism, bounds), secret(f"seed {mechanism}")
    spec = build_spec(asked, members=MEMBERS, proposer=COORDINATOR.fingerprint, seed=seed, now=NOW)
    return open_spec(seal(spec, key=COORDINATOR), [COORDINATOR.verifying_key])


def approvals(mechanism: str, bounds: Bounds | None = None) -> dict[str, Envelope]:
    return approvals_of(signed_spec(mechanism, bounds).digest, KEYS, created=NOW, head=GENESIS)


def alignment(mechanism: str, party: str) -> Envelope:
    spec = signed_spec(mechanism).digest
    ids = snapshot(party).listed()
    digest = alignment_digest(LINKAGE_KEY, spec_digest=spec, subjects=N, listed=ids)
    return seal(AlignmentStatement(spec=spec, party=party, subjects=N, digest=digest), key=KEYS[party])


def request(mechanism: str, party: str) -> BlockRequest:
    spec = signed_spec(mechanism).document
    share_of = spec.party(party)
    return BlockRequest(spec, share_of, plan_block(spec, share_of), LINKAGE_KEY if spec.keyed else None)


def charge(mechanism: str, party: str) -> Debit:
    return debit(signed_spec(mechanism).digest, snapshot(party, mechanism).digest)


@cache
def exchanged(bounds: Bounds | None = None, name: str = "moments") -> Exchanging:
    """The whole exchange of that moments release, whose bounds are proved unless something else is asked."""
    exchange = Exchange.of(signed_spec(name, bounds), approvals(name, bounds))
    seeds = {party: secret(f"ring {party}") for party in NAMES}
    made = Exchanging(exchange, KEYS, seeds, entropy, verifies=False)
    for party in NAMES:
        table, asked, paid = snapshot(party, name), request(name, party), charge(name, party)
        bounded = exchanged_rows(table, asked, charge=paid, draw=sampler(f"sums {party}"))
        made.encrypt(party, bounded.integers)
    for party in NAMES:
        made.answer(party, partial(reply_noise, made, party))
    return made


def reply_noise(made: Exchanging, evaluator: str, owner: str) -> Block:
    """What stands in for the evaluator's noise in its part for that owner."""
    return made.side(evaluator).noise_for(owner, sampler(f"reply {evaluator} {owner}"))


def noise(mechanism: str, party: str) -> Block:
    """What stands in for the noise of that party's block."""
    asked = request(mechanism, party)
    draw = sampler(f"noise {mechanism} {party}")
    return mechanism_of(asked.spec).noise(asked.spec.terms, asked.party, sigma=asked.plan.sigma, draw=draw)


@cache
def blocks_of(mechanism: str) -> Mapping[str, Block]:
    if mechanism.startswith("moments"):
        made = exchanged(name=mechanism)
        return {name: made.submit(name, sampler(f"noise {mechanism} {name}")) for name in NAMES}
    return {name: private_block(mechanism, name).integers for name in NAMES}


def private_block(name: str, party: str) -> PrivateBlock:
    draw = sampler(f"noise {name} {party}")
    return privatise(snapshot(party, name), request(name, party), charge=charge(name, party), draw=draw)


def sums_of(name: str, party: str) -> Sums | None:
    """Those of its first stage, if it has one."""
    return None if mechanism_of(signed_spec(name).document).interactive else private_block(name, party).sums


@dataclass(frozen=True, slots=True)
class Made:
    """A whole release.

    Attributes:
        bodies: Arrow bytes of the blocks as drawn.
        files: manifest, matrix (as drawn) and moments.
    """

    spec: Verified[ReleaseSpec]
    approvals: Mapping[str, Envelope]
    blocks: Mapping[str, Block]
    bodies: Mapping[str, bytes]
    statements: Mapping[str, Envelope]
    matrix: Block
    files: tuple[bytes, bytes, bytes]


def bodies_of(mechanism: str) -> dict[str, bytes]:
    """The blocks as this version of pyarrow writes them."""
    asked = {name: request(mechanism, name) for name in NAMES}
    return {n: encode_block(b, asked[n].plan.columns) for n, b in blocks_of(mechanism).items()}


def matrix_of(mechanism: str) -> Block:
    """The blocks behind the intercept."""
    return assemble(signed_spec(mechanism).document, list(blocks_of(mechanism).values()))


def parquet_of(mechanism: str) -> bytes:
    """The matrix as this version of pyarrow writes it."""
    spec = signed_spec(mechanism)
    return encode_matrix(spec.document, spec.digest, matrix_of(mechanism))


def release(mechanism: str, drawn: Drawn) -> Made:
    """From spec to manifest, with the bodies and the matrix file that were drawn once."""
    spec, signed = signed_spec(mechanism), approvals(mechanism)
    relied_on = approval_set_digest(open_approvals(signed, spec))
    seen = exchanged(name=mechanism).transcript() if mechanism.startswith("moments") else None
    blocks = blocks_of(mechanism)
    bodies = {name: bytes.fromhex(body) for name, body in drawn["bodies"][mechanism].items()}
    statements = {}
    for name in NAMES:
        _, said = block_statement(
            spec.document,
            spec.document.party(name),
            blocks[name],
            release=spec.digest,
            approvals=relied_on,
            transcript=seen,
            sums=sums_of(mechanism, name),
            body=bodies[name],
        )
        statements[name] = seal(said, key=KEYS[name])
    matrix = assemble(spec.document, [blocks[name] for name in NAMES])
    files = published_files(
        spec,
        matrix,
        proposer=COORDINATOR,
        approvals=signed,
        blocks=statements,
        published=NOW,
        software=SOFTWARE,
        parquet=bytes.fromhex(drawn["matrices"][mechanism]),
    )
    return Made(spec, signed, blocks, bodies, statements, matrix, files)
