"""Durable files, private keys, histories and room on disks.

A file is there in full or not at all, also after a power cut. What a user, a token or a folder names may be a FIFO, a
device or a file that never ends: a plain `open` waits for a writer of a FIFO, and reads a device for as long as there
is memory. `open_plain` does neither.

Some room is kept free on disks, so that bodies that others send never take what this process itself needs.
"""

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Protocol, TypeVar

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from commingle.shared.documents.dsse import SigningKey, parse_fingerprint
from commingle.shared.errors import VerificationError
from commingle.shared.runtime import faults
from commingle.shared.runtime.errors import KeyFileError, NoRoomError, SettingsError

MOST_BYTES = 64 << 20
"""The largest file that is read whole, if nothing else bounds its size; no document on the wire is longer either."""
LARGEST_HISTORY_BYTES = 1 << 30
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # nothing waits, and no terminal comes to control this process


def open_plain(path: str | Path) -> BufferedReader:
    """A plain file, or one that symbolic links lead to, open at its start. Opening never waits.

    Raises OSError: it is missing or may not be read; it is a directory, FIFO, socket or device; or this is no path.
    `strerror` says which.
    """
    try:
        return open(path, "rb", opener=_opened)
    except ValueError:  # a NUL, or what is no text in the file system's encoding
        raise OSError(errno.EINVAL, "not a valid path", str(path)) from None


def read_plain(path: str | Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file. Raises OSError: as `open_plain`; or it has more than `most_bytes`."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = b"" if size > most_bytes else file.read(most_bytes + 1)  # it may grow, or have a size of 0 as in /proc
    if max(size, len(data)) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes >> 20} MiB", str(path))
    return data


