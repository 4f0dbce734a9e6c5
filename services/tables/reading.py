"""A CSV or Parquet file as a table in memory.

Cells and subject ids are read as an agent reads them. Two steps come before anything is encoded, because tables that
people find are less tidy than those of a party: more spellings of a missing value (never in a subject id), and, where
no schema says what a CSV holds, numbers and booleans recognised in columns of text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from commingle.services.errors import TableError
from commingle.shared.documents.subject_ids import IdCounts, IdRules, SubjectColumns, SubjectKey
from commingle.shared.encoding import MISSING, Cells, plain_cells, subject_ids
from commingle.shared.errors import DataError
from commingle.shared.runtime.csv_format import USUAL, CsvFormat
from commingle.shared.runtime.csv_records import FileBatch
from commingle.shared.runtime.tables import UNREADABLE, column_names, guess_format, is_parquet, read_batches

_FORBIDDEN = str.maketrans({"=": ":", "[": "(", "]": ")"})
_SAYING = "--encoding, --separator, --decimal, --lines-per-record"
_NOT_A_VALUE = (*MISSING, "?", "n/a", "NaN", "nan")
_TYPES_OF_TEXT = (pa.float64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Columns of equal length, one row per subject.

    Attributes:
        subjects: (n,) distinct identifiers.
        columns: by name, n cells each: numbers, text or booleans, null where missing.
    """

    subjects: NDArray[np.str_]
    columns: Mapping[str, Cells]

    @property
    def n(self) -> int:
        """Rows."""
        return len(self.subjects)

    def rows(self, chosen: NDArray[np.int64]) -> Self:
        """The rows with these indices."""
        return type(self)(self.subjects[chosen], {name: cells.take(chosen) for name, cells in self.columns.items()})

    def only(self, names: Iterable[str]) -> Self:
        """These columns, in this order."""
        return type(self)(self.subjects, {name: self.columns[name] for name in names})

    def and_rows(self, more: Self) -> Self:
        """These rows, then those of another table with the same columns, about other subjects."""
        both = {name: pa.concat_arrays([cells, more.columns[name]]) for name, cells in self.columns.items()}
        return type(self)(np.concatenate([self.subjects, more.subjects]), both)

    def __repr__(self) -> str:
        return f"<Table of {self.n:,} rows and {len(self.columns)} columns>"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table as read.

    Attributes:
        unusable: columns that hold neither numbers nor text, with their type.
        texts: columns that the file itself declares to be text; CSV declares nothing.
        ids: what the subject ids are like; None where rows are numbered.
        notices: how the file was read, where that was found by looking at it.
    """

    table: Table
    unusable: dict[str, str]
    texts: frozenset[str] = frozenset()
    ids: IdCounts | None = None
    notices: tuple[str, ...] = ()


def usable_name(name: str) -> str:
    """A column's name with the characters replaced that an attribute's name cannot have."""
    return name.strip().translate(_FORBIDDEN)


def read_table(
    path: Path,
    *,
    subject_id: SubjectColumns | None = None,
    usual_subject_id: str | None = None,
    id_rules: IdRules | None = None,
    typed: bool = False,
    csv_format: CsvFormat | None = None,
) -> Source:
    """The table of a file.

    Args:
        path: of a .csv (or .csv.gz) or .parquet file.
        subject_id: the column, or columns, that identify subjects.
        usual_subject_id: where `subject_id` is None, the column that does if the table has it; rows are numbered
            where it has not.
        id_rules: by which ids are written; None for exactly.
        typed: whether the columns of a CSV become numbers, booleans or dates where all their values read as such.
        csv_format: how a CSV is written; what it looks like where None.

    Raises:
        TableError: it cannot be read, has no rows, or its identifiers are no list of subjects.
        SpecError: there is not one rule for each column of identifiers.
    """
    columns, notices = _read(path, csv_format)
    n = len(next(iter(columns.values())))
    subjects, ids = _number_subjects(n), None
    if (chosen := subject_id or usual_subject_id) and (subject_id or id_rules or usual_subject_id in columns):
        key = SubjectKey.of(chosen, id_rules)
        key = replace(key, columns=tuple(map(usable_name, key.columns)))
        subjects, ids = _subjects(columns, key, path)
        columns = {name: cells for name, cells in columns.items() if name not in key.columns}
    tidied = {name: _tidy(cells) for name, cells in columns.items()}
    if typed and not is_parquet(path):
        tidied = {name: _tidy(type_text(cells)) for name, cells in tidied.items()}
    kept = {name: cells for name, cells in tidied.items() if _is_usable(cells.type)}
    unusable = {name: str(cells.type) for name, cells in tidied.items() if name not in kept}
    texts = frozenset(name for name, cells in kept.items() if is_parquet(path) and not is_numeric(cells))
    return Source(Table(subjects, kept), unusable, texts, ids, notices)


def no_such_column(name: str, available: Iterable[str], *, where: str) -> TableError:
    """The error for a column that is not there."""
    return TableError(f"{where} has no column {name!r}", remedy=f"Its columns are: {', '.join(available)}.")


def is_numeric(cells: Cells) -> bool:
    """Whether a column holds numbers and not levels."""
    return pa.types.is_floating(cells.type) or pa.types.is_integer(cells.type)


def type_text(cells: Cells) -> Cells:
    """Text as numbers, booleans, dates or times where all of it reads as such, unchanged otherwise."""
    if not _is_text(cells.type):
        return cells
    if cells.null_count == len(cells):
        return cells.cast(pa.float64())
    for kind in _TYPES_OF_TEXT:
        try:
            return cells.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            continue
    return cells


def _read(path: Path, csv_format: CsvFormat | None) -> tuple[dict[str, Cells], tuple[str, ...]]:
    if not is_parquet(path) and not path.name.lower().endswith((".csv", ".csv.gz")):
        raise TableError(f"{path} is neither .csv nor .parquet", remedy="Give a CSV with a header line, or Parquet.")
    try:
        form = csv_format or (USUAL if is_parquet(path) else guess_format(path))
        given = column_names(path, form)
        names = [usable_name(name) for name in given]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or "" in names:
            said = f"two columns are named {twice[0]!r}" if twice else "a column has no name"
            raise TableError(f"{path}: {said}", remedy="Give every column a name of its own.")
        batches = _well_formed(path, read_batches(path, given, form))
        if not (names and batches):
            raise TableError(f"{path} has no rows", remedy="Give a table with one row per subject.")
        cells = {name: [_plain(batch[number]) for batch in batches] for number, name in enumerate(names)}
        guessed = csv_format is None and form != USUAL
        notices = (f"{path.name} looks like this: {form}. If it is not, say so with {_SAYING}.",) if guessed else ()
        return {name: pa.concat_arrays(pieces) for name, pieces in cells.items()}, notices
    except UNREADABLE as error:
        if isinstance(error, OSError):
            raise TableError(f"cannot read {path} ({error.strerror or error})", remedy="Check the path.") from None
        first = str(error).partition("\n")[0]
        raise TableError(
            f"{path} is not a table: {first}", remedy=f"Give a CSV with a header ({_SAYING}), or Parquet."
        ) from None


def _well_formed(path: Path, batches: Iterable[FileBatch]) -> list[pa.RecordBatch]:
    """The batches that have rows. Raises TableError where records are not what the header says."""
    read = list(batches)
    wrong = [batch.first for batch in read if batch.first]
    if wrong:
        count = sum(batch.unreadable + batch.uneven for batch in read)
        raise TableError(
            f"{path} is not a table: {count} records have other cells than the header, or quotes that do not match; "
            f"the first is record {wrong[0]}",
            remedy=f"Correct them, or say how the CSV is written ({_SAYING}).",
        )
    return [batch.cells for batch in read if batch.cells.num_rows]


def _plain(cells: Cells) -> Cells:
    """Cells of a CSV as text. Raises ArrowException where they are no UTF-8."""
    return cells.cast(pa.string()) if pa.types.is_binary(cells.type) else plain_cells(cells)


def _tidy(cells: Cells) -> Cells:
    """More missing values than an agent knows; decimals as numbers."""
    kind = cells.type
    if pa.types.is_null(kind) or pa.types.is_decimal(kind):
        return cells.cast(pa.float64(), safe=False)
    if _is_text(kind):
        cells = pc.utf8_trim_whitespace(cells.cast(pa.string()))
        cells = pc.if_else(pc.is_in(cells, value_set=pa.array(_NOT_A_VALUE)), None, cells)
    elif pa.types.is_floating(kind):
        cells = pc.if_else(pc.is_nan(cells), None, cells)
    return cells


def _is_text(kind: "pa.DataType") -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_usable(kind: "pa.DataType") -> bool:
    return _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _number_subjects(n: int) -> NDArray[np.str_]:
    return np.char.add("subject-", np.char.zfill(np.arange(1, n + 1).astype(str), len(str(n))))


def _subjects(columns: Mapping[str, Cells], key: SubjectKey, path: Path) -> tuple[NDArray[np.str_], IdCounts]:
    """The list of subjects as an agent would take it, and what its ids are like."""
    for name in key.columns:
        if name not in columns:
            raise no_such_column(name, columns, where=str(path))
    try:
        found = subject_ids(key, columns)
    except DataError as error:
        raise TableError(f"{path}: {error}", remedy=error.remedy) from None
    ids: list[Any] = found.ids.to_pylist()
    present = [identifier for identifier in ids if identifier]
    counts = replace(found.counts, duplicates=len(present) - len(set(present)))
    if counts.problems:
        raise TableError(
            f"{path}: column {key}: {', '.join(counts.problems)}",
            remedy="Give one row per subject with its id, or another column with --subject-id.",
        )
    return np.array([identifier.decode() for identifier in ids]), counts
