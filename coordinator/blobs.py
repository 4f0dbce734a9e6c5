"""Large files named by their SHA-256: uploaded blocks and published matrices.

Content-addressed, so writing twice is harmless and replicas over one shared directory need no agreement. Messages of a
running release lie apart, by release, and are removed together.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from typing import BinaryIO, Protocol

import structlog

from commingle.coordinator.errors import LostBlobError, StorageError
from commingle.shared.runtime.files import close_to_others, full_disk_as_no_room, remove_durably, write_durably

LEAST_AGE = timedelta(days=1)
"""How old a file that no release needs is when we remove it: time to notice a restored database that lacks it."""
_log = structlog.get_logger()
_DIGITS = 64
_PIECE = 1 << 20


class Blobs(Protocol):
    """Where large files are kept. If it fails, every method raises StorageError; on a full disk NoRoomError."""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256, hex."""

    def open(self, digest: str) -> BinaryIO:
        """The stored bytes, as a file the caller closes. Raises LostBlobError if they are gone or changed.

        An empty store has lost nothing, since a disk may not be mounted: that is a StorageError.
        """

    def require(self, digest: str) -> None:
        """Raise as `open` does unless there is a file of that name; its content is not checked."""

    def old(self, before: datetime) -> Iterator[str]:
        """Digests of the files that were last stored before then."""

    def remove(self, digest: str, *, before: datetime) -> bool:
        """Remove a file last stored before then; whether it did. The caller vouches that nothing refers to it."""

    def remove_leftovers(self, before: datetime) -> int:
        """Remove what interrupted writes left behind before then; how many files."""

    def scratch(self) -> BinaryIO:
        """An empty nameless file for an upload; it is gone when closed."""

    def check(self) -> None:
        """Raise unless something can be stored now."""

    def put_running(self, release: str, name: str, file: BinaryIO) -> None:
        """Store what parties of a running release send each other; `name` is a digest."""

    def open_running(self, release: str, name: str) -> BinaryIO:
        """Such a message, as a file the caller closes."""

    def running_releases(self) -> tuple[str, ...]:
        """Releases that may have such files."""

    def remove_running(self, release: str) -> None:
        """Remove all such messages of a release."""


class BlobDirectory:
    """Blobs as files ROOT/ab/abcd…; the directory is made on first use. Leftovers are files of `write_durably`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._running = root / "running"

    def put(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        with _as_storage_error():
            if path.is_file() and _holds(path, digest):
                path.touch()  # stored anew, as far as its age matters
            else:
                write_durably(path, data)
        return digest

    def open(self, digest: str) -> BinaryIO:
        self.require(digest)
        with _as_storage_error():
            path = self._path(digest)
            if not _holds(path, digest):
                raise lost(digest, "damaged in the blob directory")
            return path.open("rb")

    def require(self, digest: str) -> None:
        with _as_storage_error():
            if not self._path(digest).is_file():
                if not any(self._root.iterdir()):
                    raise FileNotFoundError(errno.ENOENT, "it is empty")
                raise lost(digest, "gone from the blob directory")

    def old(self, before: datetime) -> Iterator[str]:
        with _as_storage_error():
            for path in self._root.glob(f"{'[0-9a-f]' * 2}/{'[0-9a-f]' * _DIGITS}"):
                if _older(path, before):
                    yield path.name

    def remove(self, digest: str, *, before: datetime) -> bool:
        with _as_storage_error():
            path = self._path(digest)
            if not _older(path, before):
                return False
            remove_durably(path)
            return True

    def remove_leftovers(self, before: datetime) -> int:
        with _as_storage_error():
            temporary = f"{'[0-9a-f]' * 2}/.{'[0-9a-f]' * _DIGITS}.*"  # and no other's file, whatever the directory
            left = [path for shape in (".probe-*", "..probe-*", temporary) for path in self._root.glob(shape)]
            old = [path for path in left if path.is_file() and _older(path, before)]
            for path in old:
                path.unlink(missing_ok=True)
            return len(old)

    def scratch(self) -> BinaryIO:
        with _as_storage_error():
            if not self._root.is_dir():
                close_to_others(self._root)
            return tempfile.TemporaryFile(dir=self._root)

    def check(self) -> None:
        probe = self._root / f".probe-{os.getpid()}-{os.urandom(4).hex()}"
        with _as_storage_error():
            write_durably(probe, b"probe")
            probe.read_bytes()
            remove_durably(probe)

    def put_running(self, release: str, name: str, file: BinaryIO) -> None:
        file.seek(0)
        with _as_storage_error():
            write_durably(self._running / release / name, iter(partial(file.read, _PIECE), b""))

    def open_running(self, release: str, name: str) -> BinaryIO:
        with _as_storage_error():
            return (self._running / release / name).open("rb")

    def running_releases(self) -> tuple[str, ...]:
        with _as_storage_error():
            return tuple(path.name for path in self._running.iterdir()) if self._running.is_dir() else ()

    def remove_running(self, release: str) -> None:
        with _as_storage_error(), suppress(FileNotFoundError):  # another replica was faster
            shutil.rmtree(self._running / release)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest


def _holds(path: Path, digest: str) -> bool:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest() == digest


def lost(digest: str, how: str) -> LostBlobError:
    return LostBlobError(f"the file {digest[:16]}… is {how}", remedy="Restore it from its backup.")


def _older(path: Path, before: datetime) -> bool:
    with suppress(FileNotFoundError):  # another replica was faster
        return path.stat().st_mtime < before.timestamp()
    return False


@contextmanager
def _as_storage_error() -> Iterator[None]:
    try:
        with full_disk_as_no_room():
            yield
    except OSError as error:
        _log.error("blob directory fault", error=type(error).__name__, errno=errno.errorcode.get(error.errno or 0))
        raise StorageError(
            f"the blob directory does not work ({error.strerror or type(error).__name__})",
            remedy="Nothing was recorded; the operator checks the blob directory, then the call can be repeated.",
        ) from None
