"""Rows that a party's own system pushes: pieces in the home, closed to a Parquet file that is registered as any other.

An upload belongs to who began it, a token's name or the operator; to everybody else it is not there. Pieces of two
systems never meet in one upload: what closing it says, that subjects repeat, would tell each of the other's rows.

    rows/uploads/KEY/request.json, 00000001.parquet, ...      while it is open
    rows/DATASET.KEY.NONCE.parquet                            what it was closed to, while a data set reads it
"""

import secrets
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock

from pydantic import Field

from commingle.party_agent.allowed_sources import allowed_sources
from commingle.party_agent.datasets import Dataset, DatasetRequest, Datasets
from commingle.party_agent.errors import ConflictError, NotFoundError, SourceRefusedError
from commingle.party_agent.home import Home
from commingle.party_agent.private.pieces import join_pieces, read_piece, write_piece
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.wire import PieceView, UploadView
from commingle.shared.documents.model import Name, WireModel, decode, encode
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns, SubjectKey
from commingle.shared.runtime.files import CACHE_TAG, close_to_others, keep_from_backups, write_durably
from commingle.shared.runtime.settings import Clock

MOST_PIECES = 10_000
LARGEST_PIECE_BYTES = 16 << 20
_MOST_OPEN = 16
_ABANDONED = timedelta(days=7)
_closing = Lock()  # of this process, which has the home to itself


class UploadRequest(WireModel):
    """What the rows of an upload will be.

    Attributes:
        subject_id: the column that identifies a subject, or several that do so together.
        id_rules: how each of them is written, as the study's; left out, exactly.
        attributes: public schema of the columns. Others that a piece has are not kept.
    """

    subject_id: SubjectColumns
    id_rules: IdRules | None = None
    attributes: tuple[Attribute, ...] = Field(min_length=1)

    @property
    def key(self) -> SubjectKey:
        """What identifies a subject. Raises SpecError: not one rule for each column."""
        return SubjectKey.of(self.subject_id, self.id_rules)


