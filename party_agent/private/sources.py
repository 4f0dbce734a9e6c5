"""Where rows come from, and one reading of them: each record by itself, to canonical ids, encoded rows and counts.

CSV, Parquet and Excel files and SQL queries are read in batches so that memory does not grow. A table is one file or
query, or many of them: its partitions. When the owner registers a table that does not fit its schema, we refuse it, for
the owner, who alone sees counts, to correct. A reading that a token asked for refuses nothing: what is unreadable is
missing, and a record that lacks what its schema wants of everybody is passed over (docs/proofs/records.md, 1).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.derived import Derived, DerivingReader, Number, explained, numbers_among
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.excel import is_workbook, read_sheet, sheet_columns
from commingle.party_agent.private.parquet_store import (
    PartitionedSource,
    list_partitions,
    require_columns,
    require_readable,
    unreadable,
)
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.party_agent.private.sorting import ENTRY, RecordSorter
from commingle.party_agent.private.sql_store import SqlSource, read_query
from commingle.shared.documents.model import WireModel, tagged_by
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.subject_ids import IdCounts, SubjectKey
from commingle.shared.encoding import CellCounts, EncodedAttribute, encode_attribute, hundredths_filled, refusal_of
from commingle.shared.runtime.csv_format import MOST_LINES, USUAL, CsvFormat, Decimal, Encoding, Separator
from commingle.shared.runtime.files import open_plain
from commingle.shared.runtime.tables import (
    UNREADABLE,
    column_names,
    guess_format,
    is_parquet,
    quotes_end_elsewhere,
    read_batches,
)
from commingle.shared.values import Cells, subject_ids


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Some records of one reading: ids, empty for a record without one, encoded rows (m x d), and counts of both.

    `places` are those of numbers (`EncodedAttribute.places`).
    """

    ids: Cells = field(repr=False)
    rows: NDArray[np.int32] = field(repr=False)
    found: IdCounts
    cells: Mapping[str, CellCounts]
    places: Mapping[str, NDArray[np.int64]] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadingRecords:
    """An engine's work on a partition.

    Attributes:
        complete: pass over records that lack a value of an attribute which everybody has: none is made up for it.
    """

    key: SubjectKey
    attributes: Sequence[Attribute]
    complete: bool = False

    def __call__(self, partition: RawReader, progress: Progress) -> Iterator[ReadRecords]:
        seen = 0
        for batch in partition([*self.key.columns, *(a.name for a in self.attributes)]):
            ids = subject_ids(self.key, batch.columns)
            encoded = {a.name: encode_attribute(a, batch.columns[a.name]) for a in self.attributes}
            yield ReadRecords(
                self._whole(ids.ids, encoded) if self.complete else ids.ids,
                np.hstack([one.columns for one in encoded.values()]).astype(ENTRY),
                replace(ids.counts, unreadable=batch.unreadable, uneven=batch.uneven),
                {name: one.counts for name, one in encoded.items()},
                {a.name: encoded[a.name].places for a in self.attributes if isinstance(a, NumericAttribute)},
            )
            progress(seen := seen + batch.size)

    def _whole(self, ids: Cells, encoded: Mapping[str, EncodedAttribute]) -> Cells:
        lacking = np.zeros(len(ids), bool)
        for attribute in self.attributes:
            if attribute.missing == "error":
                lacking |= encoded[attribute.name].gaps
        found: Cells = pc.if_else(pa.array(lacking), pa.scalar(b"", ids.type), ids)
        return found


@dataclass(frozen=True, slots=True)
class TableScan:
    """What a full reading found. The sorter gives the records, once; the duplicates are known after that.

    `filled` is of numbers (`hundredths_filled`).
    """

    sorter: RecordSorter = field(repr=False)
    ids: IdCounts
    cells: Mapping[str, CellCounts]
    filled: Mapping[str, int] = field(repr=False)

    @property
    def clipped(self) -> dict[str, int]:
        return {name: counts.clipped for name, counts in self.cells.items()}

    @property
    def missing(self) -> dict[str, int]:
        return {name: counts.without_value for name, counts in self.cells.items()}

    @property
    def counts(self) -> IdCounts:
        """What the ids are like, once all records were given."""
        return replace(self.ids, duplicates=self.sorter.duplicates)

    def require_one_row_each(self, key: SubjectKey) -> None:
        """Raise DataError if the records, which have all been given, are no list of people."""
        counts = self.counts
        if not counts.rows:
            raise DataError("the table has no rows", remedy="Check the file or the query.")
        if counts.problems:
            of_lines = "A line is a record; where cells hold line ends, give --lines-per-record. "
            of_rules = " Members need one rule: before you choose another --id-rule, agree on it with them."
            raise DataError(
                f"column {key}: {', '.join(counts.problems)}",
                remedy=(of_lines if counts.unreadable or counts.uneven else "")
                + "Keep one row per person, and give every row an id as its rule wants it."
                + (of_rules if counts.invalid else ""),
            )


