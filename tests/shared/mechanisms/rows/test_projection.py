import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.rows.mixed_rows import MAX_ABS_ENTRY, ones_projection
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.signs import SignStream

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "sign_stream.json").read_text())
SEED = bytes(range(32))


def naive(seed: bytes, k: int, ranks: NDArray[np.int64], q: NDArray[np.int64]) -> NDArray[np.int64]:
    """S from the characters of the bit strings, multiplied in int64."""
    strings = ["".join(f"{byte:08b}" for byte in column)[:k] for column in SignStream(seed).packed(ranks, k)]
    signs = np.array([[-1 if bit == "1" else 1 for bit in string] for string in strings], dtype=np.int64)
    return signs.reshape(len(ranks), k).T @ q


def project(seed: bytes, k: int, ranks: NDArray[np.integer], q: NDArray[np.integer]) -> NDArray[np.int64]:
    projection = Projection(seed, k, q.shape[1])
    projection.add(ranks, q)
    return projection.total()


def rows(n: int, d: int, *, seed: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    generator = np.random.default_rng(seed)
    return generator.permutation(n), generator.integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY, (n, d), endpoint=True)


@pytest.mark.parametrize("case", VECTORS["projections"])
def test_reference_projection_is_reproduced(case: dict[str, Any]) -> None:
    y = project(bytes.fromhex(case["seed"]), case["k"], np.array(case["ranks"]), np.array(case["Q"])).tolist()
    assert y[: len(case["Y_first_rows"])] == case["Y_first_rows"]
    compact = json.dumps(y, separators=(",", ":"))
    assert hashlib.sha256(compact.encode()).hexdigest() == case["Y_sha256_of_json"]


@pytest.mark.parametrize("case", VECTORS["ones"])
def test_reference_projection_of_ones_is_reproduced(case: dict[str, Any]) -> None:
    empty = Projection(bytes.fromhex(case["seed"]), case["k"], 1)
    assert ones_projection(empty, case["n"]).tolist() == case["Y"]


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 1100), st.integers(1, 300), st.integers(1, 40))
def test_projection_equals_naive_product_of_bit_strings(seed: bytes, n: int, k: int, d: int) -> None:
    ranks, q = rows(n, d)
    assert np.array_equal(project(seed, k, ranks, q), naive(seed, k, ranks, q))


@pytest.mark.parametrize(
    ("n", "k", "d"), [(600, 1025, 10), (513, 2200, 3), (5, 1100, 40), (5, 3000, 256), (3, 100_000, 2), (1, 1, 1)]
)
def test_sizes_across_internal_blocks_equal_naive_product(n: int, k: int, d: int) -> None:
    ranks, q = rows(n, d)
    assert np.array_equal(project(SEED, k, ranks, q), naive(SEED, k, ranks, q))


@pytest.mark.parametrize("d", [1, 10, 33])
def test_largest_entries_aligned_with_the_signs_stay_exact(d: int) -> None:
    # q = 2^15 s for the first row of S: every partial sum there is as large as it can get, and odd elsewhere
    ranks = np.arange(1537)
    first = 1 - 2 * (SignStream(SEED).packed(ranks, 1)[:, :1] >> 7).astype(np.int64)
    q = np.repeat(MAX_ABS_ENTRY * first, d, axis=1)
    y = project(SEED, 9, ranks, q)
    assert (y[0] == 1537 * MAX_ABS_ENTRY).all()
    assert np.array_equal(y, naive(SEED, 9, ranks, q))
    q -= first  # 2^15 - 1
    assert np.array_equal(project(SEED, 9, ranks, q), naive(SEED, 9, ranks, q))


@settings(deadline=None)
@given(st.lists(st.integers(0, 700), max_size=4), st.integers(1, 12), st.randoms(use_true_random=False))
def test_batch_split_and_order_do_not_matter(sizes: list[int], d: int, random: Any) -> None:
    n, k = sum(sizes), 150
    ranks, q = rows(n, d)
    order = list(range(n))
    random.shuffle(order)
    streamed = Projection(SEED, k, d)
    for batch in np.split(np.array(order, dtype=np.int64), np.cumsum(sizes)):
        streamed.add(ranks[batch], q[batch].astype(np.int32))
    assert np.array_equal(streamed.total(), project(SEED, k, ranks, q))


