import runpy
from pathlib import Path

from shared.protocol.documents import decode
from shared.protocol.schema import parse_attributes
from shared.protocol.study import Study

SCRIPT = Path(__file__).parents[2] / "deploy" / "compose" / "tables.py"


def test_demonstration_tables_fit_their_schemas_and_the_study(tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["write"](tmp_path, tmp_path / "study.json")
    study = decode(Study, (tmp_path / "study.json").read_bytes())
    for party in study.parties:
        schema = parse_attributes((tmp_path / party.name / "schema.json").read_bytes())
        assert schema == party.attributes
        header = (tmp_path / party.name / "table.csv").read_text().splitlines()[0].replace('"', "").split(",")
        assert set(header) == {"subject_id", *(attribute.name for attribute in schema)}
