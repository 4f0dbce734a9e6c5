"""A whole release as it is published, and anything else in its place: accepted, or refused by our errors only."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.errors import CommingleError, DocumentError
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import open_spec, read_spec
from commingle.shared.release.matrix import second_moments
from commingle.shared.release.verification import verify_release
from tests.golden import world
from tests.shared.release.world import KEYS, SUBJECTS, honest, honest_files, integers, produce, spec_document, verify


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_honest_release_is_accepted(mechanism: str) -> None:
    release = produce(spec_document(mechanism))
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
    assert release.document.matrix_columns[0].name == "(intercept)"
    ones = mechanism_of(release.document).accumulator(release.document.terms, 1)
    ones.add(np.arange(SUBJECTS), np.full((SUBJECTS, 1), SCALE, np.int64))
    assert np.array_equal(integers(release)[:, 0], ones.total()[:, 0])


def test_moments_are_the_plain_products_of_the_published_values() -> None:
    release = honest()
    moments = second_moments(release.document, release.spec.digest, integers(release))
    values = [
        [int(v) * mechanism_of(release.document).step(release.document.terms) for v in row] for row in integers(release)
    ]
    for i in range(5):
        for j in range(5):
            assert moments.gram[i][j] == pytest.approx(sum(row[i] * row[j] for row in values), rel=1e-12)
    assert moments.noise_variance[0] == 0


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
MANIFEST_PLACES = places(json.loads(encode(decode(SignedDocument, honest_files()[0]).open(Manifest).document)))


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


ROOT = Path(__file__).parents[3]
READS = re.compile(r"decode(_canonical)?\(ReleaseSpec|open_envelope\([^)]*ReleaseSpec|ReleaseSpec\.model_validate")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("rmgm", {"k": None}, "rmgm needs k, the number of rows of the projection"),
        ("dgm", {"k": 20}, "k belongs to rmgm only; leave it out for dgm"),
        ("moments", {"fraction_bits": 15}, "fraction_bits is 14 for moments"),
        ("moments", {"delta": 1e-40}, r"delta 1e-40 is not above the .* that an exchange of this size takes"),
        ("rmgm", {"epsilon": -1.0}, "epsilon"),
    ],
)
def test_what_a_mechanism_refuses_is_refused_in_the_same_words_wherever_a_spec_is_read(
    name: str, changes: Mapping[str, Any], words: str
) -> None:
    spec = world.signed_spec(name).document.model_copy(update=changes)
    assert decode(ReleaseSpec, encode(spec)) == spec, "a document is parsed without its mechanism"
    envelope = seal(spec, key=world.COORDINATOR)
    said = f"not a valid ReleaseSpec: .*{words}"
    with pytest.raises(DocumentError, match=said):
        read_spec(encode(spec))
    with pytest.raises(DocumentError, match=said):
        open_spec(envelope, [world.COORDINATOR.verifying_key])


def test_no_product_file_reads_a_spec_without_what_its_mechanism_refuses() -> None:
    folders = ("shared", "party_agent", "coordinator", "services")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if READS.search(path.read_text())}
    assert found == {"shared/release/checks.py"}
