"""Fixed point, clipping and the exact affine map, and the bound on whitened rows against search."""

from fractions import Fraction
from functools import partial
from itertools import product
from math import inf, nan, trunc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy.linalg import hadamard

from commingle.shared.dp.fixed_point import (
    ROW_SUM_LIMIT,
    SCALE,
    WHITENED_LIMIT,
    IntegerMap,
    check_exact_range,
    clip_rows,
    coarsen,
    quantise,
    squared_row_limit,
)
from commingle.shared.dp.sensitivity import Adjacency, squared_sensitivity
from commingle.shared.errors import EncodingRangeError, ParameterError
from tests.shared.dp.test_sensitivity import LISTED

Rows = NDArray[np.int64]

# the extremes and their neighbours more often than chance would bring them
ENTRIES = st.one_of(
    st.sampled_from([0, 1, -1, SCALE, -SCALE, SCALE - 1, 1 - SCALE, SCALE // 2]), st.integers(-SCALE, SCALE)
)
ROWS = hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=ENTRIES)
CELLS = st.one_of(st.sampled_from([0, 1, -1, SCALE, -SCALE, SCALE - 1]), st.integers(-SCALE, SCALE))
# symmetric, skew, tiny, huge and lopsided: the bound may not depend on the map
MATRICES: list[list[list[float]]] = [
    [[1, 0], [0, 1]],
    [[0.5, -0.5], [0.5, 0.5]],
    [[ROW_SUM_LIMIT, 0], [0, ROW_SUM_LIMIT]],
    [[ROW_SUM_LIMIT / 2, ROW_SUM_LIMIT / 2], [-ROW_SUM_LIMIT / 2, ROW_SUM_LIMIT / 2]],
    [[1e-3, 0], [0, 1e-3]],
    [[700, 0], [0, 0.1]],
    [[1 / 3, 2.7], [-1.9, 1 / 7]],
]
CENTRES = [[0.0, 0.0], [1.0, -1.0], [1 / 3, -0.2]]


def squared_norms(q: Rows) -> list[int]:
    return [sum(int(v) ** 2 for v in row) for row in q]


@given(hnp.arrays(np.float64, 20, elements=st.floats(-1, 1)))
def test_quantised_values_never_grow_and_lose_less_than_one_step(values: NDArray[np.float64]) -> None:
    for value, q in zip(values.tolist(), quantise(values).tolist(), strict=True):
        exact = Fraction(value) * SCALE
        assert abs(q) <= abs(exact) < abs(q) + 1
        assert q * exact >= 0


@pytest.mark.parametrize("value", [nan, inf, -inf, 1.0000000000000002, -1.0000000000000002, 1e308])
def test_value_outside_the_encoded_range_is_refused(value: float) -> None:
    with pytest.raises(EncodingRangeError):
        quantise(np.array([[0.0, value]]))


@given(st.floats(-1, 1), st.sampled_from([14, 15]))
def test_coarsened_integers_are_the_truncation_at_fewer_bits(value: float, bits: int) -> None:
    coarse = coarsen(quantise(np.array([[value]])), bits)
    assert coarse.tolist() == [[trunc(Fraction(value) * 2**bits)]]


@given(ROWS, st.integers(0, 8 * SCALE**2))
def test_clipped_rows_are_within_the_limit_shrunk_and_keep_their_signs(q: Rows, limit: int) -> None:
    clipped = clip_rows(q, limit)
    assert max(squared_norms(clipped)) <= limit
    assert np.all(np.abs(clipped) <= np.abs(q))
    assert np.all(clipped * q >= 0)


@given(ROWS, st.integers(-3, 3))
def test_rows_at_the_limit_stay_and_rows_one_above_it_are_clipped(q: Rows, off: int) -> None:
    limit = max(squared_norms(q)[0] + off, 0)
    clipped = clip_rows(q, limit)
    assert max(squared_norms(clipped)) <= limit
    for before, after, norm in zip(q, clipped, squared_norms(q), strict=True):
        assert norm > limit or np.array_equal(before, after)


@given(ROWS)
def test_clipping_keeps_the_direction_up_to_two_steps_per_entry(q: Rows) -> None:
    limit = SCALE**2 // 2
    for before, after, norm in zip(q, clip_rows(q, limit), squared_norms(q), strict=True):
        factor = min(1.0, (limit / norm) ** 0.5) if norm else 1.0
        assert np.all(np.abs(after - before * factor) <= 2)


def test_wide_rows_of_extremes_do_not_overflow() -> None:
    q = np.full((2, 256), -SCALE, np.int64)
    assert max(squared_norms(clip_rows(q, 1))) <= 1
    assert np.array_equal(clip_rows(q, 256 * SCALE**2), q)


@pytest.mark.parametrize("huge", [SCALE + 1, 3_037_000_500, 1 << 62, -(1 << 63)])
def test_entries_beyond_the_encoded_range_are_refused_instead_of_overflowing(huge: int) -> None:
    with pytest.raises(EncodingRangeError):
        clip_rows(np.array([[huge, 0]], np.int64), 100)


@given(st.floats(1e-160, 1e3))
def test_row_limit_is_the_exact_floor(row_norm: float) -> None:
    exact = Fraction(row_norm) ** 2 * SCALE**2
    assert 0 <= exact - squared_row_limit(row_norm) < 1


@pytest.mark.parametrize("row_norm", [0.0, -1.0, nan, inf, -inf])
def test_row_norm_outside_its_domain_is_refused(row_norm: float) -> None:
    bound = partial(squared_sensitivity, None, adjacency=Adjacency.REPLACE_ONE)
    for refuse in (squared_row_limit, lambda c: check_exact_range(10, c), lambda c: bound(row_norm=c)):
        with pytest.raises(ParameterError, match="row_norm"):
            refuse(row_norm)


@pytest.mark.parametrize(("subjects", "row_norm"), [(2**38 - 1, None), (2**38 - 1, 0.5), (2**37 - 1, 2.0)])
def test_subjects_just_below_the_exact_range_are_accepted_and_one_more_is_refused(
    subjects: int, row_norm: float | None
) -> None:
    check_exact_range(subjects, row_norm)
    with pytest.raises(ParameterError, match="too many"):
        check_exact_range(subjects + 1, row_norm)


@given(hnp.arrays(np.int64, (3, 2), elements=CELLS), st.sampled_from(MATRICES), st.sampled_from(CENTRES))
def test_map_is_the_exact_product_truncated_towards_zero(
    q: Rows, matrix: list[list[float]], centre: list[float]
) -> None:
    made = IntegerMap.of(matrix, centre)
    for row, found in zip(q.tolist(), made.rows(q).tolist(), strict=True):
        for weights, z in zip(made.matrix.tolist(), found, strict=True):
            exact = sum(
                Fraction(w, 1 << 20) * (x - c) for w, x, c in zip(weights, row, made.centre.tolist(), strict=True)
            )
            assert abs(z) <= abs(exact) < abs(z) + 1
            assert z * exact >= 0


def test_map_nearest_to_the_given_one_is_applied() -> None:
    made = IntegerMap.of(MATRICES[-1], CENTRES[-1])
    np.testing.assert_allclose(made.matrix / 2**20, MATRICES[-1], rtol=0, atol=2**-21)
    np.testing.assert_allclose(made.centre / 2**15, CENTRES[-1], rtol=0, atol=2**-16)


def test_widest_rows_under_the_largest_matrix_stay_exact_and_within_the_limit() -> None:
    d = 256
    rng = np.random.default_rng(0)
    matrix = rng.choice([-1.0, 1.0], (d, d)) * (ROW_SUM_LIMIT / d)
    made = IntegerMap.of(matrix.tolist(), [-1.0] * d)
    q = rng.choice([-SCALE, SCALE], (7, d)).astype(np.int64)
    exact = (q.astype(object) - made.centre.astype(object)) @ made.matrix.T.astype(object)
    assert np.array_equal(made.rows(q), np.vectorize(lambda v: int(abs(v) >> 20) * (1 if v >= 0 else -1))(exact))
    largest = IntegerMap.of(np.diag([float(ROW_SUM_LIMIT)] * d).tolist(), [-1.0] * d).rows(np.full((1, d), SCALE))
    assert int(largest.max()) == WHITENED_LIMIT
    clipped = clip_rows(largest, squared_row_limit(1.0), largest=WHITENED_LIMIT)
    assert 0.99 * SCALE**2 < int((clipped**2).sum()) <= SCALE**2


@given(hnp.arrays(np.int64, (5, 2), elements=CELLS), st.sampled_from(MATRICES[:2] + MATRICES[5:]))
def test_undone_rows_are_the_rows_but_for_truncation(q: Rows, matrix: list[list[float]]) -> None:
    made = IntegerMap.of(matrix, [0.25, -0.5])
    back, centre = made.undo()
    errors = np.abs(made.rows(q) / SCALE @ back.T + centre - q / SCALE)
    assert (errors <= np.abs(back).sum(axis=1) / SCALE + 1e-9).all()


@pytest.mark.parametrize("adjacency", LISTED)
@pytest.mark.parametrize("row_norm", [1e-6, 2**-15, 0.3, 0.7071067811865475, 0.999999, 1.0])
def test_no_pair_of_whitened_rows_is_farther_apart_than_the_bound(adjacency: Adjacency, row_norm: float) -> None:
    hard = (-SCALE, 1 - SCALE, -SCALE // 3, -1, 0, 1, SCALE // 3, SCALE - 1, SCALE)
    q = np.array(list(product(hard, repeat=2)), np.int64)
    bound = squared_sensitivity(None, row_norm=row_norm, adjacency=adjacency)
    largest = 0
    for matrix, centre in product(MATRICES, CENTRES):
        z = clip_rows(IntegerMap.of(matrix, centre).rows(q), squared_row_limit(row_norm), largest=WHITENED_LIMIT)
        others = z if adjacency is Adjacency.REPLACE_ONE else np.zeros((1, 2), np.int64)
        farthest = int(((z[:, None] - others[None]) ** 2).sum(axis=2).max())
        assert farthest <= bound, (matrix, centre)
        largest = max(largest, farthest)
    # the search comes close to the bound where rows have room, so that a smaller bound would be caught
    assert row_norm < 0.1 or largest > 0.999 * bound


@pytest.mark.parametrize(("adjacency", "bound"), [(LISTED[0], SCALE**2), (LISTED[1], SCALE**2 // 4)])
def test_bound_of_whitened_rows_is_twice_the_norm_or_once_where_rows_are_zeroed_and_none_without_a_norm(
    adjacency: Adjacency, bound: int
) -> None:
    assert squared_sensitivity(None, row_norm=0.5, adjacency=adjacency) == bound
    with pytest.raises(ParameterError, match="row_norm"):
        squared_sensitivity(None, row_norm=None, adjacency=adjacency)


def test_map_whose_rounded_rows_exceed_the_limit_is_refused_although_the_given_ones_do_not() -> None:
    """Its longest row would leave the exact range, so that whether a release fails would tell of a row."""
    d = 255
    steps = np.full(d, ROW_SUM_LIMIT * 2**20 // d + 0.51)  # each is rounded up
    steps[0] -= 80
    assert steps.sum() < ROW_SUM_LIMIT * 2**20 < np.rint(steps).sum()
    with pytest.raises(ParameterError, match="adds up"):
        IntegerMap.of((steps / 2**20 * hadamard(d + 1)[:d, :d]).tolist(), [0.0] * d)


@pytest.mark.parametrize("bad", [nan, inf, -inf, ROW_SUM_LIMIT + 1])
def test_map_beyond_the_exact_range_is_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="whitening"):
        IntegerMap.of([[bad, 0], [0, 1]], [0, 0])
    with pytest.raises(ParameterError, match="centre"):
        IntegerMap.of([[1, 0], [0, 1]], [bad, 0])
