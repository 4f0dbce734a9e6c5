"""Rows that a party's own system sends in pieces: read, held against their schema, and kept.

Privacy. The sender of a piece knows its rows; other readers of an answer or a log do not. So a refusal names the number
of a row and a column and no value. It follows from this piece and its public schema alone, never from rows that others
sent or that are here already.
"""

import csv
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from commingle.party_agent.errors import DataError, PieceError
from commingle.party_agent.private.derived import (
    Derived,
    explained,
    levels_spelled_missing,
    source_columns,
    with_derived,
)
from commingle.party_agent.private.parquet_store import require_columns
from commingle.party_agent.private.rows import RawBatch, RawReader, cells_of
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.encoding import encode_conforming
from commingle.shared.runtime.csv_format import USUAL
from commingle.shared.runtime.csv_records import csv_batches, csv_header
from commingle.shared.values import Cells, as_text, subject_ids

Piece = RawReader
"""Reads the rows of a piece: others pass it on and see none."""
MOST_ROWS = 1_000_000
_Columns = dict[str, Cells]
_REMEDY = "Correct the row and send the piece again; nothing of it was kept."
_COMPRESSION = 3  # the field of a record batch that says how its buffers are compressed (Arrow's Message.fbs)


def read_piece(
    body: bytes, media_type: str, key: SubjectKey, attributes: Sequence[Attribute], derived: Sequence[Derived] = ()
) -> "pa.Table":
    """The columns of subjects and attributes, or of what these are made of, as text. All rows are as the schema says.

    A body is CSV in UTF-8 with a header line and a line for each row, JSON objects line by line, or an uncompressed
    Arrow IPC stream.
    """
    wanted = source_columns([*key.columns, *(attribute.name for attribute in attributes)], derived)
    read = _READERS.get(media_type.partition(";")[0].strip().lower())
    if read is None:
        raise PieceError(f"rows are sent as {', '.join(_READERS)}", remedy="Say which: Content-Type")
    if read is _csv_columns:
        for said, remedy in levels_spelled_missing(attributes, derived):
            raise PieceError(said, remedy=remedy)
    columns = read(body, wanted)
    texts = {name: _texts(name, columns[name]) for name in wanted}
    size = len(next(iter(texts.values())))
    if not 0 < size <= MOST_ROWS:
        raise PieceError(f"a piece has 1 to {MOST_ROWS} rows", remedy="Send more pieces, or fewer.")
    made = with_derived(texts, derived)
    for attribute in attributes:
        try:
            _require_conforming(attribute, made[attribute.name])
        except DataError as error:
            raise explained(error, derived, attribute.name) from None
    _require_subjects(key, texts)
    return pa.table(texts)


def write_piece(piece: "pa.Table") -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(piece, sink)
    return sink.getvalue().to_pybytes()


def stored_piece(path: Path) -> Piece:
    def read(columns: Sequence[str]) -> Iterator[RawBatch]:
        for batch in pq.read_table(path, columns=list(dict.fromkeys(columns))).to_batches():
            yield RawBatch(dict(zip(batch.schema.names, batch.columns, strict=True)), batch.num_rows)

    return read


def _csv_columns(body: bytes, wanted: Sequence[str]) -> _Columns:
    _decoded(body, header=1)
    try:
        names = csv_header(BytesIO(body), USUAL)
        require_columns(wanted, names)
        batches = list(csv_batches(BytesIO(body), wanted, USUAL))
    except csv.Error:
        raise PieceError(
            "there is no header line that can be read", remedy="Begin with the names of columns."
        ) from None
    for batch in batches:
        if batch.first:
            why = f"its line has other than {len(names)} cells, or its quotes do not match"
            raise _refused(batch.first, why)
    rows = pa.Table.from_batches([batch.cells for batch in batches], pa.schema([(n, pa.binary()) for n in wanted]))
    return {name: rows[name].cast(pa.large_string()).combine_chunks() for name in wanted}


def _json_columns(body: bytes, wanted: Sequence[str]) -> _Columns:
    rows = list[Mapping[str, object]]()
    for line in _decoded(body, header=0).split("\n"):
        if line.strip():
            rows.append(_json_row(line, len(rows) + 1))
    require_columns(wanted, sorted({name for row in rows for name in row}))
    for number, row in enumerate(rows, start=1):
        for name in wanted:
            if isinstance(row.get(name), dict | list):
                raise _refused(number, f"column {name}: a value that is neither text, number, true, false nor null")
    return {name: cells_of([row.get(name) for row in rows]) for name in wanted}


