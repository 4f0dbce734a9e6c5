"""A party's privatised block as bytes: Arrow IPC for transport, a content digest for what it says."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from commingle.shared.documents.errors import BlockError
from commingle.shared.documents.statements import BlockStatement

ARROW_STREAM = "application/vnd.apache.arrow.stream"
_OVERHEAD_BYTES = 4096
_OVERHEAD_BYTES_PER_COLUMN = 1024


def largest_body(rows: int, columns: int) -> int:
    """An upper bound on the bytes of an honest upload of that shape."""
    return rows * columns * 8 + _OVERHEAD_BYTES + columns * _OVERHEAD_BYTES_PER_COLUMN


def content_digest(block: NDArray[np.int64]) -> str:
    """SHA-256 of shape and integers (8 bytes each, little-endian, column after column), hex."""
    digest = sha256(b"commingle/v1/block" + np.array(block.shape, "<i8").tobytes())
    for column in block.T:
        digest.update(np.ascontiguousarray(column, "<i8").tobytes())
    return digest.hexdigest()


def encode_block(block: NDArray[np.int64], columns: Sequence[str]) -> bytes:
    """A block (rows x columns) as an Arrow IPC stream of one batch of int64 columns."""
    arrays = [pa.array(np.ascontiguousarray(column)) for column in block.T]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def decode_block(body: bytes, *, columns: Sequence[str], rows: int) -> NDArray[np.int64]:
    """The integers (rows x columns) of an Arrow IPC stream.

    Raises:
        BlockError: not Arrow, other columns, types or rows than expected, or empty cells.
    """
    remedy = "Upload the Arrow IPC stream that the block statement describes."
    try:
        messages = list(pa.ipc.MessageReader.open_stream(body))
        if [message.type for message in messages] != ["schema", "record batch"]:  # read_schema aborts on others
            raise BlockError("the block is not one batch of rows", remedy=remedy)
        schema = pa.ipc.read_schema(messages[0])
    except (pa.ArrowException, OSError, ValueError, EOFError) as error:
        raise BlockError(f"the block is not a readable Arrow stream ({type(error).__name__})", remedy=remedy) from None
    if not schema.equals(pa.schema([(name, pa.int64()) for name in columns])):
        raise BlockError("the block has other columns or types than its statement", remedy=remedy)
    # The integers are taken from where an uncompressed batch without empty cells has them, whatever the batch says of
    # itself: a few kilobytes cannot pose as compressed gigabytes.
    integers = messages[1].body
    if integers is None or integers.size != rows * len(columns) * 8:
        raise BlockError(f"the block does not hold {rows} uncompressed rows without empty cells", remedy=remedy)
    flat: NDArray[np.int64] = np.frombuffer(integers.to_pybytes(), "<i8")
    return np.ascontiguousarray(flat.reshape(len(columns), rows).T)


def check_block(body: bytes, statement: BlockStatement) -> NDArray[np.int64]:
    """The integers of a body that is exactly what its statement says.

    Raises:
        BlockError: it is not.
    """
    remedy = "Send the stored bytes of the block that was signed."
    if sha256(body).hexdigest() != statement.body_sha256:
        raise BlockError("the uploaded bytes have another digest than the signed statement", remedy=remedy)
    block = decode_block(body, columns=statement.columns, rows=statement.rows)
    if content_digest(block) != statement.content_sha256:
        raise BlockError("the block's integers have another digest than the signed statement", remedy=remedy)
    return block
