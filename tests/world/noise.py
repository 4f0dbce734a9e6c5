"""Noise that repeats, for tests about what is made of noise. Those of noise itself draw from the operating system."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.noise import Sampler


def seeded_noise(seed: int | Sequence[int]) -> Sampler:
    """A sampler of rounded normal numbers, the same for the same seed."""
    draw = np.random.default_rng(seed)
    return lambda sigma, count: np.rint(draw.normal(0, sigma, count)).astype(np.int64)


def exact(sigma: int, count: int) -> NDArray[np.int64]:
    """No noise at all, to see what it is added to."""
    del sigma
    return np.zeros(count, np.int64)
