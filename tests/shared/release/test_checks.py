"""What a mechanism refuses is refused wherever a spec is opened or read, and no product file reads one elsewhere."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from commingle.shared.documents.dsse import seal
from commingle.shared.documents.errors import DocumentError
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.release.checks import open_spec, read_spec
from tests.golden import world

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
