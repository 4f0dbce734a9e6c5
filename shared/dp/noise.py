"""Exact discrete Gaussian noise through OpenDP (docs/design/privacy.md#noise).

The one function of this package that is not pure: OpenDP seeds itself from the operating system at every call, so
noise can neither be predicted from a release seed nor repeat after a fork or a restart. Callers receive it as a
`Sampler`, which is how tests of everything around it stay deterministic.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from commingle.shared.dp.accounting import SIGMA_LIMIT
from commingle.shared.dp.errors import ParameterError

Sampler = Callable[[int, int], NDArray[np.int64]]

_CHUNK = 1 << 14
_WORKERS = 2


def discrete_gaussian(sigma: int, count: int) -> NDArray[np.int64]:
    """`count` independent draws from N_Z(0, sigma^2), sampled exactly (Canonne, Kamath, Steinke 2020).

    Raises:
        ParameterError: sigma below 1 or so large that sums could leave exact arithmetic.
    """
    if not 1 <= sigma <= SIGMA_LIMIT:
        raise ParameterError(f"a noise scale of {sigma} is out of range", remedy="Raise epsilon.")
    from opendp import domains, measurements, metrics, mod  # noqa: PLC0415 - slow to import, and only parties draw

    mod.enable_features("contrib")  # the sampler is proved, but still listed there
    # T="i64": OpenDP's default integer has 32 bits and saturates.
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l2_distance(T="f64")
    mechanism = measurements.make_gaussian(*space, scale=float(sigma))

    def draw(size: int) -> NDArray[np.int64]:
        return np.asarray(mechanism([0] * size), np.int64)

    sizes = [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
    with ThreadPoolExecutor(_WORKERS) as pool:  # the sampler runs outside the interpreter lock
        parts = list(pool.map(draw, sizes))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
