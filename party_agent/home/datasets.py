"""Data sets that the owner has declared, and the snapshot of each that releases are made of.

The owner alone says where rows are, how they are read, what identifies subjects and which attributes there are. A token
names a data set and asks for it to be read again, or pushes its rows. It chooses nothing else and learns nothing of
what was read. While a data set cannot be read again, releases go on with its last snapshot.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from sqlite3 import Row
from threading import RLock
from typing import Annotated, Literal

import structlog
from pydantic import AwareDatetime, Field, TypeAdapter

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.ledger.ledger import Ledger
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.private.derived import Derived, levels_spelled_missing, misread
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.pieces import Piece
from commingle.party_agent.private.snapshot import Snapshot, snapshot_digest, with_subjects, write_snapshot
from commingle.party_agent.private.sources import FileSource, PushedSource, Source, SourceTable, open_table, remedying
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.wire.answers import DatasetView
from commingle.party_agent.wire.owner_words import id_words, words_for_wide
from commingle.shared.documents.model import LEFT_OUT, Count, Digest, Name, WireModel, decode, encode
from commingle.shared.documents.schema import Attribute, as_registered, words_for_missing
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns, SubjectKey, forms_of
from commingle.shared.dp.sensitivity import Adjacency, unit_of
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.settings import Clock

_log = structlog.get_logger()
_KEY_BYTES = 32
_FORMS_OF = 10_000  # ids
_ATTRIBUTES = TypeAdapter(tuple[Attribute, ...])
_UNUSED = """
SELECT digest FROM snapshots
WHERE digest NOT IN (SELECT json_extract(body, '$.snapshot') FROM datasets
                     WHERE json_extract(body, '$.snapshot') IS NOT NULL)
  AND digest NOT IN (SELECT snapshot FROM to_read)
"""


class DatasetRequest(WireModel):
    """What the owner declares.

    Attributes:
        name: what studies will call it.
        source: where its rows are.
        subject_id: the column that identifies a person, or several that do so together.
        id_rules: how each is written (`shared.documents.subject_ids`); left out, exactly.
        subjects: "keyed" where who is in it is private and changes as it is read again; "listed" where that is a list
            which all members hold: it stays as the owner registered it, and somebody who is no longer found has a row
            of missing cells. It is released, regressed and charged as that, and related ones are alike (`unit_of`).
        people: what group its people are of. Caps add up what all data sets of a group lose, since they may have
            somebody in common. A person in one group is in no other.
        attributes: public schema of the columns it offers.
        derived: those columns that are made of cells of the same row, in the order in which they are.
    """

    name: Name
    source: Source
    subject_id: SubjectColumns
    id_rules: IdRules | None = None
    subjects: Literal["keyed", "listed"] = "keyed"
    people: Name = "everybody"
    attributes: tuple[Attribute, ...]
    derived: Annotated[tuple[Derived, ...], Field(max_length=256)] = ()

    @property
    def unit(self) -> Adjacency:
        return unit_of(keyed=self.subjects == "keyed")

    @property
    def key(self) -> SubjectKey:
        """Raises SpecError: not one rule for each column."""
        return SubjectKey.of(self.subject_id, self.id_rules)


class Dataset(DatasetRequest):
    """A declared data set and what was found when it was last read. Its counts are of private cells.

    Attributes:
        n: people; 0 until its rows have been read.
        ids_changed: ids that their rule writes otherwise than the table.
        id_forms: how ids are written by their rule, in words.
        filled: by number, the fewest neighbouring hundredths of its bounds that hold all but one in 1,000 values;
            not of one that is mostly clipped.
        snapshot: digest of the one that releases are made of; left out until its rows have been read.
        read: when.
        upload: whose rows these are, and in how many pieces they came, where they were pushed.
    """

    id_rules: Annotated[IdRules | None, LEFT_OUT] = None
    n: Count = 0
    ids_changed: Count = 0
    id_forms: tuple[str, ...] = ()
    clipped: dict[str, Count] = Field(default_factory=dict)
    missing: dict[str, Count] = Field(default_factory=dict)
    filled: dict[str, Count] = Field(default_factory=dict)
    snapshot: Annotated[Digest | None, LEFT_OUT] = None
    read: Annotated[AwareDatetime | None, LEFT_OUT] = None
    upload: str = ""

    @property
    def declared(self) -> DatasetRequest:
        return DatasetRequest(**{name: getattr(self, name) for name in DatasetRequest.model_fields})

    @property
    def id_words(self) -> str | None:
        return id_words(self.id_forms, self.key.rules)

    def missing_words(self, names: Iterable[str]) -> list[str]:
        """Sentences for the operator: what becomes of these attributes' missing cells, and how many there are."""
        found = {a.name: words_for_missing(a, self.missing.get(a.name, 0)) for a in self.attributes}
        return [words for name in names if (words := found.get(name)) is not None]

    def wide_words(self, names: Iterable[str]) -> list[str]:
        """Sentences for the operator: which of these numbers have bounds much wider than their values."""
        found = {a.name: words_for_wide(a, self.filled.get(a.name, 0)) for a in self.attributes}
        return [words for name in names if (words := found.get(name)) is not None]

    def view(self, *, counts: bool) -> DatasetView:
        """What the member's own people are shown: no digest, no password; counts, which follow from rows, if wanted."""
        of_rows = {"n", "ids_changed", "id_forms", "clipped", "missing", "filled", "read"} if counts else set()
        shown = self.model_dump(include={"name", "subject_id", "id_rules", "subjects", "people"} | of_rows)
        made = tuple(map(str, self.derived)) or None
        where, unit = _where(self.source), self.unit
        return DatasetView(**shown, attributes=self.attributes, derived=made, source=where, unit=unit)


