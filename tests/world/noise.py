"""Noise that repeats, for tests about what is made of noise. Those of noise itself draw from the operating system."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.noise import Sampler


def seeded_noise(seed: int | Sequence[int]) -> Sampler:
    """A sampler of rounded normal numbers, the same for the same seed."""
    draw = np.random.default_rng(seed)
    return lambda sigma, count: np.rint(draw.normal(0, sigma, count)).astype(np.int64)


def no_noise(_: int, count: int) -> NDArray[np.int64]:
    """A sampler of nothing, to see what noise is added to."""
    return np.zeros(count, np.int64)
