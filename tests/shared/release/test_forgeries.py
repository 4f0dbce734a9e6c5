"""A whole release with every ingredient forged by whoever could forge it.

The coordinator is the attacker in most cases: it signs whatever it likes, so only what parties signed and what follows
from the spec can convict it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.shared.documents.dsse import Envelope, seal
from commingle.shared.documents.model import encode
from commingle.shared.errors import CommingleError, VerificationError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.matrix import second_moments
from commingle.shared.release.plan import privacy_statement
from tests.shared.release.world import (
    KEYS,
    Release,
    approve,
    honest,
    integers,
    produce,
    seal_bytes,
    spec_document,
    verify,
)

Forgery = Callable[[Release], Release]


def one_integer(r: Release, *, row: int = 3, column: int = 2) -> Release:
    matrix = integers(r)
    matrix[row, column] += 1
    return replace(r, matrix=matrix)


def one_bit_of_the_step(r: Release) -> Release:
    step = mechanism_of(r.document).step(r.document.terms)
    return replace(r, manifest={"step": np.nextafter(step, 1)})


def intercept(r: Release) -> Release:
    return one_integer(r, row=0, column=0)


def swapped_columns(r: Release, one: int, other: int) -> Release:
    matrix = integers(r)
    matrix[:, [one, other]] = matrix[:, [other, one]]
    return replace(r, matrix=matrix)


def swapped_rows(r: Release) -> Release:
    return replace(r, matrix=integers(r)[::-1].copy())


def with_table(change: Callable[["pa.Table"], "pa.Table"]) -> Forgery:
    """Another table in the file of the matrix."""

    def forge(r: Release) -> Release:
        sink = pa.BufferOutputStream()
        pq.write_table(change(pq.read_table(pa.BufferReader(r.files()[1]))), sink)
        return replace(r, matrix_file=sink.getvalue().to_pybytes())

    return forge


def with_floats(table: "pa.Table") -> "pa.Table":
    return table.set_column(1, "age", table["age"].cast(pa.float64(), safe=False))


def with_holes(table: "pa.Table") -> "pa.Table":
    return table.set_column(1, "age", pa.array([None, *table["age"].to_pylist()[1:]], pa.int64()))


def said_in_manifest(**changes: Any) -> Forgery:
    return lambda r: replace(r, manifest={path.replace("__", "/"): new for path, new in changes.items()})


def said_in_moments(**changes: Any) -> Forgery:
    return lambda r: replace(r, moments={path.replace("__", "/"): new for path, new in changes.items()})


def said_by_lab(**changes: Any) -> Forgery:
    return lambda r: replace(r, statements={**r.statements, "lab": r.statements["lab"].model_copy(update=changes)})


def second_figure(r: Release) -> Release:
    """As if subjects were keyed, and other values cost them less."""
    stated: Any = json.loads(encode(privacy_statement(r.document)))
    stated["per_subject"]["replacement"] = {"rho": 1e-9, "epsilon": 1e-9, "guess_percent": 50}
    return said_in_manifest(privacy=stated)(r)


def cheaper(path: str) -> Forgery:
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


def silent_on_outsiders(r: Release) -> Release:
    stated = json.loads(encode(privacy_statement(r.document)))
    del stated["per_subject_outsiders"]
    return replace(r, manifest={"privacy": stated})


def approved(change: Callable[[Release], Mapping[str, Envelope]]) -> Forgery:
    """Other approvals than those that were given."""
    return lambda r: replace(r, approvals={**r.approvals, **change(r)})


def signed_as(r: Release, approval_of: str, signer: str) -> Envelope:
    return seal_bytes(r.approvals[approval_of].payload_bytes, "approval", signer)


def block_of_lab(r: Release, signer: str) -> Envelope:
    return seal(r.statements["lab"], key=KEYS[signer])


def missing_block(r: Release) -> Release:
    return replace(r, manifest={"blocks": {"lab": json.loads(block_of_lab(r, "lab").to_json())}})


def block_with_forged_key_id(r: Release) -> Release:
    forged = block_of_lab(r, "coordinator")
    signature = forged.signatures[0].model_copy(update={"keyid": KEYS["lab"].fingerprint})
    return replace(r, envelopes={"lab": forged.model_copy(update={"signatures": (signature,)})})


def block_of_another_release(r: Release) -> Release:
    other = produce(spec_document(r.document.mechanism, study="Another"))
    blocks = {**r.blocks, "lab": other.blocks["lab"]}
    return replace(r, blocks=blocks, statements={**r.statements, "lab": other.statements["lab"]})


def blocks_swapped(r: Release) -> Release:
    return replace(r, statements={"clinic": r.statements["lab"], "lab": r.statements["clinic"]})


def spec_by_stranger(r: Release) -> Release:
    spec = seal(r.document, key=KEYS["stranger"])
    return replace(r, spec=spec, manifest={"proposer_key": KEYS["stranger"].verifying_key.raw.hex()})


def spec_with_other_epsilon(r: Release) -> Release:
    document = r.document.model_copy(update={"epsilon": 0.5})
    return replace(r, spec=seal(document, key=KEYS["coordinator"]), document=document)


FORGERIES: dict[str, tuple[Forgery, str]] = {
    "one integer changed": (one_integer, "columns of clinic are not the ones it signed"),
    "two columns of a party swapped": (lambda r: swapped_columns(r, 1, 2), "columns of clinic"),
    "columns of two parties swapped": (lambda r: swapped_columns(r, 2, 3), "columns of clinic"),
    "columns of the second party swapped": (lambda r: swapped_columns(r, 3, 4), "columns of lab"),
    "rows in another order": (swapped_rows, "intercept|columns of clinic"),
    "intercept changed": (intercept, "intercept column"),
    "a row missing": (with_table(lambda table: table.slice(1)), "another shape"),
    "columns renamed": (with_table(lambda table: table.rename_columns(["(intercept)", *"abcd"])), "another shape"),
    "floats for integers": (with_table(with_floats), "another shape"),
    "empty cells": (with_table(with_holes), "empty cells"),
    "no parquet": (lambda r: replace(r, matrix_file=b"PAR1 nothing PAR1"), "not a readable Parquet"),
    "other matrix digest": (said_in_manifest(matrix_sha256="11" * 32), "matrix file is not the one"),
    "other moments digest": (said_in_manifest(moments_sha256="11" * 32), "moments are not the ones"),
    "other release id": (said_in_manifest(release="11" * 32), "another release than the spec"),
    "other step": (said_in_manifest(step=0.1), "step does not follow"),
    "step one bit off": (one_bit_of_the_step, "step"),
    "other rows": (said_in_manifest(rows=13), "rows do not follow"),
    "less noise stated": (said_in_manifest(columns__1__sigma=1), "columns do not follow"),
    "noise on the intercept": (said_in_manifest(columns__0__sigma=1), "columns do not follow"),
    "column given to another party": (said_in_manifest(columns__1__party="lab"), "columns do not follow"),
    "other column name": (said_in_manifest(columns__1__name="bmi"), "columns do not follow"),
    "a delta of the implementation that is not its own": (
        said_in_manifest(privacy__delta_implementation=1e-12),
        "privacy statement",
    ),
    "other delta": (said_in_manifest(privacy__delta=1e-6), "privacy statement"),
    "other adjacency": (said_in_manifest(privacy__adjacency="add_remove"), "privacy statement"),
    "other calibration": (said_in_manifest(privacy__calibration="classical"), "privacy statement"),
    "other promise": (said_in_manifest(privacy__protects="Everything."), "privacy statement"),
    "smaller rho of a party": (cheaper("per_party/0/loss/own/rho"), "privacy statement"),
    "smaller epsilon of a party": (cheaper("per_party/1/loss/own/epsilon"), "privacy statement"),
    "second figure of listed subjects": (second_figure, "privacy statement"),
    "smaller rho of a subject": (cheaper("per_subject/own/rho"), "privacy statement"),
    "fewer right guesses": (said_in_manifest(privacy__per_subject__own__guess_percent=50), "privacy statement"),
    "smaller epsilon of a subject": (cheaper("per_subject/own/epsilon"), "privacy statement"),
    "smaller rho of a subject to outsiders": (cheaper("per_subject_outsiders/own/rho"), "privacy statement"),
    "nothing about outsiders": (silent_on_outsiders, "privacy statement"),
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
    "approvals swapped": (
        approved(lambda r: {"clinic": r.approvals["lab"], "lab": r.approvals["clinic"]}),
        "not expected here",
    ),
    "an approval missing": (
        lambda r: replace(r, approvals={"clinic": r.approvals["clinic"]}),
        "approvals are not those",
    ),
    "an approval too many": (approved(lambda r: {"stranger": r.approvals["lab"]}), "approvals are not those"),
    "approval given again": (
        approved(lambda r: {"lab": approve(r.spec.digest, "lab", head="11" * 32)}),
        "relied on another set",
    ),
    "approval of another release": (
        approved(lambda _: {"lab": approve("99" * 32, "lab")}),
        "another release or member",
    ),
    "approval signed by another party": (
        approved(lambda r: {"clinic": signed_as(r, "clinic", "lab")}),
        "not expected here",
    ),
    "approval of another party": (
        approved(lambda r: {"lab": signed_as(r, "clinic", "lab")}),
        "another release or member",
    ),
    "a block missing": (missing_block, "blocks are not those"),
    "an approval in place of a block": (
        lambda r: replace(r, envelopes={"lab": r.approvals["lab"]}),
        "expected a document of type",
    ),
    "block signed by the coordinator": (
        lambda r: replace(r, envelopes={"lab": block_of_lab(r, "coordinator")}),
        "not expected here",
    ),
    "block signed under a borrowed key id": (block_with_forged_key_id, "does not verify"),
    "block of another release": (block_of_another_release, "another release or member"),
    "blocks of two parties swapped": (blocks_swapped, "another release or member"),
    "party signed less noise": (said_by_lab(sigma=1), "another shape or noise"),
    "party signed fewer rows": (said_by_lab(rows=11), "another shape or noise"),
    "party signed other columns": (said_by_lab(columns=("blood=B", "blood=A")), "another shape or noise"),
    "party relied on other approvals": (said_by_lab(approvals="11" * 32), "relied on another set"),
    "party signed other integers": (said_by_lab(content_sha256="11" * 32), "columns of lab"),
    "spec signed by a stranger": (spec_by_stranger, "another proposer"),
    "spec with other epsilon": (spec_with_other_epsilon, "another release or member"),
    "manifest of a later version": (said_in_manifest(version=2), "version"),
    "manifest with an unknown field": (said_in_manifest(note="hi"), "note"),
    "manifest signed by a stranger": (lambda r: replace(r, signer="stranger"), "not by the trusted coordinator"),
}


@pytest.mark.parametrize(("forge", "said"), FORGERIES.values(), ids=FORGERIES.keys())
def test_forgery_is_refused_by_name(forge: Forgery, said: str) -> None:
    files = forge(honest()).files()
    with pytest.raises(CommingleError, match=said):
        verify(files)


@pytest.mark.parametrize(
    "forge", [one_integer, lambda r: swapped_columns(r, 1, 2), swapped_rows, intercept], ids=range(4)
)
def test_forged_dgm_matrix_is_refused(forge: Forgery) -> None:
    files = forge(honest("dgm")).files()
    with pytest.raises(VerificationError):
        verify(files)


def test_release_of_an_earlier_calibration_verifies_as_it_was_and_with_a_figure_for_outsiders_does_not() -> None:
    earlier = produce(spec_document("dgm", calibration="zcdp"))
    stated = verify(earlier.files()).manifest.privacy
    assert stated.per_subject_outsiders is None
    assert stated.outsiders == stated.per_subject
    told = {"privacy/per_subject_outsiders": json.loads(encode(stated.per_subject))}
    with pytest.raises(VerificationError, match="privacy statement"):
        verify(replace(earlier, manifest=told).files())


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