@dataclass(frozen=True, slots=True)
class Datasets:
    """The data sets of one agent. No other process writes to the folder of their snapshots."""

    store: AgentStore
    ledger: Ledger
    folder: Path
    clock: Clock
    engine: Engine = IN_PROCESS
    _one_at_a_time: RLock = field(default_factory=RLock, repr=False)

    def register(self, request: DatasetRequest, *, replace: bool, progress: Progress = lambda _: None) -> Dataset:
        """Declare a data set, which may `replace` one of its name, and read it unless its rows are pushed later.

        This is for its owner, whom we may tell what its rows are like.
        """
        with self._one_at_a_time:  # so that no related one is registered meanwhile
            self._require_possible(request, replace=replace)
            self._require_one_unit(request)
            if isinstance(request.source, PushedSource):
                return self._store(Dataset(**dict(request)))
            return self._read(request, self._table(request, strict=True), strict=True, progress=progress)

    def read_again(self, name: str, *, strict: bool, progress: Progress = lambda _: None) -> Dataset:
        """Read a declared data set again: strictly for its owner, totally for everybody else.

        If that fails, the former snapshot stays.
        """
        declared = self.readable(name)
        return self._read(declared, self._table(declared, strict=strict), strict=strict, progress=progress)

    def try_again(self, name: str) -> None:
        """`read_again` for a token, which learns nothing: why it failed is for the operator.

        Privacy: a fault is logged by its kind alone, since its text may quote a cell.
        """
        try:
            self.read_again(name, strict=False)
        except CommingleError as error:
            _log.warning("data set not read again", dataset=name, error=error.code)
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("data set not read again", dataset=name, fault=type(error).__name__)

    def push(self, declared: DatasetRequest, pieces: Sequence[Piece], *, upload: str) -> Dataset:
        """Take pushed rows in place of the former ones. Raises DataError: a person is in two pieces."""
        table = SourceTable(pieces, declared.key, declared.attributes)
        return self._read(declared, table, strict=True, upload=upload)

    def find(self, name: str) -> Dataset | None:
        found = self._find(name)
        return found if found and found.snapshot else None

    def get(self, name: str) -> Dataset:
        dataset = self.find(name)
        if dataset is None:
            raise NotFoundError(
                f"there is no data set {name} that was read",
                remedy="Register it: commingle party datasets add; or push its rows.",
            )
        return dataset

    def declaration(self, name: str) -> DatasetRequest:
        if (known := self._find(name)) is None:
            raise NotFoundError(
                f"there is no data set {name}", remedy="Its owner declares it: commingle party datasets add"
            )
        return known.declared

    def readable(self, name: str) -> DatasetRequest:
        """What its owner declared, if that says where to read it. Raises NotFoundError, ConflictError."""
        declared = self.declaration(name)
        if isinstance(declared.source, PushedSource):
            raise ConflictError(f"rows of data set {name} are pushed", remedy="Push them again.")
        return declared

    def all(self) -> list[Dataset]:
        with self.store.reading() as db:
            rows = db.execute("SELECT body FROM datasets ORDER BY name")
            return [stored_dataset(row["body"]) for row in rows]

    def snapshot(self, digest: str | None) -> Snapshot:
        """The snapshot that a data set or a charge names. Raises NotFoundError: it is not kept any more."""
        with self.store.reading() as db:
            row = db.execute("SELECT * FROM snapshots WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            raise NotFoundError("the snapshot is not kept any more", remedy="Ask again: commingle party datasets list")
        return self._opened(row)

    def related(self, name: str) -> frozenset[str]:
        """The data set and all that may share its people, or share its source: a person's losses in them add up.

        Privacy: by what was declared. Whether two tables do have somebody in common must decide nothing that shows.
        """
        known = self.all()
        own = next((one for one in known if one.name == name), None)
        return frozenset({name} if own is None else {one.name for one in known if _share_people(own, one)})

    def sweep(self) -> None:
        """Forget snapshots that neither a data set nor an open charge needs: first their keys, then the files."""
        with self._one_at_a_time:
            with self.store.transaction() as db:
                for row in db.execute(_UNUSED).fetchall():
                    db.execute("DELETE FROM snapshots WHERE digest = ?", (row["digest"],))
            with self.store.reading() as db:
                kept = {row["digest"] for row in db.execute("SELECT digest FROM snapshots")}
            for path in self.folder.glob("*") if self.folder.is_dir() else ():
                if path.name not in kept:
                    path.unlink()

    def _table(self, declared: DatasetRequest, *, strict: bool) -> SourceTable:
        return open_table(
            declared.source,
            declared.key,
            declared.attributes,
            engine=self.engine,
            strict=strict,
            derived=declared.derived,
        )

    def _read(
        self,
        declared: DatasetRequest,
        table: SourceTable,
        *,
        strict: bool,
        upload: str = "",
        progress: Progress = lambda _: None,
    ) -> Dataset:
        table = replace(table, derived=declared.derived)
        with self._one_at_a_time, remedying(declared.source, declared.derived):
            listed, attributes = declared.subjects == "listed", declared.attributes
            found = table.scan(progress, strict=strict, complete=not strict and not listed)
            known, records = self._find(declared.name), iter(found.sorter)
            if known and known.snapshot and not strict and listed:
                records = with_subjects(self.snapshot(known.snapshot).ids(), records, attributes)
            snapshot = write_snapshot(self.folder, secrets.token_bytes(_KEY_BYTES), attributes, records)
            try:
                if strict:
                    found.require_one_row_each(declared.key)
                dataset = Dataset(
                    **dict(declared),
                    n=snapshot.n,
                    ids_changed=found.ids.changed,
                    id_forms=_forms(snapshot, declared.key),
                    clipped=found.clipped,
                    missing=found.missing,
                    filled={a: part for a, part in found.filled.items() if 2 * found.clipped[a] <= snapshot.n},
                    snapshot=snapshot.digest,
                    read=self.clock(),
                    upload=upload,
                )
                self._store(dataset, snapshot)
            except BaseException:
                snapshot.path.unlink(missing_ok=True)
                raise
            self.sweep()
        return dataset

    def _store(self, dataset: Dataset, snapshot: Snapshot | None = None) -> Dataset:
        with self.store.transaction() as db:
            self._require_charged_so(dataset)  # again: a release may have been approved while it was read
            db.execute("INSERT OR REPLACE INTO datasets VALUES (?, ?)", (dataset.name, encode(dataset).decode()))
            if snapshot is not None:
                attributes = _ATTRIBUTES.dump_json(snapshot.attributes).decode()
                held = (snapshot.digest, snapshot.key, snapshot.n, attributes)
                db.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?)", held)
        return dataset

    def _opened(self, row: Row) -> Snapshot:
        return Snapshot(
            path=self.folder / snapshot_digest(row["key"]),
            key=row["key"],
            n=row["n"],
            attributes=_ATTRIBUTES.validate_json(row["attributes"]),
            engine=self.engine,
        )

    def _find(self, name: str) -> Dataset | None:
        with self.store.reading() as db:
            row = db.execute("SELECT body FROM datasets WHERE name = ?", (name,)).fetchone()
        return stored_dataset(row["body"]) if row else None

    def _require_possible(self, request: DatasetRequest, *, replace: bool) -> None:
        for said, remedy in _wrong_with(request):
            raise ConflictError(said, remedy=remedy)
        if not replace and self._find(request.name) is not None:
            raise ConflictError(f"data set {request.name} exists", remedy="Choose another name or use --replace.")

    def _require_one_unit(self, request: DatasetRequest) -> None:
        # a person's losses would be in two units (docs/proofs/noise-and-accounting.md, 3.4): a list tells who is on it,
        # which a keyed data set keeps private, so neither stands for the other in a sum
        for one in self.all():
            if one.name != request.name and one.subjects != request.subjects and _share_people(request, one):
                raise ConflictError(
                    f"data set {one.name} is of the same people or source, and is {one.subjects}",
                    remedy="Register both alike (--listed, or not); or, where nobody is in both, from another source "
                    "and with other --people.",
                )
        self._require_charged_so(request)

    def _require_charged_so(self, request: DatasetRequest) -> None:
        if self.ledger.charged_units(request.name) - {request.unit}:
            raise ConflictError(
                f"data set {request.name} was charged when it was not {request.subjects}",
                remedy="Keep that, or choose another name for other people.",
            )


