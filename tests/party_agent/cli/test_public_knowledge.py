"""What is made of public knowledge: whitening of public rows, and schemas by the names of columns, by no cell."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.party_agent.console.pages import Line
from commingle.party_agent.home.ranges import draft_schema, known_ranges
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, Whitening, parse_attributes
from commingle.shared.dp.fixed_point import IntegerMap
from commingle.shared.errors import SpecError
from commingle.shared.runtime.errors import SettingsError
from tests.world.command import Command

SCHEMA = [
    {"kind": "numeric", "name": "temp", "lower": 0, "upper": 40},
    {"kind": "numeric", "name": "felt", "lower": 0, "upper": 40},
    {"kind": "categorical", "name": "season", "levels": ["winter", "spring", "summer"]},
]


def public_rows(n: int, seed: int = 0) -> NDArray[np.str_]:
    draw = np.random.default_rng(seed)
    temp = draw.normal(30, 2, n)
    felt = temp + draw.normal(0, 0.2, n)
    return np.column_stack([temp.astype(str), felt.astype(str), draw.choice(["winter", "spring", "summer"], n)])


def whiten(run: Command, tmp_path: Path, rows: NDArray[np.str_], *options: object) -> tuple[int, Any, str]:
    """Exit code, printed document and complaint."""
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "public.csv").write_text("\n".join(["temp,felt,season", *(",".join(row) for row in rows)]))
    files = ("--public", tmp_path / "public.csv", "--schema", tmp_path / "schema.json", "--out", tmp_path / "w.json")
    code, out, err = run("party", "whiten", *files, "--json", *options)
    return code, json.loads(out) if out else None, err


def test_whitening_of_public_rows_makes_other_rows_of_the_same_law_isotropic(tmp_path: Path, run: Command) -> None:
    code, said, _ = whiten(run, tmp_path, public_rows(400), "--ridge", 1e-7, "--radius", 8)
    assert code == 0
    assert (said["columns"], said["public_rows"], said["row_norm"], said["share_clipped"]) == (4, 400, 1.0, 0.0)
    assert said["condition_number_before"] > 1000
    assert said["condition_number_after"] == pytest.approx(1, abs=0.02)  # but for the ridge
    made = decode(Whitening, (tmp_path / "w.json").read_bytes())
    rows = public_rows(20_000, seed=1)
    encoded = np.column_stack([
        rows[:, :2].astype(float) / 20 - 1, rows[:, 2] == "spring", rows[:, 2] == "summer",
    ])  # fmt: skip
    z = IntegerMap.of(made.matrix, made.centre).rows((encoded * 2**15).astype(np.int64)) / 2**15 * 8
    assert np.abs(z.mean(axis=0)).max() < 0.15
    assert np.abs(np.cov(z.T) - np.eye(4)).max() < 0.25  # 400 public rows: about 3 / sqrt(400)


def test_average_row_fills_the_norm_where_no_radius_is_given(tmp_path: Path, run: Command) -> None:
    _, said, _ = whiten(run, tmp_path, public_rows(400))
    assert 0.2 < said["share_clipped"] < 0.6


def test_direction_in_which_public_rows_do_not_vary_is_held_by_the_ridge(tmp_path: Path, run: Command) -> None:
    rows = public_rows(50)
    rows[:, 2] = "winter"
    code, said, _ = whiten(run, tmp_path, rows)
    assert code == 0
    assert said["condition_number_before"] is None
    code, _, complaint = whiten(run, tmp_path, rows, "--ridge", 0)
    assert code == 1
    assert "--ridge" in complaint


def test_single_public_row_is_refused(tmp_path: Path, run: Command) -> None:
    code, _, complaint = whiten(run, tmp_path, public_rows(1))
    assert code == 1
    assert "1 public rows" in complaint


def test_printed_document_and_text_say_that_the_matrix_is_published(tmp_path: Path, run: Command) -> None:
    _, said, _ = whiten(run, tmp_path, public_rows(50))
    assert "PUBLIC rows only" in said["warning"]
    files = ("--public", tmp_path / "public.csv", "--schema", tmp_path / "schema.json", "--out", tmp_path / "w.json")
    assert "PUBLIC rows only" in run("party", "whiten", *files)[1]


CSV = "patient,age,Glucose_mmol_l,glucose,gender,SBP,ward,blood\np1,154,5.8,5.8,f,120,3,A\n"


def drafted(run: Command, tmp_path: Path, text: str, *options: object) -> tuple[int, str, str]:
    source, out = tmp_path / "stays.csv", tmp_path / "schema.json"
    source.write_text(text)
    named = ("--source", source, "--subject-id", "patient", "--out", out)
    return run("party", "datasets", "draft", *named, *options)


def test_known_columns_get_public_bounds_and_the_others_are_listed(run: Command, tmp_path: Path) -> None:
    code, out, _ = drafted(run, tmp_path, CSV)
    assert code == 0
    assert "age: 0 to 120 years (public knowledge)" in out
    assert "Not known: glucose, ward, blood." in out  # in which unit glucose is, its name does not say
    assert "No row was read" in out
    schema = {a.name: a for a in parse_attributes((tmp_path / "schema.json").read_bytes())}
    assert list(schema) == ["age", "Glucose_mmol_l", "gender", "SBP"]
    assert schema["Glucose_mmol_l"].model_dump()["upper"] == 60


def test_units_and_a_table_of_ones_own_say_more(run: Command, tmp_path: Path) -> None:
    own = tmp_path / "ranges.csv"
    own.write_text("name,unit,lower,upper,levels\nage,years,18,95,\nblood,,,,0|A|B|AB\n")
    code, out, _ = drafted(run, tmp_path, CSV, "--ranges", own, "--unit", "glucose=mg/dl", "--json")
    assert code == 0
    said = json.loads(out)
    bounds = {a["name"]: (a.get("lower"), a.get("upper"), a.get("levels")) for a in said["attributes"]}
    assert bounds["age"] == (18, 95, None)
    assert bounds["glucose"] == (10, 1100, None)
    assert bounds["blood"] == (None, None, ["0", "A", "B", "AB"])
    assert said["unknown"] == ["ward"]


def test_draft_depends_on_no_row(run: Command, tmp_path: Path) -> None:
    said = []
    for cells in ("p1,154,5.8,5.8,f,120,3,A\n", "p1,1,1,1,1,1,1,1\np2,999,0,0,,,,\n", ""):
        said.append(drafted(run, tmp_path, CSV.splitlines()[0] + "\n" + cells)[1])
        said.append((tmp_path / "schema.json").read_text())
    assert set(said[::2]) == {said[0]}
    assert set(said[1::2]) == {said[1]}


def test_draft_of_a_file_with_blanks_around_its_columns_has_names_without(run: Command, tmp_path: Path) -> None:
    code, out, _ = drafted(run, tmp_path, "patient, age,sex \np1,54,f\n", "--json")
    assert code == 0
    assert [a["name"] for a in json.loads(out)["attributes"]] == ["age", "sex"]


def test_file_of_another_country_is_refused_with_the_options_it_needs(run: Command, tmp_path: Path) -> None:
    for text in ("patient;age;bmi\np1;54,5;20,1\np2;33,1;31,5\n", "patient;age;note\np1;54;x\np2;33;y\n"):
        code, _, err = drafted(run, tmp_path, text)
        assert (code, "--separator ';'" in err) == (1, True)


def test_file_without_a_header_does_not_show_its_first_row(run: Command, tmp_path: Path) -> None:
    code, out, err = drafted(run, tmp_path, "SENTINEL,54,no\n")
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


def test_level_called_missing_is_left_out_of_a_draft_and_marks_missing_cells(tmp_path: Path) -> None:
    own = tmp_path / "ranges.csv"
    own.write_text("name,unit,lower,upper,levels\nblood,,,,A|missing|B\nward,,,,a|b|c|missing\nsmoker,,,,no|yes\n")
    blood, ward, smoker = (one for one, _ in draft_schema(["blood", "ward", "smoker"], known_ranges(own), {})[0])
    assert blood == BinaryAttribute(name="blood", levels=("A", "B"), missing="indicator")
    assert ward == CategoricalAttribute(name="ward", levels=("a", "b", "c"), missing="indicator")
    assert smoker == BinaryAttribute(name="smoker", levels=("no", "yes"))
    typed = Line("blood", "yes", levels="A | B | missing", missing="midpoint")
    assert typed.attribute == blood.model_dump(mode="json")
    assert Line("smoker", "yes", levels="no|yes", missing="midpoint").attribute["missing"] == "midpoint"


def test_every_known_range_is_an_attribute() -> None:
    assert len({one.attribute(one.name).name for one in known_ranges()}) >= 20


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            '[{"kind": "numeric", "name": "days", "lower": 0, "upper": 9, "cuts": [3]}]',
            (
                "attribute days, cuts: is no field of this; leave it out here, and say it in the study "
                "(commingle study new --cut)"
            ),
        ),
        ("", "this is not valid JSON: it ends too early, at line 1"),
    ],
)
def test_schema_that_says_what_a_study_says_is_told_where_to_say_it(schema: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        parse_attributes(schema.encode())
    assert said in str(refused.value)
