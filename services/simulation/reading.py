"""Reading a CSV or Parquet file into a table."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from commingle.services.simulation.errors import TableError
from commingle.services.simulation.table import Table, as_levels, is_numeric, missing

_FORBIDDEN = str.maketrans({"=": ":", "[": "(", "]": ")"})
_NOT_A_VALUE = frozenset({"", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null"})


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table as read.

    Attributes:
        unusable: columns that hold neither numbers nor text, with their type.
        texts: columns that the file itself declares to be text; CSV declares nothing.
    """

    table: Table
    unusable: dict[str, str]
    texts: frozenset[str] = frozenset()


def usable_name(name: str) -> str:
    """A column's name with the characters replaced that an attribute's name cannot have."""
    return name.strip().translate(_FORBIDDEN)


def read_table(path: Path, *, subject_id: str | None, where_present: str | None = None) -> Source:
    """The table of a file.

    Args:
        path: of a .csv (or .csv.gz) or .parquet file.
        subject_id: the column that identifies subjects; None to use
        where_present: if the table has it, and to number them otherwise.

    Raises:
        TableError: it cannot be read, has no rows, or its identifiers are missing or appear twice.
    """
    data = _read(path)
    names = [usable_name(name) for name in data.column_names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or "" in names:
        said = f"two columns are named {twice[0]!r}" if twice else "a column has no name"
        raise TableError(f"{path}: {said}", remedy="Give every column a name of its own.")
    if not data.num_rows:
        raise TableError(f"{path} has no rows", remedy="Give a table with one row per subject.")
    columns: dict[str, NDArray[Any]] = {}
    unusable: dict[str, str] = {}
    for name, column in zip(names, data.columns, strict=True):
        try:
            columns[name] = _values(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError):
            unusable[name] = str(column.type)
    texts = frozenset(n for n, values in columns.items() if _declares_types(path) and not is_numeric(values))
    if subject_id is None and where_present not in columns:
        return Source(Table(_numbered(data.num_rows), columns), unusable, texts)
    wanted = usable_name(subject_id or where_present or "")
    if wanted not in columns:
        raise no_such_column(wanted, columns, where=str(path))
    return Source(Table(_subjects(columns.pop(wanted), wanted, path), columns), unusable, texts)


def no_such_column(name: str, available: Iterable[str], *, where: str) -> TableError:
    """The error for a column that is not there."""
    return TableError(f"{where} has no column {name!r}", remedy=f"Its columns are: {', '.join(available)}.")


def _declares_types(path: Path) -> bool:
    return path.suffix.lower() in {".parquet", ".pq"}


def _read(path: Path) -> pa.Table:
    try:
        if _declares_types(path):
            return pa.parquet.ParquetFile(path).read()
        if path.name.lower().endswith((".csv", ".csv.gz")):
            missing_values = sorted(_NOT_A_VALUE)
            options = pa.csv.ConvertOptions(null_values=missing_values, strings_can_be_null=True)
            return pa.csv.read_csv(path, convert_options=options)
    except OSError as error:
        raise TableError(f"cannot read {path} ({error.strerror or error})", remedy="Check the path.") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        first = str(error).partition("\n")[0]
        raise TableError(f"{path} is not a table: {first}", remedy="Give a CSV with a header, or Parquet.") from None
    raise TableError(f"{path} is neither .csv nor .parquet", remedy="Give a CSV with a header line, or Parquet.")


def _values(column: "pa.ChunkedArray[Any]") -> NDArray[Any]:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _values(column.cast(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
        texts = np.array(column.cast(pa.string()).to_pylist(), dtype=object)
        kinds = {text: _level(text) for text in set(texts.tolist())}
        return np.array([kinds[text] for text in texts.tolist()], dtype=object)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise TypeError
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _level(text: str | None) -> str | None:
    stripped = None if text is None else text.strip()
    return None if stripped in _NOT_A_VALUE else stripped


def _numbered(n: int) -> NDArray[np.str_]:
    return np.char.add("subject-", np.char.zfill(np.arange(1, n + 1).astype(str), len(str(n))))


def _subjects(values: NDArray[Any], name: str, path: Path) -> NDArray[np.str_]:
    absent = int(missing(values).sum())
    if absent:
        raise TableError(f"{path}: {absent} rows have no {name}", remedy="Every subject needs an identifier.")
    subjects = as_levels(values).astype(str)
    kinds, counts = np.unique(subjects, return_counts=True)
    twice = kinds[counts > 1]
    if len(twice):
        raise TableError(
            f"{path}: {len(twice)} values of {name} appear in several rows",
            remedy="Give one row per subject, or another column with --subject-id.",
        )
    return subjects
