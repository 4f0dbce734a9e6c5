"""Gaussian noise on a lattice (docs/design/privacy.md#noise, proved in docs/proofs/sampling.md).

What is released has `rounded_gaussian` noise: an exact discrete Gaussian on a lattice so fine that no event's
probability differs from a rounded continuous Gaussian's by more than the accounting allows for.

The one module of the privacy kernel that is not pure: every draw reads its random bytes from the operating system, so
noise can neither be predicted from a release seed nor repeat after a fork or a restart. Callers receive it as a
`Sampler`, which is how tests of everything around it stay deterministic.

A candidate is an entry of a histogram, picked among 2^16, and a place in the entry's bar. Nearly all entries lie below
the curve all along their bar: such a candidate is a draw. Of the others, about one in 30, those above it are dropped.
"""

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.exponential import Entropy, lies_below
from commingle.shared.dp.histogram import Histogram, histogram

Sampler = Callable[[int, int], NDArray[np.int64]]
"""From sigma and count to so many independent draws."""

_CHUNK = 1 << 14  # candidates at a time: they and the histogram stay in a core's cache


def rounded_gaussian(sigma: int, count: int, *, entropy: Entropy = os.urandom) -> NDArray[np.int64]:
    """`count` independent draws that are N(0, sigma^2) rounded to integers, but for 2^-32 of any epsilon and delta.

    A discrete Gaussian of 2^s sigma, from 2^47 to 2^48, divided by 2^s and rounded
    (docs/proofs/noise-and-accounting.md, 1.5). Arguments and errors as of `discrete_gaussian`.
    """
    fine = max(SIGMA_LIMIT.bit_length() - 1 - sigma.bit_length(), 0)
    draws = discrete_gaussian(sigma << fine, count, entropy=entropy)
    if fine:
        draws += 1 << (fine - 1)
        draws >>= fine
    return draws


def discrete_gaussian(sigma: int, count: int, *, entropy: Entropy = os.urandom) -> NDArray[np.int64]:
    """`count` independent draws from N_Z(0, sigma^2), P(x) proportional to exp(-x^2 / (2 sigma^2)), exactly.

    Sensitivity, adjacency and the guarantee that follows are in docs/proofs/noise-and-accounting.md, 1.

    Args:
        sigma: 1 to 2^48, in steps of the lattice.
        count: how many; a draw beyond int64, of probability below exp(-2^27), is reduced modulo 2^64.
        entropy: independent uniform bytes. Only tests give others than the operating system's.

    Raises:
        ParameterError: sigma below 1 or so large that sums could leave exact arithmetic.
    """
    if not 1 <= sigma <= SIGMA_LIMIT:
        raise ParameterError(f"a noise scale of {sigma} is out of range", remedy="Raise epsilon.")
    return sample(histogram(sigma), count, entropy)


def sample(law: Histogram, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """The first `count` candidates that are kept, in order."""
    draws, filled = np.empty(count, np.int64), 0
    while filled < count:
        kept = kept_candidates(law, min(_CHUNK, count - filled), entropy)
        draws[filled : filled + len(kept)] = kept
        filled += len(kept)
    return draws


def kept_candidates(law: Histogram, candidates: int, entropy: Entropy) -> NDArray[np.int64]:
    """What is kept of so many: the upper 16 bits of a candidate's word are its entry, the lowest ones its place."""
    words = np.frombuffer(entropy(8 * candidates), "<u8")
    entries = words.view("<u2")[3::4]
    x = law.starts.take(entries)
    x += (words & np.uint64(law.width - 1)).view(np.int64)
    doubtful = np.flatnonzero(entries >= law.sure)
    x[doubtful], kept = _compared(law, entries[doubtful], x[doubtful], entropy)
    return np.delete(x, doubtful[~kept])


def _compared(
    law: Histogram, entries: NDArray[np.uint16], x: NDArray[np.int64], entropy: Entropy
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Candidates of entries that are not sure, the tail's put in their place, and which are kept.

    Kept is what has level + V < curve at x, V uniform in [0, 1).
    """
    words = np.frombuffer(entropy(8 * len(x)), "<u8")
    levels = law.levels[entries - law.sure]
    below = law.height(x) - levels - (words >> np.uint64(11)) * 2.0**-53
    kept = below > law.margin
    for i in np.flatnonzero(np.abs(below) <= law.margin):
        word, level = int(words[i]), int(levels[i])
        kept[i] = lies_below(word, level, peak=law.peak, x=int(x[i]), sigma=law.sigma, entropy=entropy)
    for i in np.flatnonzero(entries == law.tail_entry):
        x[i], kept[i] = tail_candidate(law, entropy)
    return x, kept


def tail_candidate(law: Histogram, entropy: Entropy) -> tuple[int, bool]:
    """A candidate beyond the bars, and whether it is kept (the proof's 1.4).

    A coin for the side, n with probability 2^-(n + 1), a place in [tail + n spread, tail + (n + 1) spread); kept with
    probability peak (spread / width) 2^(n + 2) exp(-x^2 / (2 sigma^2)) < 1.
    """
    spread, n, word = 1 << law.sigma.bit_length(), 0, int.from_bytes(entropy(8))
    while entropy(1)[0] & 1:
        n += 1
    x = law.tail + n * spread + word % spread
    x = ~x if word >> 63 else x
    peak = law.peak * (spread // law.width) << (n + 2)
    kept = lies_below(int.from_bytes(entropy(8)), 0, peak=peak, x=x, sigma=law.sigma, entropy=entropy)
    return (x + (1 << 63)) % (1 << 64) - (1 << 63), kept
