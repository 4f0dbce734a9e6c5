"""Small samples and searches that several tests use."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.random import Generator

from commingle.party_agent.private.regression.measuring import Measure, NoiseCalibration, Parts, Privacy
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from commingle.party_agent.private.regression.sums import PublicMoments
from commingle.shared.dp.sensitivity import Adjacency

SHARED = Path(__file__).parents[5] / "shared"
"""Data and reference tables beside the project; tests that need them skip where they are absent."""

ROW_BOUND, LABEL_BOUND = 0.8, 1.7
NEIGHBOURS = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)


class Recording(Measure, Parts):
    """Adds nothing and remembers what it was asked for, measurement by measurement and part by part."""

    def __init__(self) -> None:
        self.sensitivities: list[float] = []
        self.multipliers: list[float] = []
        self.entries: list[int] = []
        self.deviations: list[float] = []
        self.symmetric: list[bool] = []

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:
        self.sensitivities.append(sensitivity)
        self.multipliers.append(multiplier)
        self.entries.append(entries)
        return self

    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:
        """Of the measurement that was begun last."""
        assert not symmetric or np.array_equal(value, value.T)
        self.deviations.append(self.sensitivities[-1] * self.multipliers[-1] / weight**0.5)
        self.symmetric.append(symmetric)
        return value


def privacy(
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    calibration: NoiseCalibration = NoiseCalibration.ZCDP,
) -> Privacy:
    return Privacy(epsilon, delta, adjacency, calibration)


def linear_sample(generator: Generator, n: int = 400, d: int = 3, noise: float = 0.05) -> Sample:
    """Three columns or fewer stay within their bounds, so that least squares is the truth up to noise."""
    x = generator.uniform(-0.5, 0.5, size=(n, d))
    y = x @ np.linspace(0.7, -0.5, d) + noise * generator.normal(size=n)
    return clip_sample(x, y, row_bound=1.0, label_bound=1.0)


def with_row(sample: Sample, x: Floats, y: float) -> Sample:
    rows, labels = np.vstack([sample.x, x]), np.append(sample.y, y)
    return Sample(rows, labels, sample.row_bound, sample.label_bound)


def neighbours(generator: Generator, adjacency: Adjacency, pairs: int) -> Iterator[tuple[Sample, Sample]]:
    """Pairs of neighbours, the differing rows at extremes more often than not."""

    def extreme() -> tuple[Floats, float]:
        direction = generator.normal(size=2) * generator.choice([1, 1e-9], size=2)
        length = generator.choice([1, 1, generator.random()])
        return (
            ROW_BOUND * length * direction / np.linalg.norm(direction),
            LABEL_BOUND * float(generator.choice([-1, 1, generator.random()])),
        )

    for _ in range(pairs):
        n = int(generator.integers(0, 4))
        others = [extreme() for _ in range(n)]
        common = Sample(
            np.array([x for x, _ in others]).reshape(n, 2), np.array([y for _, y in others]), ROW_BOUND, LABEL_BOUND
        )
        one = with_row(common, *extreme())
        yield one, common if adjacency is Adjacency.ADD_REMOVE else with_row(common, *extreme())


def farthest(pairs: Iterator[tuple[Sample, Sample]], statistic: Callable[[Sample], Floats]) -> float:
    return max(float(np.linalg.norm(statistic(one) - statistic(other))) for one, other in pairs)


RHO = 0.7


def ill_conditioned(n: int, seed: int = 0) -> tuple[Floats, Floats, Floats]:
    """Rows, labels and coefficients of the paper's design: d = 10, N(mu, Psi), noise of 0.05."""
    draw = np.random.default_rng(seed)
    basis = np.linalg.qr(np.random.default_rng(7).normal(size=(10, 10)))[0]
    scales = np.sqrt(np.geomspace(1, 0.01, 10))
    x = 0.3 + draw.normal(size=(n, 10)) @ (basis * scales) @ basis.T
    beta = np.random.default_rng(8).normal(size=10)
    return x, x @ beta + draw.normal(0, 0.05, n), beta


PUBLIC = PublicMoments.of(*ill_conditioned(500, seed=1)[:2])
