import json
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.adaptive import EPSILONS, QUICK_TABLES, is_tuning, main, without_signal
from benchmarks.release_law import drawn_gram, noise_variances, proposed
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import Study, StudyParty


def write_tables(folder: Path) -> None:
    """Tables under the names that the quick run reads."""
    draw = np.random.default_rng(0)
    entries = []
    for name in QUICK_TABLES:
        x = draw.uniform(size=(500, 3))
        columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": x @ [1.0, -1.0, 0.5] + draw.normal(0, 0.1, 500)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        entry = {"name": name, "file": f"{name}.parquet", "target_column": "y", "feature_columns": ["a", "b", "c"]}
        entries.append(entry)
    (folder / "datasets.json").write_text(json.dumps({"datasets": entries}))


def test_quick_run_writes_both_halves_and_a_picture(tmp_path: Path) -> None:
    write_tables(tmp_path)
    result = CliRunner().invoke(main, ["--quick", "--data", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "adaptive.json").read_text())
    assert len(found["settings"]) == len(QUICK_TABLES) * 2 * len(EPSILONS)
    assert {s["tuning"] for s in found["settings"]} == {is_tuning(name) for name in QUICK_TABLES} == {True, False}
    assert set(found["summary"]) == {"tuning", "reporting"}
    assert "| table |" in (tmp_path / "out" / "adaptive.md").read_text()
    assert (tmp_path / "out" / "adaptive.png").stat().st_size > 10_000


def test_run_with_unrelated_labels_reports_what_is_lost_on_the_tuning_half(tmp_path: Path) -> None:
    write_tables(tmp_path)
    result = CliRunner().invoke(main, ["--quick", "--unrelated", "--data", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["tables"] == sum(is_tuning(name) for name in QUICK_TABLES)
    assert found["settings"] == found["tables"] * 2 * len(EPSILONS)


def test_unrelated_label_keeps_its_mean_and_variance_and_loses_its_slopes() -> None:
    x = np.random.default_rng(4).normal(size=(100, 3))
    A = np.column_stack([np.ones(100), 1 + x[:, 0], x[:, 1], x.sum(axis=1)])
    S = A.T @ A
    changed = without_signal(S, 3)
    mean, covariance = changed[0] / 100, changed[1:, 1:] / 100 - np.outer(changed[0, 1:], changed[0, 1:]) / 1e4
    np.testing.assert_allclose(mean, A.mean(axis=0))
    np.testing.assert_allclose(covariance[-1], [0, 0, A[:, 3].var()], atol=1e-12)
    np.testing.assert_array_equal(changed[:3, :3], S[:3, :3])


def test_variants_of_one_table_are_in_the_same_half() -> None:
    assert is_tuning("bike") == is_tuning("bike_hour")
    assert is_tuning("gpu_sgemm") == is_tuning("gpu_sgemm_log")


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_drawn_moments_have_the_mean_and_spread_of_published_ones(mechanism: Literal["rmgm", "dgm"]) -> None:
    n, count, draw = 200, 4000, np.random.default_rng(1)
    A = np.column_stack([np.ones(n), draw.uniform(-1, 1, n), draw.uniform(0, 1, n)])
    attributes = tuple(NumericAttribute(name=name, lower=-1.0, upper=1.0) for name in "xy")
    parties = (StudyParty(name="one", dataset="d", attributes=attributes),)
    study = Study(study="s", mechanism=mechanism, subjects="listed", epsilon=30.0, delta=1e-5, n=n, parties=parties)
    spec = proposed(study)
    S, v, rows = A.T @ A, noise_variances(spec), spec.k or n
    drawn = np.array([drawn_gram(spec, S, v, draw) for _ in range(count)])
    diagonal = np.diag(S)
    # rmgm: sums of k squares of N(0, S/k + v). dgm: of n squares of N(a_i, v).
    variance = 2 * (diagonal + rows * v) ** 2 / rows if mechanism == "rmgm" else 2 * n * v**2 + 4 * v * diagonal
    # five standard errors of a mean; a standard deviation of 4000 draws is off by 1.1 %
    error = np.sqrt(variance / count)
    assert (np.abs(np.diagonal(drawn.mean(axis=0)) - diagonal - rows * v) <= 5 * error + 1e-9 * diagonal).all()
    np.testing.assert_allclose(np.diagonal(drawn.std(axis=0)), np.sqrt(variance), rtol=0.06, atol=1e-9)
    off = drawn[:, 1, 2]
    assert abs(off.mean() - S[1, 2]) < 5 * off.std() / np.sqrt(count)
