"""From files and options to a dataset that can be simulated on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commingle.services.errors import TableError
from commingle.services.simulation.dataset import PartyShare, StudyTable
from commingle.services.simulation.errors import PartiesError
from commingle.services.simulation.parties import (
    Holding,
    Loaded,
    Reading,
    keep_columns,
    load,
    read_parties,
    split_evenly,
)
from commingle.services.tables.reading import Table, no_such_column, usable_name
from commingle.services.tables.schema import Marks, Unusable, conform, draft, identifies_rows
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, as_registered, parse_attributes, parts_of
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns
from commingle.shared.runtime.csv_format import CsvFormat
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.plain_files import read_plain

MIN_ROWS = 10
_MOSTLY = 0.5
_BOUNDS_FROM_TABLE = (
    "Bounds and levels were taken from the table itself. That is for simulation only: in a real release they are "
    "public, and taking them from private rows breaks the guarantee. Give them with --schema."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was asked for on the command line.

    Attributes:
        table: one table for all parties; None where each has its own.
        target: to be predicted.
        parties: how many, or a parties file.
        features: names of those that take part; None for all.
        schema: a schema file, whose attributes alone take part; None to draft one.
        subject_id: the column, or columns, that identify subjects.
        id_rules: by which every party writes ids; None for exactly.
        common_subjects: go on with the subjects that all parties hold, where agents would not.
        listed: mechanisms whose subjects are, so that all must hold the same; none where tables may be of any people.
        missing: what becomes of missing cells where no schema says so.
        csv_format: of every CSV; None to look at each.
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


def prepare(wanted: Wanted) -> StudyTable:
    """Read, divide and check.

    Raises:
        TableError, PartiesError, SettingsError, SpecError: naming what is wrong with which file or column.
    """
    file = read_parties(wanted.parties) if isinstance(wanted.parties, Path) else None
    loaded = load(
        wanted.table,
        file,
        Reading(
            subject_id=wanted.subject_id,
            id_rules=wanted.id_rules,
            common_subjects=wanted.common_subjects,
            listed=wanted.listed,
            typed=wanted.schema is None,
            csv_format=wanted.csv_format,
        ),
    )
    target = usable_name(wanted.target)
    candidates = _candidates(loaded, target, wanted.features)
    attributes, notices = _attributes(loaded, target, candidates, wanted)
    holdings = _holdings(loaded, wanted.parties, attributes, target)
    table, incomplete = _complete(loaded.source.table, attributes, target)
    if table.n < MIN_ROWS:
        raise TableError(f"{table.n} complete rows are too few to simulate on", remedy=f"Give at least {MIN_ROWS}.")
    others = {}
    for holding in holdings:
        if holding.party in loaded.others:
            own = {name: attributes[name] for name in holding.columns}
            others[holding.party], lacking = _complete(loaded.others[holding.party], own, target)
            incomplete += lacking
    shares = tuple(PartyShare(h.party, tuple(attributes[name] for name in h.columns)) for h in holdings)
    return StudyTable(table, shares, target, (*loaded.notices, *notices, *incomplete), wanted.id_rules, others)


def _candidates(loaded: Loaded, target: str, features: tuple[str, ...] | None) -> list[str]:
    """The columns that may take part, the target among them."""
    everything = [*loaded.source.table.columns, *loaded.source.unusable]
    held = everything if loaded.holdings is None else [name for h in loaded.holdings for name in h.columns]
    chosen = held if features is None else [usable_name(name) for name in features if usable_name(name) != target]
    for name in (target, *chosen):
        if name not in everything:
            raise no_such_column(name, everything, where="the table")
        if name not in held:
            raise PartiesError(f"no party holds {name!r}", remedy="Add it to the `columns` of one party.")
    return [name for name in held if name == target or name in chosen]


def _attributes(
    loaded: Loaded, target: str, candidates: list[str], wanted: Wanted
) -> tuple[dict[str, Attribute], list[str]]:
    """The attributes that take part, by column, and why others do not."""
    if wanted.schema is None:
        found = {name: _draft(loaded, name, wanted) for name in candidates}
        notices = [_BOUNDS_FROM_TABLE]
    else:
        given = {attribute.name: attribute for attribute in _read_schema(wanted.schema)}
        found = {name: given.get(name, Unusable("the schema does not have it")) for name in candidates}
        notices = [f"Attribute {name!r} of the schema is not in the table." for name in given if name not in candidates]
    kept: dict[str, Attribute] = {}
    for name, attribute in found.items():
        if not isinstance(attribute, Unusable):
            kept[name] = attribute
        elif name == target:
            raise TableError(f"the target {name!r} cannot be used: {attribute.reason}", remedy="Choose another column.")
        else:
            notices.append(f"Column {name!r} is left out: {attribute.reason}.")
    if isinstance(kept[target], CategoricalAttribute):
        raise TableError(
            f"the target {target!r} has more than two levels", remedy="Choose a column of numbers or of two levels."
        )
    if len(kept) == 1:
        raise TableError("no column is left to predict the target with", remedy="Give a table with features.")
    return kept, notices


def _draft(loaded: Loaded, name: str, wanted: Wanted) -> Attribute | Unusable:
    """What a column suggests; one that looks like an identifier has to be chosen by name."""
    if name in loaded.source.unusable:
        return Unusable(f"its type is {loaded.source.unusable[name]}")
    values, missing = loaded.values(name), wanted.missing
    target = name == usable_name(wanted.target)
    if wanted.features is None and not target and identifies_rows(name, values):
        return Unusable("it looks like an identifier of rows (take it all the same: name it in --features)")
    found = draft(name, values, target=target, levels=name in loaded.coded, missing=missing)
    if isinstance(found, CategoricalAttribute) and missing == "midpoint" and values.null_count > _MOSTLY * len(values):
        return Unusable("most of its values are missing")
    return found


def _read_schema(path: Path) -> tuple[Attribute, ...]:
    try:
        found = parse_attributes(read_plain(path))
    except OSError as error:
        raise SettingsError(f"cannot read {path} ({error.strerror})", remedy="Check the path.") from None
    if any(map(parts_of, found)):
        raise SettingsError(
            f"{path} makes attributes of others", remedy="List the parts; a study crosses or multiplies them."
        )
    return found


def _holdings(
    loaded: Loaded, parties: int | Path, attributes: dict[str, Attribute], target: str
) -> tuple[Holding, ...]:
    if loaded.holdings is not None:
        return keep_columns(loaded.holdings, set(attributes))
    if isinstance(parties, Path):  # a file always says who holds what
        raise PartiesError(f"{parties} does not divide the columns", remedy="Name every party's `columns`.")
    return split_evenly([name for name in attributes if name != target], target, parties)


def _complete(table: Table, attributes: dict[str, Attribute], target: str) -> tuple[Table, list[str]]:
    """The rows that have every value they must have, of these attributes and as these encode them."""
    columns = {name: conform(as_registered(a)[0], table.columns[name]) for name, a in attributes.items()}
    table, keep = Table(table.subjects, columns), np.ones(table.n, dtype=bool)
    lacking = []
    for name, values in columns.items():
        if values.null_count and (name == target or getattr(attributes[name], "missing", "error") == "error"):
            keep &= values.is_valid().to_numpy(zero_copy_only=False)
            lacking.append(f"{name} {values.null_count:,}")
    dropped = int((~keep).sum())
    said = f"{dropped:,} of {table.n:,} rows are left out because a value is missing: {', '.join(lacking)}."
    return (table.rows(np.flatnonzero(keep)), [said]) if dropped else (table, [])
