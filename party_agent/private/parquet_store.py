"""A table as Parquet files below one directory or bucket prefix, each file a partition; read through Arrow.

The names of folders (`ward=3/`, as Spark and Hive write them) hold a column like those in the file.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs
from pydantic import AfterValidator, Field

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private.rows import RawBatch
from commingle.shared.documents.model import WireModel, tagged_by
from commingle.shared.runtime.tables import UNREADABLE, open_parquet, parquet_batches
from commingle.shared.text import printable
from commingle.shared.values import Cells, has_text, no_text

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_REFUSED = re.compile(r"AWS Error ([A-Z_]+)")


def _address(path: str) -> str:
    if "://" in path and urlsplit(path).scheme != "s3":  # file:// would be a second name of what is in a home
        raise ValueError("is the path of a directory, or s3://bucket/prefix")
    if "://" in path and urlsplit(path).username is not None:
        raise ValueError("holds no credentials: they come from the environment")
    return path


class PartitionedSource(WireModel):
    """All Parquet files below a directory, or below a prefix of a bucket: `s3://bucket/prefix`.

    Files and folders whose names begin with `_` or `.` are left out, as Spark does.

    Attributes:
        path: the directory or the prefix.
    """

    model_config = tagged_by("kind")
    kind: Literal["partitions"] = "partitions"
    path: Annotated[str, Field(min_length=1), AfterValidator(_address)]

    @property
    def is_remote(self) -> bool:
        return "://" in self.path


@dataclass(frozen=True, slots=True)
class ParquetPartition:
    """One file as it was when the source was listed; calling it reads it (`rows.RawReader`). Pickled for workers.

    Attributes:
        path: of the file, within the file system of the root.
        label: for messages. It leaves folders out, as their names may be cells.
        named: columns that the names of folders hold.
        size: bytes; with `modified` it shows that the file was replaced meanwhile.
        modified: nanoseconds since 1970.
        types: the first partition's column types, if other types are to be refused.
    """

    root: str
    path: str = field(repr=False)
    label: str
    named: Mapping[str, str] = field(repr=False)
    size: int
    modified: int | None
    types: Mapping[str, str] | None

    def __call__(self, columns: Sequence[str]) -> Iterator[RawBatch]:
        wanted = list(dict.fromkeys(columns))
        try:
            files, _ = _file_system(self.root)
            self._require_unchanged(files)
            with open_parquet(_opened(files, self.path)) as file:
                present = file.schema_arrow.names
                require_columns(wanted, [*present, *(n for n in self.named if n not in present)], where=self.label)
                self._require_types(wanted, _types(file.schema_arrow))
                stored = [name for name in wanted if name in present]
                require_readable(file.schema_arrow, stored)
                for batch in parquet_batches(file, stored):
                    cells = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield RawBatch({n: cells.get(n, self._named(n, batch.num_rows)) for n in wanted}, batch.num_rows)
            self._require_unchanged(files)
        except UNREADABLE as error:
            raise unreadable(self.label, error) from None

    def _named(self, name: str, rows: int) -> Cells:
        value = self.named.get(name, _NO_VALUE)
        cell = None if value == _NO_VALUE else value.encode(errors="surrogateescape")  # or what is no UTF-8
        return pa.repeat(pa.scalar(cell, pa.large_binary()), rows)

    def _require_unchanged(self, files: fs.FileSystem) -> None:
        found = next(iter(_listed(files, self.path, recursive=False)), None)
        if found is None or (found.size, found.modified) != (self.size, self.modified):
            raise SourceError(
                f"{self.label} was changed or removed while the table was read",
                remedy="It is read again; let the writer of the table finish, or write and register a new directory.",
            )

    def _require_types(self, wanted: Sequence[str], found: Mapping[str, str]) -> None:
        for name in wanted:
            expected = (self.types or {}).get(name)
            if name in found and expected is not None and len({found[name], expected, "null"}) > 2:  # noqa: PLR2004 - two and null
                raise DataError(
                    f"column {name} is {found[name]} in {self.label} and {expected} in the first partition",
                    remedy="Write all partitions with one schema.",
                )


def list_partitions(source: PartitionedSource, *, strict: bool) -> tuple[ParquetPartition, ...]:
    """The files of a source in the order of their paths; `strict` as in `open_table`."""
    try:
        files, root = _file_system(source.path)
        listed = _listed(files, root, recursive=True)
        found = sorted((one for one in listed if _is_partition(one.path, root)), key=lambda one: one.path)
        types = None
        if strict and found:
            with open_parquet(_opened(files, found[0].path)) as file:
                types = _types(file.schema_arrow)
    except UNREADABLE as error:
        raise unreadable(source.path, error) from None
    if not found:
        raise DataError(f"no Parquet files below {source.path}", remedy="Give the directory that holds them.")
    return tuple(
        ParquetPartition(
            root=source.path,
            path=one.path,
            label=f"partition {place} of {len(found)} ({printable(one.path.rpartition('/')[2])})",
            named=_named_by_folders(one.path[len(root) :]),
            size=one.size,
            modified=one.modified,
            types=types,
        )
        for place, one in enumerate(found, 1)
    )


def require_columns(wanted: Sequence[str], present: Sequence[str], *, where: str = "the source") -> None:
    """Raise DataError unless every wanted column is present exactly once."""
    missing = [name for name in wanted if name not in present]
    if missing:
        # the names that are there may be the first row of a file without a header, so they are only counted
        raise DataError(
            f"{where} has no column {', '.join(missing)} among its {len(present)}",
            remedy=_otherwise_written(missing, present)
            or "Check the spelling in the schema, of --subject-id and of --derive; a CSV needs a header line.",
        )
    twice = [name for name in wanted if list(present).count(name) > 1]
    if twice:
        raise DataError(f"{where} has column {twice[0]} more than once", remedy="Rename one of them.")


def _otherwise_written(missing: Sequence[str], present: Sequence[str]) -> str:
    there = {name.strip().casefold() for name in present}
    alike = [name for name in missing if name.strip().casefold() in there]
    if not alike:
        return ""
    said = f"There with other capitals or outer blanks: {', '.join(alike)}. Write it as the source does."
    return said if len(alike) == len(missing) else f"{said} Check the spelling of the others."


def require_readable(schema: pa.Schema, wanted: Sequence[str]) -> None:
    """Raise DataError for a column whose type nobody can read: all of its cells would be missing."""
    for name in wanted:
        if not has_text(kind := schema.field(name).type):
            raise no_text(name, kind)


def unreadable(what: object, error: Exception, *, remedy: str = "") -> SourceError:
    """The error of a source that cannot be read. Arrow's own message may quote a cell, so it tells the kind only."""
    refused = _REFUSED.search(str(error))
    kind = type(error).__name__
    words = {"Error": "no header line", "ArrowInvalid": "not of this format"}.get(kind, kind)
    said = error.strerror if isinstance(error, OSError) and error.strerror else words
    return SourceError(
        f"cannot read {what} ({refused[1] if refused else said})",
        remedy="Check address and credentials of the bucket, and that this machine may read it."
        if refused
        else remedy
        or "Check that the file exists, is readable and is a CSV with a header line, Parquet or Excel (.xlsx).",
    )


