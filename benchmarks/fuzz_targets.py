"""What is fuzzed: every parser that reads bytes from outside, with valid documents to start from.

Signed documents are damaged before they are signed, as a member or coordinator who means harm would do it: damage after
signing never gets past the signature.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import numpy as np

from shared.errors import CommingleError
from shared.protocol.block import content_digest, decode_block, encode_block
from shared.protocol.documents import WireModel, decode, encode
from shared.protocol.dsse import Envelope, Signature, open_envelope, parse_envelope, payload_type, seal
from shared.protocol.keys import SigningKey
from shared.protocol.manifest import Manifest, privacy_statement, published_columns, published_step
from shared.protocol.matrix import assemble, decode_matrix, encode_matrix
from shared.protocol.moments import SecondMoments, second_moments
from shared.protocol.plan import plan_block, plan_blocks
from shared.protocol.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute, parse_attributes
from shared.protocol.spec import PartySpec, ReleaseSpec
from shared.protocol.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Enrolment,
    Rejection,
    SignedDocument,
    approval_set_digest,
    open_approvals,
    open_spec,
)
from shared.protocol.study import Study
from shared.protocol.verification import verify_release
from shared.runtime.request_signing import RequestHead, RequestSigner, body_digest, verify_request

_KEY = SigningKey(bytes(32))
_RAW = _KEY.verifying_key.raw.hex()
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_ZEROS = "0" * 64
_KINDS: tuple[type[WireModel], ...] = (
    Approval,
    AlignmentStatement,
    ApprovalRequest,
    BlockStatement,
    Enrolment,
    Rejection,
    SecondMoments,
    SignedDocument,
    Study,
)


@dataclass(frozen=True, slots=True)
class Target:
    """One parser. `run` gets damaged bytes and must either return or raise a CommingleError."""

    corpus: Sequence[bytes]
    run: Callable[[bytes], object]


def _spec(mechanism: str) -> ReleaseSpec:
    attributes = (
        NumericAttribute(name="age", lower=0, upper=100, unit="years"),
        BinaryAttribute(name="smoker", levels=("no", "yes")),
        CategoricalAttribute(name="region", levels=("north", "south", "west")),
    )
    return ReleaseSpec.model_validate(
        {
            "study": "smoking",
            "created": _NOW,
            "expires": _NOW + timedelta(days=3),
            "mechanism": mechanism,
            "k": 16 if mechanism == "rmgm" else None,
            "seed": _ZEROS,
            "epsilon": 1.0,
            "delta": 1e-5,
            "n": 40,
            "parties": (
                PartySpec(name="clinic", signing_key=_RAW, sealing_key=_ZEROS, dataset="main", attributes=attributes),
            ),
            "proposer": _KEY.fingerprint,
        }
    )


class Release:
    """A published release of one party, and its parts."""

    def __init__(self) -> None:
        self.spec = _spec("rmgm")
        envelope = seal(self.spec, kind="spec", key=_KEY)
        opened = open_spec(envelope, [_KEY.verifying_key])
        plan = plan_block(self.spec, self.spec.parties[0])
        self.columns, self.rows = plan.columns, plan.rows
        integers = np.arange(plan.rows * len(plan.columns)).reshape(plan.rows, -1)
        self.block = encode_block(integers, plan.columns)
        self.approval = Approval(spec=opened.digest, party="clinic", created=_NOW, ledger_head=_ZEROS)
        approvals = {"clinic": seal(self.approval, kind="approval", key=_KEY)}
        self.statement = BlockStatement(
            spec=opened.digest,
            approvals=approval_set_digest(open_approvals(approvals, opened)),
            party="clinic",
            rows=plan.rows,
            columns=plan.columns,
            sigma=plan.sigma,
            body_sha256=sha256(self.block).hexdigest(),
            content_sha256=content_digest(integers),
            ledger_head=_ZEROS,
        )
        whole = assemble(self.spec, [integers])
        self.matrix = encode_matrix(self.spec, opened.digest, whole)
        self.moments = encode(second_moments(self.spec, opened.digest, whole))
        self.manifest = Manifest(
            release=opened.digest,
            spec=envelope,
            proposer_key=_RAW,
            approvals=approvals,
            blocks={"clinic": seal(self.statement, kind="block", key=_KEY)},
            rows=len(whole),
            step=published_step(self.spec),
            columns=published_columns(self.spec),
            matrix_sha256=sha256(self.matrix).hexdigest(),
            moments_sha256=sha256(self.moments).hexdigest(),
            privacy=privacy_statement(self.spec),
            published=_NOW,
            software="fuzz",
        )

    def documents(self) -> list[bytes]:
        """One of each kind of statement."""
        alignment = AlignmentStatement(spec=_ZEROS, party="clinic", subjects=40, digest=_ZEROS)
        rejection = Rejection(spec=_ZEROS, party="clinic", reason="budget", created=_NOW, ledger_head=_ZEROS)
        enrolment = Enrolment(invite="x" * 40, name="clinic", signing_key=_RAW, sealing_key=_ZEROS)
        approved = seal(self.approval, kind="approval", key=_KEY)
        request = ApprovalRequest(approval=approved, alignment=seal(alignment, kind="alignment", key=_KEY))
        signed = SignedDocument(signing_key=_RAW, envelope=seal(enrolment, kind="enrolment", key=_KEY))
        whole = (self.approval, self.statement, alignment, rejection, enrolment, request, signed)
        return [*map(encode, whole), self.moments]


def targets() -> Mapping[str, Target]:
    """Every target by name."""
    release = Release()
    attributes = b"[" + b",".join(map(encode, release.spec.attributes)) + b"]"
    return {
        "envelope": Target([seal(release.spec, kind="spec", key=_KEY).to_json()], _open),
        "spec": Target([encode(_spec("rmgm")), encode(_spec("dgm"))], _plan),
        "documents": Target(release.documents(), _decode_all),
        "manifest": Target([encode(release.manifest)], lambda data: _verify(release, manifest=data)),
        "moments": Target([release.moments], lambda data: _verify(release, moments=data)),
        "matrix": Target([release.matrix], lambda data: decode_matrix(release.spec, data)),
        "block": Target([release.block], lambda data: decode_block(data, columns=release.columns, rows=release.rows)),
        "attributes": Target([attributes], parse_attributes),
        "request": Target([_signed_request()], _verify_request),
    }


def _signed(payload: bytes, kind: str) -> Envelope:
    """An envelope around bytes that need not be a document."""
    of = payload_type(kind).encode()
    signature = _KEY.sign(b"DSSEv1 %d %s %d %s" % (len(of), of, len(payload), payload))
    signatures = (Signature(keyid=_KEY.fingerprint, sig=b64encode(signature).decode()),)
    return Envelope(payload=b64encode(payload).decode(), payloadType=payload_type(kind), signatures=signatures)


def _open(data: bytes) -> None:
    envelope = parse_envelope(data)
    with suppress(CommingleError):
        _ = envelope.digest
    opened = open_envelope(envelope, ReleaseSpec, kind="spec", keys=[_KEY.verifying_key])
    _unforged(opened.payload, encode(_spec("rmgm")))


def _plan(data: bytes) -> None:
    spec = open_spec(_signed(data, "spec"), [_KEY.verifying_key]).document
    plan_blocks(spec)
    privacy_statement(spec)
    published_columns(spec)


def _decode_all(data: bytes) -> None:
    for kind in _KINDS:
        with suppress(CommingleError):
            decode(kind, data)


def _verify(release: Release, *, manifest: bytes | None = None, moments: bytes | None = None) -> None:
    if moments is not None:
        digest = sha256(moments).hexdigest()
        manifest = encode(release.manifest.model_copy(update={"moments_sha256": digest}))
    signed = SignedDocument(signing_key=_RAW, envelope=_signed(manifest or b"", "manifest"))
    verify_release(encode(signed), release.matrix, moments or release.moments, trusted_coordinator=None)


def _signed_request() -> bytes:
    request = httpx.Request("PUT", "http://hub/v1/releases/0/approvals/clinic?x=1", content=b"{}")
    RequestSigner(_KEY, audience=_KEY.fingerprint, clock=lambda: _NOW).sign(request)
    return b"\n".join(name + b": " + value for name, value in request.headers.raw)


def _verify_request(data: bytes) -> None:
    lines = (line.partition(b":") for line in data.split(b"\n"))
    headers = tuple((name.decode("latin-1"), value.strip().decode("latin-1")) for name, _, value in lines)
    head = RequestHead("PUT", "/v1/releases/0/approvals/clinic?x=1", headers)
    known = {str(_KEY.fingerprint): _KEY.verifying_key}
    request = verify_request(head, audience=_KEY.fingerprint, key_of=known.get, now=_NOW)
    _unforged(request.body, body_digest(sha256(b"{}").digest()))


def _unforged(accepted: object, signed: object) -> None:
    if accepted != signed:
        raise AssertionError("accepted what was never signed")
