"""Rows of a tree of pairs of attributes, those that tell most of each other (Chow and Liu, 1968)."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from commingle.services.models.factors import Factor
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array


def tree_rows(
    sums: CrossProducts,
    factors: Sequence[Factor],
    shares: Mapping[tuple[int, int], Array],
    draw: np.random.Generator,
    size: int,
) -> tuple[NDArray[np.intp], Array, set[tuple[int, int]]]:
    """Codes (N, d) and weights (N,) of a tree of pairs, and the pairs; each combination of levels once if few."""
    tables, information = _tables(sums, factors, shares)
    root, order, before = _tree(information)
    sizes = [len(f.labels) for f in factors]
    first = tables[root, int(order[1])].sum(axis=1) if len(sizes) > 1 else _shares(sums, factors[0])
    edges = {(min(int(k), int(before[k])), max(int(k), int(before[k]))) for k in order[1:]}
    given = {int(k): _conditional(tables[int(before[k]), int(k)]) for k in order[1:]}
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
    """Shares (L_j, L_k) of each pair, no cell below half its noise, and the information (d, d) beyond that of noise."""
    tables, information = dict[tuple[int, int], Array](), np.zeros((len(factors),) * 2)
    for (j, one), (k, other) in combinations(enumerate(factors), 2):
        counts, noise = sums.crossed(one.indicators, other.indicators)
        cells = np.maximum(shares[j, k] * counts.sum(), 0.5 * noise.errors + 0.5)
        P = cells / cells.sum()
        alone = P.sum(axis=1)[:, None] * P.sum(axis=0)
        # chance alone adds half the mean square of errors over what is expected
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


def _conditional(table: Array) -> Array:
    return np.asarray(table / table.sum(axis=1, keepdims=True))
