"""What parties and coordinators sign, made from its parts: honest documents that a test may then change."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Signature, SigningKey, Verified, payload_type, seal
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import Digest, encode
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    Approval,
    BlockStatement,
    Enrolment,
    LedgerHead,
    Rotation,
    RotationRequest,
    SignedDocument,
    Sums,
    approval_set_digest,
    open_approvals,
)
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import Member, build_spec
from commingle.shared.release.matrix import assemble, content_digest, encode_block, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HEAD = "0" * 64
"""The head of an empty ledger."""


def flipped(data: bytes, at: int = -20) -> bytes:
    position = at % len(data)
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def sign_bytes(payload: bytes, *, kind: str, key: SigningKey) -> Envelope:
    """An envelope over bytes that need not be any document's."""
    name = payload_type(kind)
    signature = key.sign(b"DSSEv1 %d %s %d %s" % (len(name), name.encode(), len(payload), payload))
    signed = Signature(keyid=key.fingerprint, sig=b64encode(signature).decode())
    return Envelope(payload=b64encode(payload).decode(), payloadType=name, signatures=(signed,))


def ledger_head(
    height: int, head: Digest, *, rho_units: int = 1, delta: float = 0.0, created: datetime = START
) -> LedgerHead:
    """How far the clinic's ledger has come, as it says."""
    spent = str(rho_units)
    return LedgerHead(
        party="clinic",
        height=height,
        head=head,
        rho_units=spent,
        delta=delta,
        replacement_units=spent,
        replacement_delta=delta,
        created=created,
    )


def enrolment(invite: str, name: str, key: SigningKey, *, sealing_key: str) -> SignedDocument:
    raw = key.verifying_key.raw.hex()
    return SignedDocument.of(Enrolment(invite=invite, name=name, signing_key=raw, sealing_key=sealing_key), key)


def study_file(parties: Sequence[Mapping[str, Any]], **terms: Any) -> dict[str, Any]:
    """What is in the file of a small study of listed people."""
    usual = {"study": "a", "mechanism": "rmgm", "subjects": "listed", "epsilon": 1.0, "delta": 1e-5, "n": 100}
    return {**usual, **terms, "parties": list(parties)}


def study_of(
    parties: Mapping[str, Sequence[Attribute]], shares: Mapping[str, Any] | None = None, /, **terms: Any
) -> Study:
    """What these parties release, of listed people and in one stage where `terms` and `shares` say no other."""
    usual = {"study": "s", "mechanism": "rmgm", "subjects": "listed", "epsilon": 1.0, "delta": 1e-5}
    alike, own = {"dataset": "main", "first_stage_share": None}, shares or {}
    asked = (
        StudyParty(name=name, attributes=tuple(attributes), **{**alike, **own.get(name, {})})
        for name, attributes in parties.items()
    )
    return Study(**{**usual, **terms}, parties=tuple(asked))


def spec_of(
    study: Study, keys: Mapping[str, SigningKey], *, proposer: SigningKey, seed: bytes, now: datetime
) -> ReleaseSpec:
    """What the proposer makes of a study of the holders of these keys."""
    members = {name: Member(key.verifying_key.raw.hex(), "00" * 32) for name, key in keys.items()}
    return build_spec(study, members=members, proposer=proposer.fingerprint, seed=seed, now=now)


def approvals_of(
    release: Digest, keys: Mapping[str, SigningKey], *, created: datetime, head: Digest = HEAD
) -> dict[str, Envelope]:
    """How each holder of these keys approves a release, at that head of its ledger."""
    said = {name: Approval(spec=release, party=name, created=created, ledger_head=head) for name in keys}
    return {name: seal(said[name], key=key) for name, key in keys.items()}


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
    by_old, by_new = (seal(document, key=key) for key in by or (old, new))
    return RotationRequest(by_old=by_old, by_new=by_new)


def block_statement(
    spec: ReleaseSpec,
    party: PartySpec,
    integers: NDArray[np.int64],
    *,
    release: Digest,
    approvals: Digest,
    transcript: Digest | None = None,
    sums: Sums | None = None,
    body: bytes | None = None,
) -> tuple[bytes, BlockStatement]:
    """The bytes of a party's block, and what it states about them; `body` where they were written once."""
    plan = plan_block(spec, party)
    body = encode_block(integers, plan.columns) if body is None else body
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
        sums=sums,
    )
    return body, statement


def published_files(
    spec: Verified[ReleaseSpec],
    matrix: NDArray[np.int64],
    *,
    proposer: SigningKey,
    parquet: bytes | None = None,
    **said: Any,
) -> tuple[bytes, bytes, bytes]:
    """Manifest, matrix and moments that a coordinator publishes; `parquet` where it was written once."""
    file = encode_matrix(spec.document, spec.digest, matrix) if parquet is None else parquet
    moments = encode(second_moments(spec.document, spec.digest, matrix))
    document = manifest(spec, file, moments, proposer=proposer, **said)
    return encode(SignedDocument.of(document, proposer)), file, moments


def publication(
    spec: Verified[ReleaseSpec],
    blocks: Mapping[str, NDArray[np.int64]],
    keys: Mapping[str, SigningKey],
    *,
    proposer: SigningKey,
    approvals: Mapping[str, Envelope],
    published: datetime,
    transcripts: Mapping[str, Digest] | None = None,
    sums: Mapping[str, Sums | None] | None = None,
) -> tuple[bytes, bytes, bytes]:
    """What a coordinator publishes of these blocks, each signed by its party: manifest, matrix and moments."""
    relied_on = approval_set_digest(open_approvals(approvals, spec))
    signed = {}
    for party in spec.document.parties:
        _, said = block_statement(
            spec.document,
            party,
            blocks[party.name],
            release=spec.digest,
            approvals=relied_on,
            transcript=(transcripts or {}).get(party.name),
            sums=(sums or {}).get(party.name),
        )
        signed[party.name] = seal(said, key=keys[party.name])
    matrix = assemble(spec.document, [blocks[party.name] for party in spec.document.parties])
    return published_files(spec, matrix, proposer=proposer, approvals=approvals, blocks=signed, published=published)


def manifest(
    spec: Verified[ReleaseSpec],
    matrix: bytes,
    moments: bytes,
    *,
    proposer: SigningKey,
    approvals: Mapping[str, Envelope],
    blocks: Mapping[str, Envelope],
    published: datetime,
    software: str = "commingle test",
) -> Manifest:
    return Manifest(
        release=spec.digest,
        spec=spec.envelope,
        proposer_key=proposer.verifying_key.raw.hex(),
        approvals=dict(approvals),
        blocks=dict(blocks),
        rows=mechanism_of(spec.document).rows(spec.document.terms),
        step=mechanism_of(spec.document).step(spec.document.terms),
        columns=published_columns(spec.document),
        matrix_sha256=sha256(matrix).hexdigest(),
        moments_sha256=sha256(moments).hexdigest(),
        privacy=privacy_statement(spec.document),
        published=published,
        software=software,
    )
