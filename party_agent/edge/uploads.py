"""Rows that a party's own system pushes to a data set that its owner declared: pieces, closed to a snapshot.

An upload belongs to who began it, a token (by its digest: names come again) or the operator; nobody else can see it.
Pieces of two systems never meet in one upload: closing it says whether subjects repeat, which would tell each of the
other's rows.

No token keeps the others, the operator or the ledger from their work: we limit its open uploads and their bytes, all
tokens leave some uploads to the operator, and nobody uses the space that is kept free on the disk.

    rows/uploads/OWNER.KEY/request.json, 00000001.parquet, ...      while it is open
"""

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock

from pydantic import Field

from commingle.party_agent.errors import ConflictError, NotFoundError, SourceRefusedError, TooManyUploadsError
from commingle.party_agent.home.datasets import Dataset, DatasetRequest, Datasets
from commingle.party_agent.home.home import Home
from commingle.party_agent.private.pieces import read_piece, stored_piece, write_piece
from commingle.party_agent.private.sources import PushedSource
from commingle.party_agent.wire.answers import PieceView, UploadView
from commingle.shared.documents.model import Name, WireModel, decode, encode
from commingle.shared.runtime.errors import NoRoomError
from commingle.shared.runtime.files import (
    Disks,
    close_to_others,
    full_disk_as_no_room,
    keep_from_backups,
    write_durably,
)
from commingle.shared.runtime.settings import Clock
from commingle.shared.text import counted

MOST_PIECES = 10_000
LARGEST_PIECE_BYTES = 16 << 20
_MOST_OPEN = 16
_OF_TOKENS = 12  # the others are the operator's
_OF_A_TOKEN = 4
_ABANDONED = timedelta(days=7)
_OF = " of "  # between an upload and its number of pieces
_closing, _adding = Lock(), Lock()  # of this process, which has the home to itself


class CloseRequest(WireModel):
    """That every piece was sent.

    Attributes:
        pieces: how many there are: those with the numbers 1 to this.
    """

    pieces: int = Field(ge=1, le=MOST_PIECES)


