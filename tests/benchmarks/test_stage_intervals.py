"""The benchmark of intervals runs from end to end, and its exact fit is that of the rows."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.release_law import proposed
from benchmarks.second_moments import load
from benchmarks.stage_intervals import features_of, main, without_noise
from benchmarks.stages import Rows, release, study
from commingle.services.fit import FitRequest, fit_prepared
from tests.benchmarks.test_second_moments import tables

__all__ = ["tables"]


def test_quick_run_prints_every_setting(tables: Path) -> None:
    result = CliRunner().invoke(main, ["--quick", "--data", str(tables), "--json", str(tables / "found.json")])
    assert result.exit_code == 0, result.output
    found = json.loads((tables / "found.json").read_text())["covered"]
    assert [(c["mechanism"], c["epsilon"]) for c in found] == [
        (mechanism, epsilon) for mechanism in ("moments", "rmgm") for epsilon in (1.0, 3.0, 10.0)
    ]
    assert "| table | mechanism |" in result.output


def test_moments_without_noise_give_least_squares_on_the_rows(tables: Path) -> None:
    rows = Rows.of(load(json.loads((tables / "datasets.json").read_text())["datasets"][0], tables))
    spec = proposed(study(rows, "moments", epsilon=1.0, stages=2))
    made = release(spec, rows.splits[0], np.random.default_rng(0))
    exact = without_noise(made, rows.case.splits[0][0])
    fitted = fit_prepared(exact, FitRequest(target="y", features=features_of(rows)))
    x = np.column_stack([np.ones(len(rows.splits[0])), np.delete(rows.splits[0] / 2**15, rows.case.label - 1, axis=1)])
    slopes = np.linalg.lstsq(x, rows.splits[0][:, rows.case.label - 1] / 2**15)[0][1:]
    used = [made.columns[name][0] for name in features_of(rows)]
    encoded = fitted.coefficients[1:] * made.scale[used] / made.scale[rows.case.label]
    order = np.argsort(used)
    assert encoded[order] == pytest.approx(slopes, abs=1e-3)
