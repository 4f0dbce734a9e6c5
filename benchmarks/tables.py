"""The real tables at hand, by what the manifest `datasets.json` beside them says."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = Path(__file__).parents[2] / "shared" / "data"


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


def columns(data: Path, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features (n x d) and target (n) of one table, in its own units."""
    about = entry(data, name)
    features, target = about["feature_columns"], about["target_column"]
    table = pq.read_table(data / about["file"], columns=[*features, target])
    x = np.column_stack([table[column].to_numpy() for column in features])
    return x.astype(np.float64), table[target].to_numpy().astype(np.float64)
