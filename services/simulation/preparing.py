"""From options and files to the dataset of a simulation and the terms of its releases."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from commingle.services.errors import TableError
from commingle.services.simulation.dataset import StudyTable, cohort
from commingle.services.simulation.parties import (
    Holdings,
    Loaded,
    PartiesError,
    Wanted,
    keep_columns,
    load,
    read_parties,
    split_evenly,
)
from commingle.services.simulation.releases import Releases
from commingle.services.tables import Table, Unusable, conform, draft, identifies_rows, no_such_column, usable_name
from commingle.shared.documents.presets import release_preset
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, as_registered, parse_attributes, parts_of
from commingle.shared.documents.study import RECOMMENDED_MECHANISM
from commingle.shared.documents.terms import AUTO, MechanismName, Projection
from commingle.shared.mechanisms import keyed_by_default, sketched_names
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import read_given

MIN_ROWS = 10
_DEMO_MECHANISMS: tuple[MechanismName, ...] = (RECOMMENDED_MECHANISM, "rmgm")
_EPSILONS = (1.0,)
_DEMO_OVERLAP = 0.8
_DEFAULT_PARTIES = 3
_MOSTLY = 0.5
_BOUNDS_FROM_TABLE = (
    "Bounds and levels were taken from the table itself. That is for simulation only: in a real release they are "
    "public, and taking them from private rows breaks the guarantee. Give them with --schema."
)


def prepare(wanted: Wanted) -> StudyTable:
    """Read, divide and check the data.

    Raises TableError, PartiesError, SettingsError, SpecError: naming the file or column, and what is wrong with it.
    """
    file = read_parties(wanted.parties) if isinstance(wanted.parties, Path) else None
    loaded = load(wanted, file)
    target = usable_name(wanted.target)
    candidates = _candidates(loaded, target, wanted.features)
    attributes, notices = _attributes(loaded, target, candidates, wanted)
    holdings = _holdings(loaded, wanted.parties, attributes, target)
    table, incomplete = _complete(loaded.source.table, attributes, target)
    if table.n < MIN_ROWS:
        raise TableError(f"{table.n} complete rows are too few to simulate on", remedy=f"Give at least {MIN_ROWS}.")
    others = {}
    for party, more in loaded.others.items():
        others[party], lacking = _complete(more, {name: attributes[name] for name in holdings[party]}, target)
        incomplete += lacking
    shares = {party: tuple(attributes[name] for name in names) for party, names in holdings.items()}
    return StudyTable(table, shares, target, (*loaded.notices, *notices, *incomplete), wanted.id_rules, others)


def _candidates(loaded: Loaded, target: str, features: tuple[str, ...] | None) -> list[str]:
    everything = [*loaded.source.table.columns, *loaded.source.unusable]
    held = everything if loaded.holdings is None else [name for columns in loaded.holdings.values() for name in columns]
    chosen = held if features is None else [usable_name(name) for name in features if usable_name(name) != target]
    for name in (target, *chosen):
        if name not in everything:
            raise no_such_column(name, everything, where="the table")
        if name not in held:
            raise PartiesError(f"no member holds {name!r}", remedy="Add it to the `columns` of one member.")
    return [name for name in held if name == target or name in chosen]


def _attributes(
    loaded: Loaded, target: str, candidates: list[str], wanted: Wanted
) -> tuple[dict[str, Attribute], list[str]]:
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
    found = parse_attributes(read_given(path))
    if any(map(parts_of, found)):
        raise SettingsError(
            f"{path} makes attributes of others", remedy="List the parts; a study crosses or multiplies them."
        )
    return found


def _holdings(loaded: Loaded, parties: int | Path, attributes: dict[str, Attribute], target: str) -> Holdings:
    if loaded.holdings is not None:
        return keep_columns(loaded.holdings, set(attributes))
    if isinstance(parties, Path):  # a file always says who holds what
        raise PartiesError(f"{parties} does not divide the columns", remedy="Name every member's `columns`.")
    return split_evenly([name for name in attributes if name != target], target, parties)


def _complete(table: Table, attributes: dict[str, Attribute], target: str) -> tuple[Table, list[str]]:
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


def dataset_from(options: dict[str, Any], *, listed: tuple[str, ...], seed: int) -> StudyTable:
    """The built-in cohort, or the table that options name; `listed` are mechanisms with listed subjects.

    Raises UsageError, TableError, SpecError.
    """
    parties = _parties(options["parties"])
    if options["table"] is None and not isinstance(parties, Path):
        if options["csv_format"] is not None:
            raise click.UsageError(f"{options['csv_format'].options} is about a table: give --table too.")
        for name in ("target", "parties", "features", "subject_id", "id_rule", "common_subjects", "missing", "schema"):
            if options[name] not in (None, (), False):
                raise click.UsageError(f"--{name.replace('_', '-')} needs a table: give --table too.")
        return cohort(seed=seed)
    if options["target"] is None:
        raise click.UsageError("Say with --target which column is to be predicted.")
    if options["missing"] is not None and options["schema"] is not None:
        raise click.UsageError("--missing is for tables without a schema, which says it of each attribute.")
    features = options["features"]
    return prepare(
        Wanted(
            table=options["table"],
            target=options["target"],
            parties=parties,
            features=None if features is None else tuple(name for name in features.split(",") if name.strip()),
            schema=options["schema"],
            subject_id=options["subject_id"] or None,
            id_rules=options["id_rule"] or None,
            common_subjects=options["common_subjects"],
            listed=listed,
            missing=options["missing"] or "midpoint",
            csv_format=options["csv_format"],
        )
    )


def _parties(text: str | None) -> int | Path:
    if text is None:
        return _DEFAULT_PARTIES
    try:
        number = int(text)
    except ValueError:
        return Path(text)
    if number < 1:
        raise click.BadParameter("there must be at least one member", param_hint="--parties")
    return number


def terms_from(options: dict[str, Any]) -> Releases:
    """Mechanisms, budgets and row norm of the releases. Raises UsageError."""
    demo, subjects = options["table"] is None and options["target"] is None, options["subjects"]
    if options["common_subjects"]:
        if subjects == "keyed":
            raise click.UsageError(
                "--common-subjects is for listed data sets: leave it out, as lists of keyed ones may differ."
            )
        subjects = "listed"
    preset = None if options["preset"] is None else release_preset(options["preset"])
    usual = _DEMO_MECHANISMS if demo else (RECOMMENDED_MECHANISM,)
    mechanisms = options["mechanisms"] or (usual if preset is None else preset.mechanisms[:1])
    subjects = subjects if preset is None else preset.subjects
    projection: Projection | None = "sparse" if options["projection"] == "sparse" else None
    if subjects is None and not all(keyed_by_default(mechanism, projection) for mechanism in mechanisms):
        subjects = "listed"  # all releases are of one data set of each party, which is keyed or listed
    with_k = sketched_names()
    if options["k"] is not None and not set(with_k) & set(mechanisms):
        raise click.UsageError(f"--k is the sketch of {', '.join(with_k)}; the others have none.")
    terms = Releases(
        mechanisms=mechanisms,
        epsilons=options["epsilons"] or _EPSILONS,
        delta=options["delta"],
        k=options["k"],
        projection=projection,
        row_norm=options["row_norm"],
        subjects=subjects,
        first_stage_share=None if options["one_stage"] else AUTO,
        preset=preset,
    )
    if options["overlap"] is not None and terms.listed:
        raise click.UsageError(
            f"--overlap is of keyed data sets; those of {' and '.join(terms.listed)} are listed here: leave it out."
        )
    return replace(terms, overlap=options["overlap"] or (1.0 if terms.listed or not demo else _DEMO_OVERLAP))
