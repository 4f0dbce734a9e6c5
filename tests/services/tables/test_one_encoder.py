"""Agent, simulation and planner make the same integers of the same file."""

import csv
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.private.sources import FileSource, SourceTable, open_source
from commingle.services.planning.public_table import encode
from commingle.services.simulation.dataset import StudyTable
from commingle.services.simulation.parties import Wanted
from commingle.services.simulation.preparing import prepare
from commingle.services.simulation.run import write_party_files
from commingle.services.tables import conform, read_table
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    encoded_columns,
)
from commingle.shared.documents.subject_ids import IdRules, SubjectKey
from commingle.shared.documents.terms import PartyTerms
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.encoding import encode_rows
from commingle.shared.values import MISSING, Cells

ROWS = 12
TARGET = NumericAttribute(name="y", lower=-3, upper=7)
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="x", lower=-4, upper=9, missing="midpoint"),
    BinaryAttribute(name="b", levels=("0", "1"), missing="midpoint"),
    BinaryAttribute(name="t", levels=("007", "a b"), missing="midpoint"),
    CategoricalAttribute(name="c", levels=("1", "2.5", "3")),
    NumericAttribute(name="m", lower=-4, upper=9, missing="indicator"),
    CategoricalAttribute(name="k", levels=("1", "2.5", "3"), missing="indicator"),
    TARGET,
)
Rows = dict[bytes, dict[str, list[int]]]


@dataclass(frozen=True)
class Stored:
    """A column's values and the type a Parquet file keeps them in; a CSV keeps text, padded, gaps spelled somehow."""

    values: list[Any]
    kind: str
    texts: list[str]

    def array(self) -> Cells:
        cells: Cells
        match self.kind:
            case "text":
                cells = pa.array([None if v is None else f" {v}" for v in self.values], pa.string())
            case "dictionary":
                cells = pa.array([None if v is None else str(v) for v in self.values], pa.string()).dictionary_encode()
            case "coded":
                cells = pa.array(self.values).dictionary_encode()
            case kind:
                cells = pa.array([None if v is None else float(v) for v in self.values]).cast(kind)
        return cells


@st.composite
def stored(draw: st.DrawFn, values: Sequence[Any], kinds: Sequence[str], *, gaps: bool) -> Stored:
    cell = st.sampled_from([*values, *([None] if gaps else [])])
    chosen = draw(st.lists(cell, min_size=ROWS, max_size=ROWS))
    texts = [draw(st.sampled_from(MISSING)) if v is None else draw(st.sampled_from([f"{v}", f" {v} "])) for v in chosen]
    return Stored(chosen, draw(st.sampled_from(kinds)), texts)


NUMBERS = ("text", "dictionary", "coded", "double", "float")
WHOLE = (*NUMBERS, "int64", "int8")
COLUMNS = st.fixed_dictionaries(
    {
        "id": st.lists(
            st.integers(0, 99).flatmap(lambda i: st.sampled_from([f"{i}", f"{i:04}", f"{i}.0", f"é{i}"])),
            min_size=ROWS,
            max_size=ROWS,
            unique=True,
        ),
        "x": stored([i / 4 for i in range(-20, 44)], NUMBERS, gaps=True) | stored(range(-6, 12), WHOLE, gaps=True),
        "b": stored([0, 1], WHOLE, gaps=True),
        "t": stored(["007", "a b"], ("text", "dictionary"), gaps=True),
        "c": stored(["1", "2.5", "3"], ("text", "dictionary", "double"), gaps=False),
        "m": stored([i / 4 for i in range(-20, 44)], NUMBERS, gaps=True),
        "k": stored(["1", "2.5", "3"], ("text", "dictionary", "double"), gaps=True),
        "y": stored([i / 8 for i in range(-24, 57)], NUMBERS, gaps=False),
    }
)


def write(path: Path, columns: Mapping[str, Any]) -> None:
    held = {name: column for name, column in columns.items() if name != "id"}
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": columns["id"], **{n: c.array() for n, c in held.items()}}), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["id", *held], *zip(columns["id"], *(c.texts for c in held.values()), strict=True)])


