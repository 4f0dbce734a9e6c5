"""Kalaja 2020, pre-processing for AdaSSP: its figures 4.1 to 4.8, on the tables at hand.

python -m benchmarks.kalaja2020 [--quick] [--data DIR] [--json FILE] [--pictures DIR]

Add/remove neighbours, delta = min(1e-6, 1/n^2). The thesis takes means, deviations, maxima and ceilings from private
rows, and so does this: benchmark only. Figures have the thesis's numbers. Beyond them all combinations are run.
Output is Markdown.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.kalaja2020_settings import (
    FIGURES,
    GRID,
    REFERENCE,
    Prepared,
    Setting,
    all_folds,
    fits,
    in_units,
    predicted,
)
from benchmarks.reporting import heading, options, row, write_json
from benchmarks.wang2018_data import FOLDS, Table, chosen, names
from benchmarks.wang2018_panels import Panel, draw_panels
from commingle.party_agent.private.regression.calibration import GAUSSIAN, NoiseCalibration
from commingle.party_agent.private.regression.problem import Floats

DRAWN = ("airfoil", "bike")
EPSILONS = (0.1, 0.3, 1.0, 2.0, 3.0)
WARNING = (
    "Benchmark only: means, deviations, maxima and ceilings are read from private rows. 'published' noise gives each\n"
    "of AdaSSP's thirds up to 2.65 times its delta, SSP's halves up to 5.5 times; classical, analytic and zcdp keep\n"
    "theirs."
)
_COEFFICIENTS = "Section 3.3.3"
_GRID_RUNS = 1
_BEST: Mapping[str, tuple[str, frozenset[NoiseCalibration]]] = {
    "AdaSSP, classical": ("adassp", frozenset({NoiseCalibration.CLASSICAL})),
    "AdaSSP, any proved noise": ("adassp", GAUSSIAN),
    "SSP, classical": ("ssp", frozenset({NoiseCalibration.CLASSICAL})),
    "SSP, any proved noise": ("ssp", GAUSSIAN),
}


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


def all_errors(
    table: Table, wanted: Mapping[Setting, int], coefficients: Sequence[Setting], *, folds: int
) -> tuple[dict[Setting, dict[float, float]], dict[Setting, dict[float, float]]]:
    """Label errors by setting, each in as many runs as wanted, and coefficient errors; rows are prepared once."""
    labels: dict[Setting, dict[float, float]] = {}
    slopes: dict[Setting, dict[float, float]] = {}
    for rows in dict.fromkeys(setting.rows for setting in wanted):
        parts = all_folds(table, rows, folds=folds)
        for setting in (each for each in wanted if each.rows == rows):
            labels[setting] = label_errors(table, setting, parts, runs=wanted[setting])
            if setting in coefficients:
                slopes[setting] = coefficient_errors(table, setting, parts, runs=wanted[setting])
    return labels, slopes


def measure(table: Table, *, runs: int, folds: int) -> dict[str, Any]:
    """All figures and all combinations on one table."""
    plotted = [setting for lines in FIGURES.values() for setting in lines.values()]
    wanted = {**dict.fromkeys(GRID, min(runs, _GRID_RUNS)), **dict.fromkeys(plotted, runs), REFERENCE: 1}
    [fitted] = [list(lines.values()) for title, lines in FIGURES.items() if title.startswith(_COEFFICIENTS)]
    labels, slopes = all_errors(table, wanted, fitted, folds=folds)
    figures = {
        title: {
            name: list((slopes if title.startswith(_COEFFICIENTS) else labels)[setting].items())
            for name, setting in lines.items()
        }
        for title, lines in FIGURES.items()
    }
    grid = [{**_described(setting), "errors": list(labels[setting].items())} for setting in GRID]
    head = {
        "table": table.name,
        "n": len(table.y),
        "d": table.x.shape[1],
        "not_private": labels[REFERENCE][EPSILONS[0]],
    }
    return {**head, "figures": figures, "combinations": grid}


def _described(setting: Setting) -> dict[str, Any]:
    kind = {"method": setting.method, "calibration": str(setting.calibration), "mapping": str(setting.into)}
    return {**kind, "intercept": setting.intercept, "c": setting.c}


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    tables = chosen("kalaja2020", data, quick=quick)
    runs, folds = (1, 3) if quick else (10, FOLDS)
    return {
        "benchmark": "kalaja2020",
        "runs": runs,
        "tables": [measure(table, runs=runs, folds=folds) for table in tables],
    }


def markdown(report: dict[str, Any]) -> str:
    """A table of docs/kalaja2020.md per figure, and one of the best combinations."""
    lines: list[str] = []
    for title in FIGURES:
        names_of_lines = list(FIGURES[title])
        lines += [f"### {title}", "", *heading("table", "ε", *names_of_lines)]
        for table in report["tables"]:
            found = {name: dict(points) for name, points in table["figures"][title].items()}
            for epsilon in EPSILONS:
                values = (f"{found[name][epsilon]:.3g}" if epsilon in found[name] else "-" for name in names_of_lines)
                lines.append(row(table["table"], f"{epsilon:g}", *values))
        lines.append("")
    plain = ", ".join(f"{table['table']} {table['not_private']:.3g}" for table in report["tables"])
    return "\n".join([*lines, f"Least squares without privacy: {plain}.", "", *_combinations(report)])


def _combinations(report: dict[str, Any]) -> list[str]:
    """The lowest error of all combinations per table, epsilon and method, and the combination that has it."""
    lines = ["### All combinations", "", *heading("table", "ε", *_BEST)]
    for table in report["tables"]:
        for epsilon in EPSILONS:
            cells = (best(table["combinations"], epsilon, *kind) for kind in _BEST.values())
            lines.append(row(table["table"], f"{epsilon:g}", *cells))
    return lines


def best(combinations: list[dict[str, Any]], epsilon: float, method: str, noise: frozenset[NoiseCalibration]) -> str:
    """Its error and what it is, or a dash where no calibration is proved for this epsilon."""
    found = [
        (dict(each["errors"])[epsilon], each)
        for each in combinations
        if each["method"] == method and each["calibration"] in noise and epsilon in dict(each["errors"])
    ]
    if not found:
        return "-"
    error, least = min(found, key=lambda pair: pair[0])
    parts = [least["mapping"], *(["intercept"] if least["intercept"] else [])]
    parts += [f"c = {least['c']:g}"] if least["c"] else []
    parts += [least["calibration"]] if len(noise) > 1 else []
    return f"{error:.3g} ({', '.join(parts)})"


def draw(table: dict[str, Any], path: Path) -> None:
    """A panel per figure of one table."""
    panels = []
    for title, lines in table["figures"].items():
        coefficient = title.startswith(_COEFFICIENTS)
        references = {} if coefficient else {"no privacy": [(e, table["not_private"]) for e in EPSILONS]}
        label = "relative error of slopes" if coefficient else "MSE / variance of label"
        panels.append(Panel(title, "ε", label, lines, references))
    draw_panels(path, panels, columns=2, legend_each=True)


@click.command()
@options("One table and one run, for CI.")
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Run the experiments and print their tables."""
    if not names(data):
        print(f"The tables are not in {data}: a made-up one instead.")
    report = run(quick=quick, data=data)
    print(f"{WARNING}\n\n{markdown(report)}")
    write_json(report, json_file)
    if pictures is not None:
        for table in report["tables"]:
            if table["table"] in (*DRAWN, "made-up"):
                draw(table, pictures / f"kalaja2020_{table['table']}.png")


if __name__ == "__main__":
    main()
