"""`commingle plan`, and `--encodings`: which encoding of numbers a public table speaks for."""

import json
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.services.planning.public_table import assumed_of_table
from commingle.services.tables import read_table
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import Study
from commingle.shared.mechanisms.moments.block import TRUST_PROVED
from commingle.shared.release.checks import terms_of
from commingle.shared.runtime.settings import load_settings
from tests.world.command import Command

STUDY = {
    "study": "Charges",
    "mechanism": "rmgm",
    "epsilon": 3,
    "delta": 1e-5,
    "n": 50_000,
    "parties": [
        {
            "name": "clinic",
            "dataset": "visits",
            "attributes": [
                {"kind": "numeric", "name": "age", "lower": 0, "upper": 100},
                {"kind": "binary", "name": "smoker", "levels": ["no", "yes"]},
            ],
        },
        {
            "name": "insurer",
            "dataset": "claims",
            "attributes": [{"kind": "numeric", "name": "charges", "lower": 0, "upper": 1000}],
        },
    ],
}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "plan")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.json"
    path.write_text(json.dumps(STUDY))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Ages around 50, and charges that they explain but for a tenth of their variance."""
    draw = np.random.default_rng(0)
    age = draw.normal(50, 10, 400).clip(0, 100)
    charges = 500 + 9 * (age - 50) + draw.normal(0, 30, 400)
    lines = [f"{a:.3f},{draw.choice(['no', 'yes'])},{c:.3f}" for a, c in zip(age, charges, strict=True)]
    path = tmp_path / "public.csv"
    path.write_text("\n".join(["age,smoker,charges", *lines]))
    return path


def test_study_is_planned_in_words_tables_and_a_picture(command: Command, study: Path, tmp_path: Path) -> None:
    out = command.out(study, "--out", tmp_path / "plan")
    assert "Useful with n = 50,000 at epsilon 3" in out
    for heading in ("Over k", "Over epsilon", "Over n", "suits best", TRUST_PROVED):
        assert heading in out
    assert (tmp_path / "plan" / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "plan" / "plan.json").read_text())["forecast"]["n"] == 50_000


def test_options_stand_in_for_what_the_study_says(command: Command, study: Path) -> None:
    plain = command.json(study)["forecast"]
    changed = command.json(study, "--epsilon", 0.1, "--n", 1000, "--k", 30, "--target", "smoker")["forecast"]
    assert (changed["epsilon"], changed["n"], changed["k"], changed["target"]) == (0.1, 1000, 30, "smoker")
    assert plain["useful"]
    assert not changed["useful"]
    assert command.json(study, "--mechanism", "dgm")["forecast"]["k"] is None


def test_public_table_says_spread_and_slopes(command: Command, study: Path, table: Path) -> None:
    planned = command.json(study, "--table", table, "--target", "charges")["forecast"]
    assert planned["public_table"]
    assert planned["r_squared_assumed"] == pytest.approx(0.9, abs=0.02)
    document = json.loads(study.read_text())
    study.write_text(json.dumps(document | {"parties": [p | {"first_stage_share": None} for p in document["parties"]]}))
    narrow, wide = (command.json(study, *given, "--target", "charges") for given in (("--table", table), ()))
    one, uniform, two = (_error_of_age(f) for f in (narrow["forecast"], wide["forecast"], planned))
    assert one > 2 * uniform  # a sixth of the range instead of its third root
    assert two < 0.7 * one, "a column that varies little is scaled, where there are two stages"


def _error_of_age(forecast: dict[str, Any]) -> float:
    return {t["term"]: float(t["original"]) for t in forecast["terms"]}["age"]


def test_small_public_table_gives_a_range_in_words_json_and_picture(
    command: Command, study: Path, table: Path, tmp_path: Path
) -> None:
    few = tmp_path / "few.csv"
    few.write_text("\n".join(table.read_text().splitlines()[:41]))
    asked = (study, "--table", few, "--target", "charges", "--mechanism", "rmgm", "--epsilon", "30")
    code, out, _ = command(*asked, "--out", tmp_path / "plan")
    made = json.loads((tmp_path / "plan" / "plan.json").read_text())
    least, most = made["forecast"]["r_squared_range"]
    assert code == 0
    assert least < made["forecast"]["r_squared"] < most
    assert f"({least:.2f} to {most:.2f}) on new people" in out.replace("\n", " ")
    assert "like the 40 public ones" in out.replace("\n", " ")
    assert "range" in out
    assert all(p["r_squared_range"][0] <= p["r_squared"] <= p["r_squared_range"][1] for p in made["over_epsilon"])
    assert made["forecast"]["public_rows"] == 40


def test_public_table_is_whitened_as_the_study_says(study: Path, table: Path) -> None:
    """Second moments of z = 2 (x - 0.1) of ages, clipped to 0.3: of the integers that an agent would mix."""
    document = json.loads(study.read_text())
    document["parties"][0]["attributes"] = document["parties"][0]["attributes"][:1]
    document["parties"][0] |= {"row_norm": 0.3, "whitening": {"centre": [0.1], "matrix": [[2]]}}
    design = terms_of(decode(Study, json.dumps(document).encode()))
    ages = [float(line.split(",")[0]) for line in table.read_text().splitlines()[1:]]
    whitened = [2 * (int((age / 50 - 1) * 2**15) - round(0.1 * 2**15)) for age in ages]
    limit = int(Fraction(0.3) ** 2 * 4**15)

    def clip(q: int) -> int:
        shrunk = q if q * q <= limit else (abs(q) * isqrt((limit << 48) // (q * q)) >> 24) * (1 if q > 0 else -1)
        assert abs(shrunk / 2**15 - np.clip(q / 2**15, -0.3, 0.3)) < 2**-13
        return shrunk

    expected = np.array([clip(q) for q in whitened]) / 2**15
    moments = assumed_of_table(read_table(table).table, design, where="the table").second_moments
    assert moments is not None
    np.testing.assert_allclose(moments[1, :2], [expected.mean(), (expected**2).mean()])


@pytest.mark.slow
def test_crossed_attribute_is_planned_as_a_plain_one_of_as_many_levels(
    command: Command, study: Path, table: Path, tmp_path: Path
) -> None:
    """By its parts' columns in a public table, and without one."""
    document, rows = json.loads(study.read_text()), [line.split(",") for line in table.read_text().splitlines()[1:]]
    age, smoker = document["parties"][0]["attributes"]
    levels = [f"{interval}, {word}" for interval in ("[0, 50)", "[50, 100]") for word in ("no", "yes")]
    named = ["person,charges", *(f'"{levels[2 * (float(a) >= 50) + (s == "yes")]}",{c}' for a, s, c in rows)]
    (tmp_path / "plain.csv").write_text("\n".join(named))
    kinds = {
        "public.csv": {"name": "person", "cross": [age | {"cuts": [50]}, smoker]},
        "plain.csv": {"kind": "categorical", "name": "person", "levels": levels},
    }
    found, moments = [], []
    for name, attribute in kinds.items():
        document["parties"][0]["attributes"] = [attribute]
        study.write_text(json.dumps(document))
        found.append(command.json(study, "--target", "charges", "--mechanism", "moments")["forecast"])
        design = terms_of(decode(Study, study.read_bytes()))
        moments.append(assumed_of_table(read_table(tmp_path / name).table, design, where="the table").second_moments)
    assert found[0] == found[1]
    crossed, plain = moments
    assert crossed is not None
    assert plain is not None
    np.testing.assert_array_equal(crossed, plain)
    assert "person[[50, 100], yes]" in [term["term"] for term in found[0]["terms"]]


