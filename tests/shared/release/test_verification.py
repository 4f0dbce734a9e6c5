"""A whole release, honest and then with every ingredient forged by whoever could forge it.

The coordinator is the attacker in most cases: it signs whatever it likes, so only what parties signed and what follows
from the spec can convict it.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.documents.dsse import Envelope, Signature, _pre_authentication_encoding, payload_type, seal
from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import WireModel, canonical_json, decode, encode
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.documents.statements import (
    Approval,
    BlockStatement,
    SignedDocument,
    approval_set_digest,
    open_approvals,
    open_spec,
)
from commingle.shared.dp.fixed_point import SCALE, clip_rows, quantise, squared_row_limit
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.block import content_digest, encode_block
from commingle.shared.release.matrix import assemble, decode_matrix, encode_matrix, second_moments
from commingle.shared.release.plan import plan_block, privacy_statement, published_columns, published_step
from commingle.shared.release.verification import PublishedRelease, verify_release

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
        sealed = {name: seal(said, kind="block", key=KEYS[name]) for name, said in self.statements.items()}
        manifest = Manifest(
            release=release,
            spec=self.spec,
            proposer_key=KEYS["coordinator"].verifying_key.raw.hex(),
            approvals=dict(self.approvals),
            blocks={**sealed, **self.envelopes},
            rows=mechanism_of(document).rows(document),
            step=published_step(document),
            columns=published_columns(document),
            matrix_sha256=sha256(file).hexdigest(),
            moments_sha256=sha256(moments).hexdigest(),
            privacy=privacy_statement(document),
            published=document.created,
            software="commingle test",
        )
        return sign_bytes(encode_with(manifest, self.manifest), "manifest", self.signer), file, moments


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
    signature = KEYS[signer].sign(_pre_authentication_encoding(payload_type(kind), payload))
    return Envelope(
        payload=b64encode(payload).decode(),
        payloadType=payload_type(kind),
        signatures=(Signature(keyid=KEYS[signer].fingerprint, sig=b64encode(signature).decode()),),
    )


def sign_bytes(payload: bytes, kind: str, signer: str) -> bytes:
    envelope = seal_bytes(payload, kind, signer)
    return encode(SignedDocument(signing_key=KEYS[signer].verifying_key.raw.hex(), envelope=envelope))


def approve(release: str, party: str, head: str = HEAD) -> Envelope:
    approval = Approval.model_validate_json(
        json.dumps({"spec": release, "party": party, "created": "2025-01-02T00:00:00Z", "ledger_head": head})
    )
    return seal(approval, kind="approval", key=KEYS[party])


def produce(spec: Json, rows: Callable[[PartySpec], Block] = private_rows) -> Release:
    """An honest release: every party encodes, mixes, adds noise and signs."""
    document = decode(ReleaseSpec, json.dumps(spec).encode())
    envelope = seal(document, kind="spec", key=KEYS["coordinator"])
    approvals = {party.name: approve(envelope.digest, party.name) for party in document.parties}
    verified = open_spec(envelope, [KEYS["coordinator"].verifying_key])
    relied_on = approval_set_digest(open_approvals(approvals, verified))
    random = np.random.default_rng(7)
    blocks, statements = {}, {}
    for party in document.parties:
        plan = plan_block(document, party)
        accumulator = mechanism_of(document).accumulator(document, len(plan.columns))
        accumulator.add(np.arange(document.n), rows(party))
        noise = np.rint(random.normal(0, plan.sigma, (plan.rows, len(plan.columns)))).astype(np.int64)
        block = accumulator.total() + noise
        blocks[party.name] = block
        statements[party.name] = BlockStatement(
            spec=envelope.digest,
            approvals=relied_on,
            party=party.name,
            rows=plan.rows,
            columns=plan.columns,
            sigma=plan.sigma,
            body_sha256=sha256(encode_block(block, plan.columns)).hexdigest(),
            content_sha256=content_digest(block),
            ledger_head=HEAD,
        )
    return Release(envelope, document, approvals, statements, blocks)


@cache
def honest(mechanism: str = "rmgm") -> Release:
    return produce(spec_document(mechanism))


def verify(files: Files, trusted: str | None = KEYS["coordinator"].fingerprint) -> PublishedRelease:
    return verify_release(*files, trusted_coordinator=trusted)


def integers(release: Release) -> Block:
    return assemble(release.document, list(release.blocks.values()))


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_honest_release_is_accepted(mechanism: str, adjacency: str) -> None:
    release = produce(spec_document(mechanism, adjacency=adjacency))
    checked = verify_release(*release.files(), trusted_coordinator=KEYS["coordinator"].fingerprint)
    assert checked.release == release.spec.digest
    assert checked.coordinator == KEYS["coordinator"].fingerprint
    assert checked.spec == release.document
    assert any("trusted coordinator" in said for said in checked.findings)
    assert sum("approved and signed its block" in said for said in checked.findings) == 2


def test_unpinned_coordinator_is_accepted_and_the_findings_say_so() -> None:
    checked = verify_release(*honest().files(), trusted_coordinator=None)
    assert "not pinned" in checked.findings[0]


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_matrix_of_rows_without_noise_is_their_projection(mechanism: str) -> None:
    release = honest(mechanism)
    assert release.document.columns[0].name == "(intercept)"
    ones = mechanism_of(release.document).accumulator(release.document, 1)
    ones.add(np.arange(SUBJECTS), np.full((SUBJECTS, 1), SCALE, np.int64))
    assert np.array_equal(integers(release)[:, 0], ones.total()[:, 0])


def test_matrix_file_round_trips() -> None:
    release = honest()
    data = encode_matrix(release.document, release.spec.digest, integers(release))
    assert np.array_equal(decode_matrix(release.document, data), integers(release))


def test_moments_are_the_plain_products_of_the_published_values() -> None:
    release = honest()
    moments = second_moments(release.document, release.spec.digest, integers(release))
    values = [[int(v) * published_step(release.document) for v in row] for row in integers(release)]
    for i in range(5):
        for j in range(5):
            assert moments.gram[i][j] == pytest.approx(sum(row[i] * row[j] for row in values), rel=1e-12)
    assert moments.noise_variance[0] == 0


# --- forgeries ------------------------------------------------------------------------------------------------------


def one_integer(r: Release) -> Release:
    matrix = integers(r)
    matrix[3, 2] += 1
    return replace(r, matrix=matrix)


def swapped_columns(r: Release, one: int, other: int) -> Release:
    matrix = integers(r)
    matrix[:, [one, other]] = matrix[:, [other, one]]
    return replace(r, matrix=matrix)


def swapped_rows(r: Release) -> Release:
    return replace(r, matrix=integers(r)[::-1].copy())


def intercept(r: Release) -> Release:
    matrix = integers(r)
    matrix[0, 0] += 1
    return replace(r, matrix=matrix)


def parquet(table: "pa.Table") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def matrix_table(r: Release) -> "pa.Table":
    return pq.read_table(pa.BufferReader(r.files()[1]))


def short_matrix(r: Release) -> Release:
    return replace(r, matrix_file=parquet(matrix_table(r).slice(1)))


def renamed_matrix(r: Release) -> Release:
    return replace(r, matrix_file=parquet(matrix_table(r).rename_columns(["(intercept)", "a", "b", "c", "d"])))


def float_matrix(r: Release) -> Release:
    table = matrix_table(r)
    return replace(r, matrix_file=parquet(table.set_column(1, "age", table["age"].cast(pa.float64(), safe=False))))


def matrix_with_holes(r: Release) -> Release:
    table = matrix_table(r)
    holes = pa.array([None, *table["age"].to_pylist()[1:]], pa.int64())
    return replace(r, matrix_file=parquet(table.set_column(1, "age", holes)))


def no_parquet(r: Release) -> Release:
    return replace(r, matrix_file=b"PAR1 nothing PAR1")


def said_in_manifest(**changes: Any) -> Callable[[Release], Release]:
    return lambda r: replace(r, manifest={path.replace("__", "/"): new for path, new in changes.items()})


def said_in_moments(**changes: Any) -> Callable[[Release], Release]:
    return lambda r: replace(r, moments={path.replace("__", "/"): new for path, new in changes.items()})


def said_by_lab(**changes: Any) -> Callable[[Release], Release]:
    return lambda r: replace(r, statements={**r.statements, "lab": r.statements["lab"].model_copy(update=changes)})


def cheaper(path: str) -> Callable[[Release], Release]:
    """Understate one figure of the privacy statement by a millionth."""

    def forge(r: Release) -> Release:
        place: Any = json.loads(encode(privacy_statement(r.document)))
        for part in path.split("/"):
            place = place[int(part)] if isinstance(place, list) else place[part]
        return replace(r, manifest={f"privacy/{path}": place * (1 - 1e-6)})

    return forge


def privacy_order(r: Release) -> Release:
    stated = json.loads(encode(privacy_statement(r.document)))["per_party"]
    return replace(r, manifest={"privacy/per_party": stated[::-1]})


def swapped_approvals(r: Release) -> Release:
    return replace(r, approvals={"clinic": r.approvals["lab"], "lab": r.approvals["clinic"]})


def missing_approval(r: Release) -> Release:
    return replace(r, approvals={"clinic": r.approvals["clinic"]})


def approval_by_stranger(r: Release) -> Release:
    return replace(r, approvals={**r.approvals, "stranger": r.approvals["lab"]})


def later_approval(r: Release) -> Release:
    return replace(r, approvals={**r.approvals, "lab": approve(r.spec.digest, "lab", head="11" * 32)})


def approval_of_another_release(r: Release) -> Release:
    return replace(r, approvals={**r.approvals, "lab": approve("99" * 32, "lab")})


def approval_for_somebody_else(r: Release) -> Release:
    payload = r.approvals["clinic"].payload_bytes
    return replace(r, approvals={**r.approvals, "clinic": seal_bytes(payload, "approval", "lab")})


def missing_block(r: Release) -> Release:
    return replace(
        r, manifest={"blocks": {"lab": json.loads(seal(r.statements["lab"], kind="block", key=KEYS["lab"]).to_json())}}
    )


def block_as_approval(r: Release) -> Release:
    return replace(r, envelopes={"lab": r.approvals["lab"]})


def block_signed_by_coordinator(r: Release) -> Release:
    return replace(r, envelopes={"lab": seal(r.statements["lab"], kind="block", key=KEYS["coordinator"])})


def block_with_forged_key_id(r: Release) -> Release:
    forged = seal(r.statements["lab"], kind="block", key=KEYS["coordinator"])
    signature = forged.signatures[0].model_copy(update={"keyid": KEYS["lab"].fingerprint})
    return replace(r, envelopes={"lab": forged.model_copy(update={"signatures": (signature,)})})


def block_of_another_release(r: Release) -> Release:
    other = produce(spec_document(r.document.mechanism, study="Another"))
    blocks = {**r.blocks, "lab": other.blocks["lab"]}
    return replace(r, blocks=blocks, statements={**r.statements, "lab": other.statements["lab"]})


def blocks_swapped(r: Release) -> Release:
    return replace(r, statements={"clinic": r.statements["lab"], "lab": r.statements["clinic"]})


def spec_by_stranger(r: Release) -> Release:
    spec = seal(r.document, kind="spec", key=KEYS["stranger"])
    return replace(r, spec=spec, manifest={"proposer_key": KEYS["stranger"].verifying_key.raw.hex()})


def spec_with_other_epsilon(r: Release) -> Release:
    document = r.document.model_copy(update={"epsilon": 0.5})
    return replace(r, spec=seal(document, kind="spec", key=KEYS["coordinator"]), document=document)


FORGERIES: dict[str, tuple[Callable[[Release], Release], str]] = {
    "one integer changed": (one_integer, "columns of clinic are not the ones it signed"),
    "two columns of a party swapped": (lambda r: swapped_columns(r, 1, 2), "columns of clinic"),
    "columns of two parties swapped": (lambda r: swapped_columns(r, 2, 3), "columns of clinic"),
    "columns of the second party swapped": (lambda r: swapped_columns(r, 3, 4), "columns of lab"),
    "rows in another order": (swapped_rows, "intercept|columns of clinic"),
    "intercept changed": (intercept, "intercept column"),
    "a row missing": (short_matrix, "another shape"),
    "columns renamed": (renamed_matrix, "another shape"),
    "floats for integers": (float_matrix, "another shape"),
    "empty cells": (matrix_with_holes, "empty cells"),
    "no parquet": (no_parquet, "not a readable Parquet"),
    "other matrix digest": (said_in_manifest(matrix_sha256="11" * 32), "matrix file is not the one"),
    "other moments digest": (said_in_manifest(moments_sha256="11" * 32), "moments are not the ones"),
    "other release id": (said_in_manifest(release="11" * 32), "another release than the spec"),
    "other step": (said_in_manifest(step=0.1), "step does not follow"),
    "step one bit off": (lambda r: replace(r, manifest={"step": np.nextafter(published_step(r.document), 1)}), "step"),
    "other rows": (said_in_manifest(rows=13), "rows do not follow"),
    "less noise stated": (said_in_manifest(columns__1__sigma=1), "columns do not follow"),
    "noise on the intercept": (said_in_manifest(columns__0__sigma=1), "columns do not follow"),
    "column given to another party": (said_in_manifest(columns__1__party="lab"), "columns do not follow"),
    "other column name": (said_in_manifest(columns__1__name="bmi"), "columns do not follow"),
    "other delta": (said_in_manifest(privacy__delta=1e-6), "privacy statement"),
    "other adjacency": (said_in_manifest(privacy__adjacency="zero_out"), "privacy statement"),
    "other calibration": (said_in_manifest(privacy__calibration="classical"), "privacy statement"),
    "other promise": (said_in_manifest(privacy__protects="Everything."), "privacy statement"),
    "smaller rho of a party": (cheaper("per_party/0/loss/own/rho"), "privacy statement"),
    "smaller epsilon of a party": (cheaper("per_party/1/loss/own/epsilon"), "privacy statement"),
    "smaller replace_one rho of a party": (cheaper("per_party/0/loss/replace_one/rho"), "privacy statement"),
    "smaller rho of a subject": (cheaper("per_subject/own/rho"), "privacy statement"),
    "smaller epsilon of a subject": (cheaper("per_subject/replace_one/epsilon"), "privacy statement"),
    "parties' losses in another order": (privacy_order, "privacy statement"),
    "a party's loss left out": (said_in_manifest(privacy__per_party=[]), "privacy statement"),
    "one moment changed": (said_in_moments(gram__1__1=1.0), "not those of the matrix"),
    "asymmetric moments": (said_in_moments(gram__1__2=1e6), "not those of the matrix"),
    "ragged moments": (said_in_moments(gram__1=[1.0]), "not those of the matrix"),
    "moments without rows": (said_in_moments(gram=[]), "not those of the matrix"),
    "less noise in the moments": (said_in_moments(noise_variance__1=0.0), "noise does not follow"),
    "noise on the intercept's moments": (said_in_moments(noise_variance__0=1e-9), "noise does not follow"),
    "moments of another release": (said_in_moments(release="11" * 32), "another release"),
    "moments of other columns": (said_in_moments(columns__1="bmi"), "another release"),
    "moments of other rows": (said_in_moments(rows=13), "another release"),
    "moments of other subjects": (said_in_moments(n=41), "another release"),
    "moments of another mechanism": (said_in_moments(mechanism="dgm"), "another release"),
    "approvals swapped": (swapped_approvals, "not expected here"),
    "an approval missing": (missing_approval, "approvals are not those"),
    "an approval too many": (approval_by_stranger, "approvals are not those"),
    "approval given again": (later_approval, "relied on another set"),
    "approval of another release": (approval_of_another_release, "another release or party"),
    "approval signed by another party": (approval_for_somebody_else, "not expected here"),
    "approval of another party": (
        lambda r: replace(
            r, approvals={**r.approvals, "lab": seal_bytes(r.approvals["clinic"].payload_bytes, "approval", "lab")}
        ),
        "another release or party",
    ),
    "a block missing": (missing_block, "blocks are not those"),
    "an approval in place of a block": (block_as_approval, "expected a document of type"),
    "block signed by the coordinator": (block_signed_by_coordinator, "not expected here"),
    "block signed under a borrowed key id": (block_with_forged_key_id, "does not verify"),
    "block of another release": (block_of_another_release, "another release or party"),
    "blocks of two parties swapped": (blocks_swapped, "another release or party"),
    "party signed less noise": (said_by_lab(sigma=1), "another shape or noise"),
    "party signed fewer rows": (said_by_lab(rows=11), "another shape or noise"),
    "party signed other columns": (said_by_lab(columns=("blood=B", "blood=A")), "another shape or noise"),
    "party relied on other approvals": (said_by_lab(approvals="11" * 32), "relied on another set"),
    "party signed other integers": (said_by_lab(content_sha256="11" * 32), "columns of lab"),
    "spec signed by a stranger": (spec_by_stranger, "another proposer"),
    "spec with other epsilon": (spec_with_other_epsilon, "another release or party"),
    "manifest of a later version": (said_in_manifest(version=2), "version"),
    "manifest with an unknown field": (said_in_manifest(note="hi"), "note"),
    "manifest signed by a stranger": (lambda r: replace(r, signer="stranger"), "not by the trusted coordinator"),
}


@pytest.mark.parametrize(("forge", "said"), FORGERIES.values(), ids=FORGERIES.keys())
def test_forgery_is_refused_by_name(forge: Callable[[Release], Release], said: str) -> None:
    files = forge(honest()).files()
    with pytest.raises(CommingleError, match=said):
        verify(files)


@pytest.mark.parametrize(
    "forge", [one_integer, lambda r: swapped_columns(r, 1, 2), swapped_rows, intercept], ids=range(4)
)
def test_forged_dgm_matrix_is_refused(forge: Callable[[Release], Release]) -> None:
    files = forge(honest("dgm")).files()
    with pytest.raises(VerificationError):
        verify(files)


@pytest.mark.parametrize("length", [0, 4, 6])
def test_noise_of_the_wrong_length_is_refused_and_does_not_crash(length: int) -> None:
    files = replace(honest(), moments={"noise_variance": [0.0] * length}).files()
    with pytest.raises(VerificationError, match="noise"):
        verify(files)


def test_moments_of_a_party_with_small_rows_cannot_be_forged_beside_one_with_large_rows() -> None:
    spec = spec_document("dgm")
    spec["parties"][1]["row_norm"] = 1e-4
    release = produce(spec)
    largest = second_moments(release.document, release.spec.digest, integers(release)).gram
    files = replace(release, moments={"gram/3/3": largest[3][3] * 0.9}).files()
    with pytest.raises(VerificationError, match="not those of the matrix"):
        verify(files)


def test_attribute_named_like_the_intercept_never_gets_as_far_as_spending_budget() -> None:
    spec = spec_document("dgm")
    spec["parties"][0]["attributes"][0]["name"] = "(intercept)"
    with pytest.raises(CommingleError):
        produce(spec)


@pytest.mark.parametrize("place", range(3), ids=["manifest", "matrix", "moments"])
@pytest.mark.parametrize("position", [0.0, 0.3, 0.5, 0.7, 0.999])
def test_any_changed_byte_of_a_published_file_is_refused(place: int, position: float) -> None:
    files = [bytearray(data) for data in honest().files()]
    files[place][int(position * len(files[place]))] ^= 1
    with pytest.raises(CommingleError):
        verify((bytes(files[0]), bytes(files[1]), bytes(files[2])))


@pytest.mark.parametrize("place", range(3), ids=["manifest", "matrix", "moments"])
def test_file_of_another_release_is_refused(place: int) -> None:
    files = list(honest().files())
    files[place] = produce(spec_document("rmgm", study="Another")).files()[place]
    with pytest.raises(CommingleError):
        verify((files[0], files[1], files[2]))


def test_manifest_under_a_key_that_did_not_sign_it_is_refused() -> None:
    manifest, matrix, moments = honest().files()
    claimed = json.loads(manifest)
    claimed["signing_key"] = KEYS["stranger"].verifying_key.raw.hex()
    with pytest.raises(CommingleError, match="not expected here"):
        verify((json.dumps(claimed).encode(), matrix, moments), trusted=None)


def test_trusted_fingerprint_of_another_coordinator_is_refused_before_anything_else() -> None:
    manifest, _, _ = honest().files()
    with pytest.raises(VerificationError, match="trusted coordinator"):
        verify((manifest, b"", b""), trusted=KEYS["stranger"].fingerprint)


# --- any bytes, and a coordinator that signs anything ----------------------------------------------------------------


@settings(max_examples=50)
@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_arbitrary_files_raise_only_our_errors(manifest: bytes, matrix: bytes, moments: bytes) -> None:
    with pytest.raises(CommingleError):
        verify((manifest, matrix, moments))
    with pytest.raises(CommingleError):
        verify((honest_files()[0], matrix, moments))


@cache
def honest_files() -> Files:
    return honest().files()


@given(st.lists(st.tuples(st.floats(0, 0.9999), st.integers(0, 255)), max_size=6), st.floats(0.2, 1))
def test_mutated_matrix_decodes_to_its_shape_or_raises_only_our_errors(
    changes: list[tuple[float, int]], kept: float
) -> None:
    data = bytearray(honest_files()[1])
    for position, value in changes:
        data[int(position * len(data))] = value
    try:
        matrix = decode_matrix(honest().document, bytes(data[: int(kept * len(data)) if kept < 0.5 else None]))
    except CommingleError:
        return
    assert matrix.shape == (12, 5)
    assert matrix.dtype == np.int64


def places(document: Any, prefix: str = "") -> list[str]:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [place for key, value in items for place in [f"{prefix}{key}", *places(value, f"{prefix}{key}/")]]


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.floats(-1, 1), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=1),
)
MOMENTS_PLACES = places(json.loads(honest_files()[2]))
MANIFEST_PLACES = places(
    json.loads(encode(decode(SignedDocument, honest_files()[0]).open(Manifest, kind="manifest").document))
)


@settings(max_examples=50)
@given(st.sampled_from(MANIFEST_PLACES), ANYTHING)
def test_manifest_with_any_field_replaced_raises_only_our_errors(place: str, value: object) -> None:
    try:
        checked = verify(replace(honest(), manifest={place: value}).files())
    except CommingleError:
        return
    free = {"published", "software"}  # the coordinator's own word
    assert checked.manifest.model_dump(exclude=free) == verify(honest_files()).manifest.model_dump(exclude=free)


@settings(max_examples=50)
@given(st.sampled_from([p for p in MOMENTS_PLACES if p != "noise_variance"]), ANYTHING)
def test_moments_with_any_field_replaced_raise_only_our_errors(place: str, value: object) -> None:
    try:
        checked = verify(replace(honest(), moments={place: value}).files())
    except CommingleError:
        return
    assert checked.moments == verify(honest_files()).moments
