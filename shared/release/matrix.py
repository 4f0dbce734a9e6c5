"""The published matrix: every party's integers side by side behind the exact intercept, as Parquet.

Integers are published, in units of one public step, because they are what parties signed: anyone can check each
party's columns against its signature. Regression is indifferent to the common step.
"""

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from commingle.shared.documents.errors import VerificationError
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.plan import plan_blocks


def assemble(spec: ReleaseSpec, blocks: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The matrix (rows x p) of the intercept, where there is one, and the parties' blocks, in the spec's order."""
    return np.column_stack([mechanism_of(spec).intercept(spec), *blocks])


def encode_matrix(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> bytes:
    """Parquet bytes. The file's metadata carries the release id and the step."""
    facts = {"release": release, "mechanism": spec.mechanism, "step": mechanism_of(spec).step(spec)}
    schema = pa.schema(
        [(column.name, pa.int64()) for column in spec.columns], metadata={"commingle": json.dumps(facts)}
    )
    table = pa.table([pa.array(np.ascontiguousarray(column)) for column in matrix.T], schema=schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def decode_matrix(spec: ReleaseSpec, data: bytes) -> NDArray[np.int64]:
    """The integers (rows x p) of a published matrix.

    Raises:
        VerificationError: not Parquet, or not the columns and rows the spec calls for.
    """
    remedy = "Download the matrix again."
    expected = pa.schema([(column.name, pa.int64()) for column in spec.columns])
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        # before reading: what a small file claims to hold may not fit this machine
        if not file.schema_arrow.equals(expected) or not _holds(file.metadata, mechanism_of(spec).rows(spec)):
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

    Nothing is asked about columns: where their statistics are broken, pyarrow ends the process.
    """
    groups = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return metadata.num_rows == sum(groups) == rows and min(groups, default=0) >= 0


def second_moments(spec: ReleaseSpec, release: str, matrix: NDArray[np.int64]) -> SecondMoments:
    """The moments of an assembled matrix (integers, the intercept first).

    Raises:
        VerificationError: no honest blocks make such a matrix.
    """
    found = mechanism_of(spec).moments(spec, [plan.sigma for plan in plan_blocks(spec)], matrix)
    return SecondMoments(
        release=release,
        mechanism=spec.mechanism,
        columns=tuple(column.name for column in spec.columns),
        gram=_rows(found.gram),
        noise_variance=found.noise_variance,
        rows=found.rows,
        n=spec.n,
        entry_variance=None if found.entry_variance is None else _rows(found.entry_variance),
        subjects=spec.subjects,
    )


def _rows(matrix: NDArray[np.float64]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