def test_level_that_no_public_row_holds_is_rare_and_does_not_stop_the_plan(
    command: Command, study: Path, tmp_path: Path
) -> None:
    document = json.loads(study.read_text())
    document["parties"][0]["attributes"].append({"kind": "categorical", "name": "blood", "levels": ["0", "A", "rare"]})
    study.write_text(json.dumps(document))
    draw, public = np.random.default_rng(1), tmp_path / "public.csv"
    lines = [f"{draw.uniform(20, 80):.2f},no,{draw.choice(['0', 'A'])},{draw.uniform(0, 900):.2f}" for _ in range(300)]
    public.write_text("\n".join(["age,smoker,blood,charges", *lines]))
    terms = command.json(study, "--table", public, "--target", "charges")["forecast"]["terms"]
    error = {t["term"]: t["encoded"] for t in terms}
    assert error["blood[rare]"] > 5 * error["blood[A]"]
    assert error["smoker[yes]"] > 5 * error["blood[A]"]


def test_quick_question_needs_no_study(command: Command) -> None:
    out = command.out("--n", 3_000, "--columns", 12, "--parties", 3, "--mechanism", "rmgm")
    assert "Not useful with n = 3,000 at epsilon 1" in out
    assert "such fits would be refused" in out


@pytest.mark.slow
def test_subjects_are_planned_as_a_study_that_leaves_them_open_has_them(command: Command, study: Path) -> None:
    """Counts are said, noise is that of who is there, and dgm beside it is of listed subjects."""
    for asked in (("--n", 50_000, "--columns", 4), (study,)):
        keyed, listed = command.json(*asked), command.json(*asked, "--subjects", "listed")
        assert keyed["forecast"]["shared_error"] > 0
        assert "share will be known" in " ".join(keyed["forecast"]["sentences"])
        assert listed["forecast"]["shared_error"] is None
        assert keyed["mechanisms"][1] == listed["mechanisms"][1]
        assert keyed["mechanisms"][2]["relative_error"] != listed["mechanisms"][2]["relative_error"]
        [dgm] = [command.json(*asked, "--mechanism", "dgm")["forecast"]]
        assert dgm["shared_error"] is None


