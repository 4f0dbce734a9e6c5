"""The files of a published release as a coordinator serves them, a cache of these on disk, and known keys.

Nobody trusts the cache: bytes that no longer have the digest in their name count as absent, and a caller verifies what
comes from it like a fresh download.
"""

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Self

from commingle.services.errors import ReleaseDirectoryError, write_for_everyone
from commingle.shared.documents.dsse import Fingerprint, parse_fingerprint
from commingle.shared.errors import ProtocolError, VerificationError
from commingle.shared.release.verification import PublishedRelease, open_manifest, verify_release
from commingle.shared.runtime.errors import KeyFileError, SettingsError
from commingle.shared.runtime.files import MOST_BYTES, close_to_others, read_plain, write_durably

NO_MEMBERS: Mapping[str, str] = MappingProxyType({})


def fingerprint(text: str | None) -> Fingerprint | None:
    """A fingerprint as somebody typed or pasted it, or None. Raises SettingsError: it is not 64 hex digits."""
    if text is None:
        return None
    if (known := parse_fingerprint(text)) is None:
        raise SettingsError(
            f"{text[:80]!r} is not a key's fingerprint",
            remedy="Give the 64 hex digits that `commingle coordinator init` or `commingle party init` printed there.",
        )
    return known


def member_pins(members: Mapping[str, str]) -> Mapping[str, Fingerprint]:
    """Fingerprints by member, as somebody typed them. Raises SettingsError: one is not 64 hex digits."""
    pins = {name: fingerprint(text) for name, text in members.items()}
    return MappingProxyType({name: key for name, key in pins.items() if key is not None})


def require_parties(pins: Mapping[str, str], parties: Collection[str]) -> None:
    """Raise VerificationError if a pinned member is no party of the release: the name may be misspelt."""
    absent = sorted(pins.keys() - set(parties))
    if absent:
        raise VerificationError(
            f"not a member of this release, and yet pinned: {', '.join(absent)}",
            remedy=f"Its members call themselves {', '.join(parties)}.",
        )


WRITABLE = "Choose a directory you may write to."
MANIFEST, MATRIX, MOMENTS = "manifest.json", "matrix.parquet", "moments.json"
_CELL_BYTES = 8
_MATRIX_OVERHEAD_BYTES = 4 << 20  # Parquet's own: schema, statistics, page headers
_LARGEST_MATRIX_BYTES = 8 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


def largest_matrix(manifest: bytes, *, trusted_coordinator: str | None = None) -> int:
    """The most bytes that the matrix of this manifest can have. Raises ProtocolError."""
    document = open_manifest(manifest, trusted_coordinator=trusted_coordinator).document
    cells = document.rows * len(document.columns)
    return min(_MATRIX_OVERHEAD_BYTES + 2 * _CELL_BYTES * cells, _LARGEST_MATRIX_BYTES)


@dataclass(frozen=True, slots=True)
class ReleaseFiles:
    """Bytes that nobody has checked until `verify` returns."""

    manifest: bytes = field(repr=False)
    matrix: bytes = field(repr=False)
    moments: bytes = field(repr=False)

    @classmethod
    def read(cls, directory: Path) -> Self:
        """The files of a release directory.

        Raises:
            ReleaseDirectoryError: a file is missing, unreadable, or larger than it can be.
            ProtocolError: the manifest is not one.
        """
        try:
            manifest, moments = (read_plain(directory / name) for name in (MANIFEST, MOMENTS))
            return cls(manifest, read_plain(directory / MATRIX, most_bytes=largest_matrix(manifest)), moments)
        except OSError as error:
            raise ReleaseDirectoryError(
                f"{directory} does not hold a release: cannot read {error.filename} ({error.strerror})",
                remedy=f"Name a directory with {MANIFEST}, {MATRIX} and {MOMENTS}, or a coordinator as http://host:port.",
            ) from None

    def write(self, directory: Path) -> None:
        """Write a release directory, over the files of one that is there. Raises ReleaseDirectoryError."""
        files = ((MANIFEST, self.manifest), (MATRIX, self.matrix), (MOMENTS, self.moments))
        public = {directory / name: data for name, data in files}
        write_for_everyone(directory, public, remedy=WRITABLE, error=ReleaseDirectoryError)

    @property
    def digests(self) -> tuple[str, str, str]:
        """SHA-256 of manifest, matrix and moments, hex."""
        manifest, matrix, moments = (sha256(b).hexdigest() for b in (self.manifest, self.matrix, self.moments))
        return manifest, matrix, moments

    def verify(self, *, trusted_coordinator: str | None, members: Mapping[str, str] = NO_MEMBERS) -> PublishedRelease:
        """Check every signature and digest. Raises ProtocolError, see `verify_release`."""
        return verify_release(
            self.manifest, self.matrix, self.moments, trusted_coordinator=trusted_coordinator, members=members
        )


class ReleaseCache:
    """A directory that processes may share: it writes every file whole and then renames it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._blobs = directory / "blobs"
        self._releases = directory / "releases"
        self._logs = directory / "member-logs"

    def get(self, release: str) -> ReleaseFiles | None:
        """The files of a release, or None if one is missing or damaged."""
        match self._digests(release):
            case [_, digest, moments_digest]:
                manifest, moments = self.manifest(release), self._blob(moments_digest)
                matrix = None if manifest is None else self._matrix(digest, manifest)
                if manifest is not None and matrix is not None and moments is not None:
                    return ReleaseFiles(manifest, matrix, moments)
        return None

    def manifest(self, release: str) -> bytes | None:
        """The manifest alone, or None if it is missing or damaged."""
        return next((self._blob(digest) for digest in self._digests(release)), None)

    def put(self, release: str, files: ReleaseFiles) -> None:
        """Keep a release. If the disk is full or read-only, the next caller downloads it again."""
        try:
            for directory in (self._directory, self._blobs, self._releases):
                close_to_others(directory)
            for digest, data in zip(files.digests, (files.manifest, files.matrix, files.moments), strict=True):
                write_durably(self._blobs / digest, data)
            write_durably(self._releases / release, "\n".join(files.digests).encode())
        except (OSError, KeyFileError) as error:
            _log.warning("release %s was not cached (%s)", release[:16], getattr(error, "strerror", error))

    def releases(self) -> tuple[str, ...]:
        try:
            return tuple(sorted(p.name for p in self._releases.iterdir() if _DIGEST.fullmatch(p.name)))
        except OSError:
            return ()

    def member_log(self, coordinator: str) -> bytes | None:
        """The last log of member keys that we saw of the coordinator with this fingerprint."""
        try:
            return read_plain(self._logs / coordinator)
        except OSError:
            return None

    def put_member_log(self, coordinator: str, data: bytes) -> None:
        try:
            write_durably(self._logs / coordinator, data)
        except OSError as error:
            _log.warning("the log of member keys was not cached (%s)", error.strerror)

    def _digests(self, release: str) -> list[str]:
        try:
            found = read_plain(self._releases / release).decode(errors="replace").split("\n")
        except OSError:
            return []
        return found if all(_DIGEST.fullmatch(digest) for digest in found) else []

    def _matrix(self, digest: str, manifest: bytes) -> bytes | None:
        try:
            return self._blob(digest, most_bytes=largest_matrix(manifest))
        except ProtocolError:
            return None

    def _blob(self, digest: str, *, most_bytes: int = MOST_BYTES) -> bytes | None:
        try:
            data = read_plain(self._blobs / digest, most_bytes=most_bytes)
        except OSError:
            return None
        return data if sha256(data).hexdigest() == digest else None
