"""Registered data sets: where the rows are, their public schema, and what a full reading found."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from pydantic import Field

from commingle.party_agent.errors import ConflictError, NotFoundError
from commingle.party_agent.private.digest import TableDigest
from commingle.party_agent.private.engine import IN_PROCESS, Engine, Progress
from commingle.party_agent.private.sources import Source, Table, open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.store import AgentStore
from commingle.shared.documents.model import LEFT_OUT, Count, Digest, Name, WireModel, decode, encode
from commingle.shared.documents.schema import Attribute, words_for_missing
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns, SubjectKey

_NOTHING_READ = sha256(b"").hexdigest()


class DatasetRequest(WireModel):
    """What a party says about a data set when it registers it.

    Attributes:
        name: what studies will call it.
        source: where its rows are.
        subject_id: the column that identifies a subject, or several that do so together.
        id_rules: how each is written (`shared.documents.subject_ids`); left out, exactly.
        attributes: public schema of the columns it offers.
    """

    name: Name
    source: Source
    subject_id: SubjectColumns
    id_rules: IdRules | None = None
    attributes: tuple[Attribute, ...]

    @property
    def key(self) -> SubjectKey:
        """What identifies a subject. Raises SpecError: not one rule for each column."""
        return SubjectKey.of(self.subject_id, self.id_rules)


class Dataset(WireModel):
    """A registered data set. Its counts are of private cells and its digest of subjects: both stay on this machine.

    Attributes:
        n: subjects; 0 until its rows have been read.
        ids_changed: ids that their rule writes otherwise than the table.
    """

    name: Name
    source: Source
    subject_id: SubjectColumns
    id_rules: Annotated[IdRules | None, LEFT_OUT] = None
    attributes: tuple[Attribute, ...]
    n: Count
    ids_changed: Count = 0
    clipped: dict[str, Count]
    missing: dict[str, Count]
    subjects_digest: Annotated[Digest, Field(repr=False)]

    @property
    def digest(self) -> TableDigest:
        """Whose rows the table had when it was registered."""
        return TableDigest(self.subjects_digest)

    @property
    def key(self) -> SubjectKey:
        """What identifies a subject."""
        return SubjectKey.of(self.subject_id, self.id_rules)

    def table(self, attributes: tuple[Attribute, ...], engine: Engine) -> Table:
        """How to read some of its attributes, whatever its cells have become since it was registered.

        Raises:
            SourceError, DataError: its partitions cannot be listed.
        """
        return open_table(self.source, self.key, attributes, engine=engine)

    def missing_words(self, names: Iterable[str], *, counts: bool) -> list[str]:
        """What becomes of missing cells of these attributes, in sentences; how many there are, if wanted."""
        found = {a.name: words_for_missing(a, self.missing.get(a.name, 0) if counts else None) for a in self.attributes}
        return [words for name in names if (words := found.get(name)) is not None]

    def view(self, *, counts: bool) -> dict[str, Any]:
        """What the party's own people are shown: no digest, no password. Counts, which follow from rows, if wanted."""
        hidden = {"subjects_digest", "source"} | (set() if counts else {"n", "ids_changed", "clipped", "missing"})
        shown = self.model_dump(mode="json", exclude=hidden)
        where = "a database query" if isinstance(self.source, SqlSource) else self.source.path
        return {**shown, "source": where}


@dataclass(frozen=True, slots=True)
class Datasets:
    """The data sets of one agent."""

    store: AgentStore
    engine: Engine = IN_PROCESS

    def register(
        self, request: DatasetRequest, *, replace: bool, strict: bool = True, progress: Progress = lambda _: None
    ) -> Dataset:
        """Read the whole table once and remember it.

        Args:
            request: name, source and schema.
            replace: whether the name may be taken.
            strict: whether cells that do not fit the schema are refused. For the operator, who may see that.
            progress: told the rows read.

        Raises:
            DataError: the table does not fit its schema.
            ConflictError: the name is taken and `replace` was not asked for.
        """
        self.require_possible(request, replace=replace)
        table = open_table(request.source, request.key, request.attributes, engine=self.engine, strict=strict)
        scan = table.scan(progress, strict=strict)
        dataset = Dataset(
            name=request.name,
            source=request.source,
            subject_id=request.subject_id,
            id_rules=request.id_rules,
            attributes=request.attributes,
            n=scan.n,
            ids_changed=scan.ids.changed,
            clipped=dict(scan.clipped),
            missing=dict(scan.missing),
            subjects_digest=scan.digest.subjects,
        )
        return self._store(dataset)

    def announce(self, request: DatasetRequest, *, replace: bool) -> Dataset:
        """Remember a data set that nobody has read yet, so that what follows from its rows cannot be seen by this.

        Raises:
            ConflictError: as `register`.
        """
        self.require_possible(request, replace=replace)
        return self._store(
            Dataset(
                name=request.name,
                source=request.source,
                subject_id=request.subject_id,
                id_rules=request.id_rules,
                attributes=request.attributes,
                n=0,
                clipped={},
                missing={},
                subjects_digest=_NOTHING_READ,
            )
        )

    def find(self, name: str) -> Dataset | None:
        """A data set by name, once its rows have been read."""
        with self.store.reading() as db:
            row = db.execute("SELECT body FROM datasets WHERE name = ?", (name,)).fetchone()
        found = stored_dataset(row["body"]) if row else None
        return found if found and found.n else None

    def get(self, name: str) -> Dataset:
        """A data set that must exist. Raises NotFoundError."""
        dataset = self.find(name)
        if dataset is None:
            raise NotFoundError(
                f"there is no data set {name} that was read",
                remedy="Register it: commingle party datasets add, with --replace where it was announced only.",
            )
        return dataset

    def all(self) -> list[Dataset]:
        """All of them by name."""
        with self.store.reading() as db:
            rows = db.execute("SELECT body FROM datasets ORDER BY name").fetchall()
        return [stored_dataset(row["body"]) for row in rows]

    def require_possible(self, request: DatasetRequest, *, replace: bool) -> None:
        """Raise ConflictError where it could not be registered whatever its rows are."""
        names = [attribute.name for attribute in request.attributes]
        if not names:
            raise ConflictError("the schema has no attributes", remedy="List at least one attribute.")
        if len(set(names)) != len(names) or set(request.key.columns) & set(names):
            raise ConflictError("an attribute appears twice, or is the subject id", remedy="Name every attribute once.")
        if not replace and request.name in {dataset.name for dataset in self.all()}:
            raise ConflictError(f"data set {request.name} exists", remedy="Choose another name or use --replace.")

    def _store(self, dataset: Dataset) -> Dataset:
        with self.store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO datasets VALUES (?, ?)", (dataset.name, encode(dataset).decode()))
        return dataset


def stored_dataset(body: str) -> Dataset:
    """A registration as it was stored; those of earlier versions hold digests of cells too, which nobody reads."""
    facts = {name: value for name, value in json.loads(body).items() if name != "attribute_digests"}
    return decode(Dataset, json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
