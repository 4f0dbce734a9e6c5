"""Room on disks: what is kept free, so that bodies that others send never take what the own work needs."""

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from commingle.shared.runtime.errors import NoRoomError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MEBIBYTE = 1 << 20


class Usage(Protocol):
    """Of one disk, in bytes."""

    @property
    def total(self) -> int: ...
    @property
    def free(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Disks:
    """The disks that some directories are on.

    Attributes:
        directories: whose disks; where one is not there yet, its nearest parent's.
        reserve_bytes: what stays free on each of them.
        usage: asks the operating system, so that all processes that share a disk see the same.
    """

    directories: tuple[Path, ...]
    reserve_bytes: int
    usage: Callable[[Path], Usage] = shutil.disk_usage

    @property
    def total_bytes(self) -> int:
        """Of the smallest of them."""
        return min(self.usage(_present(each)).total for each in self.directories)

    def require(self, wanted_bytes: int) -> None:
        """Refuse what would not leave the reserve free. Raises NoRoomError, OSError."""
        for directory in self.directories:
            if self.usage(_present(directory)).free - wanted_bytes < self.reserve_bytes:
                raise _no_room(f"{self.reserve_bytes // _MEBIBYTE} MiB of the disk are kept free, and this needs them")


@contextmanager
def full_disk_as_no_room() -> Iterator[None]:
    """Raise NoRoomError where the operating system says that a disk, or somebody's share of it, is full."""
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
