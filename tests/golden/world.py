"""Everything that goes into the frozen documents: keys, times, rows and noise that are the same on every machine.

What the operating system or a library's version decides (boxes, nonces, files of pyarrow) is `drawn` once and kept.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.privatise import BlockRequest, mask_rows, privatise
from commingle.party_agent.private.rows import RawBatch
from commingle.party_agent.private.table import PrivateTable
from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.row_maps import AUTO
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute, Whitening
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    BlockStatement,
    SignedDocument,
    approval_set_digest,
    open_approvals,
    open_spec,
)
from commingle.shared.documents.study import Member, Study, StudyParty, build_spec
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.agreement import agreed, countersignature, transcript
from commingle.shared.mechanisms.moments.exchange.deal import Hand, open_package
from commingle.shared.mechanisms.moments.exchange.deal import deal as make_deal
from commingle.shared.mechanisms.moments.exchange.documents import DealStatement, MaskStatement, open_deal, open_mask
from commingle.shared.mechanisms.moments.exchange.mask import (
    MaskReader,
    MaskSealer,
    MaskSecret,
    check_commitment,
    open_secret,
)
from commingle.shared.mechanisms.moments.exchange.ring import Words, rows_of
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.mechanisms.moments.exchange.submission import mask, share, submission
from commingle.shared.mechanisms.moments.exchange.terms import Exchange
from commingle.shared.release.block import content_digest, encode_block
from commingle.shared.release.matrix import assemble, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns, published_step

Block = NDArray[np.int64]
Drawn = dict[str, Any]
"""What was drawn once, as JSON: by release, then by what it is."""

N = 48
NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
GENESIS = "0" * 64
SOFTWARE = "commingle golden"
MECHANISMS = ("rmgm", "dgm", "moments")
NAMES = ("clinic", "lab", "insurer")


def secret(label: str) -> bytes:
    """32 bytes that look random."""
    return sha256(f"golden {label}".encode()).digest()


COORDINATOR = SigningKey(secret("coordinator"))
KEYS = {name: SigningKey(secret(f"signing {name}")) for name in NAMES}
SEALING = {name: RoundKey(secret(f"sealing {name}")) for name in NAMES}
ROUND_KEYS = {name: RoundKey(secret(f"round {name}")) for name in NAMES}
MEMBERS = {name: Member(key.verifying_key.raw.hex(), SEALING[name].public) for name, key in KEYS.items()}
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


def read(names: Sequence[str]) -> Iterator[RawBatch]:
    """The table, 20 rows at a time."""
    for start in range(0, N, 20):
        part = {name: cells()[name].slice(start, 20) for name in names}
        yield RawBatch(part, min(20, N - start))


def table(party: str) -> PrivateTable:
    """The columns of one party."""
    return PrivateTable(read, "id", ATTRIBUTES[party])


@dataclass(frozen=True, slots=True)
class Charge:
    """A debit that covers everything."""

    release: str
    table: TableDigest
    rho_units: int = 1 << 200
    delta: float = 0.5


def study(mechanism: str) -> Study:
    """The lab's rows are whitened where the mechanism takes it; the clinic's are clipped."""
    whiten = mechanism != "moments"
    asked = {
        "study": f"Golden “{mechanism}” study",
        "mechanism": mechanism,
        "k": 16 if mechanism == "rmgm" else None,
        "calibration": "zcdp",
        "epsilon": 5000.0,
        "delta": 1e-5,
        "n": N,
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
def signed_spec(mechanism: str) -> Verified[ReleaseSpec]:
    """The spec of the study, proposed by the coordinator."""
    spec = build_spec(
        study(mechanism), members=MEMBERS, proposer=COORDINATOR.fingerprint, seed=secret(f"seed {mechanism}"), now=NOW
    )
    return open_spec(seal(spec, kind="spec", key=COORDINATOR), [COORDINATOR.verifying_key])


def approvals(mechanism: str) -> dict[str, Envelope]:
    """By every party, with its round key where there is an exchange."""
    spec = signed_spec(mechanism)
    interactive = spec.document.interactive
    return {
        name: seal(
            Approval(
                spec=spec.digest,
                party=name,
                created=NOW,
                ledger_head=GENESIS,
                round_key=ROUND_KEYS[name].public if interactive else None,
            ),
            kind="approval",
            key=key,
        )
        for name, key in KEYS.items()
    }


def alignment(mechanism: str, party: str) -> Envelope:
    """What that party says of its subjects."""
    spec = signed_spec(mechanism).digest
    ids = table(party).ranks(table(party).scan().digest).ids()
    digest = alignment_digest(LINKAGE_KEY, spec_digest=spec, subjects=N, sorted_ids=ids)
    return seal(
        AlignmentStatement(spec=spec, party=party, subjects=N, digest=digest), kind="alignment", key=KEYS[party]
    )


def request(mechanism: str, party: str) -> BlockRequest:
    """What that party is to privatise."""
    spec = signed_spec(mechanism).document
    share_of = spec.party(party)
    return BlockRequest(spec, share_of, plan_block(spec, share_of))


def charge(mechanism: str, party: str) -> Charge:
    """Its debit."""
    return Charge(signed_spec(mechanism).digest, table(party).scan().digest)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """The exchange of the moments release after everybody has countersigned.

    Attributes:
        deal: the coordinator's envelope.
        hands: what the deal gave each party.
        masked, bodies, masks: U, the encrypted U and the statement of it, by party.
        shares, blinds, blocks: a block before noise and mask, its mask, and the block.
    """

    exchange: Exchange
    deal: Envelope
    hands: Mapping[str, Hand]
    masked: Mapping[str, Words]
    bodies: Mapping[str, bytes]
    masks: Mapping[str, Envelope]
    transcript: str
    countersignatures: Mapping[str, Envelope]
    shares: Mapping[str, Words]
    blinds: Mapping[str, Words]
    blocks: Mapping[str, Block]


def exchange_of() -> Exchange:
    """Spec and approvals of the moments release."""
    return Exchange.of(signed_spec("moments"), approvals("moments"))


def sealer(exchange: Exchange, party: str) -> MaskSealer:
    """Of that party's mask, its secret fixed."""
    return MaskSealer(exchange, party=party, secret=MaskSecret.draw(entropy(f"mask {party}")))


