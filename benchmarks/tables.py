"""The real tables at hand, by what the manifest `datasets.json` beside them says."""

import csv
import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = Path(__file__).parents[2] / "shared" / "data"
LIST = Path(__file__).with_name("tables.csv")


def entries(data: Path) -> list[dict[str, Any]]:
    """Of each table `name`, `file`, `feature_columns`, `target_column`, `rows`, `families`; none without the folder."""
    manifest = data / "datasets.json"
    found: list[dict[str, Any]] = []
    if manifest.exists():
        found = json.loads(manifest.read_text(encoding="utf-8"))["datasets"]
    return found


def entry(data: Path, name: str) -> dict[str, Any]:
    """Of one table. Raises ValueError where there is none of that name."""
    [found] = [each for each in entries(data) if each["name"] == name]
    return found


def at_hand(data: Path, names: Iterable[str]) -> list[str]:
    """Those of these tables that the folder has, as the manifest says; none where there is no folder."""
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
    """What the figures in docs/ were made from: sources, licence as stated and checksums by table (docs/tables.md)."""
    with LIST.open(encoding="utf-8", newline="") as lines:
        return {line["name"]: line for line in csv.DictReader(lines)}


def values_digest(data: Path, name: str) -> str:
    """SHA-256 of features and target as little-endian doubles, row by row: the same however the file was written."""
    x, y = columns(data, name)
    return sha256(np.column_stack([x, y]).astype("<f8").tobytes()).hexdigest()


def standing(data: Path, known: Mapping[str, str]) -> str:
    """Whether a `recorded` table is at hand: "at hand", "missing" or "other values"."""
    path = data / known["file"]
    if not path.is_file():
        return "missing"
    same = sha256(path.read_bytes()).hexdigest() == known["sha256"]
    if not same and known["values_sha256"] and any(each["name"] == known["name"] for each in entries(data)):
        same = values_digest(data, known["name"]) == known["values_sha256"]
    return "at hand" if same else "other values"


def scaled(data: Path, name: str) -> NDArray[np.float64]:
    """Features and target, (n, p), each scaled to [0, 1] by its least and greatest value; constant columns left out."""
    values = np.column_stack(columns(data, name))
    low, high = values.min(axis=0), values.max(axis=0)
    varying = high > low
    return np.asarray((values[:, varying] - low[varying]) / (high - low)[varying])