def _file_system(root: str) -> tuple[fs.FileSystem, str]:
    return fs.FileSystem.from_uri(root) if "://" in root else (fs.LocalFileSystem(), root)


def _opened(files: fs.FileSystem, path: str) -> "Path | pa.NativeFile":
    return Path(path) if isinstance(files, fs.LocalFileSystem) else files.open_input_file(path)


@dataclass(frozen=True, slots=True)
class _File:
    """A plain file as listed; on this machine its path has bytes that are no UTF-8 as surrogates."""

    path: str
    size: int
    modified: int | None


def _listed(files: fs.FileSystem, root: str, *, recursive: bool) -> Iterator[_File]:
    """All files below a directory; or one file, if it exists. Raises what `UNREADABLE` says."""
    if not isinstance(files, fs.LocalFileSystem):
        found = files.get_file_info(fs.FileSelector(root, recursive=True) if recursive else [root])
        yield from (_File(one.path, one.size, one.mtime_ns) for one in found if one.is_file)
        return
    if recursive:
        os.scandir(root).close()  # whether it is there, which the walk does not say
    folders = os.walk(root, followlinks=True) if recursive else [(os.path.dirname(root), [], [os.path.basename(root)])]  # noqa: PTH119, PTH120 - paths that may be no text
    for folder, _, names in folders:
        for name in names:
            with suppress(FileNotFoundError):
                state = os.stat(path := f"{folder.rstrip('/')}/{name}")  # noqa: PTH116 - as above
                if stat.S_ISREG(state.st_mode):
                    yield _File(path, state.st_size, state.st_mtime_ns)


def _is_partition(path: str, root: str) -> bool:
    names = path[len(root) :].strip("/").split("/")
    hidden = any(name.startswith(("_", ".")) for name in names)
    return names[-1].lower().endswith((".parquet", ".pq")) and not hidden


def _named_by_folders(path: str) -> dict[str, str]:
    pairs = (folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    return {unquote(name): unquote(value) for name, value in pairs}


def _types(schema: pa.Schema) -> Mapping[str, str]:
    plain = (f.type.value_type if isinstance(f.type, pa.DictionaryType) else f.type for f in schema)
    return dict(zip(schema.names, map(str, plain), strict=True))
