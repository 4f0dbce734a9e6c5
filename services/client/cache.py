"""Releases kept on disk by digest: `blobs/<sha256>` holds bytes, `releases/<id>` names a release's three blobs.

A cache is never believed. Bytes that no longer have their name's digest count as absent, and whoever takes a release
out verifies it like a fresh download.
"""

import logging
import re
from hashlib import sha256
from pathlib import Path

from commingle.services.client.files import ReleaseFiles
from commingle.shared.runtime.files import write_durably

_DIGEST = re.compile(r"[0-9a-f]{64}")
_log = logging.getLogger(__name__)


class ReleaseCache:
    """One directory, safe to share between processes: every file is written whole and then renamed."""

    def __init__(self, directory: Path) -> None:
        self._blobs = directory / "blobs"
        self._releases = directory / "releases"

    def get(self, release: str) -> ReleaseFiles | None:
        """The files of a release, or None where any of them is missing or damaged."""
        blobs = [self._blob(digest) for digest in self._digests(release)]
        match blobs:
            case [bytes() as manifest, bytes() as matrix, bytes() as moments]:
                return ReleaseFiles(manifest, matrix, moments)
        return None

    def manifest(self, release: str) -> bytes | None:
        """The manifest alone, or None where it is missing or damaged."""
        return next((self._blob(digest) for digest in self._digests(release)), None)

    def put(self, release: str, files: ReleaseFiles) -> None:
        """Keep a release. A disk that is full or read-only costs the next download, not this one."""
        try:
            for digest, data in zip(files.digests, (files.manifest, files.matrix, files.moments), strict=True):
                write_durably(self._blobs / digest, data)
            write_durably(self._releases / release, "\n".join(files.digests).encode())
        except OSError as error:
            _log.warning("release %s was not cached (%s)", release[:16], error.strerror)

    def releases(self) -> tuple[str, ...]:
        """Ids of the releases that were kept, sorted."""
        try:
            return tuple(sorted(p.name for p in self._releases.iterdir() if _DIGEST.fullmatch(p.name)))
        except OSError:
            return ()

    def _digests(self, release: str) -> list[str]:
        try:
            found = (self._releases / release).read_text(errors="replace").split("\n")
        except OSError:
            return []
        return found if all(_DIGEST.fullmatch(digest) for digest in found) else []

    def _blob(self, digest: str) -> bytes | None:
        try:
            data = (self._blobs / digest).read_bytes()
        except OSError:
            return None
        return data if sha256(data).hexdigest() == digest else None
