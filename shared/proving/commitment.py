"""A hash tree over the columns of the matrix of words, and paths to those that are opened.

A leaf is SHA-256 of a salt of 32 bytes and its column modulo each prime after the other: leaves that stay closed tell
nothing.
"""

from collections.abc import Iterator
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from commingle.shared.proving import code
from commingle.shared.ring.residues import Residues

HASH_BYTES = 32
CAP = 256  # nodes that are sent whole, where paths end
_STRIP = 128  # columns that are hashed while they are in a core's cache; divides every number of places


class ColumnHashes:
    """Leaves that are made while rows come, prime by prime: no more than one batch of rows is held."""

    __slots__ = ("_hashes",)

    def __init__(self, salts: NDArray[np.uint8]) -> None:
        self._hashes = [sha256(b"\0" + salt.tobytes()) for salt in salts]

    def add(self, rows: Residues) -> None:
        """The next rows of all these columns, which are a multiple of `_STRIP`: (rows, columns)."""
        columns = np.empty((_STRIP, len(rows)), np.uint32)
        for start in range(0, len(self._hashes), _STRIP):
            code.kernels().transpose(rows, start, columns)
            self.add_columns(columns, start)

    def add_columns(self, columns: Residues, start: int = 0) -> None:
        """The next rows of the columns from one on: (columns, rows)."""
        hashes = self._hashes[start : start + len(columns)]
        for column, made in zip(columns.astype("<u4", copy=False), hashes, strict=True):
            made.update(column)

    def leaves(self) -> list[bytes]:
        """When all rows were added."""
        return [made.digest() for made in self._hashes]


def levels_of(leaves: list[bytes]) -> list[list[bytes]]:
    """The tree from its leaves, a power of two, to its cap; and its root alone, the hash of all of the cap."""
    levels = [leaves]
    while len(levels[-1]) > CAP:
        below = levels[-1]
        levels.append([_node(left, right) for left, right in zip(below[::2], below[1::2], strict=True)])
    return [*levels, [root_of(b"".join(levels[-1]))]]


def root_of(cap: bytes) -> bytes:
    """What commits to a tree."""
    return sha256(b"\2" + cap).digest()


def paths(levels: list[list[bytes]], places: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The neighbours on the way from each place to the cap, (places, height, 32), and the cap, (CAP, 32)."""
    *below, cap, _ = levels
    found = [level[(place >> k) ^ 1] for place in places.tolist() for k, level in enumerate(below)]
    shape = len(places), len(below), HASH_BYTES
    return np.frombuffer(b"".join(found), np.uint8).reshape(shape), np.frombuffer(b"".join(cap), np.uint8).reshape(
        -1, HASH_BYTES
    )


def tops(leaves: list[bytes], places: NDArray[np.intp], found: NDArray[np.uint8]) -> Iterator[bytes]:
    """The node of the cap that each leaf and its path lead to."""
    for leaf, place, path in zip(leaves, places.tolist(), found, strict=True):
        node = leaf
        for k, neighbour in enumerate(path):
            other = neighbour.tobytes()
            node = _node(other, node) if (place >> k) & 1 else _node(node, other)
        yield node


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
