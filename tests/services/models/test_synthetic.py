"""Synthetic rows of a release: near the people's tables of two attributes, and what is written beside them."""

import csv
import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from commingle import Release
from commingle.services.errors import OutputError, RowCountError, SeedError
from commingle.services.models import SyntheticRows, glm, synthesize, weighted_rows
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Intervals,
    NumericAttribute,
)
from commingle.shared.errors import FeaturesError, NoTablesError, UnknownAttributeError
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.categorical import release_of
from tests.world.released import published, published_tables

AGES = Intervals(lower=0, upper=90, unit="years", cuts=(40, 60))
ATTRIBUTES: tuple[Attribute, ...] = (
    CategoricalAttribute(name="age", levels=AGES.levels, intervals=AGES),
    BinaryAttribute(name="+smoker", levels=("-no", "yes"), missing="indicator"),
    NumericAttribute(name="visits", lower=0, upper=40),
    CategoricalAttribute(name="stage", levels=("i", "ii", "iii")),
)
LEVELS = {"age": AGES.levels, "+smoker": ("-no", "yes", None), "stage": ("i", "ii", "iii")}
N = 3000


@cache
def people() -> dict[str, list[Any]]:
    draw = np.random.default_rng(8)
    severity = draw.normal(size=N)
    smoker = np.where(draw.random(N) < 0.1, 2, severity + draw.normal(size=N) > 0.5)
    return {
        "age": np.clip(50 + 15 * severity + draw.normal(0, 10, N), 0, 90).tolist(),
        "+smoker": np.array(["-no", "yes", None])[smoker].tolist(),
        "visits": draw.integers(0, 40, N).astype(float).tolist(),
        "stage": np.array(["i", "ii", "iii"])[np.digitize(severity + draw.normal(size=N), [0, 1.5])].tolist(),
    }


@cache
def release(epsilon: float = 1e5, seed: int | None = None, overlap: float | None = None) -> PreparedMoments:
    return release_of(ATTRIBUTES, (2, 2), people(), epsilon=epsilon, seed=seed, overlap=overlap)


@cache
def drawn(rows: int = 2000) -> SyntheticRows:
    return synthesize(release(), rows)


def shares(columns: dict[str, list[Any]], one: str, other: str) -> NDArray[np.float64]:
    found = np.zeros((len(LEVELS[one]), len(LEVELS[other])))
    for a, b in zip(columns[one], columns[other], strict=True):
        found[LEVELS[one].index(a), LEVELS[other].index(b)] += 1
    return found / len(columns[one])


def with_intervals(cells: dict[str, list[Any]]) -> dict[str, list[Any]]:
    places = np.searchsorted(AGES.cuts, cells["age"], side="right")
    return cells | {"age": [AGES.levels[place] for place in places]}


def test_pair_tables_of_rows_without_noise_are_near_those_of_the_people() -> None:
    found, true = drawn(20_000), with_intervals(people())
    for one, other in combinations(LEVELS, 2):
        assert shares(found.columns, one, other) == pytest.approx(shares(true, one, other), abs=4e-3)
    assert found.attributes == ("age", "+smoker", "stage")
    assert found.pairs == ("age and +smoker", "age and stage", "+smoker and stage")
    assert found.largest < 0.01
    assert found.by_noise.max() < 1e-3


def test_reported_distance_is_that_of_the_rows_from_the_release() -> None:
    found, true = drawn(), with_intervals(people())
    wanted = [np.abs(shares(found.columns, *pair) - shares(true, *pair)).sum() / 2 for pair in combinations(LEVELS, 2)]
    assert found.distances == pytest.approx(wanted, abs=1e-3)
    assert found.mean == pytest.approx(found.beyond.mean())


def test_noise_explains_its_part_of_the_distance() -> None:
    found = synthesize(release(0.3, seed=4), 5000)
    assert (found.beyond <= found.distances).all()
    assert found.mean < 0.5 * found.distances.mean()
    assert found.by_noise.min() > 0.01


def test_sentence_says_what_noise_explains_and_that_few_rows_leave_more() -> None:
    one, few, many = (synthesize(release(), rows).sentence for rows in (1, 3, 100_000))
    assert one.startswith("In tables of two attributes this 1 row is ")
    assert few.startswith("In tables of two attributes these 3 rows are ")
    assert "; the noise of the release explains all but 4" in few
    assert few.endswith(" Few rows leave more: endlessly many would leave 0.0%.")
    assert "Few rows" not in many
    assert synthesize(release(), 1, "stage").sentence == "1 row of stage, drawn from its released shares."


def test_same_entropy_draws_the_same_rows_and_another_one_others() -> None:
    assert synthesize(release(), 50, entropy=3).columns == synthesize(release(), 50, entropy=3).columns
    assert synthesize(release(), 50, entropy=3).columns != synthesize(release(), 50, entropy=4).columns


def test_rows_of_too_many_levels_fit_the_pairs_that_are_farthest_from_independence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_pairs = synthesize(release(), 20_000)
    monkeypatch.setattr(weighted_rows, "MAX_FEATURES", 10)  # six single levels and four of twelve pairs
    found = synthesize(release(), 20_000)
    assert not any("pairs of levels" in warning for warning in all_pairs.warnings)
    assert any("12 pairs of levels. The rows fit the 4 " in warning for warning in found.warnings)
    assert all_pairs.mean < found.mean < 0.02
    monkeypatch.setattr(weighted_rows, "MAX_FEATURES", 5)
    with pytest.raises(FeaturesError, match="make 6 levels beside the first ones, and at most 5 can be fitted"):
        synthesize(release(), 10)


