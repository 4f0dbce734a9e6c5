"""A CSV or Parquet file as a table in memory, and the attributes that its columns suggest.

It reads cells and subject ids as an agent does, with two more steps, because tables that people find are less tidy than
a member's. It knows more spellings of a missing value (never in a subject id). Without a schema for a CSV it finds
numbers and booleans in columns of text.

It drafts attributes for simulations only: real bounds are public, and nobody computes them from private rows.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ValidationError

from commingle.services.errors import TableError
from commingle.shared.documents.model import explain
from commingle.shared.documents.schema import (
    GAP,
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Missing,
    NumericAttribute,
)
from commingle.shared.documents.subject_ids import IdCounts, IdRules, SubjectColumns, SubjectKey
from commingle.shared.encoding import encode_conforming
from commingle.shared.errors import DataError
from commingle.shared.runtime.csv_format import USUAL, CsvFormat
from commingle.shared.runtime.csv_records import FileBatch
from commingle.shared.runtime.tables import UNREADABLE, column_names, guess_format, is_parquet, read_batches
from commingle.shared.text import counted
from commingle.shared.values import (
    MISSING,
    Cells,
    as_numbers,
    as_text,
    derive_number,
    is_number,
    plain_cells,
    subject_ids,
)

_FORBIDDEN = str.maketrans({"=": ":", "[": "(", "]": ")"})
_SAYING = "--encoding, --separator, --decimal, --lines-per-record"
_NOT_A_VALUE = (*MISSING, "?", "NaN", "nan")
_CODE = r"^0\d+$"  # digits that begin with 0 and have no decimal mark, such as 01
_TYPES_OF_TEXT = (pa.float64(), pa.bool_(), pa.date32(), pa.time32("s"), pa.timestamp("s"), pa.timestamp("ns"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Table:
    """Columns of equal length, one row per subject.

    Attributes:
        subjects: (n,) distinct identifiers.
        columns: n cells by name: numbers, text or booleans, null where missing.
    """

    subjects: NDArray[np.str_]
    columns: Mapping[str, Cells]

    @property
    def n(self) -> int:
        return len(self.subjects)

    def rows(self, chosen: NDArray[np.int64]) -> Self:
        return type(self)(self.subjects[chosen], {name: cells.take(chosen) for name, cells in self.columns.items()})

    def only(self, names: Iterable[str]) -> Self:
        return type(self)(self.subjects, {name: self.columns[name] for name in names})

    def and_rows(self, more: Self) -> Self:
        """These rows, and then those of another table with the same columns and other subjects."""
        both = {name: pa.concat_arrays([cells, more.columns[name]]) for name, cells in self.columns.items()}
        return type(self)(np.concatenate([self.subjects, more.subjects]), both)

    def __repr__(self) -> str:
        return f"<Table of {counted(self.n, 'row')} and {counted(len(self.columns), 'column')}>"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A table as read.

    Attributes:
        unusable: types of columns that hold neither numbers nor text, by name.
        texts: columns that the file declares to be text; CSV declares nothing.
        ids: counts of the subject ids; None if rows are numbered.
        notices: how the file was read, if we found out by looking at it.
    """

    table: Table
    unusable: dict[str, str]
    texts: frozenset[str] = frozenset()
    ids: IdCounts | None = None
    notices: tuple[str, ...] = ()


def usable_name(name: str) -> str:
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
        usual_subject_id: if `subject_id` is None, the column that identifies subjects. If the table has no such column,
            rows are numbered.
        id_rules: the rules of ids; None for ids as they are.
        typed: whether columns of a CSV become numbers, booleans or dates if all their values read as such, and none is
            a code such as 01.
        csv_format: how a CSV is written; None finds out.

    Raises:
        TableError: the file cannot be read or has no rows, or its identifiers are no list of subjects.
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
        tidied = {name: cells if _holds_codes(cells) else _tidy(type_text(cells)) for name, cells in tidied.items()}
    kept = {name: cells for name, cells in tidied.items() if _is_usable(cells.type)}
    unusable = {name: str(cells.type) for name, cells in tidied.items() if name not in kept}
    texts = frozenset(name for name, cells in kept.items() if is_parquet(path) and not is_numeric(cells))
    return Source(Table(subjects, kept), unusable, texts, ids, notices)


