"""The benchmark of moments releases runs from end to end and scores a fit rightly."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.adaptive import is_tuning
from benchmarks.moments_noise import moments_release
from benchmarks.second_moments import _QUICK, EPSILONS, Setting, exact_score, load, main, score


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder with the tables of the quick run."""
    draw, entries = np.random.default_rng(0), []
    for name in _QUICK:
        x = draw.uniform(size=(400, 3))
        columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": x @ [1.0, -1.0, 0.5] + draw.normal(0, 0.1, 400)}
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        entry = {"name": name, "file": f"{name}.parquet", "target_column": "y", "feature_columns": ["a", "b", "c"]}
        entries.append(entry)
    (tmp_path / "datasets.json").write_text(json.dumps({"datasets": entries}))
    return tmp_path


def test_quick_run_prints_both_halves_and_every_setting(tables: Path) -> None:
    result = CliRunner().invoke(main, ["--quick", "--data", str(tables), "--out", str(tables / "found.json")])
    assert result.exit_code == 0, result.output
    found = [Setting(**each) for each in json.loads((tables / "found.json").read_text())]
    assert len(found) == len(_QUICK) * len(EPSILONS)
    assert {s.table for s in found if s.tuning} == {name for name in _QUICK if is_tuning(name)}
    assert "| table (n, features) |" in result.output
    clear = [s for s in found if s.epsilon == 10.0]
    assert all(0 < s.related["shrunken"] < s.exact + 0.05 for s in clear)
    assert all(s.unrelated["shrunken"] < 0.05 for s in clear)


def test_fit_of_moments_without_noise_scores_as_least_squares_on_the_rows(tables: Path) -> None:
    about = json.loads((tables / "datasets.json").read_text())["datasets"][0]
    case = load(about, tables)
    found = []
    for S, test in case.splits:
        release = moments_release(S, np.zeros_like(S), case.dataset.attributes, np.random.default_rng(0))
        found.append(score(case, release, test, "shrunken"))
    assert np.mean(found) == pytest.approx(exact_score(case), abs=1e-6)