def by_agent(path: Path, key: SubjectKey, attributes: tuple[Attribute, ...]) -> Rows:
    """Each subject's integers as the snapshot of a registered table has them."""
    found = SourceTable([open_source(FileSource(path=str(path)))], key, attributes).scan()
    ((ids, encoded),) = found.sorter
    found.require_one_row_each(key)
    subjects: list[Any] = ids.to_pylist()
    ends = list(accumulate(len(encoded_columns((a,))) for a in attributes))
    columns = {a.name: encoded[:, start:end] for a, start, end in zip(attributes, [0, *ends], ends, strict=False)}
    return _rows(subjects, columns)


def _rows(subjects: Sequence[bytes], columns: Mapping[str, NDArray[np.integer]]) -> Rows:
    listed = {name: rows.tolist() for name, rows in columns.items()}
    return {subject: {name: listed[name][i] for name in listed} for i, subject in enumerate(subjects)}


def by_simulated_parties(dataset: StudyTable, folder: Path) -> Rows:
    """What the agents of a simulation make of the files they are given."""
    written = write_party_files(dataset, dataset.table, folder, seed=1)
    found: Rows = {}
    for party, attributes in dataset.parties.items():
        given, _ = written[party]
        key = SubjectKey.of(given.subject_id, dataset.id_rules)
        for subject, row in by_agent(given.rows, key, attributes).items():
            found.setdefault(subject, {}).update(row)
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(columns=COLUMNS, suffix=st.sampled_from([".csv", ".parquet"]))
def test_agent_simulation_and_planner_encode_a_table_alike(columns: dict[str, Any], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, schema = folder / f"table{suffix}", folder / "schema.json"
        write(path, columns)
        schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in ATTRIBUTES]))
        expected = by_agent(path, SubjectKey.of("id"), ATTRIBUTES)
        dataset = prepare(Wanted(table=path, target="y", parties=2, schema=schema, subject_id="id"))
        assert by_simulated_parties(dataset, folder) == expected
        held = dataset.table
        subjects = [subject.encode() for subject in held.subjects.tolist()]
        assert _rows(subjects, {a.name: encode_rows([a], held.columns) for a in ATTRIBUTES}) == expected
        public = read_table(path).table
        fitting = type(public)(public.subjects, {a.name: conform(a, public.columns[a.name]) for a in ATTRIBUTES})
        planned = encode(fitting, PartyTerms(name="p", attributes=ATTRIBUTES)) * SCALE
        listed = [[q for a in ATTRIBUTES for q in expected[subject][a.name]] for subject in subjects]
        assert planned == pytest.approx(np.array(listed), abs=1e-6)  # levels come back from contrasts


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("rules", [("digits/1",), ("digits/1", "text/1")])
def test_agents_of_a_simulation_find_the_subjects_that_an_agent_finds(
    tmp_path: Path, suffix: str, rules: IdRules
) -> None:
    path = tmp_path / f"table{suffix}"
    ids = [f"{i:05}" for i in range(20)]
    names = [f"Anna  {i}" for i in range(20)]
    columns = {"id": ids, "name": names, "x": [str(i / 4) for i in range(20)], "y": [str(-i / 8) for i in range(20)]}
    table = pa.table(columns)
    pq.write_table(table, path) if suffix == ".parquet" else pa.csv.write_csv(table, path)
    schema = tmp_path / "schema.json"
    attributes = (NumericAttribute(name="x", lower=-4, upper=9), NumericAttribute(name="y", lower=-3, upper=7))
    schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in attributes]))
    key = SubjectKey.of(("id", "name")[: len(rules)], rules)
    expected = by_agent(path, key, attributes)
    wanted = Wanted(table=path, target="y", parties=2, schema=schema, subject_id=key.columns, id_rules=rules)
    assert by_simulated_parties(prepare(wanted), tmp_path) == expected
    assert b"7" in expected or b'["7","anna 7"]' in expected
