"""The regression tables of Wang 2018 with their ten folds, and a made-up one for machines without them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.tables import at_hand, columns, entries
from commingle.party_agent.private.regression.problem import Floats

FOLDS = 10
FOLDS_FILE = "wang2018_folds.parquet"
TABLES: Mapping[str, tuple[str, ...]] = {
    "kalaja2020": ("airfoil", "elevators", "bike", "protein"),
    "central": ("airfoil", "parkinsons", "elevators", "bike", "protein", "keggundirected"),
}
"""Those that other benchmarks take, by module."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows in the units of the data, n x d, labels, and the fold (0 to 9) in which each row is tested."""

    name: str
    x: Floats = field(repr=False)
    y: Floats = field(repr=False)
    fold: NDArray[np.int64] = field(repr=False)

    @property
    def delta(self) -> float:
        """min(1e-6, 1/n^2), as in the paper."""
        return min(1e-6, 1 / len(self.y) ** 2)


def names(data: Path) -> list[str]:
    """Those at hand, few rows first; none without the folds."""
    known = sorted((entry for entry in entries(data) if "wang2018" in entry["families"]), key=lambda e: int(e["rows"]))
    return at_hand(data, (str(entry["name"]) for entry in known)) if (data / FOLDS_FILE).is_file() else []


def load(data: Path, name: str) -> Table:
    """One table."""
    x, y = columns(data, name)
    folds = pq.read_table(data / FOLDS_FILE, filters=[("dataset", "=", name)])
    fold = np.empty(len(y), np.int64)
    fold[folds["row"].to_numpy()] = folds["fold"].to_numpy()
    return Table(name, x, y, fold)


def chosen(benchmark: str, data: Path, *, quick: bool) -> list[Table]:
    """A benchmark's tables at hand, the first of them where it is quick, a made-up one where none is."""
    there, wanted = names(data), TABLES[benchmark]
    found = [load(data, name) for name in [each for each in wanted if each in there][: 1 if quick else None]]
    return found or [made_up()]


def made_up(n: int = 2_000, d: int = 5) -> Table:
    """Gaussian rows, unequal scales, a linear label with noise."""
    draw = np.random.default_rng(18)
    x = draw.normal(3.0, 1.0, (n, d)) * np.arange(1, d + 1)
    y = x @ draw.uniform(0, 1, d) + draw.normal(size=n)
    return Table("made-up", x, y, np.arange(n) % FOLDS)
