"""What cutting rows may bend, and what intervals allow for it (docs/design/estimation.md#cut-rows).

A first stage says how much the columns of a party vary; the main release, whose rows were mapped by it and then cut,
how much of that is left. What is missing was in the rows that were shortened, and a fit of whole rows may lie as far
from that of cut ones as these weigh.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import Sums
from commingle.shared.dp.first_stage import FirstStage, mean_squares
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.whitening import IntegerMap
from commingle.shared.estimation.pairwise import Array

_LEAST = 1e-3  # mean square that a column is taken to have, where noise says less
_BENT = 1 / 4
"""Standard deviation of what is bent, over what cutting took; measured (docs/coverage.md#rows-that-were-cut)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What a release says of the map of one party's rows.

    Attributes:
        planned: the noise of its sums; None where it publishes none.
        sums: as published; None where nobody said them.
        applied: the map that follows; None where rows are taken as they are encoded.
    """

    planned: FirstStage | None
    sums: Sums | None
    applied: IntegerMap | None


def lost_to_cutting(spec: ReleaseSpec, stages: Sequence[Stage], moments: Array) -> Array:
    """(p,) what share of each column's mean square about its map's centre is gone, 0 for the intercept.

    Args:
        spec: of the release.
        stages: of the parties, in order; nothing is known of a party without.
        moments: (p, p) an unbiased estimate of encoded columns' second moments, cut rows' as published.
    """
    means, squares, lost, start = moments[0] / moments[0, 0], np.diag(moments) / moments[0, 0], [0.0], 1
    for party, stage in zip(spec.parties, stages, strict=True):
        own = slice(start, start + sum(len(a.columns) for a in party.attributes))
        applied, start = stage.applied, own.stop
        if stage.planned is None or stage.sums is None or applied is None:
            lost += [0.0] * (own.stop - own.start)
            continue
        about = applied.centre / SCALE
        left = squares[own] - 2 * about * means[own] + about**2
        whole = mean_squares(stage.planned, stage.sums, applied.centre)
        lost += np.clip(1 - left / np.maximum(whole, _LEAST), 0, 1).tolist()
    return np.array(lost)


def allowance(lost: Array, spread: Array, H: Array) -> Array:
    """Cov(b) of what cutting may bend, (q, q): H diag(g) H with g_j = (_BENT (l_j + l_y) / 2)^2 X_jj yy.

    Args:
        lost: (q + 1,) of features and label, l.
        spread: (q + 1,) their moments X_jj and yy, without noise.
        H: (q, q) with b = H g.
    """
    bent = _BENT * (lost[:-1] + lost[-1]) / 2
    found: Array = (H * (bent**2 * spread[:-1] * spread[-1])) @ H.T
    return found