def test_number_without_cuts_is_left_out_by_name_unless_it_is_asked_for() -> None:
    assert drawn().left_out == ("visits",)
    assert any("visits" in warning for warning in drawn().warnings)
    with pytest.raises(NoTablesError, match="visits is a number"):
        synthesize(release(), 10, ["stage", "visits"])


def test_one_attribute_has_rows_and_no_pair() -> None:
    found = synthesize(release(), 1000, "stage")
    true = [people()["stage"].count(level) / N for level in LEVELS["stage"]]
    assert [found.columns["stage"].count(level) / 1000 for level in LEVELS["stage"]] == pytest.approx(true, abs=0.005)
    assert (found.pairs, found.to_dict()["mean"]) == ((), None)
    assert "Synthetic rows" in found.table().to_text()


def test_keyed_subjects_have_rows_and_are_said_to_be_shared() -> None:
    found = synthesize(release(1e5, None, 0.8), 500)
    assert len(found.columns["stage"]) == 500
    assert found.subjects


@pytest.mark.parametrize(
    ("rows", "attributes", "refused"),
    [
        (0, None, RowCountError),
        (2.5, None, RowCountError),
        (10_000_001, None, RowCountError),
        ("10", None, RowCountError),
        (True, None, RowCountError),
        (np.True_, None, RowCountError),
        (10.0, None, RowCountError),
        (10, ["nowhere"], UnknownAttributeError),
        (10, ["stage", "stage"], FeaturesError),
        (10, [], FeaturesError),
    ],
)
def test_rows_that_cannot_be_drawn_are_refused(
    rows: Any, attributes: list[str] | None, refused: type[Exception]
) -> None:
    with pytest.raises(refused):
        synthesize(release(), rows, attributes)


@pytest.mark.parametrize("entropy", [-1, "1", 0.5])
def test_entropy_that_is_no_whole_number_is_refused(entropy: Any) -> None:
    with pytest.raises(SeedError, match="is no seed"):
        synthesize(release(), 10, entropy=entropy)


def test_release_without_levels_has_no_rows() -> None:
    alone = release_of(ATTRIBUTES[2:3], (1,), {"visits": people()["visits"]}, epsilon=1e5)
    with pytest.raises(NoTablesError, match="no attribute"):
        synthesize(alone, 10)
    with pytest.raises(NoTablesError, match="moments"):
        Release.of(published()[1]).synthesize(10)


def test_csv_marks_formulas_and_leaves_missing_cells_empty(tmp_path: Path) -> None:
    drawn().write(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["age", "'+smoker", "stage"]
    written = {None: "", "-no": "'-no"}
    assert [row[1] for row in rows] == [written.get(cell, cell) for cell in drawn().columns["+smoker"]]
    assert [row[0] for row in rows] == drawn().columns["age"]


def test_parquet_reads_back(tmp_path: Path) -> None:
    drawn().write(tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").to_pydict() == drawn().columns
    frame = pd.read_parquet(tmp_path / "rows.parquet")
    assert frame["stage"].cat.categories.tolist() == list(LEVELS["stage"])
    assert frame.equals(drawn().to_frame())


def test_outcomes_of_a_frame_in_any_order_can_be_predicted() -> None:
    fitted, frame = glm(release(), "`+smoker` ~ age + stage"), drawn().to_frame()
    found = fitted.predict({name: frame[name][::-1] for name in ("age", "stage")})
    columns = drawn().columns
    assert found.tolist() == fitted.predict({"age": columns["age"], "stage": columns["stage"]})[::-1].tolist()


def test_rows_of_several_parts_have_one_heading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commingle.services.models.synthetic.CHUNK", 300)
    for name in ("rows.csv", "rows.parquet"):
        drawn().write(tmp_path / name)
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 2000
    assert pq.read_table(tmp_path / "rows.parquet").to_pydict() == drawn().columns


def test_dictionary_and_report_say_what_the_rows_are(tmp_path: Path) -> None:
    held = Release.of(published_tables()[1])
    paths = held.synthesize(100, entropy=2).write(tmp_path / "rows.csv")
    assert [path.name for path in paths] == ["rows.csv", "rows.dictionary.json", "rows.report.txt"]
    said = json.loads(paths[1].read_text())
    assert (said["release"], said["rows"], said["left_out"], said["file"]) == (held.id, 100, ["age"], "rows.csv")
    stage, smoker, _ = said["columns"]
    assert (stage["levels"], stage["missing"].startswith("No cell is empty")) == (["i", "ii", "iii"], True)
    assert smoker["missing"].startswith("An empty cell is a missing value")
    report = paths[2].read_text()
    for expected in ("stage and smoker", "three attributes", "commingle fit", "epsilon 3 and delta 1e-05", "post-proc"):
        assert expected in report


def test_dictionary_has_intervals_units_and_names_as_the_csv_has_them(tmp_path: Path) -> None:
    said = json.loads(drawn().write(tmp_path / "rows.csv")[1].read_text())["columns"]
    assert (said[0]["unit"], said[0]["intervals"]) == ("years", {"lower": 0.0, "upper": 90.0, "cuts": [40.0, 60.0]})
    assert said[1]["in_csv"] == {"+smoker": "'+smoker", "-no": "'-no"}


def test_file_of_another_kind_or_in_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="not written as"):
        drawn().write(tmp_path / "rows.xlsx")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        drawn().write(tmp_path / "file" / "rows.csv")
