from hashlib import sha256
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from commingle.shared.documents.statements import BlockStatement
from commingle.shared.errors import BlockError
from commingle.shared.release.matrix import check_block, content_digest, decode_block, encode_block, largest_body

Block = NDArray[np.int64]
BLOCK = np.array([[1, -2], [3, 4], [2**62, -(2**63)]], np.int64)
COLUMNS = ("age", "sex=föö")
BODY = encode_block(BLOCK, COLUMNS)


def stream(columns: dict[str, Any], *, batches: int = 1, compression: Literal["lz4", "zstd"] | None = None) -> bytes:
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def column(*values: int | None) -> "pa.Int64Array":
    return pa.array(values, pa.int64())


def statement(**changes: Any) -> BlockStatement:
    said = BlockStatement(
        spec="00" * 32,
        approvals="00" * 32,
        party="clinic",
        rows=3,
        columns=COLUMNS,
        sigma=1,
        body_sha256=sha256(BODY).hexdigest(),
        content_sha256=content_digest(BLOCK),
        ledger_head="00" * 32,
    )
    return said.model_copy(update=changes)


@given(hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=20)))
def test_block_survives_the_journey_and_fits_the_size_limit(block: Block) -> None:
    columns = [f"column {i}" for i in range(block.shape[1])]
    body = encode_block(block, columns)
    assert len(body) <= largest_body(*block.shape)
    assert np.array_equal(decode_block(body, columns=columns, rows=len(block)), block)


def test_widest_block_with_the_longest_names_fits_the_size_limit() -> None:
    block = np.zeros((3, 256), np.int64)
    columns = [f"{i:03}" + "é" * 157 for i in range(256)]  # attribute (80) + "=" + level (80), two bytes each
    assert len(encode_block(block, columns)) <= largest_body(3, 256)


@pytest.mark.parametrize("flip", [np.asfortranarray, np.ascontiguousarray, lambda b: np.repeat(b, 2, axis=0)[::2]])
def test_digest_and_body_do_not_depend_on_the_memory_layout(flip: Any) -> None:
    assert content_digest(flip(BLOCK)) == content_digest(BLOCK)
    assert encode_block(flip(BLOCK), COLUMNS) == BODY


def test_content_digest_is_the_documented_bytes() -> None:
    numbers = [3, 2, 1, 3, 2**62, -2, 4, -(2**63)]
    plain = b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)
    assert content_digest(BLOCK) == sha256(b"commingle/v1/block" + plain).hexdigest()


def test_content_digest_tells_shapes_apart() -> None:
    flat = np.arange(6, dtype=np.int64)
    assert len({content_digest(flat.reshape(shape)) for shape in ((6, 1), (1, 6), (2, 3), (3, 2))}) == 4


REFUSED = {
    "no bytes": b"",
    "not arrow": b"not an arrow stream at all",
    "truncated": BODY[:-20],
    "cut in the schema": BODY[:40],
    "no batch": stream({"age": column(1), "sex=föö": column(1)}, batches=0),
    "other names": stream({"age": column(1, 2, 3), "sex": column(1, 2, 3)}),
    "other order": stream({"sex=föö": column(1, 2, 3), "age": column(1, 2, 3)}),
    "a column more": stream({"age": column(1, 2, 3), "sex=föö": column(1, 2, 3), "x": column(1, 2, 3)}),
    "a column less": stream({"age": column(1, 2, 3)}),
    "floats": stream({"age": column(1, 2, 3), "sex=föö": pa.array([1.0, 2.0, 3.0])}),
    "narrow integers": stream({"age": column(1, 2, 3), "sex=föö": pa.array([1, 2, 3], pa.int32())}),
    "empty cells": stream({"age": column(1, 2, 3), "sex=föö": column(1, None, 3)}),
    "too few rows": stream({"age": column(1, 2), "sex=föö": column(1, 2)}),
    "too many rows": stream({"age": column(1, 2, 3, 4), "sex=föö": column(1, 2, 3, 4)}),
    "too many batches": stream({"age": column(1, 2, 3), "sex=föö": column(1, 2, 3)}, batches=2),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_body_that_is_not_the_stated_block_is_refused(body: bytes) -> None:
    with pytest.raises(BlockError):
        decode_block(body, columns=COLUMNS, rows=3)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_body_is_refused_before_it_can_unfold(compression: Literal["lz4", "zstd"]) -> None:
    rows = 1_000_000
    body = stream({"age": pa.array(np.zeros(rows, np.int64))}, compression=compression)
    assert len(body) < 40_000  # 8 MB unfolded
    with pytest.raises(BlockError):
        decode_block(body, columns=["age"], rows=rows)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"body_sha256": "11" * 32}, "another digest"),
        ({"content_sha256": "11" * 32}, "integers"),
        ({"rows": 4}, "rows"),
        ({"columns": ("age", "sex")}, "columns"),
    ],
)
def test_body_that_differs_from_its_statement_is_refused_by_name(changes: dict[str, Any], said: str) -> None:
    assert np.array_equal(check_block(BODY, statement()), BLOCK)
    with pytest.raises(BlockError, match=said):
        check_block(BODY, statement(**changes))