def read_given(path: str | Path, *, remedy: str = "Check the path.", most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a file that a person has named, as `read_plain`. Raises SettingsError: it cannot be read."""
    try:
        return read_plain(path, most_bytes=most_bytes)
    except OSError as error:
        raise SettingsError(f"cannot read {path} ({error.strerror})", remedy=remedy) from None


def require_plain(path: str | Path) -> None:
    """Check a file that a library opens by its name, such as a database.

    It is not opened here: closing it would end the locks that SQLite has on it elsewhere in this process. Raises
    OSError as `open_plain`, except that a file which may not be read passes.
    """
    try:
        _require_plain(os.stat(path).st_mode, str(path))  # noqa: PTH116 - a path as somebody named it
    except ValueError:
        raise OSError(errno.EINVAL, "not a valid path", str(path)) from None


def _opened(path: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _FLAGS)
    except OSError as error:
        raise _not_plain(path) if error.errno == errno.ENXIO else error from None  # a socket
    try:
        _require_plain(os.fstat(descriptor).st_mode, path)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _require_plain(mode: int, path: str) -> None:
    if S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not S_ISREG(mode):
        raise _not_plain(path)


def _not_plain(path: str) -> OSError:
    return OSError(errno.EINVAL, "not a plain file", path)


_OTHERS = 0o077
_OWNER_ONLY = 0o700
CACHE_TAG = "CACHEDIR.TAG"
_TAG_TEXT = "Signature: 8a477f597d28d172789f06886806bc55\n# Not for backups; see docs/operations.md.\n"


def close_to_others(directory: Path) -> None:
    """Make a directory that only its owner can enter, whatever the umask; or make an existing one so."""
    _make_private(directory)
    if directory.stat().st_mode & _OTHERS:
        try:
            directory.chmod(_OWNER_ONLY)
        except OSError as error:
            raise KeyFileError(
                f"{directory} is open to others and cannot be closed ({error.strerror})",
                remedy=f"As its owner run: chmod 700 {directory}",
            ) from None


def keep_from_backups(directory: Path) -> None:
    """Put the tag into a directory by which backup programs know to leave it out (bford.info/cachedir)."""
    tag = directory / CACHE_TAG
    if not tag.exists():
        write_durably(tag, _TAG_TEXT.encode())


def _make_private(directory: Path) -> None:
    if directory.is_dir():
        return
    _make_private(directory.parent)  # the mode of `mkdir` does not hold for the parents it makes
    directory.mkdir(mode=_OWNER_ONLY, exist_ok=True)


def write_durably(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Temp file -> fsync -> rename -> fsync of the directory. A failure leaves no temp file behind.

    `data` may come in pieces, if it is too large for memory. Missing directories are made; if only the owner may read
    the file, that holds for them too. Raises FileExistsError: a device or pipe, which a file would replace.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileExistsError(errno.EEXIST, "is not a plain file", str(path))
    if mode & _OTHERS:
        path.parent.mkdir(parents=True, exist_ok=True)
    else:
        _make_private(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        faults.reach("file.temporary")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_durably(path: Path) -> None:
    """Remove a file if it is there, also after a power cut."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames and removals in it survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_SECRET_BYTES = 32
_LONGEST_KEY_FILE = 1 << 10


def create_secret(path: Path) -> bytes:
    """32 fresh bytes from the operating system, stored at `path`."""
    if path.exists():
        raise KeyFileError(f"{path} exists already", remedy="Use it, or move it away to start with new keys.")
    secret = secrets.token_bytes(_SECRET_BYTES)
    write_durably(path, secret.hex().encode() + b"\n")
    return secret


def load_secret(path: Path) -> bytes:
    """The 32 bytes stored at `path`."""
    try:
        with open_plain(path) as file:
            text, mode = file.read(_LONGEST_KEY_FILE).strip(), os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise KeyFileError(
            f"cannot read the key file {path} ({error.strerror})", remedy="Run the init command first."
        ) from None
    if mode & _OTHERS:
        raise KeyFileError(f"{path} can be read by others", remedy=f"Run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        secret = b""
    if len(secret) != _SECRET_BYTES:
        raise KeyFileError(f"{path} does not hold 64 hex digits", remedy="Restore the file from its backup.")
    return secret


def load_signing_key(path: Path) -> SigningKey:
    """The Ed25519 key stored at `path`. Raises KeyFileError."""
    return SigningKey(load_secret(path))


def sealing_public_key(secret: bytes) -> bytes:
    """The X25519 public key (32 bytes) of a sealing secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


NOT_COMPARED = "The key was not compared with one you know: give --key."


class _History(Protocol):
    @property
    def signer(self) -> str: ...


History = TypeVar("History", bound=_History)


def read_history(file: Path, verify: Callable[[bytes], History], *, key: str | None) -> History:
    """The history in a file, verified, and signed with the key of that fingerprint if one is given."""
    history = verify(read_given(file, most_bytes=LARGEST_HISTORY_BYTES))
    if key is not None and history.signer != parse_fingerprint(key):
        raise VerificationError(
            f"the history is signed with key {history.signer[:16]}, not with the one expected",
            remedy="Compare fingerprints with its owner over another channel.",
        )
    return history


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MEBIBYTE = 1 << 20


class DiskUsage(Protocol):
    """How full one disk is, in bytes."""

    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Disks:
    """The disks that some directories are on."""

    # the directories whose disks we watch; for one that does not exist yet, its nearest parent
    directories: tuple[Path, ...]
    reserve_bytes: int  # what stays free on each of them
    # asks the operating system, so that all processes that share a disk see the same
    usage: Callable[[Path], DiskUsage] = shutil.disk_usage

    @property
    def total_bytes(self) -> int:
        return min(self.usage(_present(each)).total for each in self.directories)

    def require(self, wanted_bytes: int) -> None:
        """Refuse a write that would not leave the reserve free. Raises NoRoomError, OSError."""
        for directory in self.directories:
            if self.usage(_present(directory)).free - wanted_bytes < self.reserve_bytes:
                raise _no_room(f"{self.reserve_bytes // _MEBIBYTE} MiB of the disk are kept free, and this needs them")


@contextmanager
def full_disk_as_no_room() -> Iterator[None]:
    """Raise NoRoomError if the operating system says that a disk, or a quota, is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise _no_room("the disk is full") from None


def _no_room(said: str) -> NoRoomError:
    return NoRoomError(said, remedy="Nothing was recorded; the operator frees space on the disk, then send it again.")


def _present(directory: Path) -> Path:
    return next(path for path in (directory, *directory.resolve().parents) if path.is_dir())
