"""Sums of mixed rows, dense and sparse, against Python integers, whatever computes them."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.rows import sketch
from commingle.shared.mechanisms.rows.sketch import (
    MAX_ABS_ENTRY,
    MixedRows,
    Projection,
    SignStream,
    SparseEntries,
    SparseProjection,
    mixed_rows,
    ones_projection,
)
from tests.vectors.make import sparse_entry

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "sign_stream.json").read_text())
SEED = bytes(range(32))
Entries = list[tuple[int, int]]
ranks_of_a_table = st.lists(st.integers(0, 2**62), min_size=1, max_size=40, unique=True)


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


def bit_string(seed: bytes, rank: int, rows: int) -> str:
    packed = SignStream(seed).packed(np.array([rank]), rows)
    return "".join(map(str, np.unpackbits(packed, count=rows)))


def test_every_reference_vector_is_reproduced() -> None:
    assert VECTORS["vectors"]
    for vector in VECTORS["vectors"]:
        bits = bit_string(bytes.fromhex(vector["seed"]), vector["rank"], vector["k"])
        assert bits == vector.get("bits", bits)
        assert hashlib.sha256(bits.encode()).hexdigest() == vector["sha256_of_bits"]


def test_narrow_integer_types_of_ranks_give_the_same_columns_and_no_ranks_none() -> None:
    assert SignStream(SEED).packed(np.array([], dtype=np.int64), 129).shape == (0, 17)
    expected = SignStream(SEED).packed(np.array([3, 100]), 50)
    for dtype in (np.int8, np.uint16, np.int32, np.uint64):
        assert np.array_equal(SignStream(SEED).packed(np.array([3, 100], dtype=dtype), 50), expected)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_stream_of_a_seed_of_another_length_is_refused(seed: bytes) -> None:
    with pytest.raises(MixingError, match="32 bytes"):
        SignStream(seed)


@pytest.mark.parametrize(
    ("ranks", "rows"),
    [(np.array([0]), 0), (np.array([0]), -1), (np.array([4, -1]), 8), (np.array([0.0]), 8), (np.array([[0]]), 8)],
)
def test_ranks_or_rows_out_of_range_are_refused(ranks: np.ndarray[Any, Any], rows: int) -> None:
    with pytest.raises(MixingError):
        SignStream(SEED).packed(ranks, rows)


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


def compiled(seed: bytes, k: int, d: int) -> MixedRows:
    made = mixed_rows(None, seed, k=k, d=d)
    assert type(made).__name__ == "CompiledProjection"
    return made


@pytest.mark.parametrize("kind", [Projection, compiled])
@pytest.mark.parametrize("d", [1, 10, 33])
def test_largest_entries_aligned_with_the_signs_stay_exact(
    d: int, kind: Callable[[bytes, int, int], MixedRows]
) -> None:
    # q = 2^15 s for the first row of S: every partial sum there is as large as it can get, and odd elsewhere
    ranks = np.arange(1537)
    first = 1 - 2 * (SignStream(SEED).packed(ranks, 1)[:, :1] >> 7).astype(np.int64)
    for magnitude in (MAX_ABS_ENTRY, MAX_ABS_ENTRY - 1):
        q, projection = np.repeat(magnitude * first, d, axis=1), kind(SEED, 9, d)
        projection.add(ranks, q)
        assert (projection.total()[0] == 1537 * magnitude).all()
        assert np.array_equal(projection.total(), naive(SEED, 9, ranks, q))


@pytest.mark.slow
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
@pytest.mark.parametrize("kind", [Projection, SparseProjection])
def test_bad_rows_are_refused_and_leave_the_sum_alone(
    ranks: NDArray[np.int64], q: NDArray[Any], kind: type[Projection | SparseProjection]
) -> None:
    projection = kind(SEED, 4, 2)
    with pytest.raises(MixingError):
        projection.add(ranks, q)
    assert not projection.total().any()


def test_ones_projection_refuses_a_negative_count() -> None:
    with pytest.raises(MixingError, match="people"):
        ones_projection(Projection(SEED, 1, 1), -1)


def some_rows(n: int, d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    generator = np.random.default_rng([n, d])
    return generator.permutation(3 * n)[:n], generator.integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY, (n, d), endpoint=True)


@pytest.mark.parametrize(
    ("n", "k", "d"),
    [(0, 5, 2), (1, 1, 1), (7, 127, 8), (33, 129, 9), (600, 1025, 10), (40, 16_500, 3), (513, 300, 17), (5, 128, 40)],
)
def test_compiled_projection_equals_the_one_of_numpy_bit_for_bit(n: int, k: int, d: int) -> None:
    ranks, q = some_rows(n, d)
    loops, oracle = compiled(SEED, k, d), Projection(SEED, k, d)
    oracle.add(ranks, q)
    for part in np.array_split(np.arange(n), 3):
        loops.add(ranks[part], q[part])
    assert np.array_equal(loops.total(), oracle.total())
    assert loops.total().dtype == np.int64


def test_package_without_loops_mixes_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(mixed_rows("sparse", SEED, k=10, d=2), SparseProjection)
    monkeypatch.setattr(sketch, "available", lambda: False)
    assert isinstance(mixed_rows(None, SEED, k=10, d=2), Projection)


SPARSE_VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "sparse_mixing.json").read_text())


def naive_sparse(entries: Entries, k: int, q: list[list[int]]) -> list[list[int]]:
    total = [[0] * len(q[0]) for _ in range(k)]
    for (row, sign), values in zip(entries, q, strict=True):
        total[row] = [old + sign * value for old, value in zip(total[row], values, strict=True)]
    return total


def project_sparse(k: int, ranks: NDArray[np.integer], q: NDArray[np.integer], seed: bytes = SEED) -> NDArray[np.int64]:
    projection = SparseProjection(seed, k, q.shape[1])
    projection.add(ranks, q)
    return projection.total()


def entries_of(seed: bytes, k: int, ranks: list[int]) -> Entries:
    rows, signs = SparseEntries(seed, k).of(np.array(ranks, np.uint64))
    return list(zip(rows.tolist(), signs.tolist(), strict=True))


@pytest.mark.parametrize("case", SPARSE_VECTORS["entries"])
def test_reference_entries_are_reproduced(case: dict[str, Any]) -> None:
    assert entries_of(bytes.fromhex(case["seed"]), case["k"], case["ranks"]) == [tuple(e) for e in case["entries"]]


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 2**31), ranks_of_a_table)
def test_entries_are_the_ones_of_the_definition_in_python_integers(seed: bytes, k: int, ranks: list[int]) -> None:
    found = entries_of(seed, k, ranks)
    assert found == [tuple(sparse_entry(seed, rank, k)) for rank in ranks]
    assert all(0 <= row < k for row, _ in found)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 6), ranks_of_a_table, st.data())
def test_sparse_projection_equals_sums_of_python_integers(k: int, d: int, ranks: list[int], data: Any) -> None:
    row = st.lists(st.integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY), min_size=d, max_size=d)
    q = data.draw(st.lists(row, min_size=len(ranks), max_size=len(ranks)))
    expected = naive_sparse(entries_of(SEED, k, ranks), k, q)
    assert project_sparse(k, np.array(ranks), np.array(q)).tolist() == expected
    split = data.draw(st.integers(0, len(ranks)))
    order = data.draw(st.permutations(range(len(ranks))))
    streamed = SparseProjection(SEED, k, d)
    for batch in (order[:split], order[split:]):
        streamed.add(
            np.array([ranks[i] for i in batch], np.int64), np.array([q[i] for i in batch], np.int32).reshape(-1, d)
        )
    assert streamed.total().tolist() == expected


def test_largest_entries_in_one_row_of_the_sketch_stay_exact() -> None:
    ranks = np.arange(9000)  # across internal batches
    _, signs = SparseEntries(SEED, 1).of(ranks)
    assert project_sparse(1, ranks, MAX_ABS_ENTRY * signs[:, None]).tolist() == [[9000 * MAX_ABS_ENTRY]]


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 50), st.lists(st.integers(-(2**15), 2**15), min_size=3, max_size=3))
def test_change_of_one_row_moves_a_sparse_block_by_exactly_its_distance(
    subject: int, k: int, values: list[int]
) -> None:
    q = np.random.default_rng(1).integers(-(2**15), 2**15, (100, 3), endpoint=True)
    changed = q.copy()
    changed[subject] = values
    moved = (project_sparse(k, np.arange(100), changed) - project_sparse(k, np.arange(100), q)).ravel().tolist()
    # in Python integers, so that the equality is exact
    assert sum(x * x for x in moved) == sum(x * x for x in (changed - q).ravel().tolist())


@pytest.mark.parametrize(("n", "k"), [(0, 5), (1, 1), (70_000, 9)])
def test_sparse_ones_are_the_sums_of_signs(n: int, k: int) -> None:
    rows, signs = SparseEntries(SEED, k).of(np.arange(n))
    expected = [int(signs[rows == row].sum()) for row in range(k)]
    assert ones_projection(SparseProjection(SEED, k, 1), n).tolist() == expected


def test_products_after_sparse_mixing_have_the_variance_of_dense_ones() -> None:
    """(sum x^2 sum y^2 + (sum xy)^2 - 2 sum x^2 y^2) / k over 2,000 seeds: off by 15 % with probability below 1e-4.

    A sample variance of 2,000 draws of kurtosis 4 at most varies by (4 - 1) / 2,000: a standard error of 3.9 %.
    """
    n, k, draws = 60, 10, 2000
    x, y = np.random.default_rng(3).integers(-100, 100, (2, n))
    products = []
    for number in range(draws):
        rows, signs = SparseEntries(hashlib.sha256(b"%d" % number).digest(), k).of(np.arange(n))
        mixed = [np.bincount(rows, signs * column, minlength=k) for column in (x, y)]
        products.append(float(mixed[0] @ mixed[1]))
    expected = float((x @ x) * (y @ y) + (x @ y) ** 2 - 2 * (x * x) @ (y * y)) / k
    assert abs(np.var(products) / expected - 1) < 0.15
    assert abs(np.mean(products) - float(x @ y)) < 4 * math.sqrt(expected / draws)  # misses with probability 6e-5


def test_kurtosis_of_sparsely_mixed_rows_is_the_one_of_the_proof() -> None:
    """3 + (k - 3) sum u^4 / (sum u^2)^2 of an entry of S u: here one person is half of the column."""
    n, k, seeds = 40, 8, 4000
    u = np.append(np.ones(n - 1), math.sqrt(n - 1))
    share = float(np.sum(u**4) / np.sum(u**2) ** 2)
    fourth = np.zeros(seeds)
    for number in range(seeds):
        rows, signs = SparseEntries(hashlib.sha256(b"%d" % number).digest(), k).of(np.arange(n))
        mixed = np.bincount(rows, signs * u, minlength=k)
        fourth[number] = np.mean(mixed**4)
    error = float(np.std(fourth) / np.mean(fourth) / math.sqrt(seeds))
    expected = (3 + (k - 3) * share) * (np.sum(u**2) / k) ** 2
    # five standard errors, each below 2 %: misses with probability below 1e-6
    assert error < 0.02
    assert abs(np.mean(fourth) / expected - 1) < 5 * error
