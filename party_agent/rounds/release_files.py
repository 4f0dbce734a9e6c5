"""What a release keeps on disk: its privatised block, some days beyond publication, and what its exchange needs.

An exchange needs a secret, the party's rows encrypted under it, and messages, its own and others', as they were sent.
"""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import file_digest, sha256
from os import fstat, pread
from pathlib import Path
from typing import BinaryIO

from commingle.party_agent.errors import LostError
from commingle.shared.documents.statements import DeviationError
from commingle.shared.mechanisms.moments.exchange.messages import Stored
from commingle.shared.runtime.errors import KeyFileError
from commingle.shared.runtime.files import create_secret, load_secret, write_durably

KEPT_AFTER_PUBLICATION = timedelta(days=7)
"""How long a block stays for a coordinator that is set back to before it had it: sent again, it costs nobody budget."""


@dataclass(frozen=True, slots=True)
class _Folders:
    root: Path

    def clear(self, release: str) -> None:
        shutil.rmtree(self.root / release, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Outbox(_Folders):
    """One folder per release."""

    def put(self, release: str, body: bytes) -> str:
        """Store a block durably; its SHA-256, hex. A full disk raises OSError and leaves nothing behind."""
        digest = sha256(body).hexdigest()
        write_durably(self.root / release / f"{digest}.arrow", body)
        return digest

    def get(self, release: str, digest: str) -> bytes | None:
        """The stored bytes, or None where they are lost or no longer what was recorded.

        A disk that cannot be read just now raises OSError: it is not lost yet.
        """
        try:
            body = (self.root / release / f"{digest}.arrow").read_bytes()
        except FileNotFoundError:
            return None
        return body if sha256(body).hexdigest() == digest else None

    def past_keeping(self, now: datetime) -> frozenset[str]:
        """Releases whose blocks were made longer ago than they are kept after publication."""
        before = (now - KEPT_AFTER_PUBLICATION).timestamp()
        folders = self.root.iterdir() if self.root.is_dir() else ()
        return frozenset(folder.name for folder in folders if folder.is_dir() and folder.stat().st_mtime < before)


@dataclass(frozen=True, slots=True)
class FileBytes:
    """An open file as bytes. Only those that are worked with are in memory."""

    file: BinaryIO
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        """What is in that part. Raises LostError where the file has become shorter."""
        start, stop, _ = part.indices(self.size)
        found = pread(self.file.fileno(), stop - start, start)
        if len(found) != stop - start:
            raise LostError("a message of an exchange was cut short", remedy="Check the disk of the member's home.")
        return found


@dataclass(frozen=True, slots=True)
class ExchangeFiles(_Folders):
    """One folder per release."""

    def make_secret(self, release: str) -> bytes:
        """The secret of a release whose rows are about to be kept, in place of whatever an interrupted attempt left."""
        self.clear(release)
        return create_secret(self._secret_file(release))

    def secret(self, release: str) -> bytes:
        try:
            return load_secret(self._secret_file(release))
        except KeyFileError:
            raise LostError(
                "the secret of an exchange is lost", remedy="Check the disk of the member's home."
            ) from None

    def put(self, release: str, kind: str, body: Iterable[bytes]) -> str:
        """Store a message durably, in place of what is there; its SHA-256, hex. A full disk raises OSError."""
        digest = sha256()

        def hashed() -> Iterator[bytes]:
            for piece in body:
                digest.update(piece)
                yield piece

        write_durably(self.file(release, kind), hashed())
        return digest.hexdigest()

    def has(self, release: str, kind: str, digest: str) -> bool:
        try:
            with self.file(release, kind).open("rb") as file:
                return file_digest(file, "sha256").hexdigest() == digest
        except FileNotFoundError:
            return False

    def view(self, held: ExitStack, release: str, kind: str, *, sender: str, size: int) -> Stored:
        """A message, read as it is needed while it is held. Raises DeviationError: its sender signed another size."""
        file = held.enter_context(self.file(release, kind).open("rb"))
        if fstat(file.fileno()).st_size != size:
            raise DeviationError(sender, "it has another length")
        return FileBytes(file, size)

    def file(self, release: str, kind: str) -> Path:
        """Where rows and messages are, once they are."""
        return self.root / release / kind

    def _secret_file(self, release: str) -> Path:
        return self.root / release / "exchange.key"
