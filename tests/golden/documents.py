"""Releases and their exchange as JSON that a person can read: canonical texts, digests, signatures, integers."""

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.linkage import IdentityStatement, LinkageKeyMessage
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import WireModel, encode
from commingle.shared.documents.regression import RegressionResult
from commingle.shared.documents.row_maps import row_map
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    BlockStatement,
    Departure,
    Enrolment,
    LedgerHead,
    Rejection,
    Rotation,
    approval_set_digest,
    open_approvals,
)
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.exchange.messages import (
    ColumnsStatement,
    Reply,
    ReplyStatement,
    columns_digest,
)
from commingle.shared.release.audit import CoordinatorAudit, PartyAudit
from commingle.shared.release.checks import closed
from commingle.shared.release.matrix import content_digest, decode_block, decode_matrix
from commingle.shared.release.verification import verify_release
from tests.golden import world

FROZEN = sorted(world.FOLDER.rglob("*.json"))
MODELS: dict[str, type[WireModel]] = {
    "spec": ReleaseSpec,
    "approval": Approval,
    "alignment": AlignmentStatement,
    "block": BlockStatement,
    "rejection": Rejection,
    "rotation": Rotation,
    "departure": Departure,
    "enrolment": Enrolment,
    "identity": IdentityStatement,
    "linkage-key": LinkageKeyMessage,
    "manifest": Manifest,
    "columns": ColumnsStatement,
    "reply": ReplyStatement,
    "regression": RegressionResult,
    "party-audit": PartyAudit,
    "ledger-head": LedgerHead,
    "coordinator-audit": CoordinatorAudit,
}


def frozen(content: Any) -> Iterator[tuple[str, str]]:
    """Kind and text of every signed document in a frozen file, those inside others too."""
    if isinstance(content, str) and content.startswith("{"):
        yield from frozen(json.loads(content))
    elif isinstance(content, list):
        for part in content:
            yield from frozen(part)
    elif isinstance(content, dict) and "payloadType" in content:
        payload = content["payload"]
        text = payload if payload.startswith("{") else b64decode(payload).decode()
        yield content["payloadType"], text
        yield from frozen(text)
    elif isinstance(content, dict):
        for part in content.values():
            yield from frozen(part)


def envelope(signed: Envelope) -> dict[str, str]:
    (signature,) = signed.signatures
    return {
        "payloadType": signed.payloadType,
        "payload": signed.payload_bytes.decode(),
        "sha256": signed.digest,
        "keyid": signature.keyid,
        "sig": signature.sig,
        "envelope_sha256": sha256(signed.to_json()).hexdigest(),
    }


def integers(matrix: NDArray[Any]) -> list[str]:
    """One line of text for each row."""
    return [" ".join(map(str, row)) for row in np.atleast_2d(matrix).tolist()]


def release(mechanism: str, drawn: world.Drawn) -> dict[str, Any]:
    """Every document of a release, in the order in which it is made, and what verification says of the files."""
    made = world.release(mechanism, drawn)
    spec = made.spec.document
    manifest, parquet, moments = made.files
    found = verify_release(manifest, parquet, moments, trusted_coordinator=world.COORDINATOR.fingerprint)
    return {
        "study": encode(world.study(mechanism)).decode(),
        "spec": envelope(made.spec.envelope),
        "plans": {name: planned(mechanism, name) for name in world.NAMES},
        "approvals": {name: envelope(signed) for name, signed in made.approvals.items()},
        "approval_set": approval_set_digest(open_approvals(made.approvals, made.spec)),
        "alignments": {} if spec.keyed else {n: envelope(world.alignment(mechanism, n)) for n in world.NAMES},
        "blocks": {name: integers(block) for name, block in made.blocks.items()},
        "block_content_sha256": {name: content_digest(block) for name, block in made.blocks.items()},
        "block_statements": {name: envelope(signed) for name, signed in made.statements.items()},
        "intercept": [] if spec.keyed else made.matrix[:, 0].tolist(),
        "matrix_content_sha256": content_digest(made.matrix),
        "moments": moments.decode(),
        "manifest": manifest.decode(),
        "privacy": json.loads(encode(found.manifest.privacy)),
        "columns": [asdict(column) for column in spec.matrix_columns],
        "release": found.release,
        "findings": list(found.findings),
    }


