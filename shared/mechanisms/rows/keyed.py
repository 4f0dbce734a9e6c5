"""rmgm over keyed subjects: signs follow from pseudonyms, and each party's presence is one of its columns.

Adjacency add_remove: a subject more or less moves a block by at most sqrt(k c) (docs/proofs/keyed-subjects.md, 2).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.mechanisms.rows.block import Rmgm

if TYPE_CHECKING:  # scipy loads slowly, and an agent does not need it
    from commingle.shared.estimation.method import FitMethod


class KeyedRmgm(Rmgm):
    """Each party's S_j (1 | Q_j) + N_j, k x (1 + d_j), over its own subjects."""

    keyed = True
    of_rows = False  # what is fitted are pairwise moments of the rows
    publishes = "noisy rows of keyed subjects"

    @property
    def fit(self) -> "FitMethod":
        """`moments.keyed_fit.KEYED`."""
        from commingle.shared.mechanisms.moments.keyed_fit import KEYED  # noqa: PLC0415 - scipy loads slowly

        return KEYED

    def problems(self, spec: ReleaseSpec) -> list[str]:
        """That mixing is sparse, besides: what it does to fits of keyed subjects is not measured."""
        sparse = ["keyed subjects are mixed by a dense projection; leave projection out"] if spec.projection else []
        return super().problems(spec) + sparse

    def intercept(self, spec: ReleaseSpec) -> NDArray[np.int64]:
        """None: it would be a function of the joint list."""
        return np.empty((self.rows(spec), 0), np.int64)


KEYED_RMGM = KeyedRmgm()