class CloseRequest(WireModel):
    """That every piece was sent.

    Attributes:
        pieces: how many there are: those with the numbers 1 to this.
        replace: whether the data set may be there already, and is to have these rows instead of those it has.
    """

    pieces: int = Field(ge=1, le=MOST_PIECES)
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Uploads:
    """Uploads of one caller.

    Attributes:
        owner: name of the token; empty for the operator.
    """

    home: Home
    datasets: Datasets
    clock: Clock
    owner: str

    def begin(self, dataset: Name, upload: Name, request: UploadRequest) -> bool:
        """Open an upload; whether it is new. The same again changes nothing.

        Raises:
            SourceRefusedError: a token, and the operator has not listed the data set as one that may be pushed.
            ConflictError: it is open with another schema, or too many are.
            SpecError: the ids have no such rules.
        """
        _ = request.key
        self._require_permitted(dataset)
        folder = self._folder(dataset, upload)
        if (folder / "request.json").exists():
            if self._request(folder) != request:
                raise ConflictError("this upload is open with another schema", remedy="Begin another one.")
            return False
        self._sweep()
        if sum(1 for _ in self._uploads.iterdir()) >= _MOST_OPEN:
            raise ConflictError(f"{_MOST_OPEN} uploads are open", remedy="Close one of them, or delete it.")
        write_durably(folder / "request.json", encode(request))
        return True

    def put(self, dataset: Name, upload: Name, number: int, body: bytes, media_type: str) -> PieceView:
        """Keep a piece in place of the one that had its number. Raises NotFoundError, DataError, PieceError."""
        folder = self._open(dataset, upload)
        request = self._request(folder)
        piece = read_piece(body, media_type, request.key, request.attributes)
        write_durably(folder / _file(number), write_piece(piece))
        return PieceView(number=number, rows=piece.num_rows)

    def view(self, dataset: Name, upload: Name) -> UploadView:
        """Which pieces are in. Raises NotFoundError."""
        present = sorted(int(path.stem) for path in self._open(dataset, upload).glob("*.parquet"))
        return UploadView(dataset=dataset, upload=upload, pieces=tuple(present))

    def drop(self, dataset: Name, upload: Name) -> None:
        """Forget an open upload and its rows, where there is one."""
        shutil.rmtree(self._folder(dataset, upload), ignore_errors=True)

    def close(self, dataset: Name, upload: Name, asked: CloseRequest) -> Dataset:
        """Register the rows of all pieces. Closing again what is closed so changes nothing.

        Raises:
            SourceRefusedError: as `begin`.
            NotFoundError: no such upload.
            ConflictError: pieces are missing, or the data set is there and not to be replaced.
            DataError: a subject is in two pieces; the upload stays open.
        """
        self._require_permitted(dataset)
        with _closing:
            prefix = f"{dataset}.{self._key(dataset, upload)}."
            if not (folder := self._folder(dataset, upload)).exists() and (known := self._reading(prefix)) is not None:
                return known
            present = self.view(dataset, upload).pieces
            missing = [number for number in range(1, asked.pieces + 1) if number not in set(present)]
            if missing or len(present) != asked.pieces:
                raise ConflictError(
                    f"{asked.pieces} pieces were announced and {len(present)} are there",
                    remedy=f"Send what is missing: {missing[:10]}; or count them again.",
                )
            request = self._request(folder)
            out = self._rows / f"{prefix}{secrets.token_hex(8)}.parquet"  # never that of rows that are still read
            wanted = DatasetRequest(
                name=dataset,
                source=FileSource(path=str(out)),
                subject_id=request.subject_id,
                id_rules=request.id_rules,
                attributes=request.attributes,
            )
            self.datasets.require_possible(wanted, replace=asked.replace)
            join_pieces((folder / _file(number) for number in present), out)
            try:
                made = self.datasets.register(wanted, replace=asked.replace)
            except Exception:
                out.unlink()
                raise
            shutil.rmtree(folder)
            self._drop_unread()
            return made

    def _require_permitted(self, dataset: str) -> None:
        if self.owner and not allowed_sources(self.home).permit_pushing(dataset):
            raise SourceRefusedError(
                "rows of this data set are not among those that tokens may push",
                remedy='The operator adds its name to "pushed" in sources.json of the agent\'s home.',
            )

    @property
    def _rows(self) -> Path:
        return self.home.root.resolve() / "rows"  # registered, so the same wherever an agent is started

    @property
    def _uploads(self) -> Path:
        return self._rows / "uploads"

    def _key(self, dataset: str, upload: str) -> str:
        return sha256(f"{self.owner}\0{dataset}\0{upload}".encode()).hexdigest()[:32]

    def _folder(self, dataset: str, upload: str) -> Path:
        return self._uploads / self._key(dataset, upload)

    def _open(self, dataset: str, upload: str) -> Path:
        folder = self._folder(dataset, upload)
        if not (folder / "request.json").exists():
            raise NotFoundError("no such upload is open", remedy="Begin it: PUT /v1/datasets/{name}/uploads/{upload}")
        return folder

    def _request(self, folder: Path) -> UploadRequest:
        return decode(UploadRequest, (folder / "request.json").read_bytes())

    def _reading(self, prefix: str) -> Dataset | None:
        """The data set that reads what an upload was closed to."""
        reading = ((one, _path(one)) for one in self.datasets.all())
        return next((one for one, at in reading if at and at.parent == self._rows and at.name.startswith(prefix)), None)

    def _sweep(self) -> None:
        """Make the folder, closed to others and to backups, and drop uploads that nobody has gone on with."""
        close_to_others(self._uploads)
        keep_from_backups(self._rows)
        for folder in self._uploads.iterdir():
            touched = datetime.fromtimestamp(folder.stat().st_mtime, UTC)
            if self.clock() - touched > _ABANDONED:
                shutil.rmtree(folder)

    def _drop_unread(self) -> None:
        """Drop rows that no data set reads any more, and what an interrupted call has left."""
        kept = {self._rows / CACHE_TAG, *(_path(dataset) for dataset in self.datasets.all())}
        for path in self._rows.iterdir():
            if path.is_file() and path not in kept:
                path.unlink()


def _path(dataset: Dataset) -> Path | None:
    return Path(dataset.source.path) if isinstance(dataset.source, FileSource) else None


def _file(number: int) -> str:
    return f"{number:08}.parquet"
