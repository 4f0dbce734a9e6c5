"""Drafting a schema from public knowledge: by the names of columns, and never by their cells."""

import json
from pathlib import Path

import pytest

from commingle.party_agent.data.ranges import draft_schema, known_ranges
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.runtime.errors import SettingsError
from tests.world.command import run_command

CSV = "patient,age,Glucose_mmol_l,glucose,gender,SBP,ward,blood\np1,154,5.8,5.8,f,120,3,A\n"


def drafted(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, *options: object) -> tuple[int, str, str]:
    source, out = tmp_path / "stays.csv", tmp_path / "schema.json"
    source.write_text(text)
    named = ("--source", source, "--subject-id", "patient", "--out", out)
    return run_command(capsys, "party", "datasets", "draft", *named, *options)


def test_known_columns_get_public_bounds_and_the_others_are_listed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = drafted(capsys, tmp_path, CSV)
    assert code == 0
    assert "age: 0 to 120 years (public knowledge)" in out
    assert "Not known: glucose, ward, blood." in out  # in which unit glucose is, its name does not say
    assert "No row was looked at" in out
    schema = {a.name: a for a in parse_attributes((tmp_path / "schema.json").read_bytes())}
    assert list(schema) == ["age", "Glucose_mmol_l", "gender", "SBP"]
    assert schema["Glucose_mmol_l"].model_dump()["upper"] == 60


def test_units_and_a_table_of_ones_own_say_more(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own = tmp_path / "ranges.csv"
    own.write_text("name,unit,lower,upper,levels\nage,years,18,95,\nblood,,,,0|A|B|AB\n")
    code, out, _ = drafted(capsys, tmp_path, CSV, "--ranges", own, "--unit", "glucose=mg/dl", "--json")
    assert code == 0
    said = json.loads(out)
    bounds = {a["name"]: (a.get("lower"), a.get("upper"), a.get("levels")) for a in said["attributes"]}
    assert bounds["age"] == (18, 95, None)
    assert bounds["glucose"] == (10, 1100, None)
    assert bounds["blood"] == (None, None, ["0", "A", "B", "AB"])
    assert said["unknown"] == ["ward"]


def test_draft_depends_on_no_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = []
    for cells in ("p1,154,5.8,5.8,f,120,3,A\n", "p1,1,1,1,1,1,1,1\np2,999,0,0,,,,\n", ""):
        said.append(drafted(capsys, tmp_path, CSV.splitlines()[0] + "\n" + cells)[1])
        said.append((tmp_path / "schema.json").read_text())
    assert set(said[::2]) == {said[0]}
    assert set(said[1::2]) == {said[1]}


def test_file_of_another_country_is_refused_with_the_options_it_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for text in ("patient;age;bmi\np1;54,5;20,1\np2;33,1;31,5\n", "patient;age;note\np1;54;x\np2;33;y\n"):
        code, _, err = drafted(capsys, tmp_path, text)
        assert (code, "--separator ';'" in err) == (1, True)


def test_file_without_a_header_does_not_show_its_first_row(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = drafted(capsys, tmp_path, "SENTINEL,54,no\n")
    assert (code, "SENTINEL" in out + err) == (1, False)
    assert "header line" in err


@pytest.mark.parametrize("text", ["", "name,unit\nage,years\n", "name,unit,lower,upper,levels\nage,,9,3,\n"])
def test_table_of_ranges_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    own = tmp_path / "ranges.csv"
    own.write_text(text)
    if not text:
        own.unlink()
    with pytest.raises(SettingsError):
        draft_schema(["age"], known_ranges(own), {})


def test_every_known_range_is_an_attribute() -> None:
    assert len({one.attribute(one.name).name for one in known_ranges()}) >= 20
