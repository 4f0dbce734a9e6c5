import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.mechanisms.rows import sketch
from commingle.shared.mechanisms.rows.mixed_rows import MAX_ABS_ENTRY
from commingle.shared.mechanisms.rows.projection import Projection
from commingle.shared.mechanisms.rows.sketch import SKETCHES
from commingle.shared.mechanisms.rows.sparse import SparseProjection

SEED = bytes(range(32))


def rows(n: int, d: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    generator = np.random.default_rng([n, d])
    return generator.permutation(3 * n)[:n], generator.integers(-MAX_ABS_ENTRY, MAX_ABS_ENTRY, (n, d), endpoint=True)


@pytest.mark.parametrize(
    ("n", "k", "d"),
    [(0, 5, 2), (1, 1, 1), (7, 127, 8), (33, 129, 9), (600, 1025, 10), (40, 16_500, 3), (513, 300, 17), (5, 128, 40)],
)
def test_compiled_projection_equals_the_one_of_numpy_bit_for_bit(n: int, k: int, d: int) -> None:
    ranks, q = rows(n, d)
    compiled, oracle = SKETCHES[None].mixed_rows(SEED, k=k, d=d), Projection(SEED, k, d)
    assert type(compiled).__name__ == "CompiledProjection"
    oracle.add(ranks, q)
    for part in np.array_split(np.arange(n), 3):
        compiled.add(ranks[part], q[part])
    assert np.array_equal(compiled.total(), oracle.total())
    assert compiled.total().dtype == np.int64


def test_largest_entries_aligned_with_the_signs_stay_exact_when_compiled() -> None:
    ranks = np.arange(1537)
    oracle = Projection(SEED, 9, len(ranks))
    oracle.add(ranks, np.eye(len(ranks), dtype=np.int64))
    q = MAX_ABS_ENTRY * oracle.total()[:1].T  # every partial sum of the first row is as large as it can get
    compiled = SKETCHES[None].mixed_rows(SEED, k=9, d=1)
    compiled.add(ranks, q)
    assert compiled.total()[0, 0] == 1537 * MAX_ABS_ENTRY
    assert np.array_equal(compiled.total(), oracle.total() @ q)


def test_package_without_loops_mixes_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(SKETCHES["sparse"].mixed_rows(SEED, k=10, d=2), SparseProjection)
    monkeypatch.setattr(sketch, "available", lambda: False)
    assert isinstance(SKETCHES[None].mixed_rows(SEED, k=10, d=2), Projection)
