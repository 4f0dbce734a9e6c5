"""The columns of each party, from a number of parties or a parties file, and one table of all of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field

from commingle.services.errors import TableError
from commingle.services.tables import Marks, Source, Table, no_such_column, read_table, usable_name
from commingle.shared.documents.model import Name
from commingle.shared.documents.spec import MAX_PARTIES
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns, forms_of, prefix_rule
from commingle.shared.errors import CommingleError
from commingle.shared.mechanisms import KEYED
from commingle.shared.runtime.csv_format import CsvFormat
from commingle.shared.runtime.settings import Settings, load_settings
from commingle.shared.values import Cells

SUBJECT_ID = "subject_id"


class PartiesError(CommingleError):
    """The columns of a table cannot be divided among members in this way."""

    code = "simulation-parties"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for.

    Attributes:
        table: one table for all parties; None if each has its own.
        target: the column to predict.
        parties: how many, or a parties file.
        features: columns that take part; None for all.
        schema: a schema file, whose attributes alone take part; None to draft one.
        subject_id: the column, or columns, that identify subjects.
        id_rules: the rules of ids at every party; None for ids as they are.
        common_subjects: go on with the subjects that all parties hold, although agents would not.
        listed: mechanisms with listed subjects, for which all parties must hold the same ones; empty if none has.
        missing: how missing cells count, without a schema.
        csv_format: of every CSV; None to find out for each.
    """

    table: Path | None
    target: str
    parties: int | Path
    features: tuple[str, ...] | None = None
    schema: Path | None = None
    subject_id: SubjectColumns | None = None
    id_rules: IdRules | None = None
    common_subjects: bool = False
    listed: tuple[str, ...] = ()
    missing: Marks = "midpoint"
    csv_format: CsvFormat | None = None


class PartyEntry(Settings):
    """One party of a parties file.

    Attributes:
        name: lower-case letters, digits, `_`, `.` and `-`.
        columns: the columns that it holds; if left out, all columns of its own table.
        table: its own table, relative to the parties file; left out if all share --table.
        subject_id: the column, or columns, of its own table that identify subjects.
        categorical: columns whose numbers are codes of levels.
    """

    name: Name
    columns: tuple[str, ...] | None = None
    table: Path | None = None
    subject_id: SubjectColumns | None = None
    categorical: tuple[str, ...] = ()


class PartiesFile(Settings):
    """A parties file."""

    parties: tuple[PartyEntry, ...] = Field(min_length=1, max_length=MAX_PARTIES)


