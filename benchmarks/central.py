"""All methods for one holder with a proved calibration, and fits without privacy, on the same rows and scales.

Only the methods themselves read private rows: a public tenth of the rows gives all scales and bounds. All private
methods have replace_one neighbours, the same (epsilon, delta) and the same public numbers. Methods proved for
add/remove go by groups of two, as in the product. Without the tables it makes one up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.harness import Asked, Experiment, Panel, Report, as_table, draw_panels, generator, spread
from benchmarks.methods import IN_PARTS, clipped, dp_olse
from benchmarks.wang2018_methods import FOLDS, Table, chosen, product_fit
from commingle.party_agent.private.regression.floating import ridge_fit
from commingle.party_agent.private.regression.measuring import FloatingPoint, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.sums import PublicMoments, dp_pmtolse, transform
from commingle.shared.dp.calibration import rho_of_epsilon

EPSILONS = (0.1, 0.3, 1.0, 3.0)
WARNING = "Calibrations here are all proved; scales and bounds come from a public tenth of the rows."
WITHOUT_PRIVACY = ("not private", "public rows only")
PUBLIC_FOLD = 0
TESTED = range(PUBLIC_FOLD + 1, FOLDS)
PRODUCT: Mapping[str, tuple[str, NoiseCalibration]] = {
    "SSP, analytic": ("ssp", NoiseCalibration.ANALYTIC),
    "SSP, zCDP": ("ssp", NoiseCalibration.ZCDP),
    "AdaSSP, analytic": ("adassp", NoiseCalibration.ANALYTIC),
    "AdaSSP, zCDP": ("adassp", NoiseCalibration.ZCDP),
    "BoostedAdaSSP, zCDP": ("boosted_adassp", NoiseCalibration.ZCDP),
    "AdaOPS": ("adaops", NoiseCalibration.ANALYTIC),
    "OPS": ("ops", NoiseCalibration.CLASSICAL),
    "ObjPert": ("objpert", NoiseCalibration.PUBLISHED),
    "NoisySGD": ("noisysgd", NoiseCalibration.ZCDP),
    "Sub-Agg": ("subagg", NoiseCalibration.PUBLISHED),
}
_DRAWN = (
    *("SSP, zCDP", "AdaSSP, zCDP", "AdaOPS", "OPS", "ObjPert", "NoisySGD", "Sub-Agg"),
    *("DP-OLSE, public radii", "DP-PMTOLSE"),
)
_UNBOUNDED = 1e9


@dataclass(frozen=True, slots=True)
class Split:
    """Public and private rows; the public ones standardise columns and bring labels into [-1, 1]."""

    public_x: Floats
    public_y: Floats
    x: Floats
    y: Floats
    test_x: Floats
    test_y: Floats

    @property
    def moments(self) -> PublicMoments:
        """Second moments of the public rows, plus a thousandth on the diagonal, as columns may be collinear."""
        d = self.x.shape[1]
        second = self.public_x.T @ self.public_x / len(self.public_x) + 1e-3 * np.eye(d)
        return PublicMoments(second.astype(np.float64), float(np.mean(self.public_y**2)))


def one_column(table: Table) -> Table:
    public = table.fold == PUBLIC_FOLD
    x, y = _standardised(table)
    best = int(np.argmax(np.abs(x[public].T @ y[public])))
    return Table(table.name, table.x[:, [best]], table.y, table.fold)


def _standardised(table: Table) -> tuple[Floats, Floats]:
    # by mean and deviation of columns, and by mean and largest size of the label, of the public rows
    public = table.fold == PUBLIC_FOLD
    means, sds = table.x[public].mean(axis=0), table.x[public].std(axis=0)
    y = table.y - table.y[public].mean()
    return (table.x - means) / np.where(sds > 0, sds, 1.0), y / np.abs(y[public]).max()


def split(table: Table, fold: int) -> Split:
    """Fold 0 is public, `fold` is tested, the others are private."""
    public, test = table.fold == PUBLIC_FOLD, table.fold == fold
    x, y = _standardised(table)
    rest = ~(public | test)
    return Split(x[public], y[public], x[rest], y[rest], x[test], y[test])


def fitted(data: Split, privacy: Privacy, draw: Generator) -> dict[str, Floats]:
    """Slopes of all methods for the standardised columns, without an intercept, as public means centre everything."""
    d, moments = data.x.shape[1], data.moments
    scale = max(sqrt(d), 2.0)  # about the norm of a standardised row; a single column is cut at two deviations
    sample = clip_sample(data.x / scale, data.y, row_bound=1.0, label_bound=1.0)
    free = partial(clip_sample, row_bound=_UNBOUNDED, label_bound=_UNBOUNDED)
    found = {
        "not private": ridge_fit(free(data.x, data.y), 1e-6),
        "public rows only": ridge_fit(free(data.public_x, data.public_y), 1.0),
    }
    for name, (method, calibration) in PRODUCT.items():
        calibrated = replace(privacy, calibration=calibration)
        found[name] = product_fit(method)(sample, calibrated, draw) / scale
    rho, noise = rho_of_epsilon(privacy.epsilon, privacy.delta) / 2, FloatingPoint(draw)
    classical = replace(privacy, calibration=NoiseCalibration.CLASSICAL)
    found["AdaSSP in thirds, classical"] = IN_PARTS["adassp"].run(sample, classical, noise).coefficients / scale
    found["DP-OLSE, public radii"] = dp_olse(clipped(data.x, data.y, moments), rho, noise).coefficients
    whitened = transform(data.x, data.y, moments, make=clip_sample)
    found["DP-PMTOLSE"] = dp_pmtolse(whitened, moments, privacy, noise).coefficients
    return found


def ratios(table: Table, epsilon: float, *, folds: Sequence[int] = TESTED, runs: int) -> dict[str, list[float]]:
    """Test MSE over the MSE of predicting the public mean, by run and fold; below 1 the method learnt something."""
    found: dict[str, list[float]] = {}
    for fold in folds:
        data = split(table, fold)
        nothing = float(np.mean(data.test_y**2))
        for run in range(runs):
            for name, theta in fitted(data, Privacy(epsilon, table.delta), generator(fold, run)).items():
                error = float(np.mean((data.test_y - data.test_x @ theta) ** 2))
                found.setdefault(name, []).append(error / nothing)
    return found


def of_table(table: Table, *, runs: int, epsilons: Sequence[float]) -> dict[str, Any]:
    cells = [
        {"epsilon": e, "methods": {name: spread(values) for name, values in ratios(table, e, runs=runs).items()}}
        for e in epsilons
    ]
    return {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "delta": table.delta, "cells": cells}


def measure(asked: Asked) -> Report:
    runs, epsilons = asked.times(1, 3), EPSILONS[2:] if asked.quick else EPSILONS
    tables = chosen("central", asked.data, quick=asked.quick)
    whole, alone = (
        [of_table(table, runs=runs, epsilons=epsilons) for table in kind] for kind in (tables, map(one_column, tables))
    )
    return {"adjacency": "replace_one", "runs": runs, "tables": whole, "one_column": alone}


def lines(report: Report) -> list[str]:
    shown = list[str]()
    for kind in ("tables", "one_column"):
        cells = [
            {**{name: t[name] for name in ("table", "n", "d")}, "epsilon": cell["epsilon"]}
            | {name: found["median"] for name, found in cell["methods"].items()}
            for t in report[kind]
            for cell in t["cells"]
        ]
        shown += ["", f"## {kind}", "", *as_table(cells)]
    return shown


def draw(report: Report, folder: Path) -> None:
    for kind, name, top in (("tables", "central", 100.0), ("one_column", "central_one_column", 1.5)):
        panels = []
        for table in report[kind]:
            cells = [(cell["epsilon"], cell["methods"]) for cell in table["cells"]]
            over = {m: [(e, found[m]["median"]) for e, found in cells] for m in cells[0][1]}
            known = {"public mean": [(e, 1.0) for e, _ in cells], **{name: over[name] for name in WITHOUT_PRIVACY}}
            limits = (0.9 * min(y for points in over.values() for _, y in points), top)
            title = f"{table['table']}, n = {table['n']:,}, d = {table['d']}"
            private = {name: over[name] for name in _DRAWN}
            label = "MSE / MSE of the public mean"
            panels.append(Panel(title, "ε", label, private, known, log_y=kind == "tables", y_limits=limits))
        draw_panels(folder / f"{name}.png", panels, columns=min(3, len(panels)))


EXPERIMENT = Experiment("central", __doc__, measure, lines, draw, warning=WARNING)

if __name__ == "__main__":
    EXPERIMENT.command()
