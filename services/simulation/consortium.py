"""A coordinator, an agent per party and a learner, as real processes that talk HTTP on this machine.

Loading takes such a process far longer than its work here, so few are started, and those at the same time.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from commingle.services.simulation.dataset import PartyShare, StudyTable
from commingle.services.simulation.parties import SUBJECT_ID
from commingle.services.simulation.processes import Processes
from commingle.services.simulation.progress import Stages
from commingle.services.simulation.releases import DATASET, LIFETIME_HOURS, Allowance
from commingle.services.tables.reading import Table
from commingle.shared.documents.subject_ids import id_parts
from commingle.shared.runtime.files import create_secret

_FORMATS = (".parquet", ".csv")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where everything of one simulation is while it runs."""

    root: Path

    @property
    def coordinator(self) -> Path:
        """The coordinator's home."""
        return self.root / "coordinator"

    @property
    def logs(self) -> Path:
        """What processes print."""
        return self.root / "logs"

    def party(self, name: str) -> Path:
        """A party's own directory."""
        return self.root / "parties" / name


@dataclass(frozen=True, slots=True)
class Context:
    """What a running simulation works with."""

    folders: Folders
    processes: Processes
    stages: Stages


@dataclass(frozen=True, slots=True)
class Consortium:
    """A running consortium.

    Attributes:
        coordinator, learner: their addresses.
        coordinator_key: fingerprint.
    """

    coordinator: str
    coordinator_key: str
    learner: str


def write_party_files(
    dataset: StudyTable, training: Table, folders: Folders, *, seed: int, overlap: float = 1.0
) -> dict[str, NDArray[np.str_]]:
    """Give each party a file with its own columns of the training rows and of others whom it holds, and its schema.

    With an overlap below 1 it is given that share of these rows, drawn by itself. Returned are the subjects of each.
    """
    given = {}
    for number, party in enumerate(dataset.parties):
        folder = folders.party(party.name)
        folder.mkdir(parents=True)
        draw = np.random.default_rng([seed, 1, number])  # [0, 0] would be 0, which draws the cohort
        own = training.only(attribute.name for attribute in party.attributes)
        if party.name in dataset.others:
            own = own.and_rows(dataset.others[party.name])
        if overlap < 1:
            own = own.rows(np.flatnonzero(draw.random(own.n) < overlap))
        given[party.name] = own.subjects
        path = folder / f"rows{_FORMATS[number % len(_FORMATS)]}"
        write_party_table(path, own, id_columns=_id_columns(dataset), draw=draw)
        schema = [attribute.model_dump(mode="json") for attribute in party.attributes]
        (folder / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False))
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


def start(dataset: StudyTable, allowance: Allowance, context: Context) -> Consortium:
    """Bring a consortium up, as far as ready for proposals.

    Raises:
        ProcessError: naming the process and showing its last words.
    """
    parties, folders, processes, stages = dataset.parties, context.folders, context.processes, context.stages
    with stages.stage("start", "Starting the coordinator"):
        key, invites = _create_coordinator(parties, context)
        home = ("--home", folders.coordinator)
        serving = processes.start("coordinator", ("coordinator", "serve", *home, "--port", "0"))
        prints = _create_parties(parties, allowance, context, coordinator_key=key)
        url = processes.address(serving)
    with stages.stage("enrol", "Enrolling the parties"):
        trusted = ("--coordinator", url, "--coordinator-key", key)
        learner = processes.start("learner", ("learner", "serve", *trusted, "--port", "0"))
        _enrol(prints, invites, context, url=url)
    with stages.stage("start", "Starting agents and learner"):
        for server in [
            processes.start(party.name, ("party", "serve", "--home", _home(context, party.name))) for party in parties
        ]:
            processes.address(server)
    with stages.stage("register", "Registering each party's data"):
        _register(dataset, context, listed=allowance.listed)
    return Consortium(url, key, processes.address(learner))


def _create_coordinator(parties: tuple[PartyShare, ...], context: Context) -> tuple[str, dict[str, str]]:
    """The new coordinator's fingerprint, and an invite for each party."""
    home = ("--home", context.folders.coordinator)
    invite = [("coordinator", "invite", *home, "--party", party.name) for party in parties]
    [[created, *invited]] = context.processes.run({"coordinator": [("coordinator", "init", *home), *invite]}).values()
    return created["fingerprint"], {answer["party"]: answer["invite"] for answer in invited}


def _create_parties(
    parties: tuple[PartyShare, ...], allowance: Allowance, context: Context, *, coordinator_key: str
) -> dict[str, str]:
    """Homes with one linkage key for all; fingerprints by name."""
    linkage = context.folders.root / "linkage.key"
    create_secret(linkage)
    policy = context.folders.root / "policy.json"
    policy.write_text(json.dumps(_policy(allowance, coordinator_key), indent=2))
    caps = ("--epsilon-cap", repr(allowance.epsilon_cap), "--delta-cap", repr(allowance.delta))
    shared = ("--linkage-key", linkage, "--policy", policy, *caps)
    jobs = {p.name: [("party", "init", "--home", _home(context, p.name), "--name", p.name, *shared)] for p in parties}
    return {party: str(created["fingerprint"]) for party, [created] in context.processes.run(jobs).items()}


def _policy(allowance: Allowance, coordinator_key: str) -> dict[str, Any]:
    return {
        "mechanisms": allowance.mechanisms,
        "max_epsilon": allowance.max_epsilon,
        "max_delta": allowance.delta,
        "max_cells": allowance.max_cells,
        "max_lifetime_hours": LIFETIME_HOURS,
        "auto_approve": [
            {"proposer": coordinator_key, "mechanisms": allowance.mechanisms, "max_rho": allowance.max_rho}
        ],
    }


def _enrol(prints: dict[str, str], invites: dict[str, str], context: Context, *, url: str) -> None:
    """Enrol, and pin each other's keys: the simulation is the other channel over which members compare them."""
    jobs = {}
    for party in prints:
        home = ("--home", _home(context, party))
        enrol = ("party", "enrol", *home, "--coordinator", url, "--invite", invites[party])
        pins = [("party", "pin", *home, other, prints[other]) for other in prints if other != party]
        jobs[party] = [enrol, *pins]
    context.processes.run(jobs)


def _register(dataset: StudyTable, context: Context, *, listed: bool) -> None:
    ids: list[str | Path] = [part for column in _id_columns(dataset) for part in ("--subject-id", column)]
    ids += [part for rule in dataset.id_rules or () for part in ("--id-rule", rule)]
    jobs: dict[str, list[tuple[str | Path, ...]]] = {}
    for party in dataset.parties:
        folder = context.folders.party(party.name)
        [rows] = folder.glob("rows.*")
        source = ("--source", rows, *ids, "--schema", folder / "schema.json", *(["--listed"] if listed else []))
        jobs[party.name] = [("party", "datasets", "add", DATASET, "--home", _home(context, party.name), *source)]
    for party_name, [registered] in context.processes.run(jobs).items():
        clipped = {name: count for name, count in registered["clipped"].items() if count}
        if clipped:
            counts = ", ".join(f"{name} {count:,}" for name, count in clipped.items())
            context.stages.notice(f"{party_name} clips values to the public bounds: {counts}.")


def _home(context: Context, party: str) -> Path:
    return context.folders.party(party) / "home"
