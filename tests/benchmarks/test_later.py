import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.random import default_rng

from benchmarks.central_methods import split
from benchmarks.later import BASE, LATER, against_base, fitted, main
from benchmarks.later_methods import _BINS, Mixture, _in_shell, aim, tukey_em
from benchmarks.wang2018_data import made_up
from commingle.party_agent.private.regression.calibration import Privacy


def test_later_methods_learn_at_a_large_epsilon() -> None:
    data = split(made_up(20_000), 1)
    nothing = float(np.mean(data.test_y**2))
    found = fitted(data, Privacy(20.0, 1e-6), default_rng(1))
    assert set(found) == {"SSP", BASE, *LATER}
    for name, theta in found.items():
        assert float(np.mean((data.test_y - data.test_x @ theta) ** 2)) < 0.3 * nothing, name


def test_median_of_blocks_gives_nothing_where_its_check_fails() -> None:
    data = split(made_up(), 1)
    assert not tukey_em(data.x, data.y, epsilon=0.1, delta=1e-6, draw=default_rng(2)).any()


def test_points_of_a_depth_have_that_depth_and_fill_its_shell() -> None:
    draw = default_rng(3)
    fits = np.sort(draw.normal(size=(40, 2)), axis=0)
    points = np.array([_in_shell(fits, 5, draw) for _ in range(4_000)])
    below = (points[:, None, :] >= fits).sum(axis=1)
    assert (np.minimum(below, 40 - below).min(axis=1) == 5).all()
    outer, inner = fits[-5] - fits[4], fits[-6] - fits[5]
    # among points outside the inner box, those whose first coordinate is: by areas
    share = float(((points[:, 0] < fits[5, 0]) | (points[:, 0] > fits[-6, 0])).mean())
    expected = (outer[0] - inner[0]) * outer[1] / (np.prod(outer) - np.prod(inner))
    assert abs(share - expected) < 6 * (expected * (1 - expected) / len(points)) ** 0.5  # false alarm below 1e-8


def test_mixture_fits_marginals_that_a_mixture_can_have() -> None:
    draw = default_rng(4)
    one, other = draw.dirichlet(np.ones(_BINS), size=(2, 3))
    pair = (np.outer(one[0], one[1]) + np.outer(other[0], other[1])) / 2
    model = Mixture(0.1 * draw.normal(size=(16, 3, _BINS)), np.zeros((3, 3)), np.zeros((3 * _BINS, 3 * _BINS)))
    model.add(0, 1, pair, 1.0)
    model.add(2, 2, np.diag(one[2]), 1.0)
    model.fit(1000)
    found = model.marginals()
    assert np.abs(found[:_BINS, _BINS : 2 * _BINS] - pair).max() < 1e-3
    assert np.abs(np.diag(found)[2 * _BINS :] - one[2]).max() < 1e-3
    assert found.sum() == pytest.approx(9)


def test_marginals_with_little_noise_are_the_tables_own() -> None:
    draw, n = default_rng(5), 5_000
    codes = draw.integers(_BINS, size=n)
    codes = np.column_stack([codes, (codes + draw.integers(2, size=n)) % _BINS, draw.integers(_BINS, size=n)])
    indicator = (codes[:, :, None] == np.arange(_BINS)).reshape(n, -1).astype(float)
    truth = indicator.T @ indicator
    assert np.abs(aim(truth, n, rho=1e4, draw=draw).marginals() - truth / n).max() < 0.01


def test_summary_compares_run_by_run() -> None:
    found = against_base({BASE: np.array([1.0, 4.0]), "other": np.array([2.0, 2.0])})
    assert found["other"]["over_base"] == pytest.approx(1.0)
    assert found["other"]["log_se"] == pytest.approx(np.log(2))
    assert (found[BASE]["mean"], found[BASE]["over_base"], found[BASE]["log_se"]) == (2.5, 1.0, 0.0)


def test_quick_run_without_the_data_prints_both_tables_and_writes_json(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, options, catch_exceptions=False)
    assert result.exit_code == 0
    assert "a made-up one instead" in result.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert set(report["cells"][0]["methods"]) == {"SSP", BASE, *LATER}
    assert "| TukeyEM | " in result.output
