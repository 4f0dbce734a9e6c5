"""Attributes with levels as columns of a release, and rows of a tree of their strongest pairs (Chow and Liu, 1968)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.services.analysis.tables import counted_as_one
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """One attribute of the rows.

    Attributes:
        indicators: (L, q) of the levels, as combinations of a release's columns.
        present: (q,) indicator of the people at the party that holds it.
    """

    name: str
    labels: tuple[str, ...]
    indicators: Array
    present: Array

    @classmethod
    def of(cls, sums: CrossProducts, name: str) -> Self:
        """The factor of an attribute. Raises NoTablesError, UnknownAttributeError."""
        labels, indicators = sums.levels(name)
        return cls(name, labels, indicators, sums.present(name))

    def together(self, sums: CrossProducts, others: Array) -> tuple[Self, NDArray[np.intp], list[str]]:
        """Merge the levels that hardly anybody may have (`Cells.merged`), but not the first, the reference.

        Counts the people who are among `others` (q,) too. Also returns the new place of each level, and warnings.
        """
        cells = Cells.between(sums, (self.labels, self.indicators), (("",), others[None]))
        labels, each = cells.together(0, self.labels[0])
        said = counted_as_one((self.name, ""), cells, cells.merged(self.labels[0], ""))
        return replace(self, labels=labels, indicators=each @ self.indicators), each.argmax(axis=0), said

    @property
    def names(self) -> tuple[str, ...]:
        """The levels with the attribute's name, as `age[old]`."""
        return tuple(f"{self.name}[{label}]" for label in self.labels)

    def at(self, columns: NDArray[np.intp]) -> Self:
        return replace(self, indicators=self.indicators[:, columns], present=self.present[columns])


def terms_of(factors: Sequence[Factor]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The terms of all levels but the first, and the level that each is compared with."""
    pairs = [(name, f.names[0]) for f in factors for name in f.names[1:]]
    return tuple(term for term, _ in pairs), tuple(first for _, first in pairs)


def in_use(
    sums: CrossProducts, factors: Sequence[Factor], others: Iterable[Array] = (), names: Iterable[str] = ()
) -> tuple[CrossProducts, list[Factor], NDArray[np.intp]]:
    """Sums and attributes in only those columns that the attributes and `others` (q,) use, and these columns.

    Forms grow with the square of their number. `names` are attributes besides those of `factors`.

    Raises NoOverlapError: two parties share too few subjects.
    """
    prepared = sums.prepared
    if prepared.pairs is not None:
        used = [i for name in (*names, *(f.name for f in factors)) for i in prepared.columns[name]]
        prepared.pairs.require(np.array(used, np.intp) - 1)
    fewer, kept = sums.using(np.vstack([*others, *(f.indicators for f in factors)]))
    return fewer, [f.at(kept) for f in factors], kept


def tree_rows(
    sums: CrossProducts,
    factors: Sequence[Factor],
    shares: Mapping[tuple[int, int], Array],
    draw: np.random.Generator,
    size: int,
) -> tuple[NDArray[np.intp], Array, set[tuple[int, int]]]:
    """Codes (N, d) and weights (N,) of rows of a tree of pairs, and the pairs.

    If there are at most `size` combinations of levels, each is a row; otherwise `size` rows are drawn.
    """
    tables, information = _tables(sums, factors, shares)
    root, order, before = _tree(information)
    sizes = [len(f.labels) for f in factors]
    first = tables[root, int(order[1])].sum(axis=1) if len(sizes) > 1 else _shares(sums, factors[0])
    edges = {(min(int(k), int(before[k])), max(int(k), int(before[k]))) for k in order[1:]}
    pairs = {int(k): tables[int(before[k]), int(k)] for k in order[1:]}
    given = {k: table / table.sum(axis=1, keepdims=True) for k, table in pairs.items()}
    if prod(sizes) <= size:
        codes = np.indices(sizes).reshape(len(sizes), -1).T
        base = first[codes[:, root]]
        for k, table in given.items():
            base = base * table[codes[:, before[k]], codes[:, k]]
        return codes, base / base.sum(), edges
    codes = np.zeros((size, len(sizes)), np.intp)
    codes[:, root] = draw.choice(sizes[root], size, p=first)
    for k, table in given.items():
        below = np.cumsum(table, axis=1)[codes[:, before[k]], :-1]
        codes[:, k] = np.sum(draw.random(size)[:, None] > below, axis=1)
    return codes, np.full(size, 1 / size), edges


def _tables(
    sums: CrossProducts, factors: Sequence[Factor], shares: Mapping[tuple[int, int], Array]
) -> tuple[dict[tuple[int, int], Array], Array]:
    """Shares (L_j, L_k) of each pair, no cell below half its noise, and information (d, d) less that of noise."""
    tables, information = dict[tuple[int, int], Array](), np.zeros((len(factors),) * 2)
    for (j, one), (k, other) in combinations(enumerate(factors), 2):
        counts, noise = sums.crossed(one.indicators, other.indicators)
        cells = np.maximum(shares[j, k] * counts.sum(), 0.5 * noise.errors + 0.5)
        P = cells / cells.sum()
        alone = P.sum(axis=1)[:, None] * P.sum(axis=0)
        # chance adds half the sum of squared errors over expected shares
        by_noise = np.sum((noise.errors / cells.sum()) ** 2 / alone) / 2
        information[j, k] = information[k, j] = np.sum(P * np.log(P / alone)) - by_noise
        tables[j, k], tables[k, j] = P, P.T
    return tables, information


def _tree(information: Array) -> tuple[int, NDArray[np.intp], NDArray[np.intp]]:
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree  # noqa: PLC0415 - loads slowly

    if len(information) == 1:
        return 0, np.zeros(1, np.intp), np.full(1, -1)
    costs = 1 + information.max() - information  # positive: 0 is no edge
    np.fill_diagonal(costs, 0.0)
    root = int(information.sum(axis=1).argmax())
    order, before = breadth_first_order(minimum_spanning_tree(costs), root, directed=False)
    return root, order.astype(np.intp), before.astype(np.intp)


def _shares(sums: CrossProducts, factor: Factor) -> Array:
    counts, _ = sums.crossed(factor.indicators, factor.present[None])
    kept = np.maximum(counts.ravel(), 0.5)
    return np.asarray(kept / kept.sum())
