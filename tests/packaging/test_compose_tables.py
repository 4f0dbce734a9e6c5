import csv
import runpy
from itertools import combinations
from pathlib import Path

import pytest

from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.documents.study import Study

SCRIPT = Path(__file__).parents[2] / "deploy" / "compose" / "tables.py"


def test_demonstration_tables_fit_their_schemas_and_the_studies_and_hold_overlapping_people(tmp_path: Path) -> None:
    runpy.run_path(str(SCRIPT))["write"](tmp_path, tmp_path)
    people: dict[str, dict[str, str]] = {}
    for mechanism in ("rmgm", "moments"):
        study = decode(Study, (tmp_path / f"{mechanism}.json").read_bytes())
        assert (study.mechanism, study.subjects) == (mechanism, "keyed")
        for party in study.parties:
            schema = parse_attributes((tmp_path / party.name / "schema.json").read_bytes())
            assert schema == party.attributes
            with (tmp_path / party.name / "table.csv").open(newline="") as file:
                rows = csv.DictReader(file)
                assert set(rows.fieldnames or ()) == {"subject_id", *(attribute.name for attribute in schema)}
                people[party.name] = {row["subject_id"]: row.get("age", "") for row in rows}
            assert len(people[party.name]) == pytest.approx(study.n, rel=0.01)
    for one, other in combinations(people.values(), 2):
        assert len(one.keys() & other.keys()) / len(one) == pytest.approx(0.8, abs=0.01)
    ages = [float(age) for age in people["registration"].values()]
    assert sum(ages) / len(ages) == pytest.approx(55, abs=0.5)  # as of everybody: who is known does not depend on it
