"""Large files named by their SHA-256: uploaded blocks and published matrices.

Content-addressed, so writing twice is harmless and replicas over one shared directory need no agreement.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Protocol

from coordinator.errors import StorageError
from shared.runtime.files import remove_durably, write_durably


class Blobs(Protocol):
    """Where large files are kept. Every method raises StorageError when that does not work."""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256, hex."""

    def open(self, digest: str) -> BinaryIO:
        """The stored bytes, as a file the caller closes."""

    def scratch(self) -> BinaryIO:
        """An empty nameless file for an upload; it is gone when closed."""

    def check(self) -> None:
        """Raise unless something can be stored now."""


class BlobDirectory:
    """Blobs as files ROOT/ab/abcd…; the directory is made on first use."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256, hex."""
        digest = sha256(data).hexdigest()
        path = self._path(digest)
        with _as_storage_error():
            if not (path.is_file() and path.stat().st_size == len(data)):
                write_durably(path, data)
        return digest

    def open(self, digest: str) -> BinaryIO:
        """The stored bytes, as a file the caller closes."""
        with _as_storage_error():
            return self._path(digest).open("rb")

    def scratch(self) -> BinaryIO:
        """An empty nameless file on the same disk; it is gone when closed, also after a crash."""
        with _as_storage_error():
            self._root.mkdir(parents=True, exist_ok=True)
            return tempfile.TemporaryFile(dir=self._root)

    def check(self) -> None:
        """Write, read and remove a small file."""
        probe = self._root / f".probe-{os.getpid()}-{os.urandom(4).hex()}"
        with _as_storage_error():
            write_durably(probe, b"probe")
            probe.read_bytes()
            remove_durably(probe)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest


@contextmanager
def _as_storage_error() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the blob directory does not work ({error.strerror or type(error).__name__})",
            remedy="Nothing was recorded; the operator checks the blob directory, then the call can be repeated.",
        ) from None
