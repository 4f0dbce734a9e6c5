"""Privatised blocks on disk between storage and publication. Files are named by their content."""

import shutil
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from commingle.shared.runtime.files import write_durably


@dataclass(frozen=True, slots=True)
class Outbox:
    """One folder per release."""

    root: Path

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

    def clear(self, release: str) -> None:
        """Remove whatever is there of a release."""
        shutil.rmtree(self.root / release, ignore_errors=True)
