"""Files that are either there in full or not at all, also after a power cut."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from commingle.shared.runtime import faults


def write_durably(path: Path, data: bytes | Iterable[bytes], *, mode: int = 0o600) -> None:
    """Temp file -> fsync -> rename -> fsync of the directory. A failure leaves no temp file behind.

    `data` may come in pieces, for what is too large to be held in memory.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
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
    _sync_directory(path.parent)


def remove_durably(path: Path) -> None:
    """Remove a file if it is there, and make that last."""
    path.unlink(missing_ok=True)
    if path.parent.is_dir():
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
