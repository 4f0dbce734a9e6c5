"""The OMOP recipe of the documentation, on tables of the Common Data Model as they are made."""

from pathlib import Path

import pytest
import sqlalchemy

from commingle.party_agent.private.sources import SourceTable, open_source
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.documents.subject_ids import SubjectKey
from tests.world.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
MODEL = """
CREATE TABLE person (person_id integer, gender_concept_id integer, year_of_birth integer,
    person_source_value varchar(50));
CREATE TABLE visit_occurrence (visit_occurrence_id integer, person_id integer, visit_concept_id integer,
    visit_start_date date, visit_end_date date);
CREATE TABLE measurement (measurement_id integer, person_id integer, measurement_concept_id integer,
    measurement_date date, value_as_number numeric, unit_concept_id integer, visit_occurrence_id integer);
INSERT INTO person VALUES (1, 8532, 1950, 'p1'), (2, 8507, 1980, 'p2'), (3, 0, 1990, 'p3'), (4, 8507, 1970, 'p4');
INSERT INTO visit_occurrence VALUES (10, 1, 9201, '2025-03-01', '2025-03-09'), (11, 1, 262, '2025-06-01', '2025-06-02'),
    (12, 2, 262, '2025-12-30', '2026-01-02'), (13, 3, 9201, '2024-02-28', '2024-03-01'),
    (14, 4, 9202, '2025-01-01', '2025-01-01');
INSERT INTO measurement VALUES (1, 1, 3004501, '2025-03-02', 110, 8840, 10),
    (2, 1, 3004501, '2025-03-01', 150, 8840, 10),
    (3, 1, 3004501, '2025-02-01', 6.1, 8753, 10), (4, 2, 3004249, '2025-12-30', 135, 8876, 12),
    (5, 2, 3016723, '2025-12-30', NULL, 8840, 12),
    (6, 2, 3004501, '2025-02-01', 999, 8840, 10); -- of p2, and says that it is of a stay of p1
"""


def make(url: str, view: str) -> None:
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as db:
        for statement in (*MODEL.split(";\n"), view):
            if statement.strip():
                db.exec_driver_sql(statement.strip().rstrip(";"))
    engine.dispose()


def check(url: str) -> None:
    """What a data set of the view is."""
    attributes = parse_attributes((EXAMPLES / "omop_stays.json").read_bytes())
    source = SqlSource(url=url, query="SELECT * FROM commingle_stays")
    scan = SourceTable([open_source(source)], SubjectKey.of("subject_id", None), attributes).scan()
    assert (scan.ids.rows, set(scan.clipped.values())) == (3, {0})  # p4 was no inpatient
    assert scan.missing == {
        "age": 0, "sex": 1, "emergency": 0, "glucose": 2, "creatinine": 3, "systolic": 2, "length_of_stay": 0,
    }  # fmt: skip
    (batch,) = open_source(source)(["subject_id", "age", "emergency", "glucose", "length_of_stay"])
    rows = sorted(zip(*(cells.to_pylist() for cells in batch.columns.values()), strict=True))
    read = dict(zip(batch.columns, ([str(cell) for cell in cells] for cells in zip(*rows, strict=True)), strict=True))
    assert read["subject_id"] == ["p1", "p2", "p3"]
    assert (read["age"], read["emergency"]) == (["75", "45", "34"], ["no", "yes", "no"])
    assert [float(days) for days in read["length_of_stay"]] == [8, 3, 2]
    assert float(read["glucose"][0]) == 150  # the first in mg/dl


def test_recipe_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'omop.db'}"
    make(url, (EXAMPLES / "omop_stays.sql").read_text())
    check(url)


@pytest.mark.slow
def test_recipe_on_postgresql_as_its_comment_says(postgres: PostgresServer) -> None:
    view = (EXAMPLES / "omop_stays.sql").read_text()
    changed = view.replace(
        "julianday(v.visit_end_date) - julianday(v.visit_start_date)", "v.visit_end_date - v.visit_start_date"
    )
    assert changed != view
    url = postgres.url.replace("postgresql:", "postgresql+psycopg:")
    make(url, changed)
    check(url)
