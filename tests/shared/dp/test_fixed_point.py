from fractions import Fraction
from math import inf, nan, trunc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from commingle.shared.dp.errors import EncodingRangeError, ParameterError
from commingle.shared.dp.fixed_point import SCALE, check_exact_range, clip_rows, coarsen, quantise, squared_row_limit

Rows = NDArray[np.int64]

# the extremes and their neighbours more often than chance would bring them
ENTRIES = st.one_of(
    st.sampled_from([0, 1, -1, SCALE, -SCALE, SCALE - 1, 1 - SCALE, SCALE // 2]), st.integers(-SCALE, SCALE)
)
ROWS = hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=ENTRIES)


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
    for refuse in (squared_row_limit, lambda c: check_exact_range(10, c)):
        with pytest.raises(ParameterError, match="row_norm"):
            refuse(row_norm)


@pytest.mark.parametrize(("subjects", "row_norm"), [(2**38 - 1, None), (2**38 - 1, 0.5), (2**37 - 1, 2.0)])
def test_subjects_just_below_the_exact_range_are_accepted_and_one_more_is_refused(
    subjects: int, row_norm: float | None
) -> None:
    check_exact_range(subjects, row_norm)
    with pytest.raises(ParameterError, match="too many"):
        check_exact_range(subjects + 1, row_norm)
