"""RMGM: random mixing, then Gaussian noise (Wu et al. 2022; docs/design/mixing.md).

Released: S Q + N, k x d. Changing one subject moves one column's multiple of S, whose squared norm is k.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.interface import row_sensitivity
from commingle.shared.mechanisms.rows.block import RowMechanism
from commingle.shared.mechanisms.rows.projection import Projection, ones_projection


class Rmgm(RowMechanism):
    """Published: k random mixtures of all rows."""

    sketched = True
    fit_address = "commingle.shared.mechanisms.rows.fit:MIXED_ROWS"
    planner_address = "commingle.shared.mechanisms.rows.forecast:MIXED_ROWS"

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """That k is missing or impossible, besides."""
        width = len(spec.columns)
        found = super().problems(spec)
        if spec.k is None:
            found.append("rmgm needs k, the number of rows of the projection")
        elif not width < spec.k <= spec.n:
            found.append(f"k is {spec.k}; it must exceed the {width} published columns and not exceed n = {spec.n}")
        return found

    def rows(self, spec: ReleaseSpec) -> int:
        """The spec's k."""
        return spec.k or 0

    def squared_sensitivity(self, spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
        """||S e_i||^2 = k times that of one row."""
        return self.rows(spec) * row_sensitivity(spec, party, adjacency)

    def step(self, spec: ReleaseSpec) -> float:
        """1 / (sqrt(k) 2^f)."""
        return 1 / (sqrt(self.rows(spec)) * SCALE)

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """B 1 in steps: 2^f S 1."""
        return ones_projection(bytes.fromhex(spec.seed), self.rows(spec), spec.n) * SCALE

    def accumulator(self, spec: ReleaseSpec, columns: int) -> Projection:
        """The seeded Bernoulli projection."""
        return Projection(seed=bytes.fromhex(spec.seed), k=self.rows(spec), d=columns)


RMGM = Rmgm()
