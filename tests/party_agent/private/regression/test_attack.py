"""Attacks on every method: what they demonstrate stays below the claim, and exceeds it where there is too little noise.

Adversary: knows all rows but one, sees what a run publishes. Rates are bounded by Clopper-Pearson at 1 - 1e-6 each and
seeds are fixed: a true claim fails one seed in 10^5.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from scipy.stats import beta, norm

from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.measuring import FloatingPoint, Measure
from commingle.party_agent.private.regression.methods import METHODS, FloatingMethod
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample
from commingle.party_agent.private.regression.sufficient import (
    adassp,
    adassp_loss,
    cross_sensitivity,
    gram_sensitivity,
    ssp,
    ssp_loss,
)
from tests.party_agent.private.regression.cases import privacy, with_row

pytestmark = pytest.mark.slow  # thousands of runs of every method

DELTA = 1e-3
_ALPHA = 1e-6


class Damped:
    """Floating-point noise divided by a factor."""

    def __init__(self, generator: Generator, factor: float) -> None:
        self._inner, self._factor = FloatingPoint(generator), factor

    def measure(self, value: Floats, *, sensitivity: float, multiplier: float, symmetric: bool = False) -> Floats:
        scale = multiplier / self._factor
        return self._inner.measure(value, sensitivity=sensitivity, multiplier=scale, symmetric=symmetric)


def pair(adjacency: Neighbours) -> tuple[Sample, Sample]:
    """One more row or the opposite label, at the bounds, in a direction that nobody else has."""
    common = Sample(np.array([[0.05, 0.9], [0.05, -0.9]]), np.array([0.9, -0.9]), 1.0, 1.0)
    edge = np.array([1.0, 0.0])
    one = with_row(common, edge, 1.0)
    return one, common if adjacency is Neighbours.ADD_REMOVE else with_row(common, edge, -1.0)


def rates(hits: NDArray[np.bool_], alarms: NDArray[np.bool_]) -> tuple[float, float]:
    """A lower bound on the true positive rate and an upper bound on the false positive rate."""
    caught, false = int(hits.sum()), int(alarms.sum())
    low = float(beta.ppf(_ALPHA, caught, len(hits) - caught + 1)) if caught else 0.0
    high = float(beta.ppf(1 - _ALPHA, false + 1, len(alarms) - false)) if false < len(alarms) else 1.0
    return low, high


GAUSSIAN = [(ssp, ssp_loss, 2), (adassp, adassp_loss, 3)]


def demonstrated_rho(method: Callable[..., object], asked: Privacy, parts: int, factor: float, runs: int) -> float:
    """By the optimal test on the noisy sums (Neyman, Pearson), mu = Phi^-1(TPR) - Phi^-1(FPR), rho = mu^2/2."""
    samples, generator = pair(asked.adjacency), default_rng(2026)
    multiplier = gaussian_multiplier(asked, parts)
    scales = np.array([gram_sensitivity(samples[0], asked)] * 4 + [cross_sensitivity(samples[0], asked)] * 2)

    def see(sample: Sample, measure: Measure) -> Floats:
        published = method(sample, asked, measure).published  # type: ignore[attr-defined] # ssp or adassp
        sums = np.array([*published["gram"], *published["cross"]]) / (multiplier * scales)
        return np.delete(sums, 2)  # the mirrored entry

    direction = np.subtract(*(see(sample, Damped(generator, 1e12)) for sample in samples))
    scores = [np.array([see(s, Damped(generator, factor)) for _ in range(runs)]) @ direction for s in samples]
    threshold = float(np.mean([s.mean() for s in scores]))
    low, high = rates(scores[0] > threshold, scores[1] > threshold)
    return max(float(norm.ppf(low) - norm.ppf(high)), 0.0) ** 2 / 2


@pytest.mark.parametrize(("method", "loss", "parts"), GAUSSIAN)
@pytest.mark.parametrize("adjacency", Neighbours)
def test_optimal_attack_on_noisy_sums_stays_within_their_rho_and_a_third_of_the_noise_does_not(
    method: Callable[..., object], loss: Callable[[Privacy], object], parts: int, adjacency: Neighbours
) -> None:
    asked = privacy(3.0, DELTA, adjacency=adjacency)
    claimed = float(METHODS[method.__name__].loss(asked).rho)
    assert METHODS[method.__name__].loss is loss
    assert demonstrated_rho(method, asked, parts, 1.0, 2_000) < claimed
    assert demonstrated_rho(method, asked, parts, 3.0, 2_000) > claimed


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
        low, high = rates(hits, alarms)
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
@pytest.mark.parametrize("adjacency", Neighbours)
def test_attack_demonstrates_no_more_than_the_epsilon_claimed(
    method: FloatingMethod, calibration: NoiseCalibration, adjacency: Neighbours
) -> None:
    asked = privacy(1.0, DELTA, adjacency=adjacency, calibration=calibration)
    assert demonstrated_epsilon(method, asked) < 1.0


@pytest.mark.parametrize(("method", "calibration"), FLOATING, ids=lambda c: getattr(c, "name", str(c)))
def test_attack_notices_a_mechanism_with_far_too_little_noise(
    method: FloatingMethod, calibration: NoiseCalibration
) -> None:
    asked = privacy(1e4, DELTA, calibration=calibration)  # instead of the 1 claimed
    assert demonstrated_epsilon(method, asked) > 1.0
