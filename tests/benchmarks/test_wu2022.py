import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import spearmanr

from benchmarks import wu2022_real
from benchmarks.wu2022 import main
from benchmarks.wu2022_methods import RULES, dgm_ols, multiplier, noise_variances, ols
from benchmarks.wu2022_rates import EXPONENTS, expected_moments, rates
from benchmarks.wu2022_synthetic import cells, make_table


def test_published_noise_and_rules_of_k_follow_the_paper() -> None:
    assert multiplier(1.0) == pytest.approx(4.8448, abs=1e-4)
    assert noise_variances([2, 1], 1.0) == pytest.approx([8 * 4.8448**2] * 2 + [4 * 4.8448**2], rel=1e-4)
    assert {rule: choose(1_000_000, 1.0) for rule, choose in RULES.items()} == {
        "sqrt(n)/sigma": 206,
        "10 sqrt(n)/sigma": 2064,
        "n^(2/3)": 10000,
    }


def test_fits_undo_what_noise_adds_on_average_and_only_dgm_does() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (5000, 3))
    w, n, noise = np.array([0.5, -0.3, 0.1]), 5000, np.array([0.4, 0.4, 0.4, 0.2])
    A = np.column_stack([x, x @ w])
    expected = A.T @ A + n * np.diag(noise)
    assert dgm_ols(expected, noise, n) == pytest.approx(w, abs=1e-4)
    assert ols(A.T @ A, n) == pytest.approx(w, abs=1e-4)
    assert ols(expected, n) == pytest.approx(w / (1 + 0.4 * 3), rel=0.1)


def test_defaults_at_a_million_subjects_and_epsilon_1_meet_the_goal() -> None:
    # two tables with fixed seeds; over 100 tables the ratios were about 5.6 and 1.7
    [cell] = cells(1_000_000, [1.0], trials=2)
    ours = cell["methods"]["Commingle measurement_error"]["mean"]
    assert cell["methods"]["RMGM-OLS k=n^(2/3)"]["mean"] > 4 * ours
    assert cell["methods"]["RMGM-OLS best k"]["mean"] > ours
    # over 100 tables a moments release was about 170 times better than the best k, which is for more trust
    assert cell["methods"]["RMGM-OLS best k"]["mean"] > 50 * cell["methods"]["Commingle moments"]["mean"]


def test_expected_moments_are_those_of_many_rows() -> None:
    table = make_table(400_000, np.random.default_rng(1))
    # entries have standard errors of at most 0.0005
    assert table.rows.T @ table.rows / 400_000 == pytest.approx(expected_moments(table.weights), abs=0.003)


def test_errors_fall_like_the_theorems_say_once_n_is_large() -> None:
    # over 50 releases the exponents between these were -0.46, -0.29 and -0.97
    fewer, more = rates((10**11, 10**12), 1.0, trials=12)
    exponents = {name: np.log10(more["median"][name] / fewer["median"][name]) for name in fewer["median"]}
    assert exponents["DGM-OLS"] == pytest.approx(EXPONENTS["DGM-OLS"], abs=0.2)
    assert EXPONENTS["RMGM-OLS k=n^(2/3)"] - 0.02 < exponents["RMGM-OLS k=n^(2/3)"] < -0.2
    assert exponents["Commingle moments"] == pytest.approx(-1, abs=0.25)


def test_dgm_errs_most_where_its_hessian_is_nearly_singular_on_real_rows_too() -> None:
    draw = np.random.default_rng(5)
    x = draw.uniform(0, 1, (4000, 8))
    values = np.column_stack([x, x.mean(axis=1)])
    points = wu2022_real.eigenvalues(values, "bike_hour", 1.0, trials=100)
    least, error = np.array(points["DGM-OLS"]).T
    assert spearmanr(least, error)[0] < -0.5
    assert min(eigenvalue for eigenvalue, _ in points["BGM-OLS"]) > 10


def test_real_table_is_released_and_fitted_by_every_method() -> None:
    draw = np.random.default_rng(4)
    x = draw.uniform(0, 1, (500, 8))
    values = np.column_stack([x, x.mean(axis=1)])
    report = wu2022_real.measure(values, "insurance_numeric", seeds=2)
    assert (report["n"], report["features"], report["parties"]) == (400, 8, 5)
    assert [cell["epsilon"] for cell in report["cells"]] == [0.1, 0.3, 1.0]
    found = report["cells"][-1]["methods"]
    assert found["OLS"]["mean"] < 1e-6 < found["constant"]["mean"] < found["BGM-OLS"]["mean"]
    assert found["RMGM-OLS best k"]["mean"] == min(
        found[name]["mean"] for name in found if name.startswith("RMGM-OLS k=") and "n" not in name.partition("=")[2]
    )


def test_quick_run_prints_tables_and_writes_json_and_pictures(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "The real tables are not at hand" in result.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert {(cell["n"], cell["epsilon"]) for cell in report["synthetic"]} == {
        (n, epsilon) for n in (1_000, 10_000) for epsilon in (0.1, 0.3, 1.0, 3.0)
    }
    assert all(np.isfinite(m["mean"]) for cell in report["synthetic"] for m in cell["methods"].values())
    for name in ("wu2022_synthetic.png", "wu2022_eigenvalues.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
