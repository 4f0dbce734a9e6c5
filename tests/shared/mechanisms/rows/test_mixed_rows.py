import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commingle.shared.errors import MixingError
from commingle.shared.mechanisms.rows.mixed_rows import SignStream

VECTORS = Path(__file__).parents[3] / "vectors" / "sign_stream.json"
SEED = bytes(range(32))
RANKS = st.lists(st.integers(0, 2**64 - 1), max_size=8).map(lambda ranks: np.array(ranks, dtype=np.uint64))


def bit_string(seed: bytes, rank: int, rows: int) -> str:
    packed = SignStream(seed).packed(np.array([rank]), rows)
    return "".join(map(str, np.unpackbits(packed, count=rows)))


@pytest.fixture(scope="module")
def vectors() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(VECTORS.read_text())["vectors"]
    return loaded


def test_every_reference_vector_is_reproduced(vectors: list[dict[str, Any]]) -> None:
    assert vectors
    for vector in vectors:
        bits = bit_string(bytes.fromhex(vector["seed"]), vector["rank"], vector["k"])
        assert bits == vector.get("bits", bits)
        assert hashlib.sha256(bits.encode()).hexdigest() == vector["sha256_of_bits"]


def test_columns_of_zero_seed_match_literal_bits() -> None:
    assert bit_string(bytes(32), 0, 7) == "1011110"
    assert bit_string(bytes(32), 2, 16) == "0011010000100011"


@given(RANKS, st.integers(1, 400), st.integers(1, 400))
def test_smaller_k_is_a_prefix(ranks: np.ndarray[Any, Any], small: int, more: int) -> None:
    long = np.unpackbits(SignStream(SEED).packed(ranks, small + more), axis=1, count=small)
    assert np.array_equal(np.unpackbits(SignStream(SEED).packed(ranks, small), axis=1, count=small), long)


@given(RANKS, st.integers(0, 5), st.integers(1, 300))
def test_access_from_a_later_block_equals_the_rest_of_the_stream(
    ranks: np.ndarray[Any, Any], first_block: int, rows: int
) -> None:
    whole = SignStream(SEED).packed(ranks, 128 * first_block + rows)
    assert np.array_equal(SignStream(SEED).packed(ranks, rows, first_block=first_block), whole[:, 16 * first_block :])


def test_narrow_integer_types_of_ranks_give_the_same_columns_and_no_ranks_none() -> None:
    assert SignStream(SEED).packed(np.array([], dtype=np.int64), 129).shape == (0, 17)
    expected = SignStream(SEED).packed(np.array([3, 100]), 50)
    for dtype in (np.int8, np.uint16, np.int32, np.uint64):
        assert np.array_equal(SignStream(SEED).packed(np.array([3, 100], dtype=dtype), 50), expected)


@pytest.mark.parametrize("seed", [b"", bytes(31), bytes(33)])
def test_seed_of_another_length_is_refused(seed: bytes) -> None:
    with pytest.raises(MixingError, match="32 bytes"):
        SignStream(seed)


@pytest.mark.parametrize(
    ("ranks", "rows"),
    [
        (np.array([0]), 0),
        (np.array([0]), -1),
        (np.array([4, -1]), 8),
        (np.array([0.0]), 8),
        (np.array([[0]]), 8),
    ],
)
def test_ranks_or_rows_out_of_range_are_refused(ranks: np.ndarray[Any, Any], rows: int) -> None:
    with pytest.raises(MixingError):
        SignStream(SEED).packed(ranks, rows)