def planned(release: str, party: str) -> dict[str, Any]:
    """A party's plan, and the noise of its sums and the map that follows from them where it has a first stage."""
    request = world.request(release, party)
    stage, cost = request.plan.first_stage, request.plan.cost
    found = {field: value for field, value in asdict(request.plan).items() if field not in {"cost", "first_stage"}} | {
        "loss": asdict(cost.loss.rho),
        "replacement": None if cost.replacement is None else asdict(cost.replacement.rho),
        "delta_implementation": cost.loss.delta,
    }
    if stage is None:
        return found
    applied = row_map(closed(request.spec), request.party, world.sums_of(release, party))
    assert applied is not None
    noise = {"sigma": stage.sigma, "square_sigma": stage.square_sigma}
    return {**found, "first_stage": noise, "gains": np.diag(applied.matrix).tolist(), "centre": applied.centre.tolist()}


def files_of_pyarrow(mechanism: str, drawn: world.Drawn) -> dict[str, Any]:
    """What is read from the files that were drawn, and what is said in the file this version writes."""
    spec = world.signed_spec(mechanism).document
    written = pq.read_schema(pa.BufferReader(world.parquet_of(mechanism)))
    bodies = {}
    for name in world.NAMES:
        plan, body = world.request(mechanism, name).plan, bytes.fromhex(drawn["bodies"][mechanism][name])
        bodies[name] = content_digest(decode_block(body, columns=plan.columns, rows=plan.rows))
    return {
        "matrix": content_digest(decode_matrix(spec, bytes.fromhex(drawn["matrices"][mechanism]))),
        "columns": {field.name: str(field.type) for field in written},
        "metadata": (written.metadata or {})[b"commingle"].decode(),
        "bodies": bodies,
    }


def exchange(bounds: Bounds) -> dict[str, Any]:
    """What happens between the approvals and the blocks of a moments release: of bodies their digests."""
    made, names = world.exchanged(None if bounds == "proved" else bounds), world.NAMES
    terms, sums = made.exchange, (-(1 << 40), 0, 7, 1 << 62)
    staged = seal(made.side("lab").says_of_columns(made.bodies["lab"], sums), key=world.KEYS["lab"])
    pairs = [(owner, name) for name in names for owner in terms.owners(name)]
    parts = {(owner, name): b"".join(Reply(terms, name, made.answers[name]).columns(owner)) for owner, name in pairs}
    return {
        "spec": envelope(terms.spec.envelope),
        "info": terms.info("columns", "clinic", 7).decode(),
        "labels": {name: terms.layout(name).label.hex() for name in names},
        "bounds": {name: terms.bound(name) for name in names},
        "columns_sizes": {name: terms.columns_size(name) for name in names},
        "columns_bodies_sha256": {name: sha256(body).hexdigest() for name, body in made.bodies.items()},
        "columns": {name: envelope(signed) for name, signed in made.columns.items()},
        "columns_of_two_stages": envelope(staged),
        "columns_set": columns_digest(terms, made.columns),
        "reply_sizes": {name: terms.reply_size(name) for name in names},
        "reply_bodies_sha256": {name: sha256(body).hexdigest() for name, body in made.answers.items()},
        "parts_sha256": {f"{owner} {name}": sha256(part).hexdigest() for (owner, name), part in parts.items()},
        "reply_noise": {f"{owner} {name}": integers(world.reply_noise(made, name, owner)) for owner, name in pairs},
        "replies": {name: envelope(signed) for name, signed in made.replies.items()},
        "opened": {f"{owner} {name}": integers(made.open(owner, name)) for owner, name in pairs},
        "transcript": made.transcript(),
    }
