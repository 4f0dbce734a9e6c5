"""All methods for one holder and diffprivlib's LinearRegression: same rows, same (epsilon, delta), same neighbours.

python -m benchmarks.central [--quick] [--data DIR] [--json FILE] [--pictures DIR]

Nothing is read from private rows but by the methods themselves: a tenth of the rows is public and gives all scales and
bounds. All calibrations are proved ones. Output is Markdown.
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.central_methods import DIFFPRIVLIB, peer, ratios
from benchmarks.wang2018_data import DATA, Table, load, made_up, names
from benchmarks.wang2018_panels import Panel, draw_panels
from party_agent.private.regression.problem import Floats

TABLES = ("airfoil", "parkinsons", "elevators", "bike", "protein", "keggundirected")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
WITHOUT_PRIVACY = ("not private", "public rows only")
_DRAWN = (
    "SSP, zCDP",
    "AdaSSP, zCDP",
    "AdaOPS",
    "OPS",
    "ObjPert",
    "NoisySGD",
    "Sub-Agg",
    "DP-OLSE, public radii",
    "DP-PMTOLSE",
    DIFFPRIVLIB,
)
_NO_PEER = (
    "diffprivlib is absent or cannot be imported beside this scikit-learn (0.6.6: not 1.9, but 1.6.1): left out.\n"
    "docs/central.md tells how its figures were made."
)


def measure(table: Table, *, runs: int, epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Median, 10th and 90th percentile of the ratio, per epsilon and method."""
    cells = []
    for epsilon in epsilons:
        found = ratios(table, epsilon, runs=runs)
        cells.append({"epsilon": epsilon, "methods": {name: _spread(values) for name, values in found.items()}})
    return {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "delta": table.delta, "cells": cells}


def _spread(values: Floats) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return {"median": float(middle), "p10": float(low), "p90": float(high)}


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    at_hand = bool(names(data))
    tables = [load(data, name) for name in (TABLES[:1] if quick else TABLES)] if at_hand else [made_up()]
    runs, epsilons = (1, EPSILONS[2:]) if quick else (3, EPSILONS)
    found = [measure(table, runs=runs, epsilons=epsilons) for table in tables]
    return {"benchmark": "central", "adjacency": "replace_one", "runs": runs, "tables": found}


def markdown(report: dict[str, Any]) -> str:
    """The table of docs/central.md; the lowest private ratio in bold."""
    heads = list(report["tables"][0]["cells"][0]["methods"])
    lines = [_row("table", "n", "d", "ε", *heads), _row(*["---"] * (4 + len(heads)))]
    for table in report["tables"]:
        for cell in table["cells"]:
            medians = {name: cell["methods"][name]["median"] for name in heads}
            best = min(medians[name] for name in heads if name not in WITHOUT_PRIVACY)
            shown = [f"**{m:.3g}**" if m == best else f"{m:.3g}" for m in medians.values()]
            lines.append(_row(table["table"], f"{table['n']:,}", str(table["d"]), f"{cell['epsilon']:g}", *shown))
    return "\n".join(lines)


def _row(*values: str) -> str:
    return f"| {' | '.join(values)} |"


def draw(report: dict[str, Any], path: Path) -> None:
    """A panel per table."""
    panels = []
    for table in report["tables"]:
        cells = [(cell["epsilon"], cell["methods"]) for cell in table["cells"]]
        lines = {m: [(e, found[m]["median"]) for e, found in cells] for m in cells[0][1]}
        private = {name: lines[name] for name in _DRAWN if name in lines}
        references = {"public mean": [(e, 1.0) for e, _ in cells], **{name: lines[name] for name in WITHOUT_PRIVACY}}
        least = min(y for points in lines.values() for _, y in points)
        title = f"{table['table']}, n = {table['n']:,}, d = {table['d']}"
        label = "MSE / MSE of the public mean"
        panels.append(Panel(title, "ε", label, private, references, y_limits=(0.7 * least, 100.0)))
    draw_panels(path, panels, columns=min(3, len(panels)))


@click.command()
@click.option("--quick", is_flag=True, help="One table and one run, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--pictures", type=click.Path(path_type=Path, file_okay=False, exists=True))
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Run the comparison and print its table."""
    if not names(data):
        print(f"The tables are not in {data}: a made-up one instead.")
    if peer() is None:
        print(_NO_PEER)
    print("OpenDP's LinearRegression (Theil-Sen) takes one feature only, so it has no place in this table.")
    print("Calibrations here are all proved; scales and bounds come from a public tenth of the rows.\n")
    report = run(quick=quick, data=data)
    print(markdown(report))
    if json_file is not None:
        json_file.write_text(json.dumps(report) + "\n", encoding="utf-8")
    if pictures is not None:
        draw(report, pictures / "central.png")


if __name__ == "__main__":
    main()
