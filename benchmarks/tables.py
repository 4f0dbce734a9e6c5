"""The real tables at hand, according to the manifest `datasets.json` beside them."""

import csv
import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = Path(__file__).parents[2] / "shared" / "data"
FOLDS_FILE = "wang2018_folds.parquet"
LIST = Path(__file__).with_name("tables.csv")


def entries(data: Path) -> list[dict[str, Any]]:
    """Each table's `name`, `file`, `feature_columns`, `target_column`, `rows`, `families`; empty without the folder."""
    manifest = data / "datasets.json"
    found: list[dict[str, Any]] = []
    if manifest.exists():
        found = json.loads(manifest.read_text(encoding="utf-8"))["datasets"]
    return found


def entry(data: Path, name: str) -> dict[str, Any]:
    """The entry of one table. Raises ValueError: there is none of that name."""
    [found] = [each for each in entries(data) if each["name"] == name]
    return found


def at_hand(data: Path, names: Iterable[str]) -> list[str]:
    """Those of these tables that the folder has, by its manifest; empty without the folder."""
    known = {str(each["name"]): data / each["file"] for each in entries(data)}
    return [name for name in names if name in known and known[name].is_file()]


def columns(data: Path, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (n x d) and target (n) of one table, in its own units."""
    about = entry(data, name)
    features, target = about["feature_columns"], about["target_column"]
    table = pq.read_table(data / about["file"], columns=[*features, target])
    x = np.column_stack([table[column].to_numpy() for column in features])
    return x.astype(np.float64), table[target].to_numpy().astype(np.float64)


def recorded() -> dict[str, dict[str, str]]:
    """The tables behind the figures in docs/: sources, stated licence and checksums by table (docs/tables.md)."""
    with LIST.open(encoding="utf-8", newline="") as lines:
        return {line["name"]: line for line in csv.DictReader(lines)}


def made_of(transform: str) -> tuple[str, str]:
    """The function and the column that make a target, from "log(price)"; two empty texts if it is made of none."""
    found = re.fullmatch(r"(log|log1p)\((\w+)\)", transform)
    return (found[1], found[2]) if found else ("", "")


def values_digest(data: Path, line: Mapping[str, str]) -> str:
    """SHA-256 of a `recorded` table's values, however its file was written. Raises KeyError for other tables.

    Features and target are little-endian doubles, row by row. A logarithm follows the column it is made of, and has
    single precision, as libraries differ in its last bit. Tables of text or without a target are JSON of their columns.
    Folds are JSON too, for each table in order of position: the first of the rows that equal this one, and its fold.
    """
    table = pq.read_table(data / line["file"])
    if line["file"] == FOLDS_FILE:
        return _digest_of_cells(_folds_by_value(data, table))
    found = [each for each in entries(data) if each["name"] == line["name"]]
    names = [name for each in found for name in (*each["feature_columns"], each["target_column"])]
    if not names or any(pa.types.is_large_string(table[name].type) or table[name].type == "string" for name in names):
        return _digest_of_cells({name: table[name].to_pylist() for name in table.column_names})
    _, raw = made_of(line.get("transform", ""))
    values = [table[name].to_numpy().astype(np.float64) for name in names]
    if raw:
        values[-1:] = [table[raw].to_numpy().astype(np.float64), values[-1].astype(np.float32)]
    return sha256(np.column_stack(values).astype("<f8").tobytes()).hexdigest()


def _digest_of_cells(columns: Mapping[str, Iterable[Any]]) -> str:
    plain = {name: [float(v) if isinstance(v, int) else v for v in values] for name, values in columns.items()}
    return sha256(json.dumps(plain).encode()).hexdigest()


def _folds_by_value(data: Path, table: pa.Table) -> dict[str, list[int]]:
    told: dict[str, list[int]] = {}
    dataset, row, position, fold = (
        np.array(table[name].to_pylist()) for name in ("dataset", "row", "position", "fold")
    )
    for name in sorted(set(map(str, dataset))):
        places = np.flatnonzero(dataset == name)
        places = places[np.argsort(position[places])]
        _, first, of = np.unique(np.column_stack(columns(data, name)), axis=0, return_index=True, return_inverse=True)
        told[name] = [*first[of.ravel()[row[places]]].tolist(), *fold[places].tolist()]
    return told


def standing(data: Path, known: Mapping[str, str]) -> str:
    """Whether a `recorded` table is at hand: "at hand", "missing" or "other values"."""
    path = data / known["file"]
    if not path.is_file():
        return "missing"
    same = sha256(path.read_bytes()).hexdigest() == known["sha256"]
    if not same and (not known["target"] or any(each["name"] == known["name"] for each in entries(data))):
        try:
            same = values_digest(data, known) == known["values_sha256"]
        except (KeyError, ValueError, OSError):
            return "other values"
    return "at hand" if same else "other values"


def scaled(data: Path, name: str) -> NDArray[np.float64]:
    """Features and target, (n, p), each scaled to [0, 1] by its least and greatest value; constant columns left out."""
    values = np.column_stack(columns(data, name))
    low, high = values.min(axis=0), values.max(axis=0)
    varying = high > low
    return np.asarray((values[:, varying] - low[varying]) / (high - low)[varying])
