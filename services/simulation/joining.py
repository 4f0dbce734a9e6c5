"""One table out of what the parties hold: either all share one, or each has its own and subjects join them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.simulation.errors import PartiesError, TableError
from commingle.services.simulation.parties import Holding, PartiesFile, PartyEntry
from commingle.services.simulation.reading import Source, no_such_column, read_table
from commingle.services.simulation.table import Table

SUBJECT_ID = "subject_id"


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Everything the parties hold of the subjects they have in common.

    Attributes:
        holdings: who holds what; None where columns are yet to be divided.
        coded: columns that hold levels, be they numbers: declared so by their file or the parties file.
    """

    source: Source
    holdings: tuple[Holding, ...] | None = None
    coded: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()


def load(table: Path | None, parties: PartiesFile | None, *, subject_id: str | None) -> Loaded:
    """Read one table, or join those of the parties.

    Raises:
        TableError, PartiesError: naming what is wrong with which file or column.
    """
    if parties is not None and parties.parties[0].table is not None:
        if table is not None:
            raise PartiesError(
                "the parties have tables of their own, and --table was given too", remedy="Leave out --table."
            )
        return _joined(parties.parties, subject_id or SUBJECT_ID)
    if table is None:
        raise PartiesError("there is no table", remedy="Give --table, or a parties file that names tables.")
    source = read_table(table, subject_id=subject_id, where_present=SUBJECT_ID)
    if parties is None:
        return Loaded(source, coded=source.texts)
    for entry in parties.parties:
        _require_columns(entry.columns or (), source, where=str(table))
    holdings = tuple(Holding(entry.name, entry.columns or ()) for entry in parties.parties)
    _refuse_shared(holdings)
    return Loaded(source, holdings, _coded(parties.parties) | source.texts)


def _joined(entries: Iterable[PartyEntry], subject_id: str) -> Loaded:
    sources = {entry.name: _own(entry, subject_id) for entry in entries}
    holdings = tuple(Holding(party, (*s.table.columns, *s.unusable)) for party, s in sources.items())
    _refuse_shared(holdings)
    common: NDArray[np.str_] = reduce(np.intersect1d, [source.table.subjects for source in sources.values()])
    if not len(common):
        raise TableError("no subject is held by every party", remedy="Check the columns that identify subjects.")
    columns: dict[str, NDArray[Any]] = {}
    unusable: dict[str, str] = {}
    notices = []
    for party, source in sources.items():
        order = np.argsort(source.table.subjects)
        chosen = order[np.searchsorted(source.table.subjects, common, sorter=order)]
        columns |= source.table.rows(chosen).columns
        unusable |= source.unusable
        left = source.table.n - len(common)
        if left:
            notices.append(f"{left:,} of {party}'s {source.table.n:,} subjects are not held by all and are left out.")
    coded = _coded(entries).union(*(source.texts for source in sources.values()))
    return Loaded(Source(Table(common, columns), unusable), holdings, coded, tuple(notices))


def _own(entry: PartyEntry, subject_id: str) -> Source:
    if entry.table is None:
        raise PartiesError(f"{entry.name} has no table", remedy="Give every party a `table`.")
    source = read_table(entry.table, subject_id=entry.subject_id or subject_id)
    if entry.columns is None:
        return source
    _require_columns(entry.columns, source, where=str(entry.table))
    table = source.table.only(name for name in entry.columns if name in source.table.columns)
    return Source(table, {name: why for name, why in source.unusable.items() if name in entry.columns}, source.texts)


def _coded(entries: Iterable[PartyEntry]) -> frozenset[str]:
    return frozenset(name for entry in entries for name in entry.categorical)


def _require_columns(names: Iterable[str], source: Source, *, where: str) -> None:
    for name in names:
        if name not in source.table.columns and name not in source.unusable:
            raise no_such_column(name, source.table.columns, where=where)


def _refuse_shared(holdings: Iterable[Holding]) -> None:
    held = [name for holding in holdings for name in holding.columns]
    twice = sorted({name for name in held if held.count(name) > 1})
    if twice:
        raise PartiesError(
            f"two parties hold {twice[0]!r}",
            remedy="List each party's `columns` so that every column is at one of them.",
        )
