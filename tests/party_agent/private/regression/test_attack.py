"""Attacks on every method: what they demonstrate stays below the claim, and exceeds it where there is too little noise.

Adversary: knows all rows but one, sees what a run publishes. Rates are bounded by Clopper-Pearson at 1 - 1e-6 each and
seeds are fixed: a true claim fails one seed in 10^5.
"""

from collections.abc import Callable
from math import inf, sqrt

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from scipy.stats import norm

from commingle.party_agent.private.regression.measuring import (
    FloatingPoint,
    Measure,
    NoiseCalibration,
    Parts,
    Privacy,
    gaussian_multiplier,
)
from commingle.party_agent.private.regression.problem import Estimate, Floats, Published, Sample
from commingle.party_agent.private.regression.regress import METHODS, FloatingMethod
from commingle.party_agent.private.regression.sums import (
    adassp,
    boosted_adassp,
    cross_weight,
    residuals,
    solve,
    ssp,
    sums_sensitivity,
)
from commingle.shared.dp.sensitivity import Adjacency
from tests.hostile.distinguishing import rates
from tests.party_agent.private.regression.cases import NEIGHBOURS, privacy, with_row

pytestmark = pytest.mark.slow  # thousands of runs of every method

DELTA = 1e-3
_ALPHA = 1e-6


class Damped(Measure):
    """Floating-point noise divided by a factor."""

    def __init__(self, generator: Generator, factor: float) -> None:
        self._inner, self._factor = FloatingPoint(generator), factor

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:
        scale = multiplier / self._factor
        return self._inner.begin(sensitivity=sensitivity, multiplier=scale, entries=entries)


def pair(adjacency: Adjacency) -> tuple[Sample, Sample]:
    """One more row or another with the opposite label, at the bounds; 60 degrees apart, what moves both sums most."""
    common = Sample(np.array([[0.05, 0.9], [0.05, -0.9]]), np.array([0.9, -0.9]), 1.0, 1.0)
    one = with_row(common, np.array([1.0, 0.0]), 1.0)
    other = np.array([0.5, sqrt(3) / 2])
    return one, common if adjacency is Adjacency.ADD_REMOVE else with_row(common, other, -1.0)


GAUSSIAN = [(ssp, 1), (adassp, 1), (boosted_adassp, 5)]


def expected(sample: Sample, published: Published, rounds: int) -> Floats:
    """The sums without noise, along the coefficients that the published ones lead to."""
    gram, crosses = np.reshape(published["gram"], (2, 2)), np.reshape(published["cross"], (rounds, 2))
    system, theta, sums = gram + np.eye(2) * float(np.asarray(published.get("ridge", 0.0))), np.zeros(2), []
    for noisy in crosses:
        left = residuals(sample, theta, bound=1 / rounds) if rounds > 1 else sample
        sums.append(left.x.T @ left.y)
        theta = theta + solve(system, noisy)
    return np.concatenate([(sample.x.T @ sample.x).ravel(), *sums])


def demonstrated_rho(method: Callable[..., Estimate], asked: Privacy, rounds: int, factor: float, runs: int) -> float:
    """By the optimal test on the noisy sums (Neyman, Pearson), mu = Phi^-1(TPR) - Phi^-1(FPR), rho = mu^2/2.

    It knows the noise: off the diagonal half the variance, so entries count in their own standard deviations.
    """
    samples, generator = pair(asked.adjacency), default_rng(2026)
    sd = gaussian_multiplier(asked, 1) * sums_sensitivity(1.0, replaces=asked.replaces)
    cross = sd / sqrt(cross_weight(1.0, 1 / rounds, rounds=rounds))
    scales = np.array([sd, sd / sqrt(2), inf, sd, *[cross] * 2 * rounds])  # the mirrored entry says nothing more

    first = method(samples[0], asked, FloatingPoint(generator)).published
    at_once = [expected(s, first, rounds) for s in samples] if rounds == 1 else None  # whatever is published

    def score(sample: Sample) -> float:
        published = method(sample, asked, Damped(generator, factor)).published
        seen = np.concatenate([np.asarray(published[name]) for name in ("gram", "cross")])
        means = at_once or [expected(s, published, rounds) for s in samples]
        return float(np.sum((means[0] - means[1]) * (seen - (means[0] + means[1]) / 2) / scales**2))

    scores = [np.array([score(s) for _ in range(runs)]) for s in samples]
    low, high = rates(scores[0] > 0, scores[1] > 0, alpha=_ALPHA)
    return max(float(norm.ppf(low) - norm.ppf(high)), 0.0) ** 2 / 2


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_adassp_publishes_the_sums_of_ssp_so_that_an_attack_on_these_is_one_on_both(adjacency: Adjacency) -> None:
    asked = privacy(3.0, DELTA, adjacency=adjacency)
    for sample in pair(adjacency):
        one, other = (method(sample, asked, FloatingPoint(default_rng(1))).published for method in (ssp, adassp))
        assert [one[name] for name in ("gram", "cross")] == [other[name] for name in ("gram", "cross")]


