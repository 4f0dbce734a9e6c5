"""Wang 2018, Revisiting differentially private linear regression: Table 3, error over epsilon, relative efficiency.

python -m benchmarks.wang2018 [--quick] [--his-code] [--data DIR] [--json FILE] [--pictures DIR]

--his-code runs of Table 3 only AdaSSP and AdaOPS, as the paper prints them and as the author's code has them.

Add/remove neighbours. The pre-processing reads private rows, and the published constants do not keep what their proofs
promise: for comparison with the paper only. Output is Markdown.
"""

import json
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.stats import binomtest

from benchmarks.reporting import heading, options, row, write_json
from benchmarks.wang2018_bounds import bound_errors, draw_regions, rate_table
from benchmarks.wang2018_data import FOLDS, Table, load, made_up, names
from benchmarks.wang2018_efficiency import SIZES, efficiency
from benchmarks.wang2018_his_code import HEADLINE, HIS_CODE
from benchmarks.wang2018_methods import DEFAULTS, FIXED, PRIVATE, Fit, mapped_errors
from benchmarks.wang2018_panels import Panel, draw_panels
from commingle.party_agent.private.regression.problem import Floats

EPSILON = 0.1
EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SHOWN = ("airfoil", "bike", "elevators", "protein")
WARNING = (
    "Benchmark only: means, deviations and the largest label are read from private rows. The published constants of\n"
    "SSP, AdaSSP and AdaOPS under-noise each part (2.65 to 5.5 times its delta), that of OPS up to 2.3 times at\n"
    "epsilon 1; no proof covers the noise of his code's SSP and AdaOPS, nor of the ObjPert that is halved only."
)
_COLUMNS = (*FIXED, *PRIVATE, *DEFAULTS)
_ALL: Mapping[str, Fit] = {**FIXED, **PRIVATE, **DEFAULTS, **HIS_CODE}
_COMPARED = sorted({*HIS_CODE, *(name.partition(",")[0] for name in HIS_CODE)})
_HEADLINE: Mapping[str, Fit] = {name: _ALL[name] for name in _COMPARED if name.partition(",")[0] in HEADLINE}


def summary(errors: Floats) -> dict[str, float]:
    """Median over runs of the ten-fold mean, and of the deviation over folds; greatest and least ten-fold mean."""
    means = errors.mean(axis=1)
    deviation = float(np.median(errors.std(axis=1)))
    return {"mse": float(np.median(means)), "sd": deviation, "least": float(means.min()), "most": float(means.max())}


def table3_row(table: Table, published: dict[str, Any], *, runs: int, fits: Mapping[str, Fit] = _ALL) -> dict[str, Any]:
    """One table under these methods, beside the published cell where there is one."""
    cells: dict[str, Any] = {}
    for name, errors in mapped_errors(table, EPSILON, fits, runs=runs).items():
        cells[name] = summary(errors)
        theirs = published.get(name.partition(",")[0])
        if theirs is not None:
            within = np.abs(errors.mean(axis=1) - theirs["mse"]) <= 3 * theirs["sd"]
            median_within = abs(cells[name]["mse"] - theirs["mse"]) <= 3 * theirs["sd"]
            cells[name] |= {"published": theirs, "inside": median_within, "runs_inside": float(within.mean())}
    return {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "delta": table.delta, "methods": cells}


def over_epsilon(table: Table, *, epsilons: Sequence[float], runs: int) -> dict[str, Any]:
    """Median ten-fold mean of every method over epsilon."""
    cells = []
    for epsilon in epsilons:
        found = mapped_errors(table, epsilon, {**FIXED, **PRIVATE, **DEFAULTS}, runs=runs)
        cells.append({"epsilon": epsilon, "mse": {name: summary(errors)["mse"] for name, errors in found.items()}})
    return {"table": table.name, "cells": cells}


def _tables(*, quick: bool, data: Path) -> tuple[list[Table], dict[str, Any]]:
    """Those to run, and the published table 3."""
    reference = data.parent / "reference" / "wang2018_table3.json"
    published = json.loads(reference.read_text(encoding="utf-8"))["table"] if reference.exists() else {}
    known = names(data)
    chosen = [load(data, name) for name in (("airfoil",) if quick else known)] if known else [made_up()]
    return chosen, published


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    chosen, published = _tables(quick=quick, data=data)
    shown = [table for table in chosen if table.name in SHOWN or not names(data)]
    runs = 3 if quick else 20
    return {
        "benchmark": "wang2018",
        "epsilon": EPSILON,
        "runs": runs,
        "table3": [table3_row(table, published.get(table.name, {}), runs=runs) for table in chosen],
        "over_epsilon": [
            over_epsilon(table, epsilons=EPSILONS[2:5] if quick else EPSILONS, runs=runs) for table in shown
        ],
        "bounds": bound_errors(trials=5 if quick else 50),
        "efficiency": efficiency(SIZES[::8] if quick else SIZES, (0.1, 1.0), trials=5 if quick else 200),
    }


def run_headline(*, quick: bool, data: Path) -> dict[str, Any]:
    """Table 3 of AdaSSP and AdaOPS alone, each as printed and as his code has it; the same draws as in `run`."""
    chosen, published = _tables(quick=quick, data=data)
    runs = 3 if quick else 20
    rows = [table3_row(table, published.get(table.name, {}), runs=runs, fits=_HEADLINE) for table in chosen]
    return {"benchmark": "wang2018, his code", "epsilon": EPSILON, "runs": runs, "table3": rows}


