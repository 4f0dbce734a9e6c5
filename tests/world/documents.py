"""What parties and coordinators sign, made from its parts: honest documents that a test may then change."""

from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Verified, seal
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import Digest, WireModel
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, Enrolment, Rotation, RotationRequest, SignedDocument
from commingle.shared.release.block import content_digest, encode_block
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns, published_step

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HEAD = "0" * 64
"""The head of an empty ledger."""


def signed_document(document: WireModel, kind: str, key: SigningKey) -> SignedDocument:
    """The document beside the key that signed it."""
    return SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=seal(document, kind=kind, key=key))


def enrolment(invite: str, name: str, key: SigningKey, *, sealing_key: str) -> SignedDocument:
    """How a party introduces itself."""
    raw = key.verifying_key.raw.hex()
    return signed_document(
        Enrolment(invite=invite, name=name, signing_key=raw, sealing_key=sealing_key), "enrolment", key
    )


def rotation(
    old: SigningKey,
    new: SigningKey,
    *,
    created: datetime = START,
    party: str = "clinic",
    by: tuple[SigningKey, SigningKey] | None = None,
) -> RotationRequest:
    """A party's change of keys, signed by both of them or by whom a test says."""
    document = Rotation(
        party=party, old_key=old.verifying_key.raw.hex(), new_key=new.verifying_key.raw.hex(), created=created
    )
    by_old, by_new = (seal(document, kind="rotation", key=key) for key in by or (old, new))
    return RotationRequest(by_old=by_old, by_new=by_new)


def block_statement(
    spec: ReleaseSpec,
    party: PartySpec,
    integers: NDArray[np.int64],
    *,
    release: Digest,
    approvals: Digest,
    transcript: Digest | None = None,
) -> tuple[bytes, BlockStatement]:
    """The bytes of a party's block, and what it states about them."""
    plan = plan_block(spec, party)
    body = encode_block(integers, plan.columns)
    statement = BlockStatement(
        spec=release,
        approvals=approvals,
        party=party.name,
        rows=plan.rows,
        columns=plan.columns,
        sigma=plan.sigma,
        body_sha256=sha256(body).hexdigest(),
        content_sha256=content_digest(integers),
        ledger_head=HEAD,
        transcript=transcript,
    )
    return body, statement


def manifest(
    spec: Verified[ReleaseSpec],
    matrix: bytes,
    moments: bytes,
    *,
    rows: int,
    proposer: SigningKey,
    approvals: Mapping[str, Envelope],
    blocks: Mapping[str, Envelope],
    published: datetime,
) -> Manifest:
    """What a coordinator says about these two files."""
    return Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=proposer.verifying_key.raw.hex(),
        approvals=dict(approvals),
        blocks=dict(blocks),
        rows=rows,
        step=published_step(spec.document),
        columns=published_columns(spec.document),
        matrix_sha256=sha256(matrix).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(spec.document),
        published=published,
        software="commingle test",
    )
