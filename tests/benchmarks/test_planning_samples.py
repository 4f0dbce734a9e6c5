import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.planning import synthetic
from benchmarks.planning_samples import main, markdown, realised


def test_realised_r_squared_without_noise_to_speak_of_is_that_of_the_whole_table() -> None:
    case = synthetic(5_000, 4, seed=3)
    x = np.column_stack([np.ones(len(case.rows)), case.rows[:, :-1]])
    left = case.rows[:, -1] - x @ np.linalg.lstsq(x, case.rows[:, -1])[0]
    explained = 1 - left @ left / (len(left) * case.rows[:, -1].var())
    assert realised(case, "moments", 1000.0, repeats=2) == pytest.approx([explained] * 2, abs=1e-3)


def test_quick_run_prints_ranges_and_what_they_hold_and_writes_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--quick", "--json", str(tmp_path / "out.json")], catch_exceptions=False)
    assert result.exit_code == 0
    records = json.loads((tmp_path / "out.json").read_text())["results"]
    assert {(r["mechanism"], r["public_rows"]) for r in records} == {
        (mechanism, rows) for mechanism in ("moments", "rmgm") for rows in (50, 100, 300)
    }
    assert all(r["low"] <= r["forecast"] <= r["high"] for r in records)
    assert markdown(records) in result.output
