"""Who shares subjects with whom, and whether those who are shared differ from the others: for every fit and summary.

A fit of keyed subjects holds for everybody only if who is missing does not depend on values. The means of i's columns
over its own subjects and over those shared with j are both published, so their difference is a test of that.
"""

from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from commingle.shared.estimation.pair_noise import form_covariances
from commingle.shared.estimation.pairwise import Pairs

SUSPICIOUS = 0.01
"""Of all tests of one fit together."""


@dataclass(frozen=True, slots=True)
class Held:
    """How many subjects a party holds, or two of them together, the standard error of that, and how many count."""

    parties: tuple[str, ...]
    subjects: float
    error: float
    kept: float

    @property
    def interval(self) -> tuple[float, float]:
        """Of about 95 %, for how many they are."""
        return max(self.subjects - 2 * self.error, 0.0), self.subjects + 2 * self.error


@dataclass(frozen=True, slots=True)
class Selection:
    """Whether the subjects that `party` shares with `other` differ from all its own.

    Attributes:
        column: place of the one whose means differ most, over their standard error.
        shift: of that column's mean, shared over own, in encoded units.
        statistic, degrees, p_value: of Wald's test over all columns looked at.
    """

    party: str
    other: str
    column: int
    shift: float
    statistic: float
    degrees: int
    p_value: float


def held(pairs: Pairs) -> tuple[Held, ...]:
    """Own counts, then joint ones."""
    places = [*((i, i) for i in range(len(pairs.names))), *combinations(range(len(pairs.names)), 2)]
    return tuple(
        Held(
            tuple(dict.fromkeys((pairs.names[i], pairs.names[j]))),
            float(pairs.counts.held[i, j]),
            float(pairs.counts.errors[i, j]),
            float(pairs.counts.summed[i, j]),
        )
        for i, j in places
    )


def selections(pairs: Pairs, columns: NDArray[np.intp]) -> tuple[Selection, ...]:
    """One test for each party among those of these columns, and each other one of them, but of a part and its whole."""
    parties = np.unique(pairs.party[columns]).tolist()
    chosen = [(i, j) for i, j in permutations(parties, 2) if pairs.owner[i] != j]
    return tuple(_selection(pairs, columns[pairs.party[columns] == i], i, j) for i, j in chosen)


def _selection(pairs: Pairs, columns: NDArray[np.intp], i: int, j: int) -> Selection:
    """d_a = S[a, 1_j] / n_ij - S[1_i, a] / n_i has the noise E[a~, 1_j] / n_ij - E[1_i, a~] / n_i.

    Drawing n_ij of n_i subjects adds C (1/n_ij - 1/n_i).
    """
    own, joint = (max(float(pairs.counts.summed[i, other]), 1.0) for other in (i, j))
    shift = pairs.joint_means[columns, j] - pairs.means[columns]
    forms = np.zeros((len(columns),) + (len(pairs.names) + len(pairs.party),) * 2)
    each, places = np.arange(len(columns)), len(pairs.names) + columns
    forms[each, places, j] = forms[each, j, places] = 0.5 / joint
    forms[each, places, i] = forms[each, i, places] = -0.5 / own
    C = pairs.covariance[np.ix_(columns, columns)]
    spread = form_covariances(pairs, forms) + max(1 / joint - 1 / own, 0.0) * C
    found = float(shift @ np.linalg.pinv(spread, hermitian=True) @ shift)
    degrees = int(np.linalg.matrix_rank(spread, hermitian=True))
    most = int(np.argmax(np.abs(shift) / np.sqrt(np.maximum(np.diag(spread), np.finfo(float).tiny))))
    return Selection(
        party=pairs.names[i],
        other=pairs.names[j],
        column=int(columns[most]),
        shift=float(shift[most]),
        statistic=found,
        degrees=degrees,
        p_value=float(chdtrc(degrees, max(found, 0.0))),
    )


def suspicious(found: tuple[Selection, ...]) -> tuple[Selection, ...]:
    """Those that are no chance, however many were made."""
    return tuple(test for test in found if test.p_value * len(found) < SUSPICIOUS)
