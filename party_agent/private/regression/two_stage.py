"""Least squares at the posterior mode of second moments that were measured in two stages.

The sums of the columns, then the moments of the rows that these centred, scaled and cut (shared/dp/two_stages.py), then
what follows from both without any row: the mode that releases of moments are fitted by (docs/design/estimation.md),
which knows the noise of every entry and undoes the map exactly.
"""

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.problem import Estimate, Floats
from commingle.party_agent.private.regression.sums import solve, sums_loss
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import TwoStages
from commingle.shared.dp.whitening import IntegerMap
from commingle.shared.estimation.likelihood import EntryLikelihood
from commingle.shared.estimation.posterior import posterior_mode

TWO_STAGE_GUARANTEE = (
    "Gaussian noise on sums of the columns and on second moments of rows mapped by these sums; both together a Gaussian"
    " loss of the stated rho (Dong, Roth, Su 2022)."
)


def adjacency_of(privacy: Privacy) -> Adjacency:
    """Where a row may be there or not, how many there are is measured with the sums."""
    return Adjacency.REPLACE_ONE if privacy.replaces else Adjacency.ADD_REMOVE


def two_stage(
    q: NDArray[np.int64], stages: TwoStages, privacy: Privacy, draw: Sampler, *, intercept: bool = True
) -> Estimate:
    """Coefficients of the last column of q by the others, the intercept first if there is one.

    Privacy: add_remove or replace_one; `sums_loss(privacy)`, for which `stages` were planned. q is n x d, encoded. The
    map is post-processing of the noisy sums, the coefficients of the noisy moments.
    """
    sums = stages.sums(q, draw)
    mapped = stages.map(sums)
    moments = stages.moments(q, mapped, draw)
    mode = _mode(stages, mapped, moments, n=stages.count(sums))
    first, last = 0 if intercept else 1, len(mode) - 1
    theta = solve(mode[first:last, first:last], mode[first:last, last])
    published = {"sigmas": stages.sigmas, "sums": sums.tolist(), "moments": moments.tolist()}
    return Estimate(theta, sums_loss(privacy), published)


def _mode(stages: TwoStages, mapped: IntegerMap, moments: Floats, *, n: int) -> Floats:
    """Second moments of encoded rows (1, x, y), (d + 1, d + 1), at the mode."""
    gram, variance = stages.system(moments, n=n)
    inverse, centre = mapped.undo()
    scales = 1 / np.diag(inverse)
    basis = np.diag(np.append(1.0, scales))  # (1, z) = basis (1, x, y)
    basis[1:, 0] = -scales * centre
    return posterior_mode(EntryLikelihood.of(gram, variance, n=n, basis=basis))