@settings(deadline=None)
@given(st.integers(1, 1200), st.integers(1, 1200), st.integers(1, 12))
def test_projection_to_fewer_rows_is_a_prefix(small: int, more: int, d: int) -> None:
    ranks, q = rows(20, d)
    assert np.array_equal(project(SEED, small, ranks, q), project(SEED, small + more, ranks, q)[:small])


@settings(deadline=None)
@given(st.integers(0, 599), st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**32))
def test_change_of_one_row_moves_the_block_by_sqrt_k_times_its_distance(
    subject: int, k: int, d: int, seed: int
) -> None:
    ranks, q = rows(600, d)
    changed = q.copy()
    changed[subject] = rows(1, d, seed=seed)[1]
    moved = (project(SEED, k, ranks, changed) - project(SEED, k, ranks, q)).ravel().tolist()
    distance = (changed - q).ravel().tolist()
    # squared and in Python integers, so that the equality is exact
    assert sum(x * x for x in moved) == k * sum(x * x for x in distance)


@pytest.mark.parametrize(("n", "k"), [(0, 5), (1, 1), (700, 130), (70_000, 9)])
def test_ones_projection_equals_projected_column_of_ones(n: int, k: int) -> None:
    expected = naive(SEED, k, np.arange(n), np.ones((n, 1), dtype=np.int64))
    assert np.array_equal(ones_projection(Projection(SEED, k, 1), n), expected[:, 0])


def test_columns_of_sign_matrix_have_norm_sqrt_k_and_look_random() -> None:
    n, k = 64, 4096
    s = project(SEED, k, np.arange(n), np.eye(n, dtype=np.int64))
    assert set(np.unique(s)) == {-1, 1}
    gram = s.T @ s - k * np.eye(n, dtype=np.int64)
    assert np.abs(gram).max() < 6 * math.sqrt(k)  # off-diagonal entries have standard deviation sqrt(k)


def test_total_of_nothing_is_zero_and_can_be_asked_for_twice() -> None:
    projection = Projection(SEED, 3, 2)
    projection.add(np.empty(0, dtype=np.int64), np.empty((0, 2), dtype=np.int64))
    assert projection.total().tolist() == [[0, 0]] * 3
    projection.add(np.array([7]), np.array([[5, -6]]))
    assert np.array_equal(projection.total(), projection.total())
    assert projection.total().dtype == np.int64


@pytest.mark.parametrize(("k", "d"), [(0, 1), (-1, 1), (1, 0)])
def test_empty_shape_is_refused(k: int, d: int) -> None:
    with pytest.raises(MixingError, match="k >= 1"):
        Projection(SEED, k, d)


def test_seed_of_another_length_is_refused() -> None:
    with pytest.raises(MixingError, match="32 bytes"):
        Projection(SEED[:31], 1, 1)


@pytest.mark.parametrize(
    ("ranks", "q"),
    [
        (np.array([-1]), np.array([[1, 1]])),
        (np.array([0]), np.array([[1]])),
        (np.array([0, 1]), np.array([[1, 1]])),
        (np.array([0]), np.array([1, 1])),
        (np.array([0]), np.array([[1.0, 1.0]])),
        (np.array([0]), np.array([[2**15 + 1, 0]])),
        (np.array([0]), np.array([[0, -(2**15) - 1]])),
        (np.array([0]), np.array([[0, -(2**63)]])),
    ],
)
def test_bad_rows_are_refused_and_leave_the_sum_alone(ranks: NDArray[np.int64], q: NDArray[Any]) -> None:
    projection = Projection(SEED, 4, 2)
    with pytest.raises(MixingError):
        projection.add(ranks, q)
    assert not projection.total().any()


def test_ones_projection_refuses_a_negative_count() -> None:
    with pytest.raises(MixingError, match="subjects"):
        ones_projection(Projection(SEED, 1, 1), -1)
