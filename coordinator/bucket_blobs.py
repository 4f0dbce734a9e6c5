"""Blobs on S3-compatible storage, through Arrow: objects PREFIX/abcd….

An object is there whole or not at all, and replaced as a whole, so replicas need no agreement here either. Credentials
come from the environment, never from an address.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from typing import BinaryIO, cast
from urllib.parse import urlsplit

import pyarrow as pa
import structlog
from pyarrow import fs

from commingle.coordinator.blobs import lost
from commingle.coordinator.errors import StorageError
from commingle.shared.runtime.errors import SettingsError

_log = structlog.get_logger()
_DIGEST = re.compile("[0-9a-f]{64}")
_REFUSED = re.compile(r"AWS Error ([A-Z_]+)")
_PIECE = 1 << 20


class BlobBucket:
    """`Blobs` as objects below one prefix.

    Raises SettingsError: the address names no bucket, or holds credentials.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "s3" or parts.username is not None or not parts.hostname:
            raise SettingsError(
                "the address of the blob bucket is not s3://BUCKET/PREFIX",
                remedy="Correct blob_bucket. Give credentials by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        self._address = address

    def put(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        self._write(digest, BytesIO(data))
        return digest

    def open(self, digest: str) -> BinaryIO:
        self.require(digest)
        file, found = self.scratch(), sha256()
        with self._objects() as (files, root), files.open_input_stream(f"{root}/{digest}") as stream:
            while piece := stream.read(_PIECE):
                found.update(piece)
                file.write(piece)
        if found.hexdigest() != digest:
            file.close()
            raise lost(digest, "damaged in the blob bucket")
        file.seek(0)
        return file

    def require(self, digest: str) -> None:
        with self._objects() as (files, root):
            if not files.get_file_info(f"{root}/{digest}").is_file:
                if not files.get_file_info(fs.FileSelector(root)):  # raises where there is no bucket
                    raise FileNotFoundError
                raise lost(digest, "gone from the blob bucket")

    def old(self, before: datetime) -> Iterator[str]:
        with self._objects() as (files, root):
            listed = files.get_file_info(fs.FileSelector(root, allow_not_found=True))
        for one in listed:
            if one.is_file and _DIGEST.fullmatch(one.base_name) and one.mtime is not None and one.mtime < before:
                yield one.base_name

    def remove(self, digest: str, *, before: datetime) -> bool:
        with self._objects() as (files, root):
            found = files.get_file_info(f"{root}/{digest}")
            if not found.is_file or found.mtime is None or found.mtime >= before:
                return False
            files.delete_file(found.path)
            return True

    def remove_leftovers(self, before: datetime) -> int:  # noqa: ARG002 - the question of every store
        """None that we can see: the bucket's own rule ends interrupted uploads (docs/operations.md)."""
        return 0

    def scratch(self) -> BinaryIO:
        return tempfile.TemporaryFile()

    def check(self) -> None:
        name = f"probe-{os.getpid()}-{os.urandom(4).hex()}"
        self._write(name, BytesIO(b"probe"))
        with self._objects() as (files, root):
            with files.open_input_stream(f"{root}/{name}") as stream:
                stream.read()
            files.delete_file(f"{root}/{name}")

    def put_running(self, release: str, name: str, file: BinaryIO) -> None:
        file.seek(0)
        self._write(f"running/{release}/{name}", file)

    def open_running(self, release: str, name: str) -> BinaryIO:
        with self._objects() as (files, root):
            return cast("BinaryIO", files.open_input_file(f"{root}/running/{release}/{name}"))

    def running_releases(self) -> tuple[str, ...]:
        with self._objects() as (files, root):
            listed = files.get_file_info(fs.FileSelector(f"{root}/running", allow_not_found=True))
            return tuple(one.base_name for one in listed if one.type is fs.FileType.Directory)

    def remove_running(self, release: str) -> None:
        with self._objects() as (files, root):
            if files.get_file_info(f"{root}/running/{release}").type is not fs.FileType.NotFound:
                files.delete_dir(f"{root}/running/{release}")

    def _write(self, name: str, data: BinaryIO) -> None:
        with self._objects() as (files, root):
            try:
                with files.open_output_stream(f"{root}/{name}") as stream:
                    shutil.copyfileobj(data, stream, _PIECE)
            except OSError:  # Arrow stores what it was given until then
                with suppress(OSError):
                    files.delete_file(f"{root}/{name}")
                raise

    @contextmanager
    def _objects(self) -> Iterator[tuple[fs.FileSystem, str]]:
        try:
            yield fs.FileSystem.from_uri(self._address)
        except (OSError, pa.ArrowException) as error:
            refused = _REFUSED.search(str(error))
            said = refused[1] if refused else type(error).__name__
            _log.error("blob bucket fault", error=said)
            raise StorageError(
                f"the blob bucket does not work ({said})",
                remedy="Nothing was recorded; the operator checks bucket and credentials, then repeat the call.",
            ) from None