def _wrong_with(request: DatasetRequest) -> Iterator[tuple[str, str]]:
    names, made = [one.name for one in request.attributes], [one.name for one in request.derived]
    if not names:
        yield "the schema has no attributes", "List at least one attribute."
    if any(as_registered(attribute) != (attribute,) for attribute in request.attributes):
        said = "an attribute that is made of others: intervals of a number, pairs, or a product"
        yield said, "Register what it is made of; a study cuts, crosses or multiplies it."
    keys = set(request.key.columns)
    for twice in sorted({name for name in names if names.count(name) > 1}):
        yield f"attribute {twice} appears twice in the schema", "Leave one out."
    for key in sorted(keys & set(names)):
        yield f"{key} identifies people, and is an attribute of the schema too", "Leave it out of the schema."
    for twice in sorted({name for name in made if made.count(name) > 1}):
        yield f"{twice} is derived twice", "Leave one out."
    for key in sorted(keys & set(made)):
        yield f"{key} identifies people, and is derived", "Ids are written by --id-rule; give it another name."
    csv = request.source if isinstance(request.source, FileSource) and request.source.is_csv else None
    if csv is not None:
        yield from levels_spelled_missing(request.attributes, request.derived)
    yield from misread(request.derived, None if csv is None else csv.csv_format)
    for place, one in enumerate(request.derived, 1):
        if one.name not in {*names, *(name for later in request.derived[place:] for name in later.of)}:
            remedy = f"Add {one.name} to the schema, with its public bounds or levels; or leave it out: {one}"
            yield f"derived column {one.name} is no attribute of the schema", remedy


def stored_dataset(body: str) -> Dataset:
    return decode(Dataset, body.encode())


def _share_people(one: DatasetRequest, other: DatasetRequest) -> bool:
    place = _place(one.source)
    return one.people == other.people or (place is not None and _place(other.source) == place)


def _place(source: Source) -> tuple[object, ...] | None:
    if isinstance(source, PushedSource):
        return None
    return (source.url, source.query) if isinstance(source, SqlSource) else (source.path,)


def _forms(snapshot: Snapshot, key: SubjectKey) -> tuple[str, ...]:
    if len(key.columns) > 1:
        return ()
    step = max(1, snapshot.n // _FORMS_OF)
    return forms_of(str(one, "utf-8") for ids in snapshot.ids() for one in ids[::step].to_pylist() if one)


def _where(source: Source) -> str:
    if isinstance(source, PushedSource):
        return "pushed rows"
    return "a database query" if isinstance(source, SqlSource) else source.path
