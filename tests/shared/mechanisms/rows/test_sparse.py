import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.rows.mixed_rows import MAX_ABS_ENTRY, ones_projection
from commingle.shared.mechanisms.rows.sparse import SparseEntries, SparseProjection

SEED = bytes(range(32))
VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "sparse_mixing.json").read_text())
Entries = list[tuple[int, int]]


def naive_entries(seed: bytes, k: int, ranks: list[int]) -> Entries:
    """Row and sign of each rank, in Python integers, one AES call each."""
    key = hashlib.sha256(b"commingle/v1/sparse-mixing" + seed).digest()
    found = []
    for rank in ranks:
        block = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(rank.to_bytes(12, "big") + bytes(4))  # noqa: S305 - as written
        found.append((int.from_bytes(block[:8], "big") * k >> 64, -1 if block[8] & 128 else 1))
    return found


def naive(entries: Entries, k: int, q: list[list[int]]) -> list[list[int]]:
    total = [[0] * len(q[0]) for _ in range(k)]
    for (row, sign), values in zip(entries, q, strict=True):
        total[row] = [old + sign * value for old, value in zip(total[row], values, strict=True)]
    return total


def project(k: int, ranks: NDArray[np.integer], q: NDArray[np.integer], seed: bytes = SEED) -> NDArray[np.int64]:
    projection = SparseProjection(seed, k, q.shape[1])
    projection.add(ranks, q)
    return projection.total()


def entries_of(seed: bytes, k: int, ranks: list[int]) -> Entries:
    rows, signs = SparseEntries(seed, k).of(np.array(ranks, np.uint64))
    return list(zip(rows.tolist(), signs.tolist(), strict=True))


ranks_of_a_table = st.lists(st.integers(0, 2**62), min_size=1, max_size=40, unique=True)


@pytest.mark.parametrize("case", VECTORS["entries"])
def test_reference_entries_are_reproduced(case: dict[str, Any]) -> None:
    assert entries_of(bytes.fromhex(case["seed"]), case["k"], case["ranks"]) == [tuple(e) for e in case["entries"]]


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 2**31), ranks_of_a_table)
def test_entries_are_the_ones_of_the_definition_in_python_integers(seed: bytes, k: int, ranks: list[int]) -> None:
    found = entries_of(seed, k, ranks)
    assert found == naive_entries(seed, k, ranks)
    assert all(0 <= row < k for row, _ in found)


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 6), ranks_of_a_table, st.data())
def test_sparse_projection_equals_sums_of_python_integers(k: int, d: int, ranks: list[int], data: Any) -> None:
    row = st.lists(st.integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY), min_size=d, max_size=d)
    q = data.draw(st.lists(row, min_size=len(ranks), max_size=len(ranks)))
    expected = naive(naive_entries(SEED, k, ranks), k, q)
    assert project(k, np.array(ranks), np.array(q)).tolist() == expected
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
    assert project(1, ranks, MAX_ABS_ENTRY * signs[:, None]).tolist() == [[9000 * MAX_ABS_ENTRY]]


def test_every_column_of_the_sparse_matrix_has_one_entry_of_magnitude_one() -> None:
    s = project(7, np.arange(300), np.eye(300, dtype=np.int64))
    assert np.abs(s).sum(axis=0).tolist() == [1] * 300


@settings(deadline=None)
@given(st.integers(0, 99), st.integers(1, 50), st.lists(st.integers(-(2**15), 2**15), min_size=3, max_size=3))
def test_change_of_one_row_moves_a_sparse_block_by_exactly_its_distance(
    subject: int, k: int, values: list[int]
) -> None:
    q = np.random.default_rng(1).integers(-(2**15), 2**15, (100, 3), endpoint=True)
    changed = q.copy()
    changed[subject] = values
    moved = (project(k, np.arange(100), changed) - project(k, np.arange(100), q)).ravel().tolist()
    # in Python integers, so that the equality is exact
    assert sum(x * x for x in moved) == sum(x * x for x in (changed - q).ravel().tolist())


@pytest.mark.parametrize(("n", "k"), [(0, 5), (1, 1), (70_000, 9)])
def test_sparse_ones_are_the_sums_of_signs(n: int, k: int) -> None:
    rows, signs = SparseEntries(SEED, k).of(np.arange(n))
    expected = [int(signs[rows == row].sum()) for row in range(k)]
    assert ones_projection(SparseProjection(SEED, k, 1), n).tolist() == expected


def test_rows_and_signs_of_the_entries_look_independent_and_uniform() -> None:
    """Chi-square over 2 x 100 cells, 199 degrees of freedom: above 320 with probability below 1e-7 if they are."""
    rows, signs = SparseEntries(SEED, 100).of(np.arange(100_000))
    counts = np.bincount(rows + 100 * (signs > 0), minlength=200)
    assert ((counts - 500) ** 2 / 500).sum() < 320


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


@pytest.mark.parametrize(
    ("ranks", "q"),
    [
        (np.array([-1]), np.array([[1, 1]])),
        (np.array([0, 1]), np.array([[1, 1]])),
        (np.array([0]), np.array([[1.0, 1.0]])),
        (np.array([0]), np.array([[2**15 + 1, 0]])),
    ],
)
def test_bad_rows_are_refused_and_leave_the_sparse_sum_alone(ranks: NDArray[np.int64], q: NDArray[Any]) -> None:
    projection = SparseProjection(SEED, 4, 2)
    with pytest.raises(MixingError):
        projection.add(ranks, q)
    assert not projection.total().any()