@dataclass(frozen=True, slots=True)
class SourceTable:
    partitions: Sequence[RawReader]
    key: SubjectKey
    attributes: Sequence[Attribute]
    engine: Engine = field(default=IN_PROCESS, repr=False)
    derived: tuple[Derived, ...] = ()

    def scan(self, progress: Progress = lambda _: None, *, strict: bool = True, complete: bool = False) -> TableScan:
        """Read everything once; `complete` as in `ReadingRecords`.

        Raises DataError: cells do not fit the schema, if `strict`; it names every column.
        """
        sorter, ids, cells, places = RecordSorter(), IdCounts(), dict[str, CellCounts](), dict[str, NDArray[np.int64]]()
        partitions = [DerivingReader(one, self.derived) for one in self.partitions] if self.derived else self.partitions
        for _, read in self.engine.run(ReadingRecords(self.key, self.attributes, complete), partitions, progress):
            sorter.add(read.ids, read.rows)
            ids += read.found
            for name, counts in read.cells.items():
                cells[name] = cells.get(name, CellCounts()) + counts
            for name, found in read.places.items():
                places[name] = places.get(name, 0) + found
        if strict:
            self._require_conforming(cells)
        return TableScan(sorter, ids, cells, {name: hundredths_filled(found) for name, found in places.items()})

    def _require_conforming(self, cells: Mapping[str, CellCounts]) -> None:
        whose = {
            a.name: explained(refusal, self.derived, a.name)
            for a in self.attributes
            if (refusal := refusal_of(a, cells.get(a.name, CellCounts()))) is not None
        }
        if not whose:
            return
        remedies = dict[str, list[str]]()
        for name, refusal in whose.items():
            of_any = refusal.remedy.replace(f"'{name} = ", "'COLUMN = ").replace(f"({name},", "(COLUMN,")
            remedies.setdefault(of_any, []).append(name)
        each = [(names, whose[names[0]].remedy if len(names) == 1 else said) for said, names in remedies.items()]
        raise DataError(
            "; ".join(map(str, whose.values())),
            remedy="\n".join(said if len(each) == 1 else f"{', '.join(names)}: {said}" for names, said in each),
        )


class FileSource(WireModel):
    """A CSV file with a header line, a Parquet file or an Excel workbook, told apart by the suffix.

    Attributes:
        path: absolute, on the machine of the agent.
        encoding: of a CSV's text.
        separator: what stands between a CSV's columns.
        decimal: the sign before a fraction in a CSV's numbers.
        lines_per_record: most lines of a CSV's record; above 1 its cells may hold line ends (`CsvFormat`).
    """

    model_config = tagged_by("kind")
    kind: Literal["file"] = "file"
    path: Annotated[str, Field(min_length=1)]
    encoding: Encoding = USUAL.encoding
    separator: Separator = USUAL.separator
    decimal: Decimal = USUAL.decimal
    lines_per_record: Annotated[int, Field(ge=1, le=MOST_LINES)] = USUAL.lines_per_record

    @property
    def is_csv(self) -> bool:
        return not is_workbook(Path(self.path)) and not is_parquet(Path(self.path))

    @property
    def csv_format(self) -> CsvFormat:
        return CsvFormat(**self.model_dump(include={"encoding", "separator", "decimal", "lines_per_record"}))


def source_columns(source: FileSource) -> list[str]:
    """The names of a file's columns; reads no row. Raises SourceError."""
    path = Path(source.path)
    try:
        return sheet_columns(path) if is_workbook(path) else column_names(path, source.csv_format)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source)) from None


class PushedSource(WireModel):
    """Rows that the member's own systems push to the agent."""

    model_config = tagged_by("kind")
    kind: Literal["pushed"] = "pushed"


Source = Annotated[FileSource | SqlSource | PartitionedSource | PushedSource, Field(discriminator="kind")]


def open_table(
    source: Source,
    key: SubjectKey,
    attributes: Sequence[Attribute],
    *,
    engine: Engine,
    strict: bool = False,
    derived: Sequence[Derived] = (),
) -> SourceTable:
    """How to read some attributes of a source, the `derived` ones not yet made.

    `strict` refuses partitions of other types than the first.

    Raises:
        SourceError, DataError: the partitions cannot be listed.
        SourceRefusedError: a row of a query may be of several people's records, and nobody promised otherwise.
    """
    if isinstance(source, SqlSource) and not source.promised:
        from commingle.party_agent.private.queries import require_each_row_by_itself  # noqa: PLC0415 - loads slowly, and most tables are files

        require_each_row_by_itself(source.queries, source.url.partition("://")[0], key.columns)
    if isinstance(source, PushedSource):
        raise SourceError("rows of this data set are pushed", remedy="Push them.")
    if isinstance(source, PartitionedSource):
        return SourceTable(list_partitions(source, strict=strict), key, attributes, engine)
    if isinstance(source, SqlSource) and source.partitions is not None:
        return SourceTable([partial(read_query, one) for one in source.partitions], key, attributes, engine)
    return SourceTable([open_source(source, numbers_among(attributes, derived))], key, attributes)


