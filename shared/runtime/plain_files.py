"""Opens what a user, a token or a folder names, which may be a FIFO, a device or a file that never ends.

A plain `open` waits for a writer of a FIFO, and reads a device for as long as there is memory.
"""

import errno
import os
from io import BufferedReader
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from commingle.shared.runtime.errors import SettingsError

MOST_BYTES = 64 << 20
"""Of a file that is read whole and whose size nothing else bounds; no document is longer on the wire either."""
LARGEST_HISTORY_BYTES = 1 << 30
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # nothing waits, and no terminal comes to control this process


def open_plain(path: str | Path) -> BufferedReader:
    """A plain file, or one that symbolic links lead to, open at its start. Opening never waits.

    Raises:
        OSError: it is missing or may not be read; it is a directory, FIFO, socket or device; or this is no path.
            `strerror` says which.
    """
    try:
        return open(path, "rb", opener=_opened)
    except ValueError:  # a NUL, or what is no text in the file system's encoding
        raise OSError(errno.EINVAL, "no path is like that", str(path)) from None


def read_plain(path: str | Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """The bytes of a plain file that is not larger than that.

    Raises:
        OSError: as `open_plain`; or the file is larger.
    """
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
    """For a file that a library opens by its name, such as a database.

    It is not opened here: closing it would end the locks that SQLite has on it elsewhere in this process.

    Raises:
        OSError: as `open_plain`, but for whether it may be read.
    """
    try:
        _require_plain(os.stat(path).st_mode, str(path))  # noqa: PTH116 - a path as somebody named it
    except ValueError:
        raise OSError(errno.EINVAL, "no path is like that", str(path)) from None


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