ENCODINGS = "--encodings needs a STUDY, a public --table and a --target."


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Give a STUDY"),
        (["STUDY", "--columns", "3"], "ask without a study"),
        (["--n", "100", "--columns", "2", "--parties", "3"], "at least one column"),
        (["STUDY", "--mechanism", "dgm", "--k", "5"], "has none"),
        (["STUDY", "--mechanism", "dgm", "--subjects", "keyed"], "takes no keyed data sets"),
        (["STUDY", "--table", "TABLE", "--r-squared", "0.5"], "leave --r-squared out"),
        (["STUDY", "--target", "nobody"], "'nobody'"),
        (["STUDY", "--epsilon", "0"], "epsilon"),
        (["STUDY", "--table", "STUDY"], "neither .csv nor .parquet"),
        (["absent.json"], "cannot read"),
        (["STUDY", "--table", "OTHER"], "no column 'smoker'"),
        (["STUDY", "--out", "STUDY/plan"], "Error: cannot write to"),
        (["STUDY", "--target", "charges", "--encodings"], ENCODINGS),
        (["STUDY", "--table", "TABLE", "--encodings"], ENCODINGS),
    ],
)
def test_question_that_cannot_be_is_one_clear_message(
    command: Command, study: Path, table: Path, tmp_path: Path, *, arguments: list[str], said: str
) -> None:
    (other := tmp_path / "other.csv").write_text("age,charges\n1,2\n3,4\n")
    files = {"STUDY": str(study), "TABLE": str(table), "OTHER": str(other), "STUDY/plan": str(study / "plan")}
    code, out, err = command(*(files.get(argument, argument) for argument in arguments))
    assert code in {1, 2}
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_n_is_proposed_from_own_tables_to_two_digits_with_what_that_reveals(
    command: Command, study: Path, tmp_path: Path
) -> None:
    for name, rows in (("a", 1234), ("b", 987)):
        (tmp_path / f"{name}.csv").write_text("id,x\n" + "".join(f"p{i},{i % 9}\n" for i in range(rows)))
    both = ("--data", tmp_path / "a.csv", "--data", tmp_path / "b.csv")
    code, out, err = command(study, *both, "--json")
    assert (code, json.loads(out)["forecast"]["n"]) == (0, 1200)
    assert "a.csv: 1,234 rows" in err
    assert "n = 1,200, two digits of the largest. The study says 50,000, which is far from that." in err
    assert "A study's n is public" in err
    assert "not as many" in command(study, *both, "--subjects", "listed")[2]
    assert "--data sets --n" in command(study, *both, "--n", 9)[2]


