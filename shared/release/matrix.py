"""The bytes that are uploaded and published, and their sizes; and published moments on their way to a fit.

A block travels as Arrow IPC; a content digest names its contents. The published matrix is every party's integers side
by side behind the exact intercept, as Parquet. Integers are published, in units of one public step, because parties
signed integers: anyone can check each party's columns against its signature. Regression is indifferent to the common
step. Before a fit, moments are checked against their mechanism, and every map of rows is undone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import BlockStatement, Sums
from commingle.shared.errors import BlockError, MomentsMismatchError, VerificationError
from commingle.shared.estimation.prepared import PreparedMoments, Stage
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.mechanisms.moments.exchange.sizes import Sizes
from commingle.shared.release.checks import closed
from commingle.shared.release.plan import plan_blocks

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

    Raises BlockError: not Arrow, other columns, types or rows than expected, or empty cells.
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
    """The integers of a body that is exactly as its statement says. Raises BlockError."""
    remedy = "Send the stored bytes of the block that was signed."
    if sha256(body).hexdigest() != statement.body_sha256:
        raise BlockError("the uploaded bytes have another digest than the signed statement", remedy=remedy)
    block = decode_block(body, columns=statement.columns, rows=statement.rows)
    if content_digest(block) != statement.content_sha256:
        raise BlockError("the block's integers have another digest than the signed statement", remedy=remedy)
    return block


def assemble(spec: ReleaseSpec, blocks: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The matrix (rows x p) of the intercept, if there is one, and the parties' blocks, in the spec's order."""
    return np.column_stack([mechanism_of(spec).intercept(spec.terms), *blocks])


def encode_matrix(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> bytes:
    """Parquet bytes. The file's metadata carries the release id and the step."""
    facts = {"release": release, "mechanism": spec.mechanism, "step": mechanism_of(spec).step(spec.terms)}
    schema = pa.schema(
        [(column.name, pa.int64()) for column in spec.matrix_columns], metadata={"commingle": json.dumps(facts)}
    )
    table = pa.table([pa.array(np.ascontiguousarray(column)) for column in matrix.T], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def decode_matrix(spec: ReleaseSpec, data: bytes) -> NDArray[np.int64]:
    """The integers (rows x p) of a published matrix. Raises VerificationError: not Parquet, or not as the spec says."""
    remedy = "Download the matrix again."
    expected = pa.schema([(column.name, pa.int64()) for column in spec.matrix_columns])
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        # before reading: a small file may claim more rows than fit this machine
        if not file.schema_arrow.equals(expected) or not _holds(file.metadata, mechanism_of(spec).rows(spec.terms)):
            raise VerificationError("the matrix has another shape than its spec calls for", remedy=remedy)
        table = file.read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError):
        raise VerificationError("the matrix is not a readable Parquet file", remedy=remedy) from None
    if any(column.null_count for column in table.columns):
        raise VerificationError("the matrix has empty cells", remedy=remedy)
    # pyarrow's own to_numpy imports pandas wherever that is installed
    return np.column_stack([np.from_dlpack(column.combine_chunks()) for column in table.columns])


def _holds(metadata: pq.FileMetaData, rows: int) -> bool:
    """Whether a file says of itself that it has `rows` rows, as a whole and in its row groups.

    It asks nothing about columns: if their statistics are broken, pyarrow ends the process.
    """
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return metadata.num_rows == sum(groups) == rows and min(groups, default=0) >= 0


def second_moments(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> SecondMoments:
    """The moments of an assembled matrix (integers, the intercept first)."""
    return mechanism_of(spec).moments(spec, release, [plan.sigma for plan in plan_blocks(spec)], matrix)


@dataclass(frozen=True, slots=True)
class ReleaseSizes:
    """Bytes that parties of one release can send, and bytes that stay."""

    largest: int  # of one body
    exchanged: int  # of all messages between parties, which are deleted when the release is over
    kept: int  # of all blocks and of the files published from them


def release_sizes(spec: ReleaseSpec) -> ReleaseSizes:
    """Raises SpecError, ParameterError as `plan_blocks`."""
    plans = plan_blocks(spec)
    blocks = [largest_body(plan.rows, len(plan.columns)) for plan in plans]
    messages = _messages(spec) if mechanism_of(spec).interactive else []
    width = len(spec.matrix_columns)
    published = largest_body(plans[0].rows, width) + largest_body(width, width)  # the matrix, and second moments
    return ReleaseSizes(max(*blocks, *messages, 0), sum(messages), sum(blocks) + published)


def _messages(spec: ReleaseSpec) -> list[int]:
    terms = spec.terms
    sizes = Sizes.of(terms.table_rows, list(terms.widths.values()), proved=terms.proved)
    return [size for party in range(len(spec.parties)) for size in (sizes.columns(party), sizes.reply(party))]


NO_SUMS: Mapping[str, Sums | None] = MappingProxyType({})


def prepared_release(
    moments: SecondMoments, spec: ReleaseSpec, sums: Mapping[str, Sums | None] = NO_SUMS
) -> PreparedMoments:
    """Published moments in encoded units; `sums` are the published ones of each party with a first stage."""
    if not moments.keyed and (moments.entry_variance is None) is not mechanism_of(spec).of_rows:
        raise MomentsMismatchError(
            "these moments do not have the noise of their mechanism", remedy="Take them from the release again."
        )
    terms, stages = closed(spec), []
    for party in spec.parties:
        said = sums.get(party.name)
        stages.append(Stage(first_stage_of(terms, party), said, row_map(terms, party, said)))
    return PreparedMoments.of_release(moments, spec, stages)
