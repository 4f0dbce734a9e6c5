import json
import re
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks import regression_choice, wu2022_real
from benchmarks.experiments import EXPERIMENTS, main
from benchmarks.tables import DATA, recorded, standing, values_digest
from benchmarks.wang2018_data import TABLES, names

DOCS = Path(__file__).parents[2] / "docs"
BY_NAME = {each.name: each for each in EXPERIMENTS}


@pytest.mark.parametrize("name", list(BY_NAME))
def test_experiment_is_a_command_whose_page_names_it(name: str) -> None:
    command = import_module(f"benchmarks.{name}").main
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    assert {argument for argument in BY_NAME[name].arguments if argument.startswith("--")} <= known
    assert f"python -m benchmarks.{name}" in (DOCS / BY_NAME[name].page).read_text()


def test_every_table_that_an_experiment_needs_is_recorded() -> None:
    assert {table for each in EXPERIMENTS for table in each.tables} <= set(recorded())
    sixteen = (*regression_choice.TUNING, *regression_choice.REPORTING)
    others = {"wu2022": wu2022_real.TABLES, "regression_choice": sixteen, "both_sums": sixteen}
    for name, wanted in {**TABLES, **others}.items():
        assert set(BY_NAME[name].tables) - {"wang2018_folds"} == set(wanted), name


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
    known = {"name": "small", "file": "small.parquet", "sha256": "", "values_sha256": values_digest(folder, "small")}
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


def test_experiment_that_is_named_runs_with_its_arguments(tmp_path: Path) -> None:
    [small] = [each for each in EXPERIMENTS if each.name == "regression_choice"]
    quick = type(small)(small.name, small.page, arguments=(*small.arguments, "--quick"))
    quick.run(tmp_path, tmp_path)
    assert json.loads((tmp_path / "regression_choice.json").read_text())
