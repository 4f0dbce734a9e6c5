"""Disks as small as a test wants them: what the operating system says of them, or real ones."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from commingle.shared.runtime.disk import Disks


@dataclass
class SmallDisk:
    """What is said of a disk, which a test can change."""

    free: int
    total: int = 1 << 40

    def __call__(self, _: Path) -> "SmallDisk":
        return self

    def disks(self, directory: Path, *, reserve: int) -> Disks:
        """It, with so much kept free."""
        return Disks((directory,), reserve, usage=self)


@contextmanager
def mounted(directory: Path, *, kibibytes: int) -> Iterator[Path]:
    """A real file system of that size there; skips the test where this user may mount none."""
    directory.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, f"size={kibibytes}k".encode()):
        pytest.skip(f"no file system can be mounted here ({os.strerror(ctypes.get_errno())})")
    try:
        yield directory
    finally:
        libc.umount2(os.fsencode(directory), 2)  # MNT_DETACH