def markdown(report: dict[str, Any]) -> str:
    """The tables of docs/wang2018.md."""
    lines = heading("table", "n", "d", *_COLUMNS)
    lines += [
        row(r["table"], f"{r['n']:,}", str(r["d"]), *(_cell(r["methods"][m]) for m in _COLUMNS))
        for r in report["table3"]
    ]
    lines += ["", *heading("table", "method", "ours", "published", "runs inside", "his code", "its runs inside")]
    for r in report["table3"]:
        for name in _COLUMNS:
            cell = r["methods"][name]
            if not cell.get("inside", True):
                theirs, variant = cell["published"], r["methods"].get(f"{name}, his code")
                spread = f"{theirs['mse']:.3g} ± {theirs['sd']:.2g}"
                his = ("", "") if variant is None else (f"{variant['mse']:.3g}", f"{variant['runs_inside']:.0%}")
                lines.append(row(r["table"], name, f"{cell['mse']:.3g}", spread, f"{cell['runs_inside']:.0%}", *his))
    compared = [c for r in report["table3"] for n, c in r["methods"].items() if n in _COLUMNS and "inside" in c]
    lines.append(
        f"\n{sum(c['inside'] for c in compared)} of {len(compared)} cells are inside ± 3 published deviations.\n"
    )
    lines += [*variants(report["table3"]), "", *_published_spread(report["table3"]), ""]
    heads = list(report["efficiency"][0]["mean_squared_error"])
    lines += heading("n", *heads)
    for cell in report["efficiency"]:
        errors = cell["mean_squared_error"]
        ratios = (f"{errors[name] / errors['OLS']:.3g}" for name in heads[1:])
        lines.append(row(f"{cell['n']:,}", f"{errors['OLS']:.3g}", *ratios))
    return "\n".join([*lines, "", *rate_table(report["bounds"])])


def variants(rows: list[dict[str, Any]]) -> list[str]:
    """How well a method, as printed and as his code has it, meets its published column.

    The sign test's p: how likely published values are at least as unevenly above and below our medians, if each may
    fall on either side.
    """
    lines = heading(
        "variant", "inside ± 3", "between our least and most run", "we are above", "sign test", "outside ± 3"
    )
    for name in _COMPARED:
        cells = {r["table"]: r["methods"][name] for r in rows if "published" in r["methods"].get(name, {})}
        outside = [table for table, cell in cells.items() if not cell["inside"]]
        between = sum(c["least"] <= c["published"]["mse"] <= c["most"] for c in cells.values())
        above = sum(c["mse"] > c["published"]["mse"] for c in cells.values())
        p = f"{binomtest(above, len(cells)).pvalue:.2g}" if cells else ""
        inside = f"{len(cells) - len(outside)} of {len(cells)}"
        if cells or name in rows[0]["methods"]:
            lines.append(row(name, inside, str(between), str(above), p, ", ".join(outside)))
    return lines


def _published_spread(rows: list[dict[str, Any]]) -> list[str]:
    """What the published ± is made of."""
    fixed = [r["methods"][name] for r in rows for name in FIXED if "published" in r["methods"][name]]
    # summary's deviation divides by ten folds, Matlab's by nine
    ratios = [c["published"]["sd"] / (c["sd"] * sqrt(FOLDS / (FOLDS - 1))) for c in fixed]
    if not ratios:
        return []
    spread = f"{np.median(ratios):.3f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return [f"Published ± over our deviation over folds, trivial and non-private: median {spread}."]


def _cell(found: dict[str, Any]) -> str:
    ours = f"{found['mse']:.3g}"
    theirs = found.get("published")
    return ours if theirs is None else f"{ours} / {theirs['mse']:.3g}{'' if found['inside'] else ' **!**'}"


def draw(report: dict[str, Any], folder: Path) -> None:
    """The two figures."""
    panels = []
    for found in report["over_epsilon"]:
        lines = {m: [(c["epsilon"], c["mse"][m]) for c in found["cells"]] for m in _COLUMNS}
        least = min(y for _, y in lines["non_private"])
        most = 30 * max(y for _, y in lines["trivial"])
        private = {m: lines[m] for m in (*PRIVATE, *DEFAULTS)}
        fixed = {m: lines[m] for m in FIXED}
        panels.append(Panel(found["table"], "ε", "test MSE", private, fixed, y_limits=(0.7 * least, most)))
    draw_panels(folder / "wang2018_epsilon.png", panels)
    errors = [(c["n"], c["mean_squared_error"]) for c in report["efficiency"]]
    heads = [name for name in errors[0][1] if name != "OLS"]
    both = [
        Panel(
            "Squared error of the coefficients",
            "rows n",
            "mean of ‖θ-θ₀‖²",
            {h: [(n, e[h]) for n, e in errors] for h in heads},
            {"least squares": [(n, e["OLS"]) for n, e in errors]},
        ),
        Panel(
            "The same over that of least squares",
            "rows n",
            "ratio",
            {h: [(n, e[h] / e["OLS"]) for n, e in errors] for h in heads},
            {"least squares": [(n, 1.0) for n, _ in errors]},
        ),
    ]
    draw_panels(folder / "wang2018_efficiency.png", both)
    draw_regions(folder / "wang2018_regions.png")


@click.command()
@click.option(
    "--his-code", is_flag=True, help="AdaSSP and AdaOPS of Table 3 only, as printed and as his code has them."
)
@options("One table and few runs, for CI.")
def main(*, his_code: bool, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Run the experiments and print their tables."""
    if not names(data):
        print(f"The tables of the paper are not in {data}: a made-up one instead.")
    report = run_headline(quick=quick, data=data) if his_code else run(quick=quick, data=data)
    lines = variants(report["table3"]) if his_code else [markdown(report)]
    print("\n".join([WARNING, "", *lines]))
    write_json(report, json_file)
    if pictures is not None and not his_code:
        draw(report, pictures)


if __name__ == "__main__":
    main()
