"""Kalaja 2020, pre-processing for AdaSSP: what its figures 4.1 to 4.8 vary, on the tables at hand.

python -m benchmarks.kalaja2020 [--quick] [--data DIR] [--json FILE] [--pictures DIR]

Add/remove neighbours, delta = min(1e-6, 1/n^2). The thesis takes means, deviations, maxima and ceilings from private
rows, and so does this: benchmark only. The captions of its figures were not at hand; which figure varies what is our
order. Output is Markdown.
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.kalaja2020_settings import FIGURES, REFERENCE, Setting, fits, in_units, predicted
from benchmarks.wang2018_data import DATA, FOLDS, Table, load, made_up, names
from benchmarks.wang2018_panels import Panel, draw_panels
from party_agent.private.regression.problem import Floats

TABLES = ("airfoil", "elevators", "bike", "protein")
DRAWN = ("airfoil", "bike")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
WARNING = (
    "Benchmark only: means, deviations, maxima and ceilings are read from private rows. 'published' noise gives each\n"
    "of AdaSSP's thirds up to 2.65 times its delta, SSP's halves up to 5.5 times; classical, analytic and zcdp keep\n"
    "theirs."
)
_COEFFICIENTS = "4.7"


def label_errors(table: Table, setting: Setting, *, runs: int, folds: int) -> dict[float, float]:
    """Median over folds and runs of test MSE over the mean square around the training mean, per epsilon."""
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(table, setting, epsilons=EPSILONS, runs=runs, folds=range(folds)):
        missed = part.test_y - predicted(theta, part, setting)
        spread = np.mean((part.test_y - part.scales.label_mean) ** 2)
        found.setdefault(epsilon, []).append(float(np.mean(missed**2) / spread))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def coefficient_errors(table: Table, setting: Setting, *, runs: int, folds: int) -> dict[float, float]:
    """Median relative error of the slopes in standard deviations of the columns, against least squares on all rows."""
    sds = table.x.std(axis=0)
    varying = sds > 0
    design = np.column_stack([np.ones(len(table.y)), (table.x - table.x.mean(axis=0))[:, varying] / sds[varying]])
    truth: Floats = np.linalg.lstsq(design, table.y)[0][1:].astype(np.float64)
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(table, setting, epsilons=EPSILONS, runs=runs, folds=range(folds)):
        slopes = (in_units(theta, part, setting)[1] * sds)[varying]
        found.setdefault(epsilon, []).append(float(np.linalg.norm(slopes - truth) / np.linalg.norm(truth)))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def measure(table: Table, *, runs: int, folds: int) -> dict[str, Any]:
    """All figures on one table."""
    figures: dict[str, Any] = {}
    done: dict[Setting, dict[float, float]] = {}
    for title, lines in FIGURES.items():
        for name, setting in lines.items():
            if title.startswith(_COEFFICIENTS):
                errors = coefficient_errors(table, setting, runs=runs, folds=folds)
            else:  # several figures share a line
                errors = done[setting] = done.get(setting) or label_errors(table, setting, runs=runs, folds=folds)
            figures.setdefault(title, {})[name] = [[epsilon, error] for epsilon, error in errors.items()]
    plain = label_errors(table, REFERENCE, runs=1, folds=folds)[EPSILONS[0]]
    return {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "not_private": plain, "figures": figures}


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    at_hand = bool(names(data))
    tables = [load(data, name) for name in (TABLES[:1] if quick else TABLES)] if at_hand else [made_up()]
    runs, folds = (1, 3) if quick else (10, FOLDS)
    return {
        "benchmark": "kalaja2020",
        "runs": runs,
        "tables": [measure(table, runs=runs, folds=folds) for table in tables],
    }


def markdown(report: dict[str, Any]) -> str:
    """A table of docs/kalaja2020.md per figure."""
    lines: list[str] = []
    for title in FIGURES:
        names_of_lines = list(FIGURES[title])
        lines += [f"### {title}", "", _row("table", "ε", *names_of_lines), _row(*["---"] * (2 + len(names_of_lines)))]
        for table in report["tables"]:
            found = table["figures"][title]
            for place, epsilon in enumerate(EPSILONS):
                values = (f"{found[name][place][1]:.3g}" for name in names_of_lines)
                lines.append(_row(table["table"], f"{epsilon:g}", *values))
        lines.append("")
    plain = ", ".join(f"{table['table']} {table['not_private']:.3g}" for table in report["tables"])
    return "\n".join([*lines, f"Least squares without privacy: {plain}."])


def _row(*values: str) -> str:
    return f"| {' | '.join(values)} |"


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
@click.option("--quick", is_flag=True, help="One table and one run, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--pictures", type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Run the experiments and print their tables."""
    if not names(data):
        print(f"The tables are not in {data}: a made-up one instead.")
    report = run(quick=quick, data=data)
    print(f"{WARNING}\n\n{markdown(report)}")
    if json_file is not None:
        json_file.write_text(json.dumps(report) + "\n", encoding="utf-8")
    if pictures is not None:
        for table in report["tables"]:
            if table["table"] in (*DRAWN, "made-up"):
                draw(table, pictures / f"kalaja2020_{table['table']}.png")


if __name__ == "__main__":
    main()
