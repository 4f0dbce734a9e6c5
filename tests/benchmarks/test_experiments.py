import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.experiments import EXPERIMENTS, main
from benchmarks.tables import DATA, FOLDS_FILE, recorded, standing, values_digest
from benchmarks.wang2018_methods import names

DOCS = Path(__file__).parents[2] / "docs"
BY_NAME = {each.name: each for each in EXPERIMENTS}


@pytest.mark.parametrize("name", list(BY_NAME))
def test_experiment_is_a_command_whose_page_names_it(name: str) -> None:
    assert BY_NAME[name].experiment.name == name
    assert f"python -m benchmarks.{name}" in (DOCS / BY_NAME[name].page).read_text()


def test_every_table_that_an_experiment_needs_is_recorded() -> None:
    assert {table for each in EXPERIMENTS for table in each.tables} <= set(recorded())


def repository(source: str) -> str:
    """Of an address https://github.com/OWNER/NAME/raw/..."""
    return "/".join(source.split("/")[3:5])


@pytest.mark.skipif(not names(DATA), reason="the real data sets are not on this machine")
def test_recorded_checksums_are_those_of_the_tables_at_hand() -> None:
    assert {standing(DATA, line) for line in recorded().values()} == {"at hand"}
    assert len(BY_NAME["wang2018"].tables) == len(names(DATA)) + 1


def folder_with(folder: Path, values: list[float]) -> Path:
    """A folder whose manifest has one table."""
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": values}), folder / "small.parquet")
    about = {"name": "small", "file": "small.parquet", "feature_columns": ["x"], "target_column": "y"}
    (folder / "datasets.json").write_text(json.dumps({"datasets": [about]}))
    return folder


def test_table_written_otherwise_is_at_hand_and_one_with_other_values_is_not(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, [3.0, 4.0])
    known = {"name": "small", "file": "small.parquet", "target": "y", "sha256": ""}
    known["values_sha256"] = values_digest(folder, known)
    assert standing(folder, known) == "at hand"
    assert standing(folder_with(tmp_path, [3.0, 4.5]), known) == "other values"
    (folder / "small.parquet").unlink()
    assert standing(folder, known) == "missing"


def test_listing_without_the_data_names_what_is_missing(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--data", str(tmp_path)], catch_exceptions=False)
    assert "| public_moment | docs/public_moment.md | 2 | 0 of 1 |" in result.output
    assert re.search(r"^missing: .*\bwinequality_white\b", result.output, re.MULTILINE)


def test_listing_has_source_licence_and_checksum_of_every_table_that_an_experiment_needs(tmp_path: Path) -> None:
    lines = CliRunner().invoke(main, ["--data", str(tmp_path)], catch_exceptions=False).output.splitlines()
    known = recorded()
    for name in {table for each in EXPERIMENTS for table in each.tables}:
        [line] = [line for line in lines if line.startswith(f"| {name} |")]
        assert f"| {known[name]['licence']} |" in line
        assert known[name]["sha256"] in line
        assert all(repository(source) in line for source in known[name]["sources"].split())


def test_page_of_tables_names_those_that_are_skipped_without_them() -> None:
    [named] = re.findall(
        r"skips a page all of whose rows come from such tables: (.*?)\. \[", (DOCS / "tables.md").read_text(), re.DOTALL
    )
    assert re.findall(r"`(\w+)`", named) == [each.name for each in EXPERIMENTS if not each.rows_besides]


def test_page_whose_tables_are_elsewhere_is_skipped_with_what_it_lacks(tmp_path: Path) -> None:
    words = ["kalaja2020", "central", "--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 1
    for name in ("kalaja2020", "central"):
        assert re.search(rf"^{name}: skipped: .* has no airfoil, .*bike.*docs/tables\.md", result.output, re.MULTILINE)
    assert not (tmp_path / "out").exists()


def test_table_of_wang_that_no_picture_names_is_drawn_where_no_other_is_at_hand(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2))
    pq.write_table(pa.table({"x": rows[:, 0], "y": rows @ [1.0, 0.1]}), tmp_path / "small.parquet")
    columns = {"feature_columns": ["x"], "target_column": "y"}
    about = {"name": "small", "file": "small.parquet", "families": ["wang2018"], "rows": 60, **columns}
    (tmp_path / "datasets.json").write_text(json.dumps({"datasets": [about]}))
    folds = {"dataset": ["small"] * 60, "row": [*range(60)], "fold": [row % 10 for row in range(60)]}
    pq.write_table(pa.table(folds), tmp_path / FOLDS_FILE)
    words = ["wang2018", "--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    assert CliRunner().invoke(main, words, catch_exceptions=False).exit_code == 0
    [drawn] = json.loads((tmp_path / "out" / "wang2018.json").read_text())["over_epsilon"]
    assert drawn["table"] == "small"


def test_page_that_makes_up_rows_too_runs_without_the_tables_and_says_so(tmp_path: Path) -> None:
    words = ["keyed", "--quick", "--data", str(folder_with(tmp_path, [3.0, 4.0])), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert "keyed: runs without: " in result.output
    assert json.loads((tmp_path / "out" / "keyed.json").read_text())["coverage"]
