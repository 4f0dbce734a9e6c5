"""What is fuzzed: every parser that reads bytes from outside, with valid documents to start from.

Signed documents are damaged before they are signed, as a member or coordinator who means harm would do it: damage after
signing never gets past the signature.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import httpx
import numpy as np

from commingle.party_agent.regression.plan import plan_regression
from commingle.shared.documents.dsse import SigningKey, open_envelope, parse_envelope, seal
from commingle.shared.documents.manifest import SecondMoments
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
    Whitening,
    parse_attributes,
)
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    AlignmentStatement,
    Approval,
    ApprovalRequest,
    BlockStatement,
    Enrolment,
    Rejection,
    SignedDocument,
    approval_set_digest,
    open_approvals,
)
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.documents.terms import MechanismName
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms import mechanism_named, mechanism_of
from commingle.shared.release.checks import Member, build_spec, open_spec
from commingle.shared.release.matrix import assemble, decode_block, decode_matrix, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block, plan_blocks, privacy_statement, published_columns
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.request_signing import RequestHead, RequestSigner, body_digest, verify_request
from tests.tools import fuzz_exchange
from tests.tools.fuzz_mutations import Target, unforged
from tests.world.documents import block_statement, manifest, sign_bytes

_KEY = SigningKey(bytes(32))
_RAW = _KEY.verifying_key.raw.hex()
_NOW = datetime(2026, 1, 2, tzinfo=UTC)
_ZEROS = "0" * 64
_WHITENING = Whitening(
    centre=(0.5, -0.25, 0.0, 0.0),
    matrix=((0.5, 0.25, 0.0, 0.0), (0.0, 0.5, 0.0, 0.125), (0.0, 0.0, 0.75, 0.0), (0.0, 0.0, 0.0, 1.0)),
)
_ATTRIBUTES = (
    NumericAttribute(name="age", lower=0, upper=100, unit="years"),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
    CategoricalAttribute(name="region", levels=("north", "south", "west")),
)
_STUDY = Study(
    study="smoking",
    mechanism="dgm",
    epsilon=1.0,
    delta=1e-5,
    n=40,
    parties=(StudyParty(name="clinic", dataset="main", attributes=_ATTRIBUTES, row_norm=0.5, whitening=_WHITENING),),
)
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


def _spec(mechanism: MechanismName, *, whitened: bool = False) -> ReleaseSpec:
    party = PartySpec(
        name="clinic",
        signing_key=_RAW,
        sealing_key=_ZEROS,
        dataset="main",
        attributes=_ATTRIBUTES,
        row_norm=0.5 if whitened else None,
        whitening=_WHITENING if whitened else None,
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
            "fraction_bits": mechanism_named(mechanism).fraction_bits,
            "parties": (party,),
            "proposer": _KEY.fingerprint,
        }
    )


class Release:
    """A published release of one party, and its parts."""

    def __init__(self, mechanism: MechanismName = "rmgm") -> None:
        self.spec = _spec(mechanism)
        envelope = seal(self.spec, key=_KEY)
        opened = open_spec(envelope, [_KEY.verifying_key])
        plan = plan_block(self.spec, self.spec.parties[0])
        self.columns, self.rows = plan.columns, plan.rows
        integers = np.arange(plan.rows * len(plan.columns)).reshape(plan.rows, -1)
        integers[1 : len(plan.columns) + 1] = np.eye(len(plan.columns))  # symmetric where it is the own block
        self.approval = Approval(spec=opened.digest, party="clinic", created=_NOW, ledger_head=_ZEROS)
        approvals = {"clinic": seal(self.approval, key=_KEY)}
        self.block, self.statement = block_statement(
            self.spec,
            self.spec.parties[0],
            integers,
            release=opened.digest,
            approvals=approval_set_digest(open_approvals(approvals, opened)),
            transcript=_ZEROS if mechanism_of(self.spec).interactive else None,
        )
        whole = assemble(self.spec, [integers])
        self.matrix = encode_matrix(self.spec, opened.digest, whole)
        self.moments = encode(second_moments(self.spec, opened.digest, whole))
        self.manifest = manifest(
            opened,
            self.matrix,
            self.moments,
            proposer=_KEY,
            approvals=approvals,
            blocks={"clinic": seal(self.statement, key=_KEY)},
            published=_NOW,
            software="fuzz",
        )

    def documents(self) -> list[bytes]:
        alignment = AlignmentStatement(spec=_ZEROS, party="clinic", subjects=40, digest=_ZEROS)
        rejection = Rejection(spec=_ZEROS, party="clinic", reason="budget", created=_NOW, ledger_head=_ZEROS)
        enrolment = Enrolment(invite="x" * 40, name="clinic", signing_key=_RAW, sealing_key=_ZEROS)
        approved = seal(self.approval, key=_KEY)
        request = ApprovalRequest(approval=approved, alignment=seal(alignment, key=_KEY))
        enrolled = SignedDocument.of(enrolment, _KEY)
        whole = (self.approval, self.statement, alignment, rejection, enrolment, request, enrolled, _STUDY)
        return [*map(encode, whole), self.moments]


def targets() -> Mapping[str, Target]:
    release, exchanged = Release(), Release("moments")
    attributes = b"[" + b",".join(map(encode, release.spec.terms.attributes)) + b"]"
    return {
        "envelope": Target([seal(release.spec, key=_KEY).to_json()], _open),
        "spec": Target(
            [*map(encode, (_spec("rmgm"), _spec("dgm"), _spec("moments"), _spec("dgm", whitened=True)))], _plan
        ),
        "documents": Target(release.documents(), _decode_all),
        "study": Target([encode(_STUDY)], _propose),
        "manifest": Target([encode(release.manifest)], lambda data: _verify(release, signed=data)),
        "moments": Target([release.moments], lambda data: _verify(release, moments=data)),
        "matrix": Target([release.matrix], lambda data: decode_matrix(release.spec, data)),
        "block": Target([release.block], lambda data: decode_block(data, columns=release.columns, rows=release.rows)),
        "manifest of moments": Target([encode(exchanged.manifest)], lambda data: _verify(exchanged, signed=data)),
        "noisy moments": Target([exchanged.moments], lambda data: _verify(exchanged, moments=data)),
        "submission": Target([exchanged.block], lambda data: _publish(exchanged, data)),
        **fuzz_exchange.targets(),
        **_regressions(),
        "attributes": Target([attributes], parse_attributes),
        "request": Target([_signed_request()], _verify_request),
    }


def _open(data: bytes) -> None:
    envelope = parse_envelope(data)
    with suppress(CommingleError):
        _ = envelope.digest
    opened = open_envelope(envelope, ReleaseSpec, keys=[_KEY.verifying_key])
    unforged(opened.payload, encode(_spec("rmgm")))


def _plan(data: bytes) -> None:
    spec = open_spec(sign_bytes(data, kind="spec", key=_KEY), [_KEY.verifying_key]).document
    plan_blocks(spec)
    privacy_statement(spec)
    published_columns(spec)


def _propose(data: bytes) -> None:
    members = {"clinic": Member(_RAW, _ZEROS)}
    build_spec(decode(Study, data), members=members, proposer=_KEY.fingerprint, seed=bytes(32), now=_NOW)


def _publish(release: Release, data: bytes) -> None:
    block = decode_block(data, columns=release.columns, rows=release.rows)
    encode(second_moments(release.spec, _ZEROS, assemble(release.spec, [block])))


def _decode_all(data: bytes) -> None:
    for kind in _KINDS:
        with suppress(CommingleError):
            decode(kind, data)


def _verify(release: Release, *, signed: bytes | None = None, moments: bytes | None = None) -> None:
    if moments is not None:
        digest = sha256(moments).hexdigest()
        signed = encode(release.manifest.model_copy(update={"moments_sha256": digest}))
    document = SignedDocument(signing_key=_RAW, envelope=sign_bytes(signed or b"", kind="manifest", key=_KEY))
    verify_release(encode(document), release.matrix, moments or release.moments, trusted_coordinator=None)


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
