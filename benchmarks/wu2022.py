"""Wu et al. 2022, Differentially Private Multi-Party Data Release for Linear Regression: their experiments and ours.

python -m benchmarks.wu2022 [--quick] [--data DIR] [--json FILE] [--pictures DIR]

Releases are drawn from the law of their second moments (release_law.py), which is compared here with releases that the
product's own code makes. Fits of Commingle are the product's. The real tables are left out where they are not at hand.
Output is Markdown. The full run takes some minutes on one core.
"""

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy.stats import spearmanr

from benchmarks import wu2022_real
from benchmarks.release_law import drawn_moments, exact_moments, private_moments
from benchmarks.reporting import heading, options, row, write_json
from benchmarks.wu2022_methods import DELTA
from benchmarks.wu2022_pictures import draw_eigenvalues, draw_synthetic
from benchmarks.wu2022_rates import LARGE, rates
from benchmarks.wu2022_rates import markdown as rate_table
from benchmarks.wu2022_synthetic import cells, eigenvalues, example, our_weights
from commingle.shared.dp.noise import rounded_gaussian

EPSILONS = (0.1, 0.3, 1.0, 3.0)
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_SYNTHETIC = (
    "BGM-OLS",
    "DGM-OLS",
    "RMGM-OLS k=sqrt(n)/sigma",
    "RMGM-OLS k=10 sqrt(n)/sigma",
    "RMGM-OLS k=n^(2/3)",
    "RMGM-OLS best k",
    "Commingle measurement_error",
    "Commingle shrunken",
    "Commingle moments",
)
_REAL = (
    "OLS",
    "constant",
    "BGM-OLS",
    "DGM-OLS",
    "RMGM-OLS k=n^(2/3)",
    "RMGM-OLS best k",
    "Commingle constant",
    "Commingle shrunken",
    "Commingle moments",
)
_SHOWN = ("bike_hour", "gpu_sgemm")  # figure 3b: the largest of the paper's tables that are whole


def law_check(n: int, epsilon: float, *, releases: int) -> dict[str, Any]:
    """Mean ||w_hat - w|| over real releases of one table, and over as many drawn from their law."""
    spec, table, blocks = example(n, epsilon)
    S, draw = private_moments(blocks), np.random.default_rng([n, 5])
    report: dict[str, Any] = {"n": n, "epsilon": epsilon, "k": spec.k, "releases": releases}
    for kind in ("exact", "law"):
        errors = []
        for _ in range(releases):
            seeded = spec.model_copy(update={"seed": draw.bytes(32).hex()})
            exact = kind == "exact"
            made = exact_moments(seeded, blocks, rounded_gaussian) if exact else drawn_moments(spec, S, draw)
            fits = our_weights(spec, made).values()
            errors.append([float(np.linalg.norm(found - table.weights)) for found in fits])
        mean, deviation = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1)
        report[kind] = {"mean": mean.tolist(), "standard_error": (deviation / sqrt(releases)).tolist()}
    return report


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    sizes, trials, seeds = ((1_000, 10_000), 5, 2) if quick else (SIZES, 100, 100)
    synthetic = [cell for n in sizes for cell in cells(n, EPSILONS, trials=trials)]
    scatter_n = 10_000 if quick else 1_000_000
    return {
        "benchmark": "wu2022",
        "delta": DELTA,
        "trials": trials,
        "seeds": seeds,
        "synthetic": synthetic,
        "eigenvalues": {"n": scatter_n, "epsilon": 1.0, "points": eigenvalues(scatter_n, 1.0, trials=4 * trials)},
        "rates": rates(LARGE[::4] if quick else LARGE, 1.0, trials=5 if quick else 50),
        "eigenvalues_real": {
            name: wu2022_real.eigenvalues(wu2022_real.load(data, name), name, 1.0, trials=4 * trials)
            for name in _SHOWN
            if data.is_dir() and not quick
        },
        "law_check": law_check(2_000, 10.0, releases=4) if quick else law_check(20_000, 10.0, releases=500),
        "real": [
            wu2022_real.measure(wu2022_real.load(data, name), name, seeds=seeds)
            for name in ("insurance_numeric",) * quick or tuple(wu2022_real.TABLES)
            if data.is_dir()
        ],
    }


def markdown(report: dict[str, Any]) -> str:
    """The tables of docs/wu2022.md."""
    lines = ["### Synthetic: mean error ‖ŵ-w‖", "", *heading("n", "ε", "‖w‖", *_SYNTHETIC, "best k", "planned k")]
    for cell in report["synthetic"]:
        found = cell["methods"]
        means = [f"{found[name]['mean']:.3g}" for name in _SYNTHETIC]
        ks = (str(found["RMGM-OLS best k"]["k"]), str(cell["commingle_k"]))
        lines.append(row(f"{cell['n']:,}", f"{cell['epsilon']:g}", f"{cell['norm_of_w']:.3f}", *means, *ks))
    lines += [
        "",
        "### Real tables: mean test MSE, in thousandths",
        "",
        *heading("table", "n", "ε", *_REAL, "best k", "planned k"),
    ]
    for table in report["real"]:
        for cell in table["cells"]:
            found = cell["methods"]
            means = [f"{1000 * found[name]['mean']:.3g}" for name in _REAL]
            ks = (str(found["RMGM-OLS best k"]["k"]), str(cell["commingle_k"]))
            lines.append(row(table["table"], f"{table['n']:,}", f"{cell['epsilon']:g}", *means, *ks))
    if not report["real"]:
        lines.append("\nThe real tables are not at hand: left out.")
    lines += ["", "### Rates: median error, and the exponent since the row before", "", *rate_table(report["rates"])]
    for name, points in report["eigenvalues_real"].items():
        lines += ["", f"Figure 3b, {name}: {spread(points)}"]
    check = report["law_check"]
    lines += ["", f"Law of the release against {check['releases']} releases made, n = {check['n']}, k = {check['k']}:"]
    for kind in ("exact", "law"):
        pairs = zip(check[kind]["mean"], check[kind]["standard_error"], strict=True)
        lines.append(f"* {kind}: " + ", ".join(f"{mean:.4f} ± {error:.4f}" for mean, error in pairs))
    return "\n".join(lines)


def spread(points: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Rank correlation of error and smallest eigenvalue, and what both methods' errors and eigenvalues are."""
    said = []
    for method, found in points.items():
        least, error = np.array(found).T
        middle = f"median error {np.median(error):.3g}, smallest |eigenvalue| {np.median(least):.3g}"
        said.append(f"{method} {middle} (least {least.min():.2g}), rank correlation {spearmanr(least, error)[0]:.2f}")
    return "; ".join(said)


@click.command()
@options("Small sizes, for CI.")
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Run the experiments and print their tables."""
    report = run(quick=quick, data=data)
    print(markdown(report))
    write_json(report, json_file)
    if pictures is not None:
        draw_synthetic(pictures / "wu2022_synthetic.png", report["synthetic"])
        shown = report["eigenvalues"]
        title = f"{len(shown['points']['DGM-OLS'])} releases of one table, n = {shown['n']:,}, ε = {shown['epsilon']:g}"
        real = report["eigenvalues_real"]
        draw_eigenvalues(pictures / "wu2022_eigenvalues.png", {title: shown["points"], **real})


if __name__ == "__main__":
    main()