def opened_deal(exchange: Exchange, packages: Mapping[str, bytes]) -> tuple[Envelope, dict[str, Hand]]:
    """The coordinator's signature under the packages, and what each party finds in its own."""
    digests = {name: sha256(box).hexdigest() for name, box in packages.items()}
    statement = DealStatement(spec=exchange.spec.digest, approvals=exchange.approved, packages=digests)
    dealt = open_deal(exchange, seal(statement, kind="deal", key=COORDINATOR), COORDINATOR.verifying_key)
    hands = {n: open_package(exchange, dealt, packages[n], party=n, key=ROUND_KEYS[n]) for n in NAMES}
    return dealt.envelope, hands


def masked_rows(party: str, hand: Hand) -> Words:
    """U of that party."""
    noise = sampler(f"sums {party}")  # of which there are none
    asked = request("moments", party)
    return mask_rows(table(party), asked, charge=charge("moments", party), pad=hand.pad, draw=noise).words


def mask_keys(drawn: Drawn) -> dict[str, dict[str, str]]:
    """The secrets of all masks, sealed now, by sender and recipient."""
    exchange = exchange_of()
    deal, hands = opened_deal(exchange, {name: bytes.fromhex(box) for name, box in drawn["packages"].items()})
    found = {}
    for name in NAMES:
        sealing = sealer(exchange, name)
        list(sealing.body(rows_of(masked_rows(name, hands[name]))))
        found[name] = sealing.statement(deal.digest).keys
    return found


def exchanged(drawn: Drawn) -> Exchanged:
    """The whole exchange with the boxes that were drawn once."""
    exchange, parties = exchange_of(), NAMES
    deal, hands = opened_deal(exchange, {name: bytes.fromhex(box) for name, box in drawn["packages"].items()})
    masked = {name: masked_rows(name, hands[name]) for name in parties}
    bodies, masks = {}, {}
    for name in parties:
        sealing = sealer(exchange, name)
        bodies[name] = b"".join(sealing.body(rows_of(masked[name])))
        said = sealing.statement(deal.digest).model_copy(update={"keys": drawn["mask keys"][name]})
        masks[name] = seal(decode(MaskStatement, encode(said)), kind="mask", key=KEYS[name])
    opened = {name: open_mask(exchange, masks[name], name) for name in parties}
    seen = transcript(exchange, deal=deal.digest, masks=opened)
    signed = {
        n: seal(countersignature(exchange, party=n, transcript=seen), kind="countersignature", key=KEYS[n])
        for n in parties
    }
    agreement = agreed(exchange, transcript=seen, countersignatures=signed)
    readers = {name: readers_of(exchange, opened, bodies, recipient=name) for name in parties}
    shares = {n: share(exchange, party=n, hand=hands[n], masked=readers[n]) for n in parties}
    blinds = {n: mask(exchange, party=n, key=ROUND_KEYS[n], agreement=agreement) for n in parties}
    blocks = {n: submission(shares[n], blinds[n], noise("moments", n)) for n in parties}
    return Exchanged(exchange, deal, hands, masked, bodies, masks, seen, signed, shares, blinds, blocks)


