"""Forecasts from small public samples beside what releases then give: is the range as wide as it says?

python -m benchmarks.planning_samples [--quick] [--data DIR] [--json FILE]

Of each table 50, 100 or 300 rows are drawn to be public, ten times; ten releases of the whole table are fitted with
`shrunken`, as in benchmarks/planning.py. Counted is how often their mean R^2 and the R^2 of single releases
lie in the range, and how far forecasts are off, with the rows' number and with their moments taken as exact.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.planning import Case, Kind, real, releases, synthetic, with_planned_k
from benchmarks.reporting import heading, row, write_json
from benchmarks.tables import DATA
from commingle.services.fit import FitRequest, fit_prepared
from commingle.services.planning.public_table import second_moments
from commingle.shared.forecast.forecast import question_of, range_of
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.planning.design import design_of
from commingle.shared.planning.task import Assumptions, RegressionTask, task_of

PUBLIC_ROWS = (50, 100, 300)
DESIGNS: tuple[tuple[Kind, float], ...] = (("moments", 1.0), ("rmgm", 3.0))
TABLES = ("airfoil", "insurance_numeric", "winequality_white", "bike_hour", "skillcraft", "nhanes_bp")
_SAMPLES, _RELEASES = 10, 10


def realised(case: Case, mechanism: Kind, epsilon: float, *, repeats: int) -> list[float]:
    """R^2 of `shrunken` on the whole table, one for each release."""
    asked = with_planned_k(case, case.study(mechanism, epsilon))
    design = design_of(asked)
    whole = Assumptions(target=case.target, second_moments=case.moments, public_rows=design.n)
    truth = task_of(design, whole)
    place = [a.name for a in design.attributes for _ in a.columns].index(case.target) + 1
    mean_y, found = float(case.rows[:, truth.y].mean()), []
    for prepared in releases(case, asked, repeats):
        fit = fit_prepared(prepared, FitRequest(target=case.target, estimator="shrunken"))
        found.append(_explained(truth, fit.coefficients, float(prepared.offset[place]), mean_y))
    return found


def _explained(truth: RegressionTask, coefficients: Any, offset: float, mean_y: float) -> float:  # noqa: ANN401 - array
    slopes = coefficients[1:] * truth.scale / truth.unit
    level = (float(coefficients[0]) - offset) / truth.unit + float(slopes @ (truth.offset / truth.scale))
    gap, bias = slopes - truth.b, level + float(slopes @ truth.mean) - mean_y
    return 1 - (truth.residual + float(gap @ truth.xx @ gap) + bias**2) / truth.yy


def measure(case: Case, mechanism: Kind, epsilon: float, *, samples: int, repeats: int) -> list[dict[str, Any]]:
    """One record for each number of public rows."""
    single = np.array(realised(case, mechanism, epsilon, repeats=repeats))
    design = design_of(with_planned_k(case, case.study(mechanism, epsilon)))
    planner, found = mechanism_of(design).planner, []
    everybody = Assumptions(target=case.target, second_moments=case.moments, public_rows=len(case.rows))
    whole = planner.predict(design, task_of(design, everybody)).r_squared
    for rows in PUBLIC_ROWS:
        likely, exact, ranges = [], [], []
        for number in range(samples):
            draw = np.random.default_rng([rows, number])
            public = case.rows[draw.choice(len(case.rows), rows, replace=False)]
            moments = second_moments(public, design.shares)
            assumed = Assumptions(target=case.target, second_moments=moments, public_rows=rows)
            question = question_of(design, assumed)
            likely.append(planner.predict(design, question.expected).r_squared)
            ranges.append(range_of(design, question, likely[-1]))
            exact.append(planner.predict(design, task_of(design, assumed)).r_squared)
        low, high = np.array(ranges).T
        found.append(
            {
                "table": case.name,
                "mechanism": mechanism,
                "epsilon": epsilon,
                "public_rows": rows,
                "realised": float(single.mean()),
                "whole": whole,
                "whole_within": float(np.mean((low <= whole) & (whole <= high))),
                "forecast": float(np.mean(likely)),
                "exact": float(np.mean(exact)),
                "within": float(np.mean((low <= single.mean()) & (single.mean() <= high))),
                "below": float(np.mean(single.mean() < low)),
                "releases_within": float(np.mean((low[:, None] <= single) & (single <= high[:, None]))),
                "width": float(np.mean(high - low)),
                "low": float(np.median(low)),
                "high": float(np.median(high)),
            }
        )
    return found


def markdown(records: Sequence[dict[str, Any]]) -> str:
    """The tables of docs/planning.md."""
    lines = heading(
        "table", "release", "public rows", "R², taken as exact", "forecast", "range", "realised", "in range"
    )
    for r in records:
        between = f"{r['low']:.2f} to {r['high']:.2f}"
        figures = (f"{r['exact']:.2f}", f"{r['forecast']:.2f}", between, f"{r['realised']:.2f}", f"{r['within']:.0%}")
        lines.append(row(r["table"], f"{r['mechanism']}, ε = {r['epsilon']:g}", str(r["public_rows"]), *figures))
    heads = (
        "realised in range",
        "below it",
        "whole table's forecast in range",
        "single releases in range",
        "off",
        "as exact",
    )
    lines += ["", *heading("release", "public rows", *heads)]
    for mechanism, rows in dict.fromkeys((r["mechanism"], r["public_rows"]) for r in records):
        chosen = [r for r in records if (r["mechanism"], r["public_rows"]) == (mechanism, rows)]
        shares = [np.mean([r[key] for r in chosen]) for key in ("within", "below", "whole_within", "releases_within")]
        off = [np.mean([r[key] - r["realised"] for r in chosen]) for key in ("forecast", "exact")]
        lines.append(row(mechanism, str(rows), *(f"{v:.0%}" for v in shares), *(f"{v:+.3f}" for v in off)))
    return "\n".join(lines)


@click.command()
@click.option("--quick", is_flag=True, help="One small made-up table, for CI.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Folder of the real tables.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Print how often ranges hold."""
    makers: list[Callable[[], Case]] = [partial(synthetic, 20_000, 6, seed=0)]
    if not quick:
        makers += [partial(synthetic, 50_000, 16, seed=0), *(partial(real, name, data) for name in TABLES)]
    samples, repeats = (10, 5) if quick else (_SAMPLES, _RELEASES)
    records = [
        record
        for make in makers
        for case in [make()]
        for mechanism, epsilon in DESIGNS
        for record in measure(case, mechanism, epsilon, samples=samples, repeats=repeats)
    ]
    print(markdown(records))
    write_json(
        {"benchmark": "planning_samples", "samples": samples, "releases": repeats, "results": records}, json_file
    )


if __name__ == "__main__":
    main()
