"""BoostedAdaSSP, TukeyEM and DD-SSP against AdaSSP and SSP: same rows, same (epsilon, delta), same neighbours.

python -m benchmarks.later [--quick] [--data DIR] [--json FILE]

Rows, public tenth, clipping and error are those of benchmarks.central; all spend the rho of zCDP but TukeyEM, which
spends epsilon and delta themselves. Output is Markdown.
"""

from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.random import Generator

from benchmarks.central_methods import Split, row_bound, split
from benchmarks.later_methods import dd_ssp, tukey_em
from benchmarks.reporting import heading, row, write_json
from benchmarks.tables import DATA
from benchmarks.wang2018_data import FOLDS, Table, chosen, names
from benchmarks.wang2018_methods import product_fit
from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.sufficient import ROUNDS, boosted_adassp
from commingle.shared.dp.calibration import rho_of_epsilon

EPSILONS = (0.1, 1.0)
BASE = "AdaSSP"
BOOSTED: Mapping[str, tuple[int, float | None]] = {
    f"BoostedAdaSSP, T = {ROUNDS}": (ROUNDS, None),
    "BoostedAdaSSP, T = 10": (10, None),
    "BoostedAdaSSP, published": (100, 1.0),
}
LATER = (*BOOSTED, "TukeyEM", "DD-SSP")


def fitted(data: Split, privacy: Privacy, draw: Generator) -> dict[str, Floats]:
    """Slopes for the standardised columns."""
    scale = row_bound(data.x.shape[1])
    sample = clip_sample(data.x / scale, data.y, row_bound=1.0, label_bound=1.0)
    found = {name: product_fit(name.lower())(sample, privacy, draw) / scale for name in ("SSP", BASE)}
    for name, (rounds, clip) in BOOSTED.items():
        estimate = boosted_adassp(sample, privacy, FloatingPoint(draw), rounds=rounds, clip=clip)
        found[name] = estimate.coefficients / scale
    found["TukeyEM"] = tukey_em(data.x, data.y, epsilon=privacy.epsilon, delta=privacy.delta, draw=draw)
    found["DD-SSP"] = dd_ssp(data.x, data.y, rho=rho_of_epsilon(privacy.epsilon, privacy.delta), draw=draw)
    return found


def ratios(table: Table, epsilon: float, *, runs: int) -> dict[str, Floats]:
    """Test MSE over that of predicting the public mean, one per run; runs go through the test folds."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        data = split(table, 1 + run % (FOLDS - 1))
        nothing = float(np.mean(data.test_y**2))
        for name, theta in fitted(data, Privacy(epsilon, table.delta), np.random.default_rng(run)).items():
            found.setdefault(name, []).append(float(np.mean((data.test_y - data.test_x @ theta) ** 2)) / nothing)
    return {name: np.array(values) for name, values in found.items()}


def against_base(found: Mapping[str, Floats]) -> dict[str, dict[str, float]]:
    """Per method: mean ratio with its standard error, and the geometric mean over AdaSSP's, run by run, with its own.

    Errors have long tails (a noisy fit at a test row far out), so what is compared are logarithms.
    """
    summary = {}
    for name, values in found.items():
        logs, root = np.log(values / found[BASE]), sqrt(len(values))
        summary[name] = {
            "mean": float(values.mean()),
            "se": float(values.std(ddof=1)) / root,
            "median": float(np.median(values)),
            "over_base": float(np.exp(logs.mean())),
            "log_se": float(logs.std(ddof=1)) / root,
        }
    return summary


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    tables = chosen("later", data, quick=quick)
    runs = 2 if quick else 10
    cells = [
        {
            "table": table.name,
            "n": len(table.y),
            "d": table.x.shape[1],
            "epsilon": epsilon,
            "methods": against_base(ratios(table, epsilon, runs=runs)),
        }
        for table in tables
        for epsilon in (EPSILONS[1:] if quick else EPSILONS)
    ]
    return {"benchmark": "later", "adjacency": "replace_one", "runs": runs, "cells": cells}


def markdown(report: dict[str, Any]) -> str:
    """The tables of docs/regression.md: medians, and errors over AdaSSP's; then those over all cells."""
    cells = report["cells"]
    heads = list(cells[0]["methods"])
    lines = heading("table", "n", "d", "ε", *heads)
    for cell in cells:
        found = cell["methods"]
        shown = [_over(found[name]) if name in LATER else f"{found[name]['median']:.3g}" for name in heads]
        lines.append(row(cell["table"], f"{cell['n']:,}", str(cell["d"]), f"{cell['epsilon']:g}", *shown))
    lines += ["", *heading("method", "error over AdaSSP's", "lower in", "higher in", "cells")]
    for name in (name for name in heads if name != BASE):
        logs = np.log([cell["methods"][name]["over_base"] for cell in cells])
        errors = np.array([cell["methods"][name]["log_se"] for cell in cells])
        overall = {"over_base": float(np.exp(logs.mean())), "log_se": sqrt(float(np.sum(errors**2))) / len(cells)}
        lower, higher = (int(np.sum(sign * logs > 2 * errors)) for sign in (-1, 1))
        lines.append(row(name, _over(overall), str(lower), str(higher), str(len(cells))))
    return "\n".join(lines)


def _over(found: dict[str, float]) -> str:
    """0.85 ± 0.02, of AdaSSP's error."""
    error = float(f"{found['over_base'] * found['log_se']:.1g}")
    return f"{found['over_base']:.3g} ± {error:g}"


@click.command()
@click.option("--quick", is_flag=True, help="One table and two runs, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Run the comparison and print its tables."""
    if not names(data):
        print(f"The tables are not in {data}: a made-up one instead.")
    report = run(quick=quick, data=data)
    print(markdown(report))
    write_json(report, json_file)


if __name__ == "__main__":
    main()
