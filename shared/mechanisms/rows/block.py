"""rmgm and dgm: blocks are mixed or plain rows, plus independent noise of one scale."""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import row_sensitivity
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.noise import Sampler
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms.interface import Mechanism
from commingle.shared.mechanisms.rows.sketch import MixedRows, mixed_rows, ones_projection, squared_norm

if TYPE_CHECKING:  # scipy loads slowly, and an agent needs neither
    from commingle.shared.estimation.method import FitMethod
    from commingle.shared.mechanisms.prediction import Planner

_ROWS_AT_ONCE = 1 << 16


class RowMechanism(Mechanism):
    @property
    def fit(self) -> "FitMethod":
        from commingle.shared.mechanisms.rows.fit import MIXED_ROWS, PLAIN_ROWS  # noqa: PLC0415 - scipy loads slowly

        return MIXED_ROWS if self.sketched else PLAIN_ROWS

    @property
    def planner(self) -> "Planner":
        from commingle.shared.mechanisms.rows.forecast import MIXED_ROWS, PLAIN_ROWS  # noqa: PLC0415 - as above

        return MIXED_ROWS if self.sketched else PLAIN_ROWS

    def rows(self, terms: Terms) -> int:
        return terms.rows

    def noise(self, terms: Terms, party: PartyTerms, *, sigma: int, draw: Sampler) -> NDArray[np.int64]:
        rows, columns = self.rows(terms), terms.widths[party.name]
        return draw(sigma, rows * columns).reshape(rows, columns)

    def moments(
        self, spec: ReleaseSpec, release: str, sigmas: Sequence[int], matrix: NDArray[np.int64]
    ) -> SecondMoments:
        # G = P^T P of the published rows P = step M, the intercept first and without noise.
        terms = spec.terms
        step = self.step(terms)
        noise = [0.0] * len(spec.intercept)
        for d, sigma in zip(terms.widths.values(), sigmas, strict=True):
            noise += [(sigma * step) ** 2] * d
        return SecondMoments.of(spec, release, gram=_gram(matrix, step), noise_variance=tuple(noise), rows=len(matrix))


def _gram(matrix: NDArray[np.int64], step: float) -> NDArray[np.float64]:
    total = np.zeros((matrix.shape[1], matrix.shape[1]))
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        part = matrix[start : start + _ROWS_AT_ONCE] * step
        total += part.T @ part
    return total


class Dgm(RowMechanism):
    """Plain Gaussian noise on every row: Q + N, n x d (docs/design/encoding.md#plain-noise)."""

    def problems(self, spec: ReleaseSpec) -> list[str]:
        # Besides, a target that may be missing: products over those who have it cannot be had without noise.
        marked = any(a.name == spec.target and a.missing == "indicator" for a in spec.terms.attributes)
        return [*super().problems(spec), *(["the target of dgm may not be missing"] if marked else [])]

    def squared_sensitivity(self, terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
        return row_sensitivity(terms, party, adjacency)

    def step(self, terms: Terms) -> float:  # noqa: ARG002 - the same question is put to every mechanism
        return 1 / SCALE

    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        return np.full(terms.n, SCALE, np.int64)


DGM = Dgm()


class Rmgm(RowMechanism):
    """Random mixing, then Gaussian noise: S Q + N, k x d (Wu et al. 2022; docs/design/encoding.md).

    Changing one subject moves one column's multiple of S, whose squared norm is k, or 1 where S is sparse.
    """

    sketched = True
    leaves = "Random mixtures of all rows, with random noise added here. No row leaves, and no list of people."

    def problems(self, spec: ReleaseSpec) -> list[str]:
        width = len(spec.matrix_columns)
        found = super().problems(spec)
        if spec.k is None:
            found.append("rmgm needs k, the number of rows of the projection")
        elif not width < spec.k <= spec.n:
            found.append(f"k is {spec.k}; it must exceed the {width} published columns and not exceed n = {spec.n}")
        return found

    def squared_sensitivity(self, terms: Terms, party: PartyTerms, adjacency: Adjacency) -> int:
        # ||S e_i||^2 times that of one row.
        return squared_norm(terms.projection, self.rows(terms)) * row_sensitivity(terms, party, adjacency)

    def step(self, terms: Terms) -> float:
        return 1 / (sqrt(squared_norm(terms.projection, self.rows(terms))) * SCALE)

    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        return ones_projection(self.accumulator(terms, 1), terms.n) * SCALE

    def accumulator(self, terms: Terms, columns: int) -> MixedRows:
        if terms.seed is None:
            raise ValueError("the terms are still open: they have no seed")
        return mixed_rows(terms.projection, bytes.fromhex(terms.seed), k=self.rows(terms), d=columns)


RMGM = Rmgm()


class KeyedRmgm(Rmgm):
    """Each party's S_j (1 | Q_j) + N_j, k x (1 + d_j), over its own subjects.

    Signs follow from pseudonyms, and each party's presence is one of its columns.
    """

    keyed = True
    of_rows = False  # fits use pairwise moments of the rows
    publishes = "noisy rows of keyed data sets"

    @property
    def fit(self) -> "FitMethod":
        from commingle.shared.mechanisms.moments.fit import KEYED  # noqa: PLC0415 - scipy loads slowly

        return KEYED

    def problems(self, spec: ReleaseSpec) -> list[str]:
        # Besides, sparse mixing: its effect on fits of keyed subjects is not measured.
        sparse = ["keyed data sets are mixed by a dense projection; leave projection out"] if spec.projection else []
        return super().problems(spec) + sparse

    def intercept(self, terms: Terms) -> NDArray[np.int64]:
        # None: it would be a function of the joint list.
        return np.empty((self.rows(terms), 0), np.int64)


KEYED_RMGM = KeyedRmgm()