@pytest.mark.parametrize(("method", "rounds"), [(ssp, 1), (boosted_adassp, 5)])
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_optimal_attack_on_noisy_sums_stays_within_their_rho_and_a_third_of_the_noise_does_not(
    method: Callable[..., Estimate], rounds: int, adjacency: Adjacency
) -> None:
    asked = privacy(3.0, DELTA, adjacency=adjacency)
    claimed = float(METHODS[method.__name__].loss(asked).rho)
    runs = 2_000 if rounds == 1 else 800  # a run is that many times as long
    assert demonstrated_rho(method, asked, rounds, 1.0, runs) < claimed
    assert demonstrated_rho(method, asked, rounds, 3.0, runs) > claimed


def delivered_rho(name: str, asked: Privacy, samples: tuple[Sample, Sample], rounds: int) -> float:
    """Half the squared distance of two neighbours' sums in standard deviations, along the coefficients of one run."""
    sd = gaussian_multiplier(asked, 1) * sums_sensitivity(1.0, replaces=asked.replaces)
    published = METHODS[name].run(samples[0], asked, FloatingPoint(default_rng(1))).published  # type: ignore[arg-type] # an exact method
    # both mirrored entries, with half the variance each
    weights = np.array([1, 1, 1, 1, *[cross_weight(1.0, 1 / rounds, rounds=rounds)] * 2 * rounds])
    moved = expected(samples[0], published, rounds) - expected(samples[1], published, rounds)
    return float(np.sum(weights * moved**2)) / (2 * sd**2)


@pytest.mark.parametrize(("method", "rounds"), GAUSSIAN[:2])
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_worst_pair_of_rows_uses_up_what_is_claimed(
    method: Callable[..., Estimate], rounds: int, adjacency: Adjacency
) -> None:
    asked = privacy(1.0, DELTA, adjacency=adjacency)
    claimed = float(METHODS[method.__name__].loss(asked).rho)
    assert delivered_rho(method.__name__, asked, pair(adjacency), rounds) == pytest.approx(claimed, rel=1e-9)


@pytest.mark.parametrize(("method", "rounds"), GAUSSIAN)
def test_replaced_row_learns_no_more_of_an_add_remove_run_than_the_second_figure(
    method: Callable[..., Estimate], rounds: int
) -> None:
    asked, name = privacy(1.0, DELTA, adjacency=Adjacency.ADD_REMOVE), method.__name__
    cost = METHODS[name].cost(asked)
    charged, own = float(cost.replaced.rho), float(cost.loss.rho)
    delivered = delivered_rho(name, asked, pair(Adjacency.REPLACE_ONE), rounds)
    assert own < delivered <= charged * (1 + 1e-12)
    assert rounds > 1 or delivered > 0.99 * charged


def demonstrated_epsilon(method: FloatingMethod, asked: Privacy, runs: int = 1_000) -> float:
    """One half of the runs chooses direction and threshold, the other counts: ln((TPR - delta) / FPR)."""
    generator = default_rng(2026)
    seen = [
        np.array([method.run(sample, asked, generator).coefficients for _ in range(2 * runs)])
        for sample in pair(asked.adjacency)
    ]
    training, counted = [s[:runs] for s in seen], [s[runs:] for s in seen]
    centre, spread = np.median(np.vstack(training), axis=0), np.std(np.vstack(training), axis=0)
    direction = (np.median(training[0], axis=0) - np.median(training[1], axis=0)) / spread**2

    def epsilon(threshold: float, both: list[Floats]) -> float:
        hits, alarms = ((half - centre) @ direction > threshold for half in both)
        low, high = rates(hits, alarms, alpha=_ALPHA)
        return float(np.log(max(low - DELTA, 1e-12) / high))

    scores = np.concatenate([(half - centre) @ direction for half in training])
    grid = [float(t) for t in np.quantile(scores, np.linspace(0.02, 0.98, 49))]
    return epsilon(max(grid, key=lambda t: epsilon(t, training)), counted)


FLOATING = [
    (method, min(method.calibrations, key=lambda c: c != NoiseCalibration.ZCDP))
    for method in METHODS.values()
    if isinstance(method, FloatingMethod)
]


@pytest.mark.parametrize(("method", "calibration"), FLOATING, ids=lambda c: getattr(c, "name", str(c)))
@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_attack_demonstrates_no_more_than_the_epsilon_claimed(
    method: FloatingMethod, calibration: NoiseCalibration, adjacency: Adjacency
) -> None:
    asked = privacy(1.0, DELTA, adjacency=adjacency, calibration=calibration)
    assert demonstrated_epsilon(method, asked) < 1.0


@pytest.mark.parametrize(("method", "calibration"), FLOATING, ids=lambda c: getattr(c, "name", str(c)))
def test_attack_notices_a_mechanism_with_far_too_little_noise(
    method: FloatingMethod, calibration: NoiseCalibration
) -> None:
    """By 200 runs that it tells apart it demonstrates ln((p - delta) / (1 - p)) = 2.6, p = 1e-6^(1/200)."""
    asked = privacy(1e4, DELTA, calibration=calibration)  # instead of the 1 claimed
    assert demonstrated_epsilon(method, asked, runs=200) > 1.0
