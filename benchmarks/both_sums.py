"""AdaSSP with X^T X and X^T y measured one beside the other, as its paper does, and at once, as the product does.

python -m benchmarks.both_sums [--quick] [--data DIR] [--json FILE]

Rows, public tenth, tested tenth and tables as in benchmarks.regression_choice; replace_one, zCDP noise. Errors are test
MSE over that of AdaSSP in thirds in the same run: geometric means over tables and runs. The weight of X^T y was chosen
on the tuning tables. Output is Markdown.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import log, sqrt
from pathlib import Path

import click
import numpy as np

from benchmarks.methods.in_parts import ADASSP_PARTS, IN_PARTS, cross_sensitivity, gram_sensitivity
from benchmarks.regression_choice import REPORTING, TUNING, split_rows
from benchmarks.reporting import heading, row, write_json
from benchmarks.tables import DATA, columns, entries
from commingle.party_agent.private.regression.calibration import Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.measuring import FloatingPoint, Measure
from commingle.party_agent.private.regression.posterior import noisy_floor
from commingle.party_agent.private.regression.problem import Floats, Neighbours, Sample, clip_sample
from commingle.party_agent.private.regression.sufficient import adassp, boosted_adassp, ridge_of
from commingle.party_agent.private.regression.sums import cross_weight, solve

EPSILONS = (0.1, 0.3, 1.0, 3.0)
_DELTA = 1e-6
_FAILURE = 0.05
Fit = Callable[[Sample, Privacy, Measure], Floats]


def in_shares(sample: Sample, privacy: Privacy, measure: Measure, *, shares: tuple[float, float, float]) -> Floats:
    """AdaSSP with shares of rho for lambda_min, X^T X and X^T y, and half the variance beside the diagonal."""
    whole, d = gaussian_multiplier(privacy, 1), sample.d
    least, gram, cross = (whole / sqrt(share) for share in shares)
    floor = noisy_floor(sample, measure, multiplier=least, tail=sqrt(2 * log(1.25 * ADASSP_PARTS / privacy.delta)))
    far = gram_sensitivity(sample, privacy)
    ridge = max(0.0, gram * far * sqrt(d * log(2 * d**2 / _FAILURE)) - floor)
    system = measure.measure(sample.x.T @ sample.x, sensitivity=far, multiplier=gram, symmetric=True)
    right = measure.measure(sample.x.T @ sample.y, sensitivity=cross_sensitivity(sample, privacy), multiplier=cross)
    return solve(system + ridge * np.eye(d), right)


def at_once(sample: Sample, privacy: Privacy, measure: Measure, *, weight: float) -> Floats:
    """AdaSSP of the product with another weight k of X^T y: sensitivity sqrt(2) (1 + k/2) C^2 for k <= 2."""
    s, far = gaussian_multiplier(privacy, 1), sqrt(2) * (1 + weight / 2) * sample.row_bound**2
    parts = measure.begin(sensitivity=far, multiplier=s, entries=sample.d * (sample.d + 1))
    gram = parts.part(sample.x.T @ sample.x, symmetric=True)
    cross = parts.part(sample.x.T @ sample.y, weight=weight * cross_weight(sample.row_bound, sample.label_bound))
    return solve(gram + ridge_of(gram, s * far) * np.eye(sample.d), cross)


def _thirds(sample: Sample, privacy: Privacy, measure: Measure) -> Floats:
    return IN_PARTS["adassp"].run(sample, privacy, measure).coefficients


FITS: Mapping[str, Fit] = {
    "thirds": _thirds,
    "thirds, half beside the diagonal": partial(in_shares, shares=(1 / 3, 1 / 3, 1 / 3)),
    "8/52/40, half beside the diagonal": partial(in_shares, shares=(0.08, 0.52, 0.40)),
    **{f"at once, k = {k:g}": partial(at_once, weight=k) for k in (0.25, 0.5, 1.0, 2.0)},
    "AdaSSP of the product": lambda *asked: adassp(*asked).coefficients,
    "BoostedAdaSSP of the product": lambda *asked: boosted_adassp(*asked).coefficients,
}


def errors(table: tuple[Floats, Floats], epsilon: float, *, runs: int) -> dict[str, list[float]]:
    """Test MSE of every method, one per run; each tests another tenth."""
    privacy, found = Privacy(epsilon, _DELTA, Neighbours.REPLACE_ONE), {name: list[float]() for name in FITS}
    for run in range(runs):
        rows = split_rows(*table, tested=1 + run % 9)
        sample = clip_sample(rows.x, rows.y, row_bound=sqrt(rows.x.shape[1]), label_bound=1.0)
        for name, fit in FITS.items():
            theta = fit(sample, privacy, FloatingPoint(np.random.default_rng(run)))
            found[name].append(float(np.mean((rows.tested_y - rows.tested_x @ theta) ** 2)))
    return found


def over_thirds(tables: Mapping[str, tuple[Floats, Floats]], *, runs: int) -> dict[str, dict[str, float]]:
    """Per method and epsilon, and over all, the geometric mean of its error over that of thirds."""
    logs: dict[str, dict[str, list[float]]] = {name: {} for name in FITS}
    for table in tables.values():
        for epsilon in EPSILONS:
            found = errors(table, epsilon, runs=runs)
            for name, values in found.items():
                moved = float(np.mean(np.log(values) - np.log(found["thirds"])))
                logs[name].setdefault(f"{epsilon:g}", []).append(moved)
                logs[name].setdefault("all", []).append(moved)
    return {name: {e: float(np.exp(np.mean(v))) for e, v in by.items()} for name, by in logs.items()}


@click.command()
@click.option("--quick", is_flag=True, help="One table and two runs, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Print a table for the tuning tables and one for the others."""
    at_hand = {entry["name"] for entry in entries(data)}
    report = {}
    for title, names in {"tuning": TUNING[: 1 if quick else None], "reporting": () if quick else REPORTING}.items():
        tables = {name: columns(data, name) for name in names if name in at_hand}
        if tables:
            report[title] = over_thirds(tables, runs=2 if quick else 9)
            print("\n".join(heading(f"{title} tables", *(f"ε = {e:g}" for e in EPSILONS), "all")))
            for name, by in report[title].items():
                print(row(name, *(f"{value:.3f}" for e, value in by.items() if e != "all"), f"{by['all']:.3f}"))
            print()
    write_json({"benchmark": "both_sums", **report}, json_file)


if __name__ == "__main__":
    main()
