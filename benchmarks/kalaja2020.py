"""Kalaja 2020, pre-processing for AdaSSP: its figures 4.1 to 4.8, on the tables at hand.

Add/remove neighbours, delta = min(1e-6, 1/n^2). The thesis takes means, deviations, maxima and ceilings from private
rows, and so does this: benchmark only. Figures have the thesis's numbers. Beyond them all combinations are run.
Output is Markdown.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, Experiment, Report, heading, row
from benchmarks.kalaja2020_settings import (
    FIGURES,
    REFERENCE,
    Prepared,
    Setting,
    all_folds,
    fits,
    in_units,
    predicted,
)
from benchmarks.panels import Panel, draw_panels
from benchmarks.wang2018_data import FOLDS, Table, chosen
from commingle.party_agent.private.regression.problem import Floats

DRAWN = ("airfoil", "bike", "made-up")
EPSILONS = (0.1, 0.3, 1.0, 2.0, 3.0)
WARNING = (
    "Benchmark only: means, deviations, maxima and ceilings are read from private rows. 'published' noise gives each\n"
    "of AdaSSP's thirds up to 2.65 times its delta, SSP's halves up to 5.5 times; classical, analytic and zcdp keep\n"
    "theirs."
)
_COEFFICIENTS = "Section 3.3.3"


def label_errors(table: Table, setting: Setting, parts: Sequence[Prepared], *, runs: int) -> dict[float, float]:
    """Median over folds and runs of test MSE over the mean square around the training mean, per epsilon."""
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(parts, setting, table.delta, epsilons=EPSILONS, runs=runs):
        missed = part.test_y - predicted(theta, part, setting)
        spread = np.mean((part.test_y - part.label_mean) ** 2)
        found.setdefault(epsilon, []).append(float(np.mean(missed**2) / spread))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def coefficient_errors(table: Table, setting: Setting, parts: Sequence[Prepared], *, runs: int) -> dict[float, float]:
    """Median relative error of the slopes in standard deviations of the columns, against least squares on all rows."""
    sds = table.x.std(axis=0)
    varying = sds > 0
    design = np.column_stack([np.ones(len(table.y)), (table.x - table.x.mean(axis=0))[:, varying] / sds[varying]])
    truth: Floats = np.linalg.lstsq(design, table.y)[0][1:].astype(np.float64)
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(parts, setting, table.delta, epsilons=EPSILONS, runs=runs):
        slopes = (in_units(theta, part, setting)[1] * sds)[varying]
        found.setdefault(epsilon, []).append(float(np.linalg.norm(slopes - truth) / np.linalg.norm(truth)))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def of_table(table: Table, *, runs: int, folds: int) -> dict[str, Any]:
    """All figures on one table; rows are prepared once for settings that share them."""
    kinds = {title: coefficient_errors if title.startswith(_COEFFICIENTS) else label_errors for title in FIGURES}
    figures: dict[str, dict[str, list[tuple[float, float]]]] = {title: {} for title in FIGURES}
    wanted = [(title, name, setting) for title, found in FIGURES.items() for name, setting in found.items()]
    for rows in dict.fromkeys(setting.rows for _, _, setting in wanted):
        parts = all_folds(table, rows, folds=folds)
        for title, name, setting in (each for each in wanted if each[2].rows == rows):
            figures[title][name] = list(kinds[title](table, setting, parts, runs=runs).items())
    plain = label_errors(table, REFERENCE, all_folds(table, REFERENCE, folds=folds), runs=1)[EPSILONS[0]]
    head = {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "not_private": plain}
    return {**head, "figures": figures}


def measure(asked: Asked) -> Report:
    """Everything."""
    runs, folds = asked.times(1, 10), 3 if asked.quick else FOLDS
    tables = chosen("kalaja2020", asked.data, quick=asked.quick)
    return {"runs": runs, "tables": [of_table(table, runs=runs, folds=folds) for table in tables]}


def lines(report: Report) -> list[str]:
    """A table of docs/kalaja2020.md per figure."""
    shown = [WARNING, ""]
    for title, settings in FIGURES.items():
        shown += [f"### {title}", "", *heading("table", "ε", *settings)]
        for table in report["tables"]:
            found = {name: dict(points) for name, points in table["figures"][title].items()}
            for epsilon in EPSILONS:
                values = (f"{found[name][epsilon]:.3g}" if epsilon in found[name] else "-" for name in settings)
                shown.append(row(table["table"], f"{epsilon:g}", *values))
        shown.append("")
    plain = ", ".join(f"{table['table']} {table['not_private']:.3g}" for table in report["tables"])
    return [*shown, f"Least squares without privacy: {plain}."]


def draw(report: Report, folder: Path) -> None:
    """A panel per figure of a table, for two of the tables or the made-up one."""
    for table in (each for each in report["tables"] if each["table"] in DRAWN):
        panels = []
        for title, found in table["figures"].items():
            coefficient = title.startswith(_COEFFICIENTS)
            references = {} if coefficient else {"no privacy": [(e, table["not_private"]) for e in EPSILONS]}
            label = "relative error of slopes" if coefficient else "MSE / variance of label"
            panels.append(Panel(title, "ε", label, found, references))
        draw_panels(folder / f"kalaja2020_{table['table']}.png", panels, legend_each=True)


EXPERIMENT = Experiment("kalaja2020", __doc__, measure, lines, draw)

if __name__ == "__main__":
    EXPERIMENT.command()
