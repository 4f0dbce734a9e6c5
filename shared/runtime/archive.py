"""A home as one tar file: only its owner can read it, it is written durably, and unpacked whole or not at all."""

import errno
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import close_to_others, open_plain, write_durably

_PIECE = 1 << 20
_END = bytes(2 * tarfile.BLOCKSIZE)


@contextmanager
def writing_archive(out: Path) -> Iterator[tuple[Path, Callable[[str, bytes | Path], None]]]:
    """A directory for copies, and a function that adds a file under a name; `out` appears only if all goes well."""
    if out.exists():
        raise SettingsError(f"{out} exists already", remedy="Give every backup a name of its own.")
    try:
        with TemporaryDirectory(dir=out.parent, prefix=".backup-") as folder:
            with tarfile.open(Path(folder) / "tar", "x") as tar:
                yield Path(folder), partial(_add, tar)
            with (Path(folder) / "tar").open("rb") as file:
                write_durably(out, iter(partial(file.read, _PIECE), b""))
    except OSError as error:
        full = f"Free space in {out.parent}, or choose another folder: copies are made there first."
        remedy = full if error.errno == errno.ENOSPC else "Check the path and the disk."
        raise SettingsError(f"cannot write {out} ({error.strerror})", remedy=remedy) from None


@contextmanager
def reading_archive(file: Path, home: Path) -> Iterator[Path]:
    """The unpacked archive, in a directory beside `home` that becomes `home` only if all goes well."""
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise SettingsError(
            f"there is something at {home} already", remedy="Move it aside; what is newer may still be needed."
        )
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=home.parent, prefix=".restore-") as folder:
            restored = Path(folder) / "home"
            close_to_others(restored)
            with open_plain(file) as packed, tarfile.open(fileobj=packed) as tar:
                tar.extractall(restored, filter="data")
                packed.seek(tar.offset)
                if packed.read(len(_END)) != _END:  # cut off between two files, which tarfile takes for the end
                    raise tarfile.ReadError
            for directory in (path for path in restored.rglob("*") if path.is_dir()):
                close_to_others(directory)
            yield restored
            if home.exists():
                home.rmdir()
            shutil.move(restored, home)
    except tarfile.TarError:
        raise SettingsError(
            f"{file} is not a whole backup", remedy="Copy it here again; if it is like this, use another backup."
        ) from None
    except OSError as error:
        said = error.strerror or type(error).__name__
        raise SettingsError(f"cannot restore {file} ({said})", remedy="Check both paths and the disk.") from None


def copy_sqlite(database: Path, copy: Path) -> Path:
    """The database as it is at one moment, in one file, whatever other processes write meanwhile.

    Raises SettingsError; OSError if there is no room for the copy.
    """
    try:
        with (
            closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)  # one read transaction: later writes wait or are not in it
            target.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
            (found,) = target.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:  # the database itself is only read
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(copy)) from None
        raise SettingsError(f"{database} cannot be copied ({error})", remedy="Run the doctor.") from None
    if found != "ok":
        raise SettingsError(f"{database} is damaged: {found}", remedy="Run the doctor.")
    return copy


def _add(tar: tarfile.TarFile, name: str, what: bytes | Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o600
    if isinstance(what, bytes):
        entry.size = len(what)
        tar.addfile(entry, BytesIO(what))
        return
    with what.open("rb") as file:
        entry.size = what.stat().st_size
        tar.addfile(entry, file)
