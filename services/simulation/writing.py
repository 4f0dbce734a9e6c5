"""The files parties are given: their own columns of the training rows, each in an order of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from commingle.services.simulation.table import Table, is_numeric

SUBJECT_ID = "subject_id"


def write_party_table(path: Path, table: Table, *, draw: np.random.Generator) -> None:
    """Write a table in shuffled order, as CSV or Parquet by the path's suffix."""
    shuffled = table.rows(draw.permutation(table.n))
    columns: dict[str, pa.Array[Any]] = {SUBJECT_ID: pa.array(shuffled.subjects.tolist(), pa.string())}
    for name, values in shuffled.columns.items():
        columns[name] = (
            pa.array(values, pa.float64(), from_pandas=True) if is_numeric(values) else pa.array(values, pa.string())
        )
    if path.suffix == ".csv":
        pa.csv.write_csv(pa.table(columns), path)
    else:
        pa.parquet.write_table(pa.table(columns), path)
