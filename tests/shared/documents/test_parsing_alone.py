"""Documents are parsed without what judges them: no mechanism, no estimation, no SciPy is loaded for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[2] / "golden"
_HEAVY = ("scipy", "pyarrow", "commingle.shared.mechanisms", "commingle.shared.estimation", "commingle.shared.release")
_PARSE = """
import sys
from pathlib import Path
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Approval, BlockStatement, SignedDocument
from commingle.shared.documents.study import Study
from commingle.shared.documents.dsse import parse_envelope

manifest = decode(SignedDocument, Path(sys.argv[1]).read_bytes()).open(Manifest).document
spec = decode(ReleaseSpec, manifest.spec.payload_bytes)
assert spec.matrix_columns and spec.terms.parties
Study.model_validate_json(sys.argv[2])
print([name for name in sys.modules if name.startswith(tuple(sys.argv[3].split()))])
"""


@pytest.mark.slow
def test_study_spec_and_manifest_are_parsed_without_a_mechanism(tmp_path: Path) -> None:
    from tests.world.released import published

    file = tmp_path / "manifest.json"
    file.write_bytes(published()[1].manifest)
    attribute = {"kind": "numeric", "name": "age", "lower": 0, "upper": 100}
    party = {"name": "clinic", "dataset": "main", "attributes": [attribute]}
    study = {"study": "Ages", "epsilon": 1.0, "delta": 1e-5, "n": 100, "parties": [party]}
    asked = [sys.executable, "-c", _PARSE, str(file), json.dumps(study), " ".join(_HEAVY)]
    found = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=120)
    assert (found.returncode, found.stdout.strip()) == (0, "[]"), found.stderr