def open_source(source: FileSource | SqlSource, numbers: Collection[str] = ()) -> RawReader:
    """A reader for a source of one partition; `numbers` are its columns of numbers, which a CSV does not tell.

    Reading raises SourceError or DataError for what cannot be read.
    """
    return partial(read_query, source) if isinstance(source, SqlSource) else partial(_read_file, source, numbers)


def _read_file(source: FileSource, numbers: Collection[str], columns: Sequence[str]) -> Iterator[RawBatch]:
    path, form = Path(source.path), source.csv_format
    if is_workbook(path):
        require_columns(columns, sheet_columns(path))
        yield from read_sheet(path, columns)
        return
    try:
        with remedying(source):
            require_columns(columns, column_names(path, form))
            for batch in read_batches(path, columns, form, numbers=numbers):
                require_readable(batch.cells.schema, batch.cells.schema.names)
                cells = dict(zip(batch.cells.schema.names, batch.cells.columns, strict=True))
                yield RawBatch(cells, batch.cells.num_rows, batch.unreadable, batch.uneven)
    except UNREADABLE as error:
        raise unreadable(path, error, remedy=other_format(source)) from None


_NO_TEXT = {
    b"SQLite format 3\0": "It is an SQLite database. Read a table of it: --database-url sqlite:////path/file.db "
    "--query 'SELECT * FROM stays'",
    b"\xd0\xcf\x11\xe0": "It is a workbook of an Excel before 2007. Save it as .xlsx.",
    b"PK\x03\x04": "It is a workbook or an archive. Give a workbook a name that ends in .xlsx; unpack an archive.",
    b"PAR1": "It is a Parquet file. Give it a name that ends in .parquet.",
    b"\x1f\x8b": "It is packed by gzip. Unpack it.",
    b"<stata_dta>": "It is a data set of Stata. Save it as CSV.",
    b"$FL2": "It is a data set of SPSS. Save it as CSV.",
}


_THOUSANDS = (
    " Numbers like 1.234,5: without --decimal, for each column of numbers with commas, "
    "--derive 'COLUMN = number(COLUMN, thousands=point, decimal=comma)'."
)
_LINE_ENDS = (
    "Cells in quotes seem to hold line ends: if so, give --lines-per-record, the most lines of a record. If not: "
)


def other_format(source: FileSource, derived: Sequence[Derived] = ()) -> str:
    """How the file seems to be written, if that differs from what was said; else "". For its owner.

    What the owner said stays, unless a separator parts no columns or a file is no UTF-16. If columns with a decimal
    comma are derived, nothing else may change that comma (`misread`).
    """
    path = Path(source.path)
    try:
        known = is_parquet(path) or is_workbook(path)
        if not known and (said := _no_text(path)):
            return said
        seen = source.csv_format if known else _as_said(source.csv_format, guess_format(path), path)
    except UNREADABLE:
        return ""
    if any(isinstance(one, Number) and one.decimal == "comma" for one in derived):
        seen = replace(seen, decimal=source.decimal)
    if seen == source.csv_format:
        return ""
    if not seen.options:
        return "It looks like UTF-8 with commas and decimal points: leave out the options that say otherwise."
    return f"It looks like this: {seen}. Read it so: {seen.options}"


def _as_said(said: CsvFormat, seen: CsvFormat, path: Path) -> CsvFormat:
    kept: dict[str, Any] = {"lines_per_record": said.lines_per_record}
    if said.decimal != USUAL.decimal:
        kept["decimal"] = said.decimal
    if said.encoding not in {USUAL.encoding, "utf-16"} and seen.encoding != "utf-16":
        kept["encoding"] = said.encoding
    if said.separator != USUAL.separator and len(column_names(path, said)) > 1:
        kept["separator"] = said.separator
    return replace(seen, **kept)


def _no_text(path: Path) -> str:
    with open_plain(path) as file:
        start = file.read(max(map(len, _NO_TEXT)))
    return next((said for magic, said in _NO_TEXT.items() if start.startswith(magic)), "")


@contextmanager
def remedying(source: Source, derived: Sequence[Derived] = ()) -> Iterator[None]:
    """If rows do not fit their schema because a CSV is written otherwise than declared, tell its owner so."""
    try:
        yield
    except DataError as error:
        if isinstance(source, FileSource):
            own = error.remedy + _of_points(source, error.remedy)
            error.remedy = other_format(source, derived) or _of_lines(source, error.remedy) + own
        raise


def _of_points(source: FileSource, said: str) -> str:
    form = source.csv_format
    has_commas = source.is_csv and (form.decimal == "," or form.separator != ",")
    return _THOUSANDS if has_commas and "--decimal" in said else ""


def _of_lines(source: FileSource, said: str) -> str:
    path, form = Path(source.path), source.csv_format
    if is_parquet(path) or is_workbook(path) or form.lines_per_record > 1 or "--lines-per-record" in said:
        return ""
    try:
        return _LINE_ENDS if quotes_end_elsewhere(path, form) else ""
    except UNREADABLE:
        return ""
