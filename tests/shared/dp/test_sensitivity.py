"""The bound against search: every neighbour over a grid of hard values, on the integers that leave the encoder."""

from itertools import combinations_with_replacement, product
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.fixed_point import SCALE, clip_rows, quantise, squared_row_limit
from commingle.shared.dp.sensitivity import LISTED, Adjacency, Geometry, squared_sensitivity

NUMERIC = Geometry(radius_squared=1, diameter_squared=4)
CATEGORICAL = Geometry(radius_squared=1, diameter_squared=2)
# one attribute -> the encoded values to try; thirds and near-ones are where truncation bites
_HARD = (-1.0, -1 + 2**-20, -1 / 3, 0.0, 2**-16, 1 / 3, 1 - 2**-16, 1.0)
KINDS: dict[str, tuple[Geometry, list[tuple[float, ...]]]] = {
    "numeric": (NUMERIC, [(v,) for v in _HARD]),
    "binary": (NUMERIC, [(-1.0,), (1.0,), (0.0,)]),
    "three levels": (CATEGORICAL, [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]),
    "marked number": (NUMERIC, [*((v, 0.0) for v in _HARD), (0.0, 1.0)]),
    "marked binary": (NUMERIC, [(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0)]),
    "four levels": (CATEGORICAL, [(0.0,) * 3, *(tuple(float(i == j) for j in range(3)) for i in range(3))]),
}
SETS = [names for size in (1, 2, 3) for names in combinations_with_replacement(KINDS, size)]
NORMS = [None, 1e-6, 2**-15, 0.3, 0.7071067811865475, 0.999999, 1.0, 1.2, 1.4142135623730951, 1.7, 2.0, 5.0]


def bound(names: tuple[str, ...], row_norm: float | None, adjacency: Adjacency) -> int:
    return squared_sensitivity([KINDS[name][0] for name in names], row_norm=row_norm, adjacency=adjacency)


def encoded(names: tuple[str, ...], row_norm: float | None) -> NDArray[np.int64]:
    rows = [sum(parts, ()) for parts in product(*(KINDS[name][1] for name in names))]
    q = quantise(np.array(rows))
    return q if row_norm is None else clip_rows(q, squared_row_limit(row_norm))


def farthest(q: NDArray[np.int64], adjacency: Adjacency) -> int:
    others = q if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, q.shape[1]), np.int64)
    gram = q @ others.T
    squared = (q**2).sum(1)[:, None] + (others**2).sum(1)[None, :] - 2 * gram
    return int(squared.max())


@pytest.mark.parametrize("adjacency", LISTED)
@pytest.mark.parametrize("row_norm", NORMS)
def test_no_pair_of_encoded_rows_is_farther_apart_than_the_bound(adjacency: Adjacency, row_norm: float | None) -> None:
    for names in SETS:
        assert farthest(encoded(names, row_norm), adjacency) <= bound(names, row_norm, adjacency), names


@pytest.mark.parametrize("row_norm", NORMS)
def test_products_of_hard_rows_are_within_their_limits(row_norm: float | None) -> None:
    """0 <= 2 (c - q.p) <= min(Delta_q^2, 4c)."""
    for names in SETS:
        q = encoded(names, row_norm)
        c, apart = bound(names, row_norm, Adjacency.ZERO_OUT), bound(names, row_norm, Adjacency.REPLACE_ONE)
        products = q @ q.T
        assert products.max() <= c, names
        assert 2 * (c - int(products.min())) <= min(apart, 4 * c), names


@pytest.mark.parametrize("adjacency", LISTED)
def test_bound_is_attained_without_clipping(adjacency: Adjacency) -> None:
    for names in SETS:
        assert farthest(encoded(names, None), adjacency) == bound(names, None, adjacency), names


@given(
    st.lists(st.sampled_from(["numeric", "five levels"]), min_size=1, max_size=5),
    st.floats(1e-5, 3),
    st.data(),
)
def test_random_pairs_of_clipped_rows_stay_within_the_bound(
    kinds: list[str], row_norm: float, data: st.DataObject
) -> None:
    def row() -> list[float]:
        values: list[float] = []
        for kind in kinds:
            if kind == "numeric":
                values.append(data.draw(st.floats(-1, 1)))
            else:
                level = data.draw(st.integers(-1, 3))
                values += [float(i == level) for i in range(4)]
        return values

    geometries = [NUMERIC if kind == "numeric" else CATEGORICAL for kind in kinds]
    pair = clip_rows(quantise(np.array([row(), row()])), squared_row_limit(row_norm)).tolist()
    for adjacency, other in ((Adjacency.REPLACE_ONE, pair[1]), (Adjacency.ZERO_OUT, [0] * len(pair[0]))):
        distance = sum((a - b) ** 2 for a, b in zip(pair[0], other, strict=True))
        assert distance <= squared_sensitivity(geometries, row_norm=row_norm, adjacency=adjacency)


def test_numeric_only_replace_one_is_the_papers_two_root_d() -> None:
    for d in range(1, 20):
        assert bound(("numeric",) * d, None, Adjacency.REPLACE_ONE) == (2 * SCALE) ** 2 * d


def test_row_norm_that_does_not_bind_changes_nothing() -> None:
    names = ("numeric", "three levels")
    for adjacency in LISTED:
        assert bound(names, 100.0, adjacency) == bound(names, None, adjacency)


@pytest.mark.parametrize("row_norm", [0.0, -1.0, nan, inf])
def test_row_norm_outside_its_domain_is_refused(row_norm: float) -> None:
    with pytest.raises(ParameterError, match="row_norm"):
        bound(("numeric",), row_norm, Adjacency.REPLACE_ONE)