def no_such_column(name: str, available: Iterable[str], *, where: str) -> TableError:
    """The error for a column that is not there."""
    return TableError(f"{where} has no column {name!r}", remedy=f"Its columns are: {', '.join(available)}.")


def is_numeric(cells: Cells) -> bool:
    return pa.types.is_floating(cells.type) or pa.types.is_integer(cells.type)


def type_text(cells: Cells) -> Cells:
    """Text as numbers, booleans, dates or times if all of it reads as such, and unchanged otherwise."""
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
    read = list(batches)
    wrong = [batch.first for batch in read if batch.first]
    if wrong:
        count = sum(batch.unreadable + batch.uneven for batch in read)
        raise TableError(
            f"{path} is not a table: {counted(count, 'record has', 'records have')} other cells than the "
            "header, or quotes that do not match; "
            f"the first is record {wrong[0]}",
            remedy=f"Correct them, or say how the CSV is written ({_SAYING}).",
        )
    return [batch.cells for batch in read if batch.cells.num_rows]


def _plain(cells: Cells) -> Cells:
    # bytes that are no UTF-8 raise ArrowException
    plain = plain_cells(cells)
    is_bytes = pa.types.is_binary(plain.type) or pa.types.is_large_binary(plain.type)
    return plain.cast(pa.string()) if is_bytes else plain


def _tidy(cells: Cells) -> Cells:
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


def _holds_codes(cells: Cells) -> bool:
    return _is_text(cells.type) and bool(pc.any(pc.match_substring_regex(cells, _CODE)).as_py())


def _is_usable(kind: "pa.DataType") -> bool:
    return _is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _number_subjects(n: int) -> NDArray[np.str_]:
    return np.char.add("subject-", np.char.zfill(np.arange(1, n + 1).astype(str), len(str(n))))


def _subjects(columns: Mapping[str, Cells], key: SubjectKey, path: Path) -> tuple[NDArray[np.str_], IdCounts]:
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
            remedy="Give one row per person with its id, or another column with --subject-id.",
        )
    return np.array([identifier.decode() for identifier in ids]), counts


MAX_LEVELS = 256
_MOSTLY_NUMBERS = 0.9
_WRITTEN = re.compile(r"(?:(?:<=?|≤) ?)?[+-]?\d+(?:[,.' \u00a0\u2009\u202f\u2019]\d{3})*(?:[.,]\d+)?")
_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
_IDENTIFIES_FROM = 100  # of fewer rows, ages may well be all different


@dataclass(frozen=True, slots=True)
class Unusable:
    reason: str


Marks = Literal["midpoint", "indicator"]
"""How a drafted attribute treats missing cells; for levels it marks them, or rows are left out."""


def draft(name: str, cells: Cells, *, target: bool, levels: bool, missing: Marks = "midpoint") -> Attribute | Unusable:
    """The attribute that a column suggests: bounds are its least and largest value, levels are those that it holds.

    The numbers of a target stay numbers, even if there are only two. If `levels`, the column holds levels, and its
    numbers are codes. `missing` says how missing cells count, except for the target. Cells that say `missing` are no
    level: they are marked.

    Raises TableError: infinite values, text among numbers, or a name or level that no attribute can have.
    """
    present = cells.drop_null()
    rule: Missing = missing if cells.null_count > 0 and not target else "error"
    try:
        if is_numeric(cells) and not levels:
            return _of_numbers(name, present, target=target, rule=rule)
        kinds, counts = np.unique(
            as_text(name, present).drop_null().to_numpy(zero_copy_only=False).astype(str), return_counts=True
        )
        if not levels and not _holds_codes(present):
            _refuse_text_among_numbers(name, kinds, counts)
            if kinds.size and all(map(_WRITTEN.fullmatch, kinds)) and not all(map(is_number, kinds)):
                said = "it holds numbers written like 186,572 or <0.5, which members read as numbers"
                return Unusable(f"{said}: {derive_number(name)}")
        named = kinds != GAP
        if not named.all() and not target:
            rule = "indicator"
        return _of_levels(name, kinds[named].tolist(), counts[named], rule=rule)
    except ValidationError as error:
        raise TableError(
            f"column {name!r} cannot be an attribute: {explain(error)}", remedy="Rename the column or its levels."
        ) from None


