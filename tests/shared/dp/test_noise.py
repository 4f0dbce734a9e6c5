"""Statistical tests with fixed thresholds. Each fails a correct sampler with probability below 1e-8."""

import subprocess
import sys
from math import exp

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.noise import discrete_gaussian

ERROR_RATE = 1e-11  # by the chi-square law; 1.5e-9 of cells that expect 14 of 10^5 draws
KOLMOGOROV = 3.28  # 2 exp(-2 t^2) < 1e-9
SIX_SIGMA = 6.2  # two-sided normal tail below 1e-9
COUNT = 100_000


def probabilities(sigma: int, reach: int) -> NDArray[np.float64]:
    """The distribution by its definition, P(x) ~ exp(-x^2 / 2 sigma^2), independently of the sampler."""
    weights = np.array([exp(-x * x / (2 * sigma * sigma)) for x in range(-20 * sigma, 20 * sigma + 1)])
    inner = (weights / weights.sum())[20 * sigma - reach : 20 * sigma + reach + 1]
    tail = (1 - inner.sum()) / 2
    return np.array([tail, *inner, tail])


@pytest.mark.parametrize(("sigma", "reach"), [(1, 3), (3, 10)])
def test_small_sigma_draws_follow_the_discrete_gaussian(sigma: int, reach: int) -> None:
    draws = discrete_gaussian(sigma, COUNT)
    observed = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    expected = COUNT * probabilities(sigma, reach)
    assert expected.min() > 5
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert statistic < float(stats.chi2.isf(ERROR_RATE, len(expected) - 1))


def test_large_sigma_draws_follow_the_normal_distribution() -> None:
    sigma, count = 1_000_000, 40_000
    draws = np.sort(discrete_gaussian(sigma, count))
    cumulative = stats.norm.cdf((draws + 0.5) / sigma)
    steps = np.arange(1, count + 1) / count
    distance = max(float(np.max(steps - cumulative)), float(np.max(cumulative - steps + 1 / count)))
    assert distance * count**0.5 < KOLMOGOROV


@pytest.mark.parametrize("sigma", [1, 3, 1_000_000, SIGMA_LIMIT])
def test_mean_and_variance_are_those_of_sigma_at_every_scale(sigma: int) -> None:
    count = 30_000
    draws = discrete_gaussian(sigma, count).astype(float) / sigma
    support = np.arange(-40, 41)
    # at sigma 1 the discrete variance is 1 - 2e-7, elsewhere 1 to double precision
    variance = (
        1.0 if sigma > 1 else float((support**2 * np.exp(-(support**2) / 2)).sum() / np.exp(-(support**2) / 2).sum())
    )
    assert abs(draws.mean()) < SIX_SIGMA * (variance / count) ** 0.5
    assert abs(float((draws**2).mean()) - variance) < SIX_SIGMA * variance * (2.1 / count) ** 0.5


def test_two_calls_and_neighbouring_draws_are_uncorrelated() -> None:
    count = 30_000
    first, second = discrete_gaussian(50, count).astype(float), discrete_gaussian(50, count).astype(float)
    for a, b in ((first, second), (first[:-1], first[1:]), (first[: count // 2], first[count // 2 :])):
        assert abs(float(np.corrcoef(a, b)[0, 1])) * len(a) ** 0.5 < SIX_SIGMA


def test_forked_processes_draw_different_noise() -> None:
    script = (
        "import os, sys\n"
        "from commingle.shared.dp.noise import discrete_gaussian\n"
        "discrete_gaussian(10**9, 4)\n"
        "for _ in range(2):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        print(discrete_gaussian(10**9, 4).tolist(), flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    children = done.stdout.splitlines()
    assert len(children) == 2
    assert children[0] != children[1]


@pytest.mark.parametrize("count", [0, 1, (1 << 14) - 1, 1 << 14, (1 << 14) + 1])
def test_exactly_the_count_asked_for_is_drawn(count: int) -> None:
    draws = discrete_gaussian(2, count)
    assert draws.shape == (count,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize("sigma", [0, -1, SIGMA_LIMIT + 1])
def test_sigma_out_of_range_is_refused(sigma: int) -> None:
    with pytest.raises(ParameterError, match="noise scale"):
        discrete_gaussian(sigma, 1)
