"""What a release keeps on disk until it is over: its privatised block, and what its exchange needs.

An exchange needs a round key, and masked rows, encrypted as they travel. The deal's seeds are never here: the sealed
package is fetched and opened again.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from commingle.party_agent.errors import LostError
from commingle.shared.mechanisms.moments.exchange.sealing import RoundKey
from commingle.shared.runtime.errors import KeyFileError
from commingle.shared.runtime.files import create_secret, load_secret, write_durably


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


@dataclass(frozen=True, slots=True)
class ExchangeFiles:
    """One folder per release."""

    root: Path

    def make_round_key(self, release: str) -> RoundKey:
        """The round key of a release that is being approved. An attempt that was interrupted may have made it."""
        path = self._key_file(release)
        return RoundKey(load_secret(path) if path.exists() else create_secret(path))

    def round_key(self, release: str, *, public: str) -> RoundKey:
        """The round key that was approved with.

        Raises:
            LostError: it is gone or another one.
        """
        try:
            key = RoundKey(load_secret(self._key_file(release)))
        except KeyFileError:
            key = None
        if key is None or key.public != public:
            raise LostError("the round key is lost or damaged", remedy="Check the disk of the party's home.")
        return key

    def put(self, release: str, party: str, body: Iterable[bytes]) -> None:
        """Store that party's masked rows durably, in place of what is there. A full disk raises OSError."""
        write_durably(self.mask_file(release, party), body)

    def has(self, release: str, party: str, digest: str) -> bool:
        """Whether that party's masked rows are there, with that SHA-256."""
        try:
            with self.mask_file(release, party).open("rb") as file:
                return file_digest(file, "sha256").hexdigest() == digest
        except FileNotFoundError:
            return False

    def read(self, release: str, party: str, offset: int, size: int) -> bytes:
        """Part of that party's masked rows."""
        with self.mask_file(release, party).open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def mask_file(self, release: str, party: str) -> Path:
        """Where that party's masked rows are, once they are."""
        return self.root / release / f"{party}.mask"

    def clear(self, release: str) -> None:
        """Remove whatever is there of a release."""
        shutil.rmtree(self.root / release, ignore_errors=True)

    def _key_file(self, release: str) -> Path:
        return self.root / release / "round.key"
