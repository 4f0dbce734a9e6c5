"""Buckets of keyed subjects: one subject changes one row, whatever the others are; and what that costs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.shared.documents.errors import SpecError
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.interface import row_bound
from commingle.shared.mechanisms.moments.allocation import block_sensitivity, bounds_of, own_weight
from commingle.shared.mechanisms.moments.keyed import Buckets
from tests.shared.mechanisms.rows.test_keyed_rows import B, X, spec_of


def filled(names: NDArray[np.uint8], rows: NDArray[np.int64], *, count: int, batch: int = 100) -> NDArray[np.int64]:
    buckets = Buckets(range(count), count=count, d=rows.shape[1])
    for start in range(0, len(rows), batch):
        buckets.add(names[start : start + batch], rows[start : start + batch])
    return buckets.total()


def people(n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    draw = np.random.default_rng(seed)
    rows = np.column_stack([np.full(n, 2**14), draw.integers(-(2**14), 2**14 + 1, (n, 2))])
    return np.frombuffer(draw.bytes(32 * n), np.uint8).reshape(n, 32), rows


@given(seed=st.integers(0, 999), n=st.integers(1, 40), count=st.integers(2, 30), gone=st.integers(0, 39))
def test_one_subject_more_changes_one_bucket_at_most(seed: int, n: int, count: int, gone: int) -> None:
    names, rows = people(n, seed)
    left = np.delete(np.arange(n), gone % n)
    moved = filled(names, rows, count=count) - filled(names[left], rows[left], count=count)
    assert np.count_nonzero(moved.any(axis=1)) <= 1


@given(seed=st.integers(0, 999), batch=st.integers(1, 7))
def test_order_and_batches_do_not_matter_and_the_least_priority_stays(seed: int, batch: int) -> None:
    names, rows = people(20, seed)
    found = filled(names, rows, count=6)
    order = np.random.default_rng(seed).permutation(20)
    assert np.array_equal(filled(names[order], rows[order], count=6, batch=batch), found)
    for bucket in range(6):
        own = [i for i in range(20) if int.from_bytes(names[i, :8].tobytes(), "big") % 6 == bucket]
        if own:
            least = min(own, key=lambda i: names[i, 16:24].tobytes())
            assert np.array_equal(found[bucket], rows[least] * (-1 if names[least, 8] & 1 else 1))
        else:
            assert not found[bucket].any()


@pytest.mark.parametrize("row_norm", [None, 0.5])
def test_no_pair_of_rows_moves_a_block_farther_than_is_charged(row_norm: float | None) -> None:
    """Own block and cross blocks with the worst others, over rows of the ball, their opposites and none."""
    spec = spec_of(X, B, mechanism="moments", bounds="trusted", row_norm=row_norm)
    [party] = spec.parties
    bounds, weight, draw = bounds_of(spec, party), own_weight(spec, party), np.random.default_rng(2)
    c = row_bound(spec, party)
    assert (bounds.c, bounds.e, bounds.k) == (c, 4 * c, 0)
    allowed = block_sensitivity(spec, party, Adjacency.ADD_REMOVE)
    rows = draw.normal(size=(60, 3))
    rows *= np.sqrt(c) / np.linalg.norm(rows, axis=1)[:, None]
    rows = np.vstack([np.zeros(3), rows, -rows])
    for x in rows[:20]:
        for y in rows:
            moved = weight * float(np.sum((np.outer(x, x) - np.outer(y, y)) ** 2))
            assert moved <= allowed * (1 + 1e-12)
    assert block_sensitivity(spec, party, Adjacency.REPLACE_ONE) == allowed


def test_four_buckets_for_each_subject_unless_a_study_says_otherwise() -> None:
    assert spec_of(X, mechanism="moments").table_rows == 400
    assert spec_of(X, mechanism="moments", buckets=7).table_rows == 7
    assert spec_of(X, mechanism="moments", buckets=1600).table_rows == 1600
    with pytest.raises(SpecError, match="1601 buckets are too many for about 100 subjects: at most 1600"):
        spec_of(X, mechanism="moments", buckets=1601)
    found = spec_of(X, mechanism="moments")
    assert mechanism_of(found).intercept(found).shape == (2, 0)