def readers_of(
    exchange: Exchange, masks: Mapping[str, Verified[MaskStatement]], bodies: Mapping[str, bytes], *, recipient: str
) -> dict[str, MaskReader]:
    """Every mask as the recipient reads it, its commitment checked."""
    found = {}
    for name, statement in masks.items():
        opened = open_secret(exchange, statement, recipient=recipient, key=ROUND_KEYS[recipient])
        body = bodies[name]

        def part(offset: int, size: int, body: bytes = body) -> bytes:
            return body[offset : offset + size]

        found[name] = MaskReader(exchange, party=name, secret=opened, read=part)
        check_commitment(exchange, statement, found[name], secret=opened)
    return found


def noise(mechanism: str, party: str) -> Block:
    """What stands in for the noise of that party's block."""
    asked = request(mechanism, party)
    draw = sampler(f"noise {mechanism} {party}")
    return mechanism_of(asked.spec).noise(asked.spec, asked.party, sigma=asked.plan.sigma, draw=draw)


def blocks_of(mechanism: str, drawn: Drawn) -> Mapping[str, Block]:
    """Every party's block."""
    if mechanism == "moments":
        return exchanged(drawn).blocks
    return {
        name: privatise(
            table(name),
            request(mechanism, name),
            charge=charge(mechanism, name),
            draw=sampler(f"noise {mechanism} {name}"),
        ).integers
        for name in NAMES
    }


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


def bodies_of(mechanism: str, drawn: Drawn) -> dict[str, bytes]:
    """The blocks as this version of pyarrow writes them."""
    asked = {name: request(mechanism, name) for name in NAMES}
    return {n: encode_block(b, asked[n].plan.columns) for n, b in blocks_of(mechanism, drawn).items()}


def matrix_of(mechanism: str, drawn: Drawn) -> Block:
    """The blocks behind the intercept."""
    return assemble(signed_spec(mechanism).document, list(blocks_of(mechanism, drawn).values()))


def parquet_of(mechanism: str, drawn: Drawn) -> bytes:
    """The matrix as this version of pyarrow writes it."""
    spec = signed_spec(mechanism)
    return encode_matrix(spec.document, spec.digest, matrix_of(mechanism, drawn))


def release(mechanism: str, drawn: Drawn) -> Made:
    """From spec to manifest, with the bodies and the matrix file that were drawn once."""
    spec, signed = signed_spec(mechanism), approvals(mechanism)
    relied_on = approval_set_digest(open_approvals(signed, spec))
    made = exchanged(drawn) if mechanism == "moments" else None
    blocks = blocks_of(mechanism, drawn)
    bodies = {name: bytes.fromhex(body) for name, body in drawn["bodies"][mechanism].items()}
    statements = {}
    for name in NAMES:
        plan = request(mechanism, name).plan
        statement = BlockStatement(
            spec=spec.digest,
            approvals=relied_on,
            party=name,
            rows=plan.rows,
            columns=plan.columns,
            sigma=plan.sigma,
            body_sha256=sha256(bodies[name]).hexdigest(),
            content_sha256=content_digest(blocks[name]),
            ledger_head=GENESIS,
            transcript=made.transcript if made else None,
        )
        statements[name] = seal(statement, kind="block", key=KEYS[name])
    matrix = assemble(spec.document, [blocks[name] for name in NAMES])
    parquet = bytes.fromhex(drawn["matrices"][mechanism])
    moments = encode(second_moments(spec.document, spec.digest, matrix))
    manifest = Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=COORDINATOR.verifying_key.raw.hex(),
        approvals=signed,
        blocks=statements,
        rows=len(matrix),
        step=published_step(spec.document),
        columns=published_columns(spec.document),
        matrix_sha256=sha256(parquet).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(spec.document),
        published=NOW,
        software=SOFTWARE,
    )
    files = (encode(signed_document(seal(manifest, kind="manifest", key=COORDINATOR), COORDINATOR)), parquet, moments)
    return Made(spec, signed, blocks, bodies, statements, matrix, files)


def signed_document(envelope: Envelope, key: SigningKey) -> SignedDocument:
    """With the key that signed it."""
    return SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope)


def fresh_deal(exchange: Exchange) -> Mapping[str, bytes]:
    """The sealed packages of the deal whose secrets are fixed; sealing draws keys from the operating system."""
    return make_deal(exchange, entropy=entropy("deal")).packages
