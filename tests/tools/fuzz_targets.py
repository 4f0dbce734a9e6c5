"""What is fuzzed: every parser that reads bytes from outside, with valid documents to start from.

Signed documents are damaged before they are signed, as a member or coordinator who means harm would do it: damage after
signing never gets past the signature.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

import httpx
import numpy as np

from commingle.party_agent.regression.plan import plan_regression
from commingle.shared.documents.dsse import open_envelope, parse_envelope
from commingle.shared.documents.manifest import Manifest, SecondMoments
from commingle.shared.documents.model import WireModel, decode, encode
from commingle.shared.documents.regression import (
    PublicSecondMoments,
    RegressionRequest,
    RegressionResult,
    coefficients_of,
    verify_regression,
)
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    parse_attributes,
)
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import ApprovalRequest, SignedDocument
from commingle.shared.documents.study import Study
from commingle.shared.errors import CommingleError
from commingle.shared.release.checks import build_spec, open_spec
from commingle.shared.release.matrix import assemble, decode_block, decode_matrix, second_moments
from commingle.shared.release.plan import plan_block, plan_blocks, privacy_statement, published_columns
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.request_signing import RequestHead, RequestSigner, body_digest, verify_request
from tests.golden import world
from tests.golden.documents import FROZEN, MODELS, frozen
from tests.golden.world import Made
from tests.tools import fuzz_exchange
from tests.tools.fuzz_mutations import Target, unforged
from tests.world.documents import sign_bytes

_KEY = world.COORDINATOR
_RAW = _KEY.verifying_key.raw.hex()
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_ZEROS = "0" * 64
_KINDS: tuple[type[WireModel], ...] = (*MODELS.values(), ApprovalRequest, SecondMoments, SignedDocument, Study)


def targets() -> Mapping[str, Target]:
    rows, moments = (world.release(name, world.load("drawn")) for name in ("rmgm", "moments_keyed"))
    specs = [encode(world.signed_spec(name).document) for name in (*world.RELEASES, *world.KEYED)]
    attributes = b"[" + b",".join(map(encode, rows.spec.document.terms.attributes)) + b"]"
    return {
        "envelope": Target([rows.spec.envelope.to_json()], lambda data: _open(rows, data)),
        "spec": Target(specs, _plan),
        "documents": Target(list(_documents(rows)), _decode_all),
        "study": Target([encode(world.study(name)) for name in world.RELEASES], _propose),
        "manifest": Target([_said(rows)], lambda data: _verify(rows, signed=data)),
        "moments": Target([rows.files[2]], lambda data: _verify(rows, moments=data)),
        "matrix": Target([rows.files[1]], lambda data: _read_matrix(rows, data)),
        "block": Target([rows.bodies["lab"]], lambda data: _read_block(rows, "lab", data)),
        "manifest of moments": Target([_said(moments)], lambda data: _verify(moments, signed=data)),
        "noisy moments": Target([moments.files[2]], lambda data: _verify(moments, moments=data)),
        "submission": Target([moments.bodies["clinic"]], lambda data: _publish(moments, data)),
        **fuzz_exchange.targets(),
        **_regressions(),
        "attributes": Target([attributes], parse_attributes),
        "request": Target([_signed_request()], _verify_request),
    }


def _documents(release: Made) -> Iterator[bytes]:
    """One of every kind that is frozen, and those that are not signed by themselves."""
    yield from {kind: text.encode() for path in FROZEN for kind, text in frozen(json.loads(path.read_text()))}.values()
    yield encode(ApprovalRequest(approval=release.approvals["lab"], alignment=world.alignment("rmgm", "lab")))
    yield from (release.files[0], release.files[2])


def _said(release: Made) -> bytes:
    return decode(SignedDocument, release.files[0]).envelope.payload_bytes


def _open(release: Made, data: bytes) -> None:
    envelope = parse_envelope(data)
    with suppress(CommingleError):
        _ = envelope.digest
    opened = open_envelope(envelope, ReleaseSpec, keys=[_KEY.verifying_key])
    unforged(opened.payload, release.spec.payload)


def _plan(data: bytes) -> None:
    spec = open_spec(sign_bytes(data, kind="spec", key=_KEY), [_KEY.verifying_key]).document
    plan_blocks(spec)
    privacy_statement(spec)
    published_columns(spec)


def _propose(data: bytes) -> None:
    build_spec(decode(Study, data), members=world.MEMBERS, proposer=_KEY.fingerprint, seed=bytes(32), now=_NOW)


def _read_matrix(release: Made, data: bytes) -> None:
    found = decode_matrix(release.spec.document, data)
    unforged((found.shape, found.dtype), (release.matrix.shape, np.dtype(np.int64)))


def _read_block(release: Made, party: str, data: bytes) -> world.Block:
    spec, right = release.spec.document, release.blocks[party]
    plan = plan_block(spec, spec.party(party))
    found = decode_block(data, columns=plan.columns, rows=plan.rows)
    unforged((found.shape, found.dtype), (right.shape, right.dtype))
    return found


def _publish(release: Made, data: bytes) -> None:
    blocks = {**release.blocks, "clinic": _read_block(release, "clinic", data)}
    spec = release.spec.document
    encode(second_moments(spec, _ZEROS, assemble(spec, list(blocks.values()))))


def _decode_all(data: bytes) -> None:
    for kind in _KINDS:
        with suppress(CommingleError):
            decode(kind, data)


def _verify(release: Made, *, signed: bytes | None = None, moments: bytes | None = None) -> None:
    _, matrix, honest = release.files
    if moments is not None:
        digest = sha256(moments).hexdigest()
        signed = encode(decode(Manifest, _said(release)).model_copy(update={"moments_sha256": digest}))
    document = SignedDocument(signing_key=_RAW, envelope=sign_bytes(signed or b"", kind="manifest", key=_KEY))
    verify_release(encode(document), matrix, moments or honest, trusted_coordinator=None)


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
    unforged(request.body, body_digest(sha256(b"{}").digest()))


_ROWS = 1000
_COLUMNS: tuple[Attribute, ...] = (
    NumericAttribute(name="charges", lower=0, upper=100),
    NumericAttribute(name="age", lower=20, upper=80),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
    CategoricalAttribute(name="blood", levels=("0", "A", "B")),
)
_PUBLIC = PublicSecondMoments(rows=50, features=((1.0, 0.1, 0.2), (0.1, 0.4, 0.0), (0.2, 0.0, 1.0)), label=0.3)
_ASKED = RegressionRequest(
    dataset="main", target="charges", features=("age", "smoker"), epsilon=1.0, delta=1e-6, nonce=_ZEROS
)


def _regressions() -> Mapping[str, Target]:
    """What an agent is asked, and what it published, as anybody verifies it."""
    choices: tuple[dict[str, object], ...] = (
        {"method": "auto"},
        {"method": "two_stage", "adjacency": "add_remove", "n": _ROWS},
        {"method": "dp_pmtolse", "public": _PUBLIC},
        {"method": "adassp", "row_norm": 0.5},
        {"adjacency": "add_remove", "n": _ROWS, "bounds": {"age": (30.0, 70.0)}, "mapping": "per_row_with_label"},
    )
    requests = [_ASKED.model_copy(update=choice) for choice in choices]

    def verify(data: bytes) -> None:
        verify_regression(
            encode(SignedDocument(signing_key=_RAW, envelope=sign_bytes(data, kind="regression", key=_KEY)))
        )

    return {
        "regression asked": Target([encode(request) for request in requests], _plan_regression),
        "regression shown": Target([encode(_result(request)) for request in requests], verify),
    }


def _plan_regression(data: bytes) -> None:
    """As the agent does before it looks at policy and budget."""
    request = decode(RegressionRequest, data)
    plan = plan_regression(request, _COLUMNS, _ROWS)
    _ = request.id, plan.promise


def _result(request: RegressionRequest) -> RegressionResult:
    plan = plan_regression(request, _COLUMNS, _ROWS)
    task = plan.task
    published: dict[str, tuple[float, ...]] = {"gram": (1.0, 0.5)}
    if task.stages is not None:
        published = {
            "sigmas": task.stages.sigmas,
            "sums": (1.0,) * (5 if request.n is None else 6),
            "moments": (1.0,) * 9,
        }
    return RegressionResult(
        party="clinic",
        request=request,
        method=plan.name,
        calibration=task.privacy.calibration.value,
        reason=plan.reason,
        target=task.target,
        features=task.features,
        n=_ROWS,
        coefficients=coefficients_of((0.1, 0.5, -0.2), task.target, task.features),
        published=published,
        privacy=plan.promise,
        created=_NOW,
        ledger_head=_ZEROS,
        software="fuzz",
    )
