"""The methods of Wang's Table 3, add/remove neighbours, published constants.

The pre-processing reads private rows (means, deviations, the largest label): benchmark only. The published constants of
SSP, AdaSSP and AdaOPS under-noise per part, those of OPS at epsilon near 1: docs/proofs/regression.md, 3.4 and 4.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.harness import generator
from benchmarks.methods import Scales, method_with
from benchmarks.tables import FOLDS_FILE, at_hand, columns, entries
from commingle.party_agent.private.regression.floating import ridge_fit
from commingle.party_agent.private.regression.measuring import FloatingPoint, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod
from commingle.party_agent.regression.forecasts import RegressionDesign, choose
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.dp.sensitivity import Adjacency

FOLDS = 10
TABLES: Mapping[str, tuple[str, ...]] = {
    "kalaja2020": ("airfoil", "elevators", "bike", "protein"),
    "central": ("airfoil", "parkinsons", "elevators", "bike", "protein", "keggundirected"),
}
"""The tables of other benchmarks, by module."""


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
    """The tables at hand, few rows first; none without the folds."""
    known = sorted((entry for entry in entries(data) if "wang2018" in entry["families"]), key=lambda e: int(e["rows"]))
    return at_hand(data, (str(entry["name"]) for entry in known)) if (data / FOLDS_FILE).is_file() else []


def load(data: Path, name: str) -> Table:
    x, y = columns(data, name)
    folds = pq.read_table(data / FOLDS_FILE, filters=[("dataset", "=", name)])
    fold = np.empty(len(y), np.int64)
    fold[folds["row"].to_numpy()] = folds["fold"].to_numpy()
    return Table(name, x, y, fold)


def chosen(benchmark: str, data: Path, *, quick: bool) -> list[Table]:
    """A benchmark's tables at hand, or the first of them if it is quick, or a made-up one if none is at hand."""
    there, wanted = names(data), TABLES[benchmark]
    found = [load(data, name) for name in [each for each in wanted if each in there][: 1 if quick else None]]
    return found or [made_up()]


def made_up(n: int = 2_000, d: int = 5) -> Table:
    """Gaussian rows, unequal scales, a linear label with noise."""
    draw = np.random.default_rng(18)
    x = draw.normal(3.0, 1.0, (n, d)) * np.arange(1, d + 1)
    y = x @ draw.uniform(0, 1, d) + draw.normal(size=n)
    return Table("made-up", x, y, np.arange(n) % FOLDS)


Fit = Callable[[Sample, Privacy, Generator], Floats]


def published(epsilon: float, delta: float) -> Privacy:
    return Privacy(epsilon, delta, Adjacency.ADD_REMOVE, NoiseCalibration.PUBLISHED)


def product_fit(name: str) -> Fit:
    """The coefficients of a method of the product, or as its paper prints it, with floating-point noise."""

    def fit(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
        method = method_with(name, privacy.calibration)
        if isinstance(method, ExactMethod):
            return method.run(sample, privacy, FloatingPoint(draw)).coefficients
        return method.run(sample, privacy, draw).coefficients

    return fit


FIXED: Mapping[str, Fit] = {
    "trivial": lambda sample, _privacy, _draw: np.zeros(sample.d),
    "non_private": lambda sample, _privacy, _draw: ridge_fit(sample, 1.0),
}
PRIVATE: Mapping[str, Fit] = {name: product_fit(name.lower()) for name in ("ObjPert", "OPS", "SSP", "AdaOPS", "AdaSSP")}


_OF_MAPPED: tuple[RegressionMethod, ...] = tuple(name for name in get_args(RegressionMethod) if name in METHODS)
"""Methods for rows that are mapped to the unit ball, as the paper's are: two stages map rows themselves."""


def at_defaults(sample: Sample, privacy: Privacy, draw: Generator) -> Floats:
    """The fit that `party regress` makes by default, knowing bounds alone; neighbours as asked."""
    asked = proved(privacy)
    moment = np.eye(sample.d) * sample.row_bound**2 / sample.d
    design = RegressionDesign(moment, sample.label_bound**2 / 3, sample.n, sample.row_bound, sample.label_bound)
    method = METHODS[choose(design, asked, among=_OF_MAPPED)[0]]
    if not isinstance(method, ExactMethod):
        raise TypeError(f"{method.name} is not a method that is taken by default")
    return method.run(sample, asked, FloatingPoint(draw)).coefficients


def proved(privacy: Privacy) -> Privacy:
    return replace(privacy, calibration=NoiseCalibration.ANALYTIC)


_ADASSP = product_fit("adassp")
DEFAULTS: Mapping[str, Fit] = {"Commingle": at_defaults}
FROM_SUMS: Mapping[str, Fit] = {
    "Commingle's AdaSSP": lambda sample, privacy, draw: _ADASSP(sample, proved(privacy), draw)
}
"""The default at many rows, which reads the sums of a sample alone."""


def mapped_errors(table: Table, epsilon: float, fits: Mapping[str, Fit], *, runs: int) -> dict[str, Floats]:
    """Test MSE, runs x folds, after z-scoring columns, dividing rows by their norms, and centring and scaling y."""
    mapped = Scales.of(table.x, table.y, mapping="per_row", intercept=False).applied(table.x, table.y)
    privacy = published(epsilon, table.delta)
    found = {name: np.empty((1 if name in FIXED else runs, FOLDS)) for name in fits}
    for fold in range(FOLDS):
        test = table.fold == fold
        sample = clip_sample(mapped.x[~test], mapped.y[~test], row_bound=1.0, label_bound=1.0)
        for name, errors in found.items():
            for run in range(len(errors)):
                theta = fits[name](sample, privacy, generator(run, fold))
                errors[run, fold] = np.mean((mapped.y[test] - mapped.x[test] @ theta) ** 2)
    return found
