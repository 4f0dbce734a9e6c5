"""AdaOPS as a whole: all that it publishes, by quadrature over its three draws (docs/proofs/regression.md, 4.5)."""

from collections.abc import Iterator
from math import log, sqrt

import numpy as np
import pytest
from scipy import stats

from commingle.party_agent.private.regression.calibration import NoiseCalibration
from commingle.party_agent.private.regression.measuring import Measure, Parts
from commingle.party_agent.private.regression.posterior import (
    _proved_constants,
    adaops,
    floor_sensitivity,
    noisy_floor,
    ridge_fit,
)
from commingle.party_agent.private.regression.problem import Floats, Sample
from tests.party_agent.private.regression.cases import linear_sample, privacy, with_row
from tests.party_agent.private.regression.test_posterior import losses

ASKED = privacy(1.0, 1e-2, calibration=NoiseCalibration.ANALYTIC)
_COARSE, _FINE = np.linspace(-6.5, 6.5, 15), np.linspace(-6.5, 6.5, 401)


class Scripted:
    """A generator that gives what it is told."""

    def __init__(self, *draws: float) -> None:
        self._draws: Iterator[float] = iter(draws)

    def standard_normal(self, size: int | tuple[int, ...]) -> Floats:
        return np.full(size, next(self._draws))


class Unlucky(Measure, Parts):
    """Noise at exactly `tail` of its standard deviations."""

    def __init__(self, tail: float) -> None:
        self._tail = self._noise = tail

    def begin(self, *, sensitivity: float, multiplier: float, entries: int) -> Parts:  # noqa: ARG002 - nothing is rounded
        self._noise = self._tail * multiplier * sensitivity
        return self

    def part(self, value: Floats, *, weight: float = 1.0, symmetric: bool = False) -> Floats:  # noqa: ARG002 - one part
        return value + self._noise


def weights(at: Floats) -> Floats:
    density = stats.norm.pdf(at)
    return np.asarray(density / density.sum())


def shifted(before: float, after: float, sd: float, z: float) -> float:
    """ln of the ratio of N(before, sd^2) to N(after, sd^2) at before + sd z."""
    moved = (before - after) / sd
    return moved * z + moved**2 / 2


def delivered(one: Sample, other: Sample, sharper: float = 1.0) -> float:
    """Hockey-stick divergence at epsilon of everything published on `one` from that on `other`; a single column.

    `sharper` multiplies sqrt(gamma).
    """
    constants, total = _proved_constants(ASKED), 0.0
    small, large = sorted((one, other), key=lambda s: s.n)
    least = float(small.x[:, 0] @ small.x[:, 0])
    gram, gram_after = (float(s.x[:, 0] @ s.x[:, 0]) for s in (one, other))
    for first, weight in zip(_COARSE, weights(_COARSE), strict=True):
        for second, part in zip(_COARSE, weights(_COARSE), strict=True):
            found = adaops(one, ASKED, Scripted(first, second, 0.0)).published  # type: ignore[arg-type]
            ridge, floor, variance = (
                float(np.asarray(found[name])) for name in ("ridge", "least_eigenvalue", "inverse_variance")
            )
            size, size_after = (log(1 + abs(float(ridge_fit(s, ridge)[0]))) for s in (one, other))
            noise = constants.multiplier * np.log1p(1 / (ridge + floor))
            before = shifted(gram, gram_after, constants.multiplier * floor_sensitivity(one), first)
            before += shifted(size, size_after, noise, second)
            signal = sharper * sqrt(variance) * abs(large.y[-1] - float(ridge_fit(small, ridge)[0]))
            last = losses(1 / (least + ridge), signal, _FINE)[0 if one is small else 1]
            beyond = np.maximum(-np.expm1(np.minimum(ASKED.epsilon - before - last, 0)), 0)
            total += weight * part * float(beyond @ weights(_FINE))
    return total


def rows(count: int, x: float, y: float) -> Sample:
    return Sample(np.full((count, 1), x), np.full(count, y), 1.0, 1.0)


@pytest.mark.parametrize(
    ("common", "label"),
    [(rows(1, 0.0, 0.0), 1.0), (rows(100, 1.0, -1.0), 1.0), (rows(10_000, 0.1, 1.0), -1.0), (rows(10_000, 1, -0.1), 1)],
)
def test_everything_adaops_publishes_stays_within_its_epsilon_and_delta(common: Sample, label: float) -> None:
    more = with_row(common, np.array([1.0]), label)
    assert delivered(common, more) <= ASKED.delta
    assert delivered(more, common) <= ASKED.delta


def test_a_posterior_eight_times_as_narrow_does_not() -> None:
    common = rows(10_000, 1.0, -0.1)
    more = with_row(common, np.array([1.0]), 1.0)
    assert max(delivered(common, more, 8.0), delivered(more, common, 8.0)) > ASKED.delta


@pytest.mark.parametrize("columns", [1, 3])
def test_noise_within_its_tail_leaves_the_floor_below_the_least_eigenvalue_of_every_neighbour(columns: int) -> None:
    sample = linear_sample(np.random.default_rng(1), n=4000, d=columns)
    values, vectors = np.linalg.eigh(sample.x.T @ sample.x)
    floor = noisy_floor(sample, Unlucky(5.0), multiplier=20.0, tail=5.0)
    assert floor == pytest.approx(values[0], rel=1e-12)
    weaker = values[0] - float(vectors[:, 0] @ vectors[:, 0])  # a row of norm 1 fewer, along the weakest direction
    assert floor - floor_sensitivity(sample) < weaker