def identifies_rows(name: str, cells: Cells) -> bool:
    """Whether a column seems to name the row and not to describe a person: an index, or a new value in every row.

    Measurements with decimals also differ from row to row, and do not count.
    """
    if _INDEX.fullmatch(name):
        return True
    if len(cells) < _IDENTIFIES_FROM or cells.null_count or len(pc.unique(cells)) < len(cells):
        return False
    return not is_numeric(cells) or bool(pc.all(pc.equal(pc.floor(cells), cells)).as_py())


def conform(attribute: Attribute, cells: Cells) -> Cells:
    """The column in values that its attribute encodes, missing values aside.

    The attribute is one that an agent registers. Text that does not fit is tried as numbers or booleans: a CSV may have
    True for true. Raises TableError: text in a number, infinite values, or levels that the schema does not have.
    """
    refused = []
    for reading in (cells,) if isinstance(attribute, NumericAttribute) else (cells, type_text(cells)):
        try:
            encode_conforming(attribute, reading, gaps=True)
        except DataError as error:
            refused.append(error)
        else:
            if not isinstance(attribute, NumericAttribute):
                text = as_text(attribute.name, reading)
                known: Cells = pc.if_else(pc.equal(text, pa.scalar(GAP, text.type)), None, text)
                return known
            return reading.cast(pa.float64()) if pa.types.is_floating(reading.type) else reading
    raise TableError(str(refused[0]), remedy=refused[0].remedy)


def _of_numbers(name: str, present: Cells, *, target: bool, rule: Missing) -> Attribute | Unusable:
    numbers = as_numbers(name, present)
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise TableError(f"column {name!r} holds {infinite} infinite values", remedy="Correct or remove them.")
    kinds = np.unique(numbers)
    if len(kinds) < 2:  # noqa: PLR2004 - what does not vary
        return Unusable("it does not vary" if len(kinds) else "it holds no values")
    if len(kinds) == 2 and not target:  # noqa: PLR2004 - two values are two levels
        # as the encoder reads them: in the column's own type
        first, second = sorted((str(text) for text in as_text(name, present.unique()).to_pylist()), key=float)
        return BinaryAttribute(name=name, levels=(first, second), missing=rule)
    return NumericAttribute(name=name, lower=float(kinds[0]), upper=float(kinds[-1]), missing=rule)


def _of_levels(name: str, levels: list[str], counts: NDArray[Any], *, rule: Missing) -> Attribute | Unusable:
    match len(levels):
        case 0 | 1:
            return Unusable("it does not vary" if levels else "it holds no values")
        case 2:
            first, second = levels
            return BinaryAttribute(name=name, levels=(first, second), missing=rule)
        case count if count > MAX_LEVELS:
            return Unusable(f"it has {count} levels, more than {MAX_LEVELS}")
    commonest = levels.pop(int(np.argmax(counts)))  # the reference, because rare ones make the fit unstable
    marks: Literal["error", "indicator"] = "indicator" if rule == "indicator" else "error"
    return CategoricalAttribute(name=name, levels=(commonest, *levels), missing=marks)


def _refuse_text_among_numbers(name: str, kinds: NDArray[np.str_], counts: NDArray[Any]) -> None:
    numbers = np.array([is_number(kind) for kind in kinds], dtype=bool)
    share = counts[numbers].sum() / max(1, counts.sum())
    if _MOSTLY_NUMBERS <= share < 1:
        raise TableError(
            f"column {name!r} holds text among numbers: {counts[~numbers].sum()} values",
            remedy="Correct them, leave them empty where they are missing, or declare the column in a schema file. "
            f"Members read 186,572 and <0.5 by {derive_number(name)}.",
        )
