"""All methods for one holder beside diffprivlib's and OpenDP's regressions: same rows, (epsilon, delta), neighbours.

python -m benchmarks.central [--quick] [--data DIR] [--json FILE] [--pictures DIR] [--no-peers]

Nothing is read from private rows but by the methods themselves: a tenth of the rows is public and gives all scales and
bounds. All calibrations are proved ones. The peers run in an environment of their own, for which uv fetches pinned
wheels; where that cannot be done, the output and the JSON say why they are absent. Output is Markdown.
"""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.central_methods import asked, one_column, ratios
from benchmarks.central_peers import Absent, Peers, built
from benchmarks.reporting import heading, options, row, write_json
from benchmarks.wang2018_data import Table, chosen, names
from benchmarks.wang2018_panels import Panel, draw_panels
from commingle.party_agent.private.regression.problem import Floats

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
    "diffprivlib, largest sizes",
    "diffprivlib, row norm",
    "OpenDP, pure",
)
_LEFT_OUT = Absent("left out as asked (--no-peers)")


def measure(table: Table, *, runs: int, epsilons: tuple[float, ...], peers: Peers | Absent) -> dict[str, Any]:
    """Median, 10th and 90th percentile of the ratio, per epsilon and method."""
    others = peers.fits(asked(table, epsilons=epsilons, runs=runs)) if isinstance(peers, Peers) else []
    cells = []
    for epsilon in epsilons:
        found = ratios(table, epsilon, runs=runs, others=others)
        cells.append({"epsilon": epsilon, "methods": {name: _spread(values) for name, values in found.items()}})
    return {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "delta": table.delta, "cells": cells}


def _spread(values: Floats) -> dict[str, float]:
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return {"median": float(middle), "p10": float(low), "p90": float(high)}


def run(*, quick: bool, data: Path, peers: Peers | Absent) -> dict[str, Any]:
    """Everything, as one JSON document."""
    tables = chosen("central", data, quick=quick)
    runs, epsilons = (1, EPSILONS[2:]) if quick else (3, EPSILONS)
    found, alone = (
        [measure(table, runs=runs, epsilons=epsilons, peers=peers) for table in kind]
        for kind in (tables, map(one_column, tables))
    )
    ran = {"absent": peers.reason} if isinstance(peers, Absent) else {"versions": dict(peers.versions)}
    head = {"benchmark": "central", "adjacency": "replace_one", "runs": runs, "peers": ran}
    return {**head, "tables": found, "one_column": alone}


def markdown(tables: list[dict[str, Any]]) -> str:
    """A table of docs/central.md; the lowest private ratio in bold."""
    heads = list(tables[0]["cells"][0]["methods"])
    lines = heading("table", "n", "d", "ε", *heads)
    for table in tables:
        for cell in table["cells"]:
            medians = {name: cell["methods"][name]["median"] for name in heads}
            best = min(medians[name] for name in heads if name not in WITHOUT_PRIVACY)
            shown = [f"**{m:.3g}**" if m == best else f"{m:.3g}" for m in medians.values()]
            lines.append(row(table["table"], f"{table['n']:,}", str(table["d"]), f"{cell['epsilon']:g}", *shown))
    return "\n".join(lines)


def draw(tables: list[dict[str, Any]], path: Path, *, top: float, log_y: bool) -> None:
    """A panel per table; ratios above `top` are cut off."""
    panels = []
    for table in tables:
        cells = [(cell["epsilon"], cell["methods"]) for cell in table["cells"]]
        lines = {m: [(e, found[m]["median"]) for e, found in cells] for m in cells[0][1]}
        private = {name: lines[name] for name in _DRAWN if name in lines}
        references = {"public mean": [(e, 1.0) for e, _ in cells], **{name: lines[name] for name in WITHOUT_PRIVACY}}
        least = min(y for points in lines.values() for _, y in points)
        title = f"{table['table']}, n = {table['n']:,}, d = {table['d']}"
        label = "MSE / MSE of the public mean"
        panels.append(Panel(title, "ε", label, private, references, log_y=log_y, y_limits=(0.9 * least, top)))
    draw_panels(path, panels, columns=min(3, len(panels)))


@click.command()
@options("One table and one run, for CI.")
@click.option("--peers/--no-peers", default=True, help="Build an environment for diffprivlib and OpenDP and run them.")
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None, peers: bool) -> None:
    """Run the comparison and print its tables."""
    if not names(data):
        print(f"The tables are not in {data}: a made-up one instead.")
    with built() if peers else nullcontext(_LEFT_OUT) as found:
        print(told(found))
        report = run(quick=quick, data=data, peers=found)
    print("Calibrations here are all proved; scales and bounds come from a public tenth of the rows.")
    print(f"\n## All columns\n\n{markdown(report['tables'])}")
    print(f"\n## The column with the largest public correlation, alone\n\n{markdown(report['one_column'])}")
    write_json(report, json_file)
    if pictures is not None:
        draw(report["tables"], pictures / "central.png", top=100.0, log_y=True)
        draw(report["one_column"], pictures / "central_one_column.png", top=1.5, log_y=False)


def told(peers: Peers | Absent) -> str:
    """One paragraph on the peers that run, or why none does."""
    if isinstance(peers, Absent):
        return f"NO OUTSIDE PEERS: diffprivlib and OpenDP are missing from what follows. Reason:\n{peers.reason}\n"
    versions = ", ".join(f"{name} {number}" for name, number in peers.versions.items())
    return f"Outside peers, in an environment of their own: {versions}.\nOpenDP's regression takes one column only.\n"


if __name__ == "__main__":
    main()
