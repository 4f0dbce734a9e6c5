"""Synthetic rows as files: CSV or Parquet, with a data dictionary and a report beside them."""

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from commingle.services.errors import OutputError
from commingle.services.results import csv_text
from commingle.shared.documents.schema import Levelled
from commingle.shared.runtime.files import write_durably

if TYPE_CHECKING:  # slow to import
    import pyarrow as pa

_FOR_EVERYONE = 0o644
_CHUNK = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumn:
    """One column of the rows.

    Attributes:
        name: of the attribute.
        levels: its levels.
        codes: (rows,) places of levels, -1 for a missing cell.
        about: what the data dictionary says of it.
    """

    name: str
    levels: tuple[str, ...]
    codes: NDArray[np.int16] = field(repr=False)
    about: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, attribute: Levelled, codes: NDArray[np.int16]) -> Self:
        """Of an attribute with levels; `codes` count a missing cell as the last."""
        levels, of = attribute.levels, attribute.intervals
        about: dict[str, Any] = {
            "name": attribute.name,
            "kind": attribute.kind,
            "levels": list(levels),
            "unit": None if of is None else of.unit,
            "intervals": None if of is None else {"lower": of.lower, "upper": of.upper, "cuts": list(of.cuts)},
            "missing": "An empty cell is a missing value, about as frequent as in the release."
            if attribute.missing == "indicator"
            else "No cell is empty. Members whose table lacks a value leave the person out (keyed subjects) or count "
            f"it as {attribute.stand_in} (listed subjects).",
        }
        marked = {text: csv_text(text) for text in (attribute.name, *levels) if csv_text(text) != text}
        return cls(
            attribute.name,
            levels,
            np.where(codes < len(levels), codes, -1).astype(np.int16),
            about | ({"in_csv": marked} if marked else {}),
        )

    def cells(self) -> list[str | None]:
        """Levels, None for a missing cell."""
        found: list[str | None] = np.array([*self.levels, None], object)[self.codes].tolist()
        return found

    def part(self, rows: slice, text: Callable[[str], str]) -> "pa.Array[Any]":
        """Some rows as Arrow has them."""
        import pyarrow as pa  # noqa: PLC0415 - slow to import

        codes = self.codes[rows]
        places = pa.array(codes, pa.int16(), mask=codes < 0)
        return pa.DictionaryArray.from_arrays(places, pa.array([text(level) for level in self.levels], pa.string()))


def write_rows(
    path: Path, columns: Sequence[CodedColumn], about: Mapping[str, Any], report: str
) -> tuple[Path, Path, Path]:
    """Write rows.csv or rows.parquet, rows.dictionary.json and rows.report.txt. Raises OutputError."""
    if path.suffix not in _KINDS:
        raise OutputError(
            f"rows are not written as {path.suffix or path.name}", remedy="Name a file that ends in .csv or .parquet."
        )
    dictionary = {**about, "file": path.name, "columns": [column.about for column in columns]}
    files: tuple[tuple[Path, bytes | Iterator[bytes]], ...] = (
        (path, _KINDS[path.suffix](columns)),
        (path.with_suffix(".dictionary.json"), json.dumps(dictionary, indent=2, ensure_ascii=False).encode() + b"\n"),
        (path.with_suffix(".report.txt"), report.rstrip().encode() + b"\n"),
    )
    try:
        for place, data in files:
            write_durably(place, data, mode=_FOR_EVERYONE)
    except OSError as error:
        raise OutputError(f"cannot write to {path} ({error.strerror})", remedy="Choose another file.") from None
    one, other, last = (place for place, _ in files)
    return one, other, last


def _parts(columns: Sequence[CodedColumn], text: Callable[[str], str]) -> "Iterator[pa.Table]":
    import pyarrow as pa  # noqa: PLC0415 - slow to import

    for start in range(0, len(columns[0].codes), _CHUNK):
        rows = slice(start, start + _CHUNK)
        yield pa.Table.from_arrays([c.part(rows, text) for c in columns], [text(c.name) for c in columns])


def csv_rows(columns: Sequence[CodedColumn]) -> Iterator[bytes]:
    """Text in quotation marks, nothing for a missing cell; what a spreadsheet would take for a formula is marked."""
    import pyarrow as pa  # noqa: PLC0415 - slow to import
    from pyarrow.csv import WriteOptions, write_csv  # noqa: PLC0415 - slow to import

    for place, part in enumerate(_parts(columns, csv_text)):
        sink = io.BytesIO()
        write_csv(
            part.cast(pa.schema([(name, pa.string()) for name in part.column_names])),
            sink,
            WriteOptions(include_header=place == 0),
        )
        yield sink.getvalue()


def _parquet(columns: Sequence[CodedColumn]) -> bytes:
    from pyarrow.parquet import ParquetWriter  # noqa: PLC0415 - slow to import

    sink, writer = io.BytesIO(), None
    for part in _parts(columns, str):
        writer = writer or ParquetWriter(sink, part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()
    return sink.getvalue()


_KINDS: Mapping[str, Callable[[Sequence[CodedColumn]], bytes | Iterator[bytes]]] = {
    ".csv": csv_rows,
    ".parquet": _parquet,
}
