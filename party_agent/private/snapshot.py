"""The snapshot of a data set: one encoded row of each subject, in the order of their ids, as the source was read once.

Approval, debit, both stages of a release and regressions read these same bytes and never the source. So the content and
the order of a source, and whether it can be read, matter only when its owner registers it (docs/proofs/records.md, 3).

Adversary: who reads the party's disk without the ledger's file, where the key is; and who alters a file between debit
and upload. Each piece is sealed under a key of this snapshot alone, and the snapshot is named by a digest of that key:
other bytes under this name do not open. Once the key is deleted nobody reads the rows any more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from commingle.party_agent.errors import LostError
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.sorting import ENTRY, Records, nonce, packed, unpacked
from commingle.shared.documents.schema import Attribute, as_registered, encoded_columns
from commingle.shared.documents.subsets import Subset
from commingle.shared.encoding import as_released, encode_attribute, within
from commingle.shared.runtime.files import write_durably
from commingle.shared.values import Cells, length_prefixed

_HEAD_BYTES = 8
PART_PIECES = 64  # what a worker is given at a time: some 2^17 subjects


NO_SNAPSHOT = ""
"""A debit of this snapshot lets nobody read rows."""


@dataclass(frozen=True, slots=True)
class Debit:
    """Proof of a committed debit, which every function that reads rows asks for. Only the ledger makes one.

    Attributes:
        attempt: the drawing of noise that this debit is for.
        approvals, snapshot: digests of the set of approvals relied on, and of the snapshot that may be read.
    """

    release: str
    rho_units: int
    attempt: int
    approvals: str
    snapshot: str = field(repr=False)
    delta: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The rows of `n` subjects as they were read and encoded by `attributes`.

    Attributes:
        key: 32 bytes.
        chosen: attributes to read, in that order; all if it is empty.
        where: subsets that the people to read are in; everybody if it is empty.
        engine: does work on its parts.
    """

    path: Path
    key: bytes = field(repr=False)
    n: int
    attributes: tuple[Attribute, ...]
    chosen: tuple[Attribute, ...] = ()
    where: tuple[Subset, ...] = ()
    engine: Engine = field(default=IN_PROCESS, repr=False)

    @property
    def digest(self) -> str:
        """Its name, in debits too. It says nothing of the rows."""
        return snapshot_digest(self.key)

    def choose(self, attributes: Sequence[Attribute], where: Sequence[Subset] | None = None) -> Self:
        """Some of its attributes in order, or intervals or pairs of them; and the people in all subsets.

        Raises ValueError: it was not encoded by one of the attributes.
        """
        asked = (*attributes, *(subset.attribute for subset in where or ()))
        if not {registered for each in asked for registered in as_registered(each)} <= set(self.attributes):
            raise ValueError("the snapshot was not encoded by these attributes")
        return replace(self, chosen=tuple(attributes), where=tuple(where or ()))

    def ids(self) -> Iterator[Cells]:
        """The canonical ids in order, some at a time. Raises LostError."""
        return (ids for ids, _ in self._records(self._pieces()))

    def listed(self) -> Iterator[bytes]:
        """The canonical ids in order, each behind its length, some at a time. Raises LostError."""
        return map(length_prefixed, self.ids())

    def records(self, progress: Progress = lambda _: None) -> Iterator[tuple[Cells, NDArray[np.int64]]]:
        """Ids (b) and rows (b x d) of the chosen attributes and people, some at a time. Raises LostError."""
        seen = 0
        for ids, rows in self._records(self._pieces()):
            counts = self._counts(rows)
            yield ids.filter(pa.array(counts)), self._of_chosen(rows[counts])
            progress(seen := seen + len(ids))

    def parts(self) -> "Sequence[RankedRows]":
        """All rows in parts for an engine. Raises LostError."""
        pieces = self._pieces()
        chosen = [pieces[start : start + PART_PIECES] for start in range(0, len(pieces), PART_PIECES)]
        firsts = accumulate((sum(piece.records for piece in part) for part in chosen), initial=0)
        return [RankedRows(self, tuple(part), first) for part, first in zip(chosen, firsts, strict=False)]

    def rows_of(self, pieces: "Sequence[_Piece]") -> Iterator[NDArray[np.int64]]:
        """Rows (b x d) of the chosen attributes of some pieces. Raises LostError."""
        return (self._of_chosen(rows) for _, rows in self._records(pieces))

    def _of_chosen(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        chosen = self.chosen or self.attributes
        return np.hstack([as_released(a, held) for a, held in zip(chosen, self._held(rows, chosen), strict=True)])

    def _counts(self, rows: NDArray[np.int32]) -> NDArray[np.bool_]:
        if not self.where:
            return np.ones(len(rows), np.bool_)
        return within(self.where, self._held(rows, [subset.attribute for subset in self.where]))

    def _held(self, rows: NDArray[np.int32], asked: Sequence[Attribute]) -> list[NDArray[np.int64]]:
        starts = accumulate(map(_width, self.attributes), initial=0)
        own = {a.name: range(start, start + _width(a)) for a, start in zip(self.attributes, starts, strict=False)}
        places = ([place for registered in as_registered(a) for place in own[registered.name]] for a in asked)
        return [rows[:, at].astype(np.int64) for at in places]

    def _records(self, pieces: "Sequence[_Piece]") -> Iterator[Records]:
        cipher, width = AESGCM(self.key), sum(map(_width, self.attributes))
        schema = packed(pa.array([], pa.large_binary()), np.empty((0, width), ENTRY)).schema
        try:
            with self.path.open("rb") as file:
                for piece in pieces:
                    file.seek(piece.place)
                    plain = cipher.decrypt(nonce(piece.number), file.read(piece.size), _bound(piece.records))
                    yield unpacked(pa.ipc.read_record_batch(pa.py_buffer(plain), schema))
        except (OSError, InvalidTag):
            raise _lost() from None

    def _pieces(self) -> "list[_Piece]":
        found, at = list[_Piece](), 0
        try:
            end = self.path.stat().st_size
            with self.path.open("rb") as file:
                while at < end:
                    file.seek(at)
                    head = file.read(2 * _HEAD_BYTES)
                    size, records = (int.from_bytes(part, "big") for part in (head[:_HEAD_BYTES], head[_HEAD_BYTES:]))
                    at += 2 * _HEAD_BYTES
                    found.append(_Piece(len(found), at, size, records))
                    at += size
        except OSError:
            raise _lost() from None
        if at != end or sum(piece.records for piece in found) != self.n:
            raise _lost()
        return found


@dataclass(frozen=True, slots=True)
class _Piece:
    """Where some records are in the file. Its seal covers its number and how many records it holds."""

    number: int
    place: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class RankedRows:
    """Rows of neighbouring subjects, for an engine. Pickled as an array, since workers have another disk."""

    snapshot: Snapshot
    pieces: tuple[_Piece, ...]
    first: int

    def rows(self, progress: Progress) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Ranks (b) and encoded rows (b x d), some at a time. Raises LostError."""
        rank = self.first
        for rows in self.snapshot.rows_of(self.pieces):
            yield np.arange(rank, rank + len(rows)), rows
            rank += len(rows)
            progress(rank - self.first)

    def __reduce__(self) -> tuple[type["HeldRows"], tuple[int, NDArray[np.int64]]]:
        return HeldRows, (self.first, np.concatenate(list(self.snapshot.rows_of(self.pieces))))


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows of neighbouring subjects (m x d) in memory."""

    first: int
    held: NDArray[np.int64] = field(repr=False)

    def rows(self, progress: Progress) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Ranks (m) and encoded rows (m x d)."""
        yield np.arange(self.first, self.first + len(self.held)), self.held
        progress(len(self.held))


def snapshot_digest(key: bytes) -> str:
    """The name of the snapshot that this key opens."""
    return sha256(b"commingle/v1/snapshot" + key).hexdigest()


def write_snapshot(folder: Path, key: bytes, attributes: tuple[Attribute, ...], records: Iterator[Records]) -> Snapshot:
    """Seal records, one of each subject in the order of ids, some at a time, in a file of a folder.

    The key is 32 fresh bytes of the operating system. Raises OSError: the disk is full; nothing is left then.
    """
    cipher, n = AESGCM(key), 0

    def sealed() -> Iterator[bytes]:
        nonlocal n
        for number, (ids, rows) in enumerate(records):
            n += len(ids)
            plain = packed(ids, rows).serialize().to_pybytes()
            body = cipher.encrypt(nonce(number), plain, _bound(len(ids)))
            yield len(body).to_bytes(_HEAD_BYTES, "big") + _bound(len(ids)) + body

    path = folder / snapshot_digest(key)
    write_durably(path, sealed())
    return Snapshot(path=path, key=key, n=n, attributes=attributes)


def with_subjects(
    listed: Iterator[Cells], found: Iterator[Records], attributes: Sequence[Attribute]
) -> Iterator[Records]:
    """The records of a fixed list of subjects; a subject without one has a row of missing cells.

    Both come in the order of ids; records of people who are not on the list are passed over.
    """
    missing = missing_row(attributes)
    ids: Cells = pa.array([], pa.large_binary())
    rows = np.empty((0, len(missing)), ENTRY)
    for some in listed:
        while not len(ids) or ids[-1].as_py() < some[-1].as_py():
            more = next(found, None)
            if more is None:
                break
            ids, rows = pa.concat_arrays([ids, more[0]]), np.concatenate([rows, more[1]])
        place: Any = pc.index_in(some, value_set=ids)
        there = place.is_valid().to_numpy(zero_copy_only=False)
        kept = np.tile(missing, (len(some), 1))
        kept[there] = rows[place.drop_null().to_numpy()]
        yield some, kept
        later = pc.greater(ids, some[-1])
        ids, rows = ids.filter(later), rows[later.to_numpy(zero_copy_only=False)]


def missing_row(attributes: Sequence[Attribute]) -> NDArray[np.int32]:
    """The encoded row (d) of a subject all of whose cells are missing."""
    nothing: Any = pa.nulls(1, pa.large_string())
    row: NDArray[np.int32] = np.hstack([encode_attribute(a, nothing).columns for a in attributes])[0].astype(ENTRY)
    return row


def _width(attribute: Attribute) -> int:
    return len(encoded_columns((attribute,)))


def _bound(records: int) -> bytes:
    return records.to_bytes(_HEAD_BYTES, "big")


def _lost() -> LostError:
    return LostError(
        "the snapshot of the data set is lost or damaged",
        remedy="Check the disk of the member's home, then read the data set again: commingle party datasets read NAME",
    )
