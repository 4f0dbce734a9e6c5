import runpy
from pathlib import Path

import pytest

from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.documents.study import Study

SCRIPT = Path(__file__).parents[2] / "deploy" / "compose" / "tables.py"


@pytest.mark.parametrize("mechanism", ["rmgm", "moments"])
def test_demonstration_tables_fit_their_schemas_and_the_study(mechanism: str, tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["write"](tmp_path, tmp_path)
    study = decode(Study, (tmp_path / f"{mechanism}.json").read_bytes())
    assert study.mechanism == mechanism
    for party in study.parties:
        schema = parse_attributes((tmp_path / party.name / "schema.json").read_bytes())
        assert schema == party.attributes
        header = (tmp_path / party.name / "table.csv").read_text().splitlines()[0].replace('"', "").split(",")
        assert set(header) == {"subject_id", *(attribute.name for attribute in schema)}
