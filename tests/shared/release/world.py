"""A whole release of a clinic and a laboratory, of which every ingredient can be replaced before it is signed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, SigningKey, Verified, seal
from commingle.shared.documents.model import WireModel, canonical_json, encode
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, SignedDocument, approval_set_digest, open_approvals
from commingle.shared.dp.fixed_point import clip_rows, quantise, squared_row_limit
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import open_spec, read_spec
from commingle.shared.release.matrix import assemble, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block
from commingle.shared.release.verification import PublishedRelease, verify_release
from tests.world.documents import approvals_of, block_statement, manifest, sign_bytes

Json = dict[str, Any]
Block = NDArray[np.int64]
Files = tuple[bytes, bytes, bytes]

KEYS = {name: SigningKey(sha256(name.encode()).digest()) for name in ("coordinator", "clinic", "lab", "stranger")}
SUBJECTS = 40
HEAD = "00" * 32


def spec_document(mechanism: str, **changes: Any) -> Json:
    def party(name: str, attributes: list[Json], row_norm: float | None) -> Json:
        return {
            "name": name,
            "signing_key": KEYS[name].verifying_key.raw.hex(),
            "sealing_key": "ab" * 32,
            "dataset": "data",
            "attributes": attributes,
            "row_norm": row_norm,
        }

    return {
        "study": "Blood",
        "created": "2025-01-01T00:00:00Z",
        "expires": "2025-01-04T00:00:00Z",
        "mechanism": mechanism,
        "k": 12 if mechanism == "rmgm" else None,
        "seed": "5e" * 32,
        "calibration": "analytic",
        "epsilon": 1,
        "delta": 1e-5,
        "n": SUBJECTS,
        "parties": [
            party(
                "clinic",
                [
                    {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
                    {"kind": "binary", "name": "sex", "levels": ["female", "male"]},
                ],
                None,
            ),
            party("lab", [{"kind": "categorical", "name": "blood", "levels": ["0", "A", "B"]}], 0.5),
        ],
        "proposer": KEYS["coordinator"].fingerprint,
        **changes,
    }


def private_rows(party: PartySpec) -> Block:
    """One party's rows of a made-up table, encoded and clipped as its agent would."""
    random = np.random.default_rng(len(party.name))
    if party.name == "clinic":
        encoded = np.column_stack([random.uniform(-1, 1, SUBJECTS), random.choice([-1.0, 1.0], SUBJECTS)])
    else:
        encoded = np.eye(3)[random.integers(0, 3, SUBJECTS)][:, 1:]
    q = quantise(encoded)
    return q if party.row_norm is None else clip_rows(q, squared_row_limit(party.row_norm))


@dataclass(frozen=True)
class Release:
    """The ingredients of the three published files. `files` assembles and signs them, honest or not."""

    spec: Envelope
    document: ReleaseSpec
    approvals: Mapping[str, Envelope]
    statements: Mapping[str, BlockStatement]
    blocks: Mapping[str, Block]
    envelopes: Mapping[str, Envelope] = field(default_factory=dict)  # instead of sealing `statements`
    moments: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    matrix: Block | None = None
    matrix_file: bytes | None = None
    signer: str = "coordinator"

    def files(self) -> Files:
        document, release = self.document, self.spec.digest
        integers = assemble(document, list(self.blocks.values())) if self.matrix is None else self.matrix
        file = encode_matrix(document, release, integers) if self.matrix_file is None else self.matrix_file
        moments = encode_with(second_moments(document, release, integers), self.moments)
        sealed = {name: seal(said, key=KEYS[name]) for name, said in self.statements.items()}
        said = manifest(
            Verified(document, self.spec.payload_bytes, KEYS["coordinator"].fingerprint, self.spec),
            file,
            moments,
            proposer=KEYS["coordinator"],
            approvals=self.approvals,
            blocks={**sealed, **self.envelopes},
            published=document.created,
        )
        signed = seal_bytes(encode_with(said, self.manifest), "manifest", self.signer)
        key = KEYS[self.signer].verifying_key.raw.hex()
        return encode(SignedDocument(signing_key=key, envelope=signed)), file, moments


def encode_with(document: WireModel, changes: Mapping[str, Any]) -> bytes:
    """The document's bytes with some fields replaced, `a/b` reaching inside; nothing is validated."""
    value = json.loads(encode(document))
    for path, new in changes.items():
        *parents, last = path.split("/")
        place: Any = value
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        place[int(last) if isinstance(place, list) else last] = new
    return canonical_json(value)


def seal_bytes(payload: bytes, kind: str, signer: str) -> Envelope:
    return sign_bytes(payload, kind=kind, key=KEYS[signer])


def approve(release: str, party: str, head: str = HEAD) -> Envelope:
    return approvals_of(release, {party: KEYS[party]}, created=datetime(2025, 1, 2, tzinfo=UTC), head=head)[party]


def produce(spec: Json, rows: Callable[[PartySpec], Block] = private_rows) -> Release:
    """An honest release: every party encodes, mixes, adds noise and signs."""
    document = read_spec(json.dumps(spec).encode())
    envelope = seal(document, key=KEYS["coordinator"])
    approvals = {party.name: approve(envelope.digest, party.name) for party in document.parties}
    verified = open_spec(envelope, [KEYS["coordinator"].verifying_key])
    relied_on = approval_set_digest(open_approvals(approvals, verified))
    random = np.random.default_rng(7)
    blocks, statements = {}, {}
    for party in document.parties:
        plan = plan_block(document, party)
        accumulator = mechanism_of(document).accumulator(document.terms, len(plan.columns))
        accumulator.add(np.arange(document.n), rows(party))
        noise = np.rint(random.normal(0, plan.sigma, (plan.rows, len(plan.columns)))).astype(np.int64)
        block = accumulator.total() + noise
        blocks[party.name] = block
        _, statements[party.name] = block_statement(
            document, party, block, release=envelope.digest, approvals=relied_on
        )
    return Release(envelope, document, approvals, statements, blocks)


@cache
def honest(mechanism: str = "rmgm") -> Release:
    return produce(spec_document(mechanism))


def verify(files: Files, trusted: str | None = KEYS["coordinator"].fingerprint) -> PublishedRelease:
    return verify_release(*files, trusted_coordinator=trusted)


def integers(release: Release) -> Block:
    return assemble(release.document, list(release.blocks.values()))


@cache
def honest_files() -> Files:
    return honest().files()
