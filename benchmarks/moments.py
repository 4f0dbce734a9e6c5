"""Moments releases on real tables: test R^2 beside rmgm and least squares, coverage, gains of a row norm.

python -m benchmarks.moments [--quick] [--data DIR] [--out DIR]

Three parties, epsilon = 1 per party, delta = 1e-5, replace_one, zcdp; the split of `datasets.json`. Releases are drawn
from their law, not run through the protocol. Writes a page, its figures and a picture (moments.*) to --out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.moments_noise import Array, clipped, entry_variance, moments_release, rmgm_release
from benchmarks.moments_picture import draw
from benchmarks.tables import DATA, entry
from commingle.services.fit import Fit, FitRequest, PreparedMoments, fit_prepared
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.evaluate import Reference, reference
from commingle.services.simulation.preparing import Wanted, prepare
from commingle.shared.encoding import encode_conforming
from commingle.shared.estimation.errors import EstimationError

_PRIVACY = {"epsilon": 1.0, "delta": 1e-5}
_MOMENTS = ("adaptive_ridge", "shrunken", "ols", "constant")
_RMGM = ("ols", "adaptive_ridge", "shrunken", "constant")
_GOALS = {"bike_hour": 0.33, "diabetes130": 0.25, "gpu_sgemm": None, "winequality_white": 0.09}
_GPU_MARGIN = 0.007  # its goal is least squares less this
_NARROW = {  # questions with few features, whose intervals are of use
    "bike_hour": ("yr", "hr", "temp", "hum"),
    "diabetes130": ("age_mid", "num_lab_procedures", "num_procedures", "number_diagnoses", "num_medications"),
    "gpu_sgemm": ("MWG", "NWG", "MDIMC", "NDIMC", "SA", "SB"),
    "winequality_white": ("alcohol", "pH"),
}
_ROW_NORMS = (None, 0.7, 0.5, 0.3, 0.15)  # C^2 over its largest


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One table, divided: encoded training rows (n, p) with the intercept first, and what fits are judged by."""

    name: str
    dataset: StudyTable
    rows: Array
    judge: Reference


def load(name: str, data: Path) -> Case:
    """A table of the manifest; features in order, as evenly as possible over three parties."""
    about = entry(data, name)
    features = tuple(about["feature_columns"])
    dataset = prepare(Wanted(table=data / about["file"], target=about["target_column"], parties=3, features=features))
    training, held_out = (dataset.table.rows(rows) for rows in holdout(dataset.table.n, seed=0))
    encoded = [encode_conforming(a, training.columns[a.name]).exact for a in dataset.attributes]
    rows = np.column_stack([np.ones(training.n), *encoded])
    return Case(name, dataset, rows, reference(dataset, training, held_out))


def _fit(case: Case, release: PreparedMoments, estimator: str, features: tuple[str, ...] | None = None) -> Fit:
    return fit_prepared(release, FitRequest(target=case.dataset.target, features=features, estimator=estimator))


def _r2(case: Case, release: PreparedMoments, estimator: str) -> float:
    try:
        fitted = _fit(case, release, estimator)
    except EstimationError:
        return float("nan")
    found = dict(zip(fitted.terms, fitted.coefficients.tolist(), strict=True))
    return case.judge.score(found).test_r2 or 0.0


def _summary(values: Sequence[float]) -> dict[str, float]:
    return {"mean": float(np.mean(values)), "min": float(np.min(values)), "max": float(np.max(values))}


def of_moments(
    case: Case, estimators: Sequence[str], *, row_norm: float | None = None, runs: int
) -> dict[str, dict[str, float]]:
    """Test R^2 by estimator; the same noise directions for every row norm."""
    rows = clipped(case.rows, case.dataset.parties, row_norm)
    S, variance = rows.T @ rows, entry_variance(case.dataset.parties, row_norm=row_norm, **_PRIVACY)
    random = np.random.default_rng(1)
    releases = [moments_release(S, variance, case.dataset.attributes, random) for _ in range(runs)]
    return {name: _summary([_r2(case, r, name) for r in releases]) for name in estimators}


def of_rmgm(case: Case, *, runs: int) -> dict[str, dict[str, float]]:
    """The same for rmgm, each estimator with the k that suits it best afterwards."""
    n, p = case.rows.shape
    S = case.rows.T @ case.rows
    best: dict[str, dict[str, float]] = {}
    for k in sorted({3 * p, 100, 300, 1000, round(n ** (2 / 3))}):
        random = np.random.default_rng(2)
        releases = [rmgm_release(S, case.dataset.parties, k, random, **_PRIVACY) for _ in range(runs)]
        for name in _RMGM:
            found = {"k": k, **_summary([_r2(case, r, name) for r in releases])}
            best[name] = max(best.get(name, found), found, key=lambda one: one["mean"])
    return best


