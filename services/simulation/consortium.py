"""What a simulation gives to the consortium it starts (`services.testing`): a file and a schema for each party."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from commingle.services.simulation.dataset import StudyTable
from commingle.services.simulation.parties import SUBJECT_ID
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import LIFETIME_HOURS, Allowance
from commingle.services.tables.reading import Table
from commingle.services.testing.consortium import Consortium
from commingle.services.testing.tables import Dataset
from commingle.shared.documents.subject_ids import id_parts

_FORMATS = (".parquet", ".csv")


@dataclass(frozen=True, slots=True)
class Context:
    """What a running simulation works with."""

    consortium: Consortium
    stages: Stages


@dataclass(frozen=True, slots=True)
class Given:
    """What a party is given: a file, and its subjects."""

    dataset: Dataset
    subjects: NDArray[np.str_]


def write_party_files(
    dataset: StudyTable, training: Table, folder: Path, *, seed: int, overlap: float = 1.0
) -> dict[str, Given]:
    """Give each party a file with its own columns of the training rows and of others whom it holds.

    With an overlap below 1 it is given that share of these rows, drawn by itself.
    """
    given, ids = {}, _id_columns(dataset)
    for number, party in enumerate(dataset.parties):
        draw = np.random.default_rng([seed, 1, number])  # [0, 0] would be 0, which draws the cohort
        own = training.only(attribute.name for attribute in party.attributes)
        if party.name in dataset.others:
            own = own.and_rows(dataset.others[party.name])
        if overlap < 1:
            own = own.rows(np.flatnonzero(draw.random(own.n) < overlap))
        path = folder / f"{party.name}{_FORMATS[number % len(_FORMATS)]}"
        write_party_table(path, own, id_columns=ids, draw=draw)
        rules = tuple(dataset.id_rules or ())
        declared = Dataset(rows=path, attributes=party.attributes, subject_id=ids, id_rules=rules)
        given[party.name] = Given(declared, own.subjects)
    return given


def write_party_table(
    path: Path, table: Table, *, id_columns: Sequence[str] = (SUBJECT_ID,), draw: np.random.Generator
) -> None:
    """Write a table in shuffled order, as CSV or Parquet by the path's suffix."""
    shuffled = table.rows(draw.permutation(table.n))
    parts = zip(*(id_parts(str(subject), len(id_columns)) for subject in shuffled.subjects), strict=True)
    written = pa.table({**dict(zip(id_columns, map(pa.array, parts), strict=True)), **shuffled.columns})
    if path.suffix == ".csv":
        pa.csv.write_csv(written, path)
    else:
        pa.parquet.write_table(written, path)


def _id_columns(dataset: StudyTable) -> tuple[str, ...]:
    """What identifies subjects in the parties' files."""
    return (SUBJECT_ID, *(f"{SUBJECT_ID} ({number})" for number in range(2, len(dataset.id_rules or ()) + 1)))


def consortium_for(given: Mapping[str, Given], allowance: Allowance, *, folder: Path, stages: Stages) -> Consortium:
    """Processes of their own for all of them, which approve what the coordinator proposes."""
    return Consortium(
        {name: each.dataset for name, each in given.items()},
        keyed=not allowance.listed,
        processes=True,
        epsilon_cap=allowance.epsilon_cap,
        delta_cap=allowance.delta,
        policy=_policy(allowance),
        folder=folder,
        links=False,
        network=False,
        stage=stages.stage,
    )


def say_clipped(context: Context) -> None:
    """How many values each party has clipped to the public bounds."""
    for party, registered in context.consortium.registered.items():
        clipped = {name: count for name, count in registered["clipped"].items() if count}
        if clipped:
            counts = ", ".join(f"{name} {count:,}" for name, count in clipped.items())
            context.stages.notice(f"{party} clips values to the public bounds: {counts}.")


def _policy(allowance: Allowance) -> dict[str, Any]:
    return {
        "mechanisms": allowance.mechanisms,
        "max_epsilon": allowance.max_epsilon,
        "max_delta": allowance.delta,
        "max_cells": allowance.max_cells,
        "max_lifetime_hours": LIFETIME_HOURS,
        "auto_approve": [{"proposer": "*", "mechanisms": allowance.mechanisms, "max_rho": allowance.max_rho}],
    }
