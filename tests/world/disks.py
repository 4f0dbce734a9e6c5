"""Disks as small as a test wants them, and what may lie where a file is expected and never ends or blocks."""

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from commingle.shared.runtime.files import Disks


@dataclass
class SmallDisk:
    """What is said of a disk, which a test can change."""

    free: int
    total: int = 1 << 40

    def __call__(self, _: Path) -> "SmallDisk":
        return self

    def disks(self, directory: Path, *, reserve: int) -> Disks:
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


SPECIAL = ("FIFO", "link to a FIFO", "link to /dev/zero", "link to a terminal", "socket", "directory")


def make_special(kind: str, path: Path) -> Path:
    path.unlink(missing_ok=True)
    match kind:
        case "FIFO":
            os.mkfifo(path)
        case "link to a FIFO":
            os.mkfifo(beside := path.with_name(f"{path.name}.fifo"))
            path.symlink_to(beside)
        case "link to /dev/zero":
            path.symlink_to("/dev/zero")
        case "link to a terminal":
            path.symlink_to("/dev/ptmx")
        case "socket":
            with socket.socket(socket.AF_UNIX) as listener:
                _bind(listener, path)
        case _:
            path.mkdir()
    return path


def make_endless(path: Path, size: int = 1 << 40) -> Path:
    """A plain file that takes no place on the disk and more memory than there is."""
    path.unlink(missing_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def _bind(listener: socket.socket, path: Path) -> None:
    """Below a path that may be longer than the address of a socket can be."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