def test_public_table_with_semicolons_and_commas_is_read_and_said_to_be(
    command: Command, study: Path, table: Path, tmp_path: Path
) -> None:
    european = tmp_path / "european.csv"
    european.write_bytes(table.read_text().replace(",", ";").replace(".", ",").encode("utf-16"))
    asked = (study, "--target", "charges", "--mechanism", "dgm", "--table")
    _, out, said = command(*asked, european)
    assert out == command(*asked, table)[1]
    assert "european.csv looks like this: utf-16 text, ';' between columns, ',' in numbers." in said
    explicit = command(*asked, european, "--encoding", "utf-16", "--separator", ";", "--decimal", ",")
    assert explicit == (0, out, "")


def test_preset_plans_the_terms_of_its_paper_and_stands_beside_no_other_answer(command: Command, study: Path) -> None:
    planned = command.json(study, "--preset", "wu2022", "--epsilon", 1, "--n", 8000)
    assert planned["forecast"]["k"] == 400
    for more, words in (
        (["--subjects", "keyed"], "--preset sets --subjects: leave it out"),
        (["--mechanism", "moments"], "has no moments"),
        (["--mechanism", "dgm", "--k", 20], "dgm has none"),
    ):
        code, _, err = command(study, "--preset", "wu2022", "--epsilon", 1, *more)
        assert code
        assert words in err


@pytest.mark.slow
def test_tables_of_a_study_are_planned_with_shares_and_cuts(command: Command, tmp_path: Path) -> None:
    asked: dict[str, Any] = json.loads(json.dumps(STUDY | {"mechanism": "moments", "target": "smoker"}))
    asked["parties"][1]["attributes"].append({"kind": "binary", "name": "site", "levels": ["a", "b"]})
    path = tmp_path / "tables.json"
    path.write_text(json.dumps(asked))
    code, out, _ = command(path, "--share", "smoker[yes]=0.1", "--odds-ratio", 2, "--out", tmp_path)
    made = json.loads((tmp_path / "plan.json").read_text())
    (table,) = made["tables"]
    assert (table["row"], table["event"], table["odds_ratio"]) == ("site", "yes", 2)
    assert table["share"] == pytest.approx(0.1)
    assert {cut["attribute"] for cut in made["cuts"]} == {"age", "charges"}
    assert code == 0
    assert "would read" in out
    assert "every 25" in out
    err = command.refused(path, "--share", "smoker=0.1", code=2)
    assert "NAME[LEVEL]=SHARE" in err


@pytest.mark.slow  # four forecasts of half a second each
def test_bent_line_takes_squares_and_the_study_that_is_written_has_them(command: Command, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    age = draw.uniform(0, 100, 600)
    charges = (200 + 600 * (age / 50 - 1) ** 2 + draw.normal(0, 30, 600)).clip(0, 1000)
    lines = [f"{a:.3f},{draw.choice(['no', 'yes'])},{c:.3f}" for a, c in zip(age, charges, strict=True)]
    study, table = tmp_path / "study.json", tmp_path / "public.csv"
    study.write_text(json.dumps(STUDY | {"mechanism": "moments", "epsilon": 1, "n": 20_000}))
    table.write_text("\n".join(["age,smoker,charges", *lines]))
    words = (study, "--table", table, "--target", "charges", "--encodings")
    out = command.out(*words, "--out", tmp_path / "plan")
    assert "Take the numbers with squares: R² 0." in out
    written = load_settings(Study, tmp_path / "plan" / "study.json")
    (clinic, insurer) = written.parties
    assert [a.name for a in clinic.attributes] == ["age", "age squared", "smoker"]
    assert [a.name for a in insurer.attributes] == ["charges"]
    squared = clinic.attributes[1]
    assert isinstance(squared, NumericAttribute)
    assert squared.product == (clinic.attributes[0],) * 2
