"""DGM: plain Gaussian noise on every row (docs/design/mixing.md#plain-noise). Released: Q + N, n x d."""

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.interface import Placement, row_sensitivity
from commingle.shared.mechanisms.rows.block import RowMechanism


class Dgm(RowMechanism):
    """Published: every subject's row."""

    fit_address = "commingle.shared.mechanisms.rows.fit:PLAIN_ROWS"
    planner_address = "commingle.shared.mechanisms.rows.forecast:PLAIN_ROWS"

    def rows(self, spec: ReleaseSpec) -> int:
        """One per subject."""
        return spec.n

    def squared_sensitivity(self, spec: ReleaseSpec, party: PartySpec, adjacency: Adjacency) -> int:
        """A subject's row stands in the block once."""
        return row_sensitivity(spec, party, adjacency)

    def step(self, spec: ReleaseSpec) -> float:  # noqa: ARG002 - the same question is put to every mechanism
        """1 / 2^f."""
        return 1 / SCALE

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """Ones, in steps."""
        return np.full(spec.n, SCALE, np.int64)

    def accumulator(self, spec: ReleaseSpec, columns: int) -> Placement:
        """The rows themselves."""
        return Placement(n=spec.n, d=columns)


DGM = Dgm()