@dataclass(frozen=True, slots=True)
class Uploads:
    """Uploads of one caller: the holder of the token with that digest, or the operator if it is empty."""

    home: Home
    datasets: Datasets
    clock: Clock
    owner: str

    def begin(self, dataset: Name, upload: Name) -> bool:
        """Open an upload; whether it is new. The same again changes nothing."""
        declared = self._declared(dataset)
        folder = self._folder(dataset, upload)
        if (folder / "request.json").exists():
            return False
        close_to_others(self._uploads)
        keep_from_backups(self.home.rows)
        drop_abandoned(self.home, self.clock())
        with _adding:
            self._require_slot()
            self._write(folder / "request.json", encode(declared))
        return True

    def put(self, dataset: Name, upload: Name, number: int, body: bytes, media_type: str) -> PieceView:
        folder = self._open(dataset, upload)
        request = self._request(folder)
        piece = read_piece(body, media_type, request.key, request.attributes, request.derived)
        with _adding:
            self._write(folder / _file(number), write_piece(piece))
        return PieceView(number=number, rows=piece.num_rows)

    def view(self, dataset: Name, upload: Name) -> UploadView:
        present = sorted(int(path.stem) for path in self._open(dataset, upload).glob("*.parquet"))
        return UploadView(dataset=dataset, upload=upload, pieces=tuple(present))

    def drop(self, dataset: Name, upload: Name) -> None:
        shutil.rmtree(self._folder(dataset, upload), ignore_errors=True)

    def close(self, dataset: Name, upload: Name, asked: CloseRequest) -> Dataset:
        """Have the data set read the rows of all pieces. The same again changes nothing.

        If a person is in two pieces, or the disk is full, the upload stays open.
        """
        declared, folder = self._declared(dataset), self._folder(dataset, upload)
        with _closing:
            known = self.datasets.find(dataset)
            closed, _, pieces = ("", "", "") if known is None else known.upload.partition(_OF)
            if known is not None and closed == folder.name and not folder.exists():
                if pieces != str(asked.pieces):
                    raise ConflictError(
                        f"this upload was closed with {counted(int(pieces), 'piece')}, not with {asked.pieces}",
                        remedy="Its rows are the data set's. To replace them begin another upload.",
                    )
                return known
            present = self.view(dataset, upload).pieces
            missing = [number for number in range(1, asked.pieces + 1) if number not in set(present)]
            if missing or len(present) != asked.pieces:
                raise ConflictError(
                    f"{asked.pieces} pieces were announced and {len(present)} are there",
                    remedy=f"Send what is missing: {missing[:10]}; or count them again.",
                )
            if self._request(folder) != declared:
                raise ConflictError("the data set was declared again meanwhile", remedy="Begin another upload.")
            parts = [stored_piece(folder / _file(number)) for number in present]
            self._disk.require(sum(map(_size, folder.iterdir())))
            with full_disk_as_no_room():
                made = self.datasets.push(declared, parts, upload=f"{folder.name}{_OF}{len(parts)}")
            shutil.rmtree(folder)
            return made

    def _declared(self, dataset: str) -> DatasetRequest:
        declared = self.datasets.declaration(dataset)
        if not isinstance(declared.source, PushedSource):
            raise SourceRefusedError(
                f"rows of data set {dataset} are not pushed",
                remedy="Its owner declares it so: commingle party datasets add --pushed",
            )
        return declared

    def _require_slot(self) -> None:
        owners = Counter(folder.name.partition(".")[0] for folder in self._uploads.iterdir())
        if not self.owner:
            if owners.total() >= _MOST_OPEN:
                raise ConflictError(f"{_MOST_OPEN} uploads are open", remedy="Close one of them, or delete it.")
            return
        own, of_tokens = owners[_key_of(self.owner)], owners.total() - owners[_key_of("")]
        if own >= _OF_A_TOKEN or of_tokens >= _OF_TOKENS:
            whose = f"{own} of this token" if own >= _OF_A_TOKEN else f"{of_tokens} of all tokens"
            raise TooManyUploadsError(f"{whose} are open", remedy="Close or delete one of them, then begin this one.")

    def _write(self, path: Path, data: bytes) -> None:
        most = self.home.settings().pushing.token_bytes
        others = (file for file in self._uploads.glob(f"{_key_of(self.owner)}.*/*") if file != path)
        if self.owner and sum(map(_size, others)) + len(data) > most:
            raise NoRoomError(
                f"the open uploads of a token can have {most} bytes",
                remedy="Close or delete one of them; or the operator raises pushing.token_bytes in settings.json.",
            )
        self._disk.require(len(data))
        with full_disk_as_no_room():
            write_durably(path, data)

    @property
    def _disk(self) -> Disks:
        return Disks((self.home.root, self.home.rows), self.home.settings().pushing.reserve_bytes)

    @property
    def _uploads(self) -> Path:
        return _uploads_of(self.home)

    def _folder(self, dataset: str, upload: str) -> Path:
        key = sha256(f"{self.owner}\0{dataset}\0{upload}".encode()).hexdigest()[:32]
        return self._uploads / f"{_key_of(self.owner)}.{key}"

    def _open(self, dataset: str, upload: str) -> Path:
        folder = self._folder(dataset, upload)
        if not (folder / "request.json").exists():
            raise NotFoundError("no such upload is open", remedy="Begin it: PUT /v1/datasets/{name}/uploads/{upload}")
        return folder

    def _request(self, folder: Path) -> DatasetRequest:
        return decode(DatasetRequest, (folder / "request.json").read_bytes())


def drop_abandoned(home: Home, now: datetime) -> None:
    """Delete uploads without activity for a week, with their rows."""
    for folder in _uploads_of(home).glob("*"):
        with suppress(FileNotFoundError):  # it is closed or deleted meanwhile
            touched = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
            if now - touched > _ABANDONED:
                shutil.rmtree(folder)


def _uploads_of(home: Home) -> Path:
    return home.rows / "uploads"


def _key_of(owner: str) -> str:
    return sha256(owner.encode()).hexdigest()[:16]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _file(number: int) -> str:
    return f"{number:08}.parquet"