def coverage(case: Case, features: tuple[str, ...] | None, *, runs: int) -> dict[str, float | None]:
    """How often 95 % intervals of `ols` hold the coefficients of least squares on the private table."""
    S, attributes = case.rows.T @ case.rows, case.dataset.attributes
    variance = entry_variance(case.dataset.parties, **_PRIVACY)
    random = np.random.default_rng(3)
    truth = _fit(case, moments_release(S, np.zeros_like(S), attributes, random), "ols", features).coefficients
    held, ratios = [], []
    for _ in range(runs):
        fitted = _fit(case, moments_release(S, variance, attributes, random), "ols", features)
        ratios.append(fitted.diagnostics.signal_to_noise or 0.0)
        if fitted.interval_for != "none":
            low, high = fitted.intervals.T
            held.append(np.mean((low < truth) & (truth < high)))
    return {
        "features": len(truth) - 1,
        "covered": float(np.mean(held)) if held else None,
        "given": len(held) / runs,
        "signal_to_noise": float(np.median(ratios)),
    }


def measure(case: Case, *, runs: int, coverage_runs: int) -> dict[str, Any]:
    """Everything about one table."""
    ols = case.judge.score(case.judge.coefficients).test_r2 or 0.0
    goal = _GOALS[case.name]
    estimators = ("adaptive_ridge", "shrunken")
    return {
        "n": len(case.rows),
        "features": case.rows.shape[1] - 2,
        "ols_test_r2": ols,
        "goal": ols - _GPU_MARGIN if goal is None else goal,
        "moments": of_moments(case, _MOMENTS, runs=runs),
        "rmgm": of_rmgm(case, runs=runs),
        "coverage": {
            "all": coverage(case, None, runs=coverage_runs),
            "few": coverage(case, _NARROW[case.name], runs=coverage_runs),
        },
        "row_norm": [
            {"row_norm": norm, **of_moments(case, estimators, row_norm=norm, runs=runs)} for norm in _ROW_NORMS
        ],
    }


def markdown(results: dict[str, dict[str, Any]], *, runs: int) -> str:
    """Three tables."""
    lines = [
        f"Test R^2, mean of {runs} releases (least of them in brackets); rmgm with the best k for each estimator.",
        "",
        "| table (n, features) | goal | least squares | " + " | ".join(f"moments `{e}`" for e in _MOMENTS) + " | "
        "" + " | ".join(f"rmgm `{e}`" for e in _RMGM) + " |",
        "|---" * (3 + len(_MOMENTS) + len(_RMGM)) + "|",
    ]
    for name, r in results.items():
        cells = [f"{r[kind][e]['mean']:.3f} ({r[kind][e]['min']:.3f})" for kind, e in _columns()]
        head = f"| {name} ({r['n']:,}, {r['features']}) | {r['goal']:.3f} | {r['ols_test_r2']:.3f} | "
        lines.append(head + " | ".join(cells) + " |")
    lines += ["", "Coverage of 95 % intervals of `ols` around least squares on the private table.", ""]
    lines += ["| table | features | lambda_min / t, median | intervals given | covered |", "|---|---|---|---|---|"]
    for name, r in results.items():
        for c in r["coverage"].values():
            covered = "-" if c["covered"] is None else f"{c['covered']:.3f}"
            lines.append(f"| {name} | {c['features']} | {c['signal_to_noise']:.2g} | {c['given']:.0%} | {covered} |")
    lines += ["", "Test R^2 of `adaptive_ridge` / `shrunken` by row norm.", ""]
    lines += ["| C^2 over its largest | " + " | ".join(results) + " |", "|---|" + "---|" * len(results)]
    for rows in zip(*(r["row_norm"] for r in results.values()), strict=True):
        cells = [f"{row['adaptive_ridge']['mean']:.3f} / {row['shrunken']['mean']:.3f}" for row in rows]
        share = "1 (none)" if rows[0]["row_norm"] is None else f"{rows[0]['row_norm']:g}"
        lines.append(f"| {share} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _columns() -> list[tuple[str, str]]:
    return [*(("moments", e) for e in _MOMENTS), *(("rmgm", e) for e in _RMGM)]


@click.command()
@click.option("--quick", is_flag=True, help="The smallest table and few runs, for CI.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where to write the files.")
def main(*, quick: bool, data: Path, out: Path | None) -> None:
    """Print the tables and, if asked, write the files."""
    names = ("winequality_white",) if quick else tuple(_GOALS)
    runs = 3 if quick else 20
    results = {name: measure(load(name, data), runs=runs, coverage_runs=5 * runs) for name in names}
    text = markdown(results, runs=runs)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "moments.json").write_text(json.dumps({"runs": runs, **_PRIVACY, "tables": results}, indent=1))
        (out / "moments.md").write_text(text)
        draw(out / "moments.png", results)


if __name__ == "__main__":
    main()