def _json_row(line: str, number: int) -> Mapping[str, object]:
    try:
        row = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise _refused(number, "it is not one JSON object, or names a column twice") from None
    if not isinstance(row, dict):
        raise _refused(number, "it is not a JSON object")
    return row


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError
    return found


def _arrow_columns(body: bytes, wanted: Sequence[str]) -> _Columns:
    try:
        schema, *messages = pa.ipc.MessageReader.open_stream(body)
        if schema.type != "schema" or any(each.type != "record batch" for each in messages):
            raise PieceError(
                "the stream holds more than a schema and rows",
                remedy="Send plain columns: decode dictionaries (categories) first.",
            )
        if any(_is_compressed(bytes(each.metadata)) for each in messages):  # few bytes could become many
            raise PieceError("the rows are compressed", remedy="Write the stream without compression.")
        kinds = pa.ipc.read_schema(schema)
        require_columns(wanted, kinds.names)
        batches = [pa.ipc.read_record_batch(each, kinds).select(list(wanted)) for each in messages]
        if sum(batch.num_rows for batch in batches) > MOST_ROWS:
            raise PieceError(f"a piece has 1 to {MOST_ROWS} rows", remedy="Send more pieces.")
        for batch in batches:
            batch.validate(full=True)  # offsets that lead out of the body
        whole = pa.Table.from_batches(batches, kinds.empty_table().select(list(wanted)).schema)
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error, IndexError) as error:
        raise PieceError(
            f"this is not a readable Arrow stream ({type(error).__name__})",
            remedy="Write it with pyarrow.ipc.new_stream.",
        ) from None
    return {name: whole.column(name).combine_chunks() for name in wanted}


_READERS: Mapping[str, Callable[[bytes, Sequence[str]], _Columns]] = {
    ARROW: _arrow_columns,
    CSV: _csv_columns,
    JSON_LINES: _json_columns,
}


def _is_compressed(message: bytes) -> bool:
    table = _field(message, struct.unpack_from("<I", message)[0], 2)
    batch = None if table is None else table + struct.unpack_from("<I", message, table)[0]
    return batch is None or _field(message, batch, _COMPRESSION) is not None


def _field(message: bytes, table: int, number: int) -> int | None:
    vtable = table - struct.unpack_from("<i", message, table)[0]
    (size,) = struct.unpack_from("<H", message, vtable)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", message, vtable + at)[0] if at < size else 0
    return table + offset if offset else None


def _decoded(body: bytes, *, header: int) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(body[: error.start].count(b"\n") + 1 - header, "it is not UTF-8") from None


def _texts(name: str, cells: Cells) -> Cells:
    texts = as_text(name, cells)
    lost = pc.and_(pc.is_null(texts), pc.invert(pc.is_null(cells, nan_is_null=True)))
    if (first := pc.index(lost, value=True).as_py()) >= 0:
        raise _refused(first + 1, f"column {name}: a value that is no Unicode text")
    return texts


def _require_conforming(attribute: Attribute, cells: Cells) -> None:
    try:
        encode_conforming(attribute, cells)
    except DataError:
        good, bad = 0, len(cells)  # so many first rows conform, and so many do not
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                encode_conforming(attribute, cells[good:middle])
                good = middle
            except DataError:
                bad = middle
        try:
            encode_conforming(attribute, cells[good:bad])
        except DataError as error:
            raise DataError(f"row {bad}, {error}", remedy=error.remedy) from None


def _require_subjects(key: SubjectKey, columns: Mapping[str, Cells]) -> None:
    seen = dict[bytes, int]()
    for number, subject in enumerate(subject_ids(key, columns).ids.to_pylist(), start=1):
        if not subject:
            raise _refused(number, f"column {key}: no id, or none as its rule wants it")
        if (earlier := seen.setdefault(subject, number)) != number:
            raise _refused(number, f"column {key}: the person of row {earlier} again")


def _refused(row: int, why: str) -> DataError:
    return DataError(f"row {max(row, 1)}, {why}", remedy=_REMEDY)
