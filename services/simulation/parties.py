"""Who holds which columns: a number of parties, or a file that names them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from commingle.services.simulation.errors import PartiesError
from commingle.services.simulation.reading import usable_name
from commingle.shared.documents.model import Name
from commingle.shared.documents.spec import MAX_PARTIES
from commingle.shared.runtime.settings import Settings, load_settings


class PartyEntry(Settings):
    """One party of a parties file.

    Attributes:
        name: lower-case letters, digits, `_`, `.` and `-`.
        columns: what it holds; with a table of its own all of that table's columns where left out.
        table: its own table, relative to the parties file; left out where all share --table.
        subject_id: the column of its own table that identifies subjects.
        categorical: columns whose numbers are codes of levels.
    """

    name: Name
    columns: tuple[str, ...] | None = None
    table: Path | None = None
    subject_id: str | None = None
    categorical: tuple[str, ...] = ()


class PartiesFile(Settings):
    """A parties file."""

    parties: tuple[PartyEntry, ...] = Field(min_length=1, max_length=MAX_PARTIES)


@dataclass(frozen=True, slots=True)
class Holding:
    """The columns one party holds."""

    party: str
    columns: tuple[str, ...]


def read_parties(path: Path) -> PartiesFile:
    """A parties file, its tables' paths made absolute.

    Raises:
        SettingsError: it cannot be read or does not have the form of one.
        PartiesError: names that repeat, or some parties with a table of their own and some without.
    """
    file = load_settings(PartiesFile, path)
    names = [entry.name for entry in file.parties]
    if len(set(names)) < len(names):
        raise PartiesError(f"{path}: two parties have the same name", remedy="Give every party a name of its own.")
    if len({entry.table is None for entry in file.parties}) > 1:
        raise PartiesError(
            f"{path}: some parties have a table of their own and some do not",
            remedy="Give every party a `table`, or none and one --table for all.",
        )
    for entry in file.parties:
        if entry.table is None and not entry.columns:
            raise PartiesError(f"{path}: {entry.name} is given no columns", remedy="Name its `columns`.")
    return PartiesFile(parties=tuple(_usable(entry, path.parent) for entry in file.parties))


def _usable(entry: PartyEntry, folder: Path) -> PartyEntry:
    changes = {
        "columns": None if entry.columns is None else tuple(map(usable_name, entry.columns)),
        "categorical": tuple(map(usable_name, entry.categorical)),
        "table": None if entry.table is None else folder / entry.table,
    }
    return entry.model_copy(update=changes)


def split_evenly(features: Sequence[str], target: str, parties: int) -> tuple[Holding, ...]:
    """Features in order, as evenly as possible; the target goes to the last party.

    Raises:
        PartiesError: more parties than columns.
    """
    if parties > len(features) + 1:
        raise PartiesError(
            f"{parties} parties cannot share {len(features)} features and a target",
            remedy=f"Use at most {len(features) + 1} parties: each needs a column.",
        )
    parts = [[str(name) for name in part] for part in np.array_split(np.array(features, dtype=object), parties)]
    parts[-1].append(target)
    return tuple(Holding(f"party-{number}", tuple(part)) for number, part in enumerate(parts, start=1))


def without(holdings: Sequence[Holding], kept: Collection[str]) -> tuple[Holding, ...]:
    """Only the columns that are kept.

    Raises:
        PartiesError: a party has none left.
    """
    left = tuple(Holding(h.party, tuple(name for name in h.columns if name in kept)) for h in holdings)
    for holding in left:
        if not holding.columns:
            raise PartiesError(
                f"{holding.party} is left without a column that can be used",
                remedy="Give it at least one column that varies and is among the features or the target.",
            )
    return left