Holdings: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns of each party."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """The parties' data on the subjects whom all hold, and apart from these on all others.

    Attributes:
        holdings: the columns of each party; None if nobody has divided them yet.
        others: by party, its rows of subjects whom not all hold.
        coded: columns of levels, even of numbers, as their file or the parties file declares.
    """

    source: Source
    holdings: Holdings | None = None
    coded: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()
    others: Mapping[str, Table] = field(default_factory=dict)

    def values(self, name: str) -> Cells:
        """A column of all subjects."""
        more = [table.columns[name] for table in self.others.values() if name in table.columns]
        return pa.concat_arrays([self.source.table.columns[name], *more])


def read_parties(path: Path) -> PartiesFile:
    """A parties file; paths of its tables become absolute."""
    file = load_settings(PartiesFile, path)
    names = [entry.name for entry in file.parties]
    if len(set(names)) < len(names):
        raise PartiesError(f"{path}: two members have the same name", remedy="Give every member a name of its own.")
    if len({entry.table is None for entry in file.parties}) > 1:
        raise PartiesError(
            f"{path}: some members have a table of their own and some do not",
            remedy="Give every member a `table`, or none and one --table for all.",
        )
    for entry in file.parties:
        if entry.table is None and not entry.columns:
            raise PartiesError(f"{path}: {entry.name} is given no columns", remedy="Name its `columns`.")
    return PartiesFile(parties=tuple(_resolve(entry, path.parent) for entry in file.parties))


def _resolve(entry: PartyEntry, folder: Path) -> PartyEntry:
    changes = {
        "columns": None if entry.columns is None else tuple(map(usable_name, entry.columns)),
        "categorical": tuple(map(usable_name, entry.categorical)),
        "table": None if entry.table is None else folder / entry.table,
    }
    return entry.model_copy(update=changes)


def split_evenly(features: Sequence[str], target: str, parties: int) -> Holdings:
    """Divide the features in order, as evenly as possible; the target goes to the last party."""
    if parties > len(features) + 1:
        raise PartiesError(
            f"{parties} members cannot share {len(features)} features and a target",
            remedy=f"Use at most {len(features) + 1} members: each needs a column.",
        )
    parts = [[str(name) for name in part] for part in np.array_split(np.array(features, dtype=object), parties)]
    parts[-1].append(target)
    return {f"member-{number}": tuple(part) for number, part in enumerate(parts, start=1)}


def keep_columns(holdings: Holdings, kept: Collection[str]) -> Holdings:
    left = {party: tuple(name for name in columns if name in kept) for party, columns in holdings.items()}
    for party, columns in left.items():
        if not columns:
            raise PartiesError(
                f"{party} is left without a column that can be used",
                remedy="Give it at least one column that varies and is among the features or the target.",
            )
    return left


def load(wanted: Wanted, parties: PartiesFile | None) -> Loaded:
    """Read one table, or join those of the parties."""
    if parties is not None and parties.parties[0].table is not None:
        if wanted.table is not None:
            raise PartiesError(
                "the members have tables of their own, and --table was given too", remedy="Leave out --table."
            )
        return _join(parties.parties, wanted)
    if wanted.table is None:
        raise PartiesError("there is no table", remedy="Give --table, or a parties file that names tables.")
    source = read_table(
        wanted.table,
        subject_id=wanted.subject_id,
        usual_subject_id=SUBJECT_ID,
        id_rules=wanted.id_rules,
        typed=wanted.schema is None,
        csv_format=wanted.csv_format,
    )
    notices = (*source.notices, *_changed_ids({str(wanted.table): source}, wanted))
    if parties is None:
        return Loaded(source, coded=source.texts, notices=notices)
    for entry in parties.parties:
        _require_columns(entry.columns or (), source, where=str(wanted.table))
    holdings = {entry.name: entry.columns or () for entry in parties.parties}
    _refuse_shared(holdings)
    return Loaded(source, holdings, _coded(parties.parties) | source.texts, notices)


def _join(entries: Iterable[PartyEntry], wanted: Wanted) -> Loaded:
    sources = {entry.name: _read_own(entry, wanted) for entry in entries}
    holdings = {party: (*s.table.columns, *s.unusable) for party, s in sources.items()}
    _refuse_shared(holdings)
    common = _common_subjects(sources, wanted)
    columns: dict[str, Cells] = {}
    unusable: dict[str, str] = {}
    notices = [
        *(notice for source in sources.values() for notice in source.notices),
        *_changed_ids(sources, wanted),
    ]
    others: dict[str, Table] = {}
    for party, source in sources.items():
        order = np.argsort(source.table.subjects)
        chosen = order[np.searchsorted(source.table.subjects, common, sorter=order)]
        columns |= source.table.rows(chosen).columns
        unusable |= source.unusable
        rest = np.flatnonzero(~np.isin(source.table.subjects, common))
        if not len(rest):
            continue
        if wanted.listed or wanted.common_subjects:
            become = "are left out"
        else:
            others[party] = source.table.rows(rest)
            become = "are in its table all the same: fits are judged on those who are held by all"
        notices.append(f"{len(rest):,} of {party}'s {source.table.n:,} people are not held by all and {become}.")
    coded = _coded(entries).union(*(source.texts for source in sources.values()))
    return Loaded(Source(Table(common, columns), unusable), holdings, coded, tuple(notices), others)


def _common_subjects(sources: Mapping[str, Source], wanted: Wanted) -> NDArray[np.str_]:
    common: NDArray[np.str_] = reduce(np.intersect1d, [source.table.subjects for source in sources.values()])
    rule = None
    if max(source.table.n for source in sources.values()) > len(common) and not wanted.id_rules:
        forms = [forms_of(source.table.subjects.tolist()) for source in sources.values()]
        rule = prefix_rule(forms) if len({*forms}) > 1 else None  # ids that are written alike are other people's
    one_rule = f"agree on --id-rule {rule}" if rule else "agree on an --id-rule"
    if not len(common):
        of_rule = f"Their ids differ by a prefix: {one_rule}." if rule else "Check the columns that identify people."
        raise TableError("no person is held by every member", remedy=of_rule)
    held = {party: source.table.n for party, source in sources.items()}
    if max(held.values()) > len(common) and wanted.listed and not wanted.common_subjects:
        counts = ", ".join(f"{party} {n:,}" for party, n in held.items())
        never = [name for name in wanted.listed if name not in KEYED]
        instead = f", and {' or '.join(KEYED)} in place of {' and '.join(never)}" if never else ""
        raise TableError(
            f"the members hold other people ({counts}; all of them {len(common):,}) and those of "
            f"{' and '.join(wanted.listed)} are listed here: the release would be aborted",
            remedy=f"Give tables of the same people, {one_rule} if their ids are written in several ways, "
            "leave the others out with --common-subjects, or use --subjects keyed, with which lists may "
            f"differ{instead}.",
        )
    return common


def _changed_ids(sources: Mapping[str, Source], wanted: Wanted) -> tuple[str, ...]:
    rules = ", ".join(wanted.id_rules or ())
    return tuple(
        f"{source.ids.changed:,} of {source.ids.rows:,} ids of {name} are written otherwise by {rules}."
        for name, source in sources.items()
        if source.ids is not None and source.ids.changed
    )


def _read_own(entry: PartyEntry, wanted: Wanted) -> Source:
    if entry.table is None:
        raise PartiesError(f"{entry.name} has no table", remedy="Give every member a `table`.")
    source = read_table(
        entry.table,
        subject_id=entry.subject_id or wanted.subject_id or SUBJECT_ID,
        id_rules=wanted.id_rules,
        typed=wanted.schema is None,
    )
    if entry.columns is None:
        return source
    _require_columns(entry.columns, source, where=str(entry.table))
    table = source.table.only(name for name in entry.columns if name in source.table.columns)
    unusable = {name: why for name, why in source.unusable.items() if name in entry.columns}
    return replace(source, table=table, unusable=unusable)


def _coded(entries: Iterable[PartyEntry]) -> frozenset[str]:
    return frozenset(name for entry in entries for name in entry.categorical)


def _require_columns(names: Iterable[str], source: Source, *, where: str) -> None:
    for name in names:
        if name not in source.table.columns and name not in source.unusable:
            raise no_such_column(name, source.table.columns, where=where)


def _refuse_shared(holdings: Holdings) -> None:
    held = [name for columns in holdings.values() for name in columns]
    twice = sorted({name for name in held if held.count(name) > 1})
    if twice:
        raise PartiesError(
            f"two members hold {twice[0]!r}",
            remedy="List each member's `columns` so that every column is at one of them.",
        )
