"""Statistical tests with fixed thresholds. Each fails a correct sampler with probability below 1e-8.

With a seed, where one is given, the outcome is the same on every run.
"""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from math import exp

import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray
from scipy import stats

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.noise import discrete_gaussian, histogram, rounded_gaussian, tail_candidate
from commingle.shared.errors import ParameterError

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


def check_counts(observed: NDArray[np.int64], expected: NDArray[np.float64]) -> None:
    assert expected.min() > 5
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert statistic < float(stats.chi2.isf(ERROR_RATE, len(expected) - 1))


@pytest.mark.parametrize(("sigma", "reach"), [(1, 3), (3, 10)])
def test_small_sigma_draws_follow_the_discrete_gaussian(sigma: int, reach: int) -> None:
    draws = discrete_gaussian(sigma, COUNT)
    observed = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    check_counts(observed, COUNT * probabilities(sigma, reach))


@pytest.mark.parametrize("sigma", [1, 2, 5, 37, 127, 128, 200, 300])
def test_every_value_is_drawn_as_often_as_the_definition_says(sigma: int) -> None:
    """About the sigma at which a bar of the histogram begins to hold two values, and four."""
    count, reach = 4_000_000, int(3.5 * sigma)
    draws = discrete_gaussian(sigma, count, entropy=np.random.default_rng(sigma).bytes)
    observed = np.bincount(np.clip(draws, -reach - 1, reach + 1) + reach + 1, minlength=2 * reach + 3)
    check_counts(observed, count * probabilities(sigma, reach))


@pytest.mark.parametrize("sigma", [1, 2, 5, 37, 300, 100_000])
def test_rounded_draws_are_a_normal_variable_rounded_to_integers(sigma: int) -> None:
    """P(X = x) = Phi((x + 1/2)/sigma) - Phi((x - 1/2)/sigma), exactly."""
    count, width = 4_000_000, max(1, sigma // 100)
    draws = rounded_gaussian(sigma, count, entropy=np.random.default_rng([sigma, 5]).bytes)
    edges = np.arange(-4 * sigma // width, 4 * sigma // width + 1) * width + 0.5
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    check_counts(observed, count * np.diff(stats.norm.cdf(edges / sigma), prepend=0, append=1))


def test_discrete_draws_of_a_small_sigma_are_not_and_the_test_above_would_notice() -> None:
    draws = discrete_gaussian(1, 4_000_000, entropy=np.random.default_rng(6).bytes)
    edges = np.arange(-4, 5) + 0.5
    observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
    with pytest.raises(AssertionError):
        check_counts(observed, 4_000_000 * np.diff(stats.norm.cdf(edges), prepend=0, append=1))


@pytest.mark.parametrize("sigma", [1, 3, (1 << 47) + 1, SIGMA_LIMIT - 1, SIGMA_LIMIT])
def test_rounded_draws_have_the_scale_asked_for_up_to_the_largest(sigma: int) -> None:
    count = 200_000
    draws = rounded_gaussian(sigma, count, entropy=np.random.default_rng([sigma, 7]).bytes) / sigma
    assert abs(draws.var() - 1 - 1 / (12 * sigma**2)) < SIX_SIGMA * (2 / count) ** 0.5
    assert abs(draws.mean()) < SIX_SIGMA / count**0.5


@pytest.mark.parametrize("sigma", [1_000, 1_000_000, 10**9, (1 << 40) - 1, SIGMA_LIMIT])
def test_quarters_of_a_bar_are_drawn_as_often_as_the_definition_says(sigma: int) -> None:
    """P(a <= X < b) = Phi((b - 1/2)/sigma) - Phi((a - 1/2)/sigma) but for less than 1/(24 sigma^2)."""
    count, quarter = 4_000_000, histogram(sigma).width // 4
    draws = discrete_gaussian(sigma, count, entropy=np.random.default_rng([sigma, 1]).bytes)
    edges = np.arange(-3 * sigma // quarter, 3 * sigma // quarter) * quarter
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    check_counts(observed, count * np.diff(stats.norm.cdf((edges - 0.5) / sigma), prepend=0, append=1))


@pytest.mark.parametrize("sigma", [1_000, 1_000_000, 10**9, SIGMA_LIMIT])
def test_lower_bits_of_large_noise_are_uniform_and_so_is_the_sign(sigma: int) -> None:
    draws = discrete_gaussian(sigma, 1_000_000, entropy=np.random.default_rng([sigma, 2]).bytes)
    for cells, observed in ((256, np.bincount(draws & 255)), (2, np.bincount((draws[draws != 0] < 0).astype(int)))):
        check_counts(observed, np.full(cells, observed.sum() / cells))


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1, 300, 1_000_003])
def test_far_out_the_law_is_still_that_of_the_definition(sigma: int) -> None:
    """Candidates of the tail's one entry: near and far to the right, to the left, and those not kept."""
    law, draw, count = histogram(sigma), np.random.default_rng([sigma, 3]), 20_000
    found = [tail_candidate(law, draw.bytes) for _ in range(count)]
    near = law.tail + (sigma + 1) // 2
    magnitudes = np.arange(law.tail, law.tail + 6 * sigma)
    chances = law.peak / law.width * np.exp(-(magnitudes.astype(float) ** 2) / (2 * sigma**2))
    right, far, left = chances.sum(), chances[magnitudes >= near].sum(), chances[1:].sum()
    cells = [0 if not kept else 3 if x < 0 else 1 if x < near else 2 for x, kept in found]
    check_counts(np.bincount(cells, minlength=4), count * np.array([1 - right - left, right - far, far, left]))


@pytest.mark.parametrize("sigma", [3, 1_000_000])
def test_draws_agree_with_those_of_opendp(sigma: int) -> None:
    """Two samples: Kolmogorov and Smirnov's distance, at 2 exp(-2 t^2) < 1e-9."""
    dp.enable_features("contrib")  # its sampler is proved, but still listed there
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    count = 40_000
    theirs = np.sort(np.asarray(dp.m.make_gaussian(*space, scale=float(sigma))([0] * count), np.int64))
    ours = np.sort(discrete_gaussian(sigma, count))
    places = np.union1d(ours, theirs)
    apart = np.searchsorted(ours, places, side="right") - np.searchsorted(theirs, places, side="right")
    assert float(np.abs(apart).max()) / count * (count / 2) ** 0.5 < KOLMOGOROV


def test_two_calls_and_neighbouring_draws_are_uncorrelated() -> None:
    count = 30_000
    first, second = discrete_gaussian(50, count).astype(float), discrete_gaussian(50, count).astype(float)
    for a, b in ((first, second), (first[:-1], first[1:]), (first[: count // 2], first[count // 2 :])):
        assert abs(float(np.corrcoef(a, b)[0, 1])) * len(a) ** 0.5 < SIX_SIGMA


def test_noise_is_the_operating_systems_unless_a_test_gives_other_bytes() -> None:
    assert inspect.signature(discrete_gaussian).parameters["entropy"].default is os.urandom


@pytest.mark.slow
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


@pytest.mark.parametrize("draw", [discrete_gaussian, rounded_gaussian])
@pytest.mark.parametrize("sigma", [0, -1, SIGMA_LIMIT + 1])
def test_sigma_out_of_range_is_refused(sigma: int, draw: Callable[[int, int], NDArray[np.int64]]) -> None:
    with pytest.raises(ParameterError, match=r"noise scale .* out of range"):
        draw(sigma, 1)
