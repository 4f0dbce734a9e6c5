"""How often the 95 % intervals of `measurement_error` hold the coefficients they are for, and how often fits warn.

python -m benchmarks.coverage [--quick] [--data DIR] [--json FILE]

Releases are drawn from the law of their second moments (release_law.py); one real table is also released for real, by
the product's own code. Synthetic tables: ten correlated features and a label with R^2 about one half, three parties of
4, 4 and 3 columns, normal rows; a new table for every release, so that one release serves the intervals for the table
and those for the population. Real tables: three parties, planned k, intervals for the table.

Coverage is the share of slopes that are in their intervals: `mean` over slopes, `least` of one slope. Where fits of a
setting warn in part, `silent` is the coverage of those that do not.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np

from benchmarks.release_law import (
    Array,
    dgm_gram,
    drawn_moments,
    exact_moments,
    integer_rows,
    private_moments,
    rmgm_gram,
    wishart,
)
from benchmarks.tables import DATA
from benchmarks.wu2022_real import load, party_sizes, release_spec
from commingle.services.fit import Fit, FitRequest, PreparedMoments, fit_prepared
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.noise import Sampler, rounded_gaussian

Mechanism = Literal["rmgm", "dgm"]
IntervalFor = Literal["table", "population"]
SIZES = (4, 4, 3)
FEATURES = 10
SCHEMA = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(FEATURES + 1))
TARGET = SCHEMA[-1].name
_REAL: tuple[tuple[Mechanism, float], ...] = (("rmgm", 3.0), ("rmgm", 10.0), ("rmgm", 100.0), ("dgm", 100.0))
_TABLES = ("bike_hour", "gpu_sgemm", "diabetes130", "nhanes_bp")
_CHECKED = "bike_hour", ("rmgm", 100.0)  # the release that is also made for real


@dataclass(frozen=True, slots=True)
class Setting:
    """n subjects and noise of `multiplier` times a party's sensitivity 2 sqrt(d_j); k is None for dgm."""

    n: int
    k: int | None
    multiplier: float


# multipliers 1.39 and 3.73: the exact Gaussian at epsilon 3 and 1, delta 1e-5; dgm needs weaker privacy for any signal
SETTINGS = (
    Setting(50_000, 100, 1.39),
    Setting(200_000, 100, 1.39),
    Setting(200_000, 300, 1.39),
    Setting(1_000_000, 300, 1.39),
    Setting(1_000_000, 1_000, 1.39),
    Setting(200_000, 300, 3.73),
    Setting(1_000_000, 300, 3.73),
    Setting(1_000_000, 1_000, 3.73),
    Setting(1_000_000, 3_000, 3.73),
    Setting(50_000, None, 0.05),
    Setting(50_000, None, 0.1),
    Setting(50_000, None, 0.2),
    Setting(1_000_000, None, 0.1),
    Setting(1_000_000, None, 0.3),
    Setting(1_000_000, None, 1.0),
)


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One fit and the slopes its intervals are to hold, (q,)."""

    fit: Fit
    truth: Array

    @property
    def held(self) -> Array:
        """(q,) whether each slope is in its interval."""
        low, high = self.fit.intervals[1:].T
        return np.asarray((low <= self.truth) & (self.truth <= high), dtype=np.float64)


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """Coverage over all trials and over those that do not warn, the share that warns, and l."""
    held = np.array([trial.held for trial in trials])
    silent = np.array([not trial.fit.warnings for trial in trials])
    roots = [trial.fit.diagnostics.root or np.inf for trial in trials]
    features = [trial.fit.diagnostics.feature_root or np.inf for trial in trials]
    return {
        "releases": len(trials),
        "mean": float(held.mean()),
        "least": float(held.mean(axis=0).min()),
        "warned": float(1 - silent.mean()),
        "silent_mean": float(held[silent].mean()) if silent.any() else None,
        "silent_least": float(held[silent].mean(axis=0).min()) if silent.any() else None,
        "root": float(np.mean(roots)),
        "feature_root": float(np.mean(features)),
    }


def population() -> tuple[Array, Array, Array]:
    """Mean (11,) and covariance (11, 11) of a row, and the slopes (10,): correlations 0.5^|i-j|, variance 0.1."""
    places = np.arange(FEATURES)
    x = 0.1 * 0.5 ** np.abs(places[:, None] - places)
    b = np.array([0.5, -0.4, 0.3, 0.0, 0.2, -0.2, 0.1, 0.4, -0.3, 0.0])
    xy = x @ b
    return np.full(FEATURES + 1, 0.2), np.block([[x, xy[:, None]], [xy[None], np.array([[2 * b @ xy]])]]), b


def table_moments(n: int, draw: np.random.Generator) -> Array:
    """S, (12, 12), of n normal rows behind the intercept."""
    mean, covariance, _ = population()
    centre = mean + np.linalg.cholesky(covariance) @ draw.normal(size=len(mean)) / np.sqrt(n)
    scatter = wishart(covariance, n - 1, draw) + n * np.outer(centre, centre)
    edge = n * centre
    return np.block([[np.array([[float(n)]]), edge[None]], [edge[:, None], scatter]])


def slopes(S: Array, target: int = -1) -> Array:
    """Least squares of column `target` of S on the others, without the intercept's coefficient."""
    others = np.delete(np.arange(len(S)), target)
    return np.linalg.solve(S[np.ix_(others, others)], S[others, target])[1:]


def released(setting: Setting, S: Array, draw: np.random.Generator) -> PreparedMoments:
    """One release of a table with second moments S."""
    noise = np.array([0.0, *(4 * size * setting.multiplier**2 for size in SIZES for _ in range(size))])
    rows = setting.k or setting.n
    gram = (rmgm_gram if setting.k else dgm_gram)(S, noise, rows, draw)
    moments = SecondMoments(
        release="0" * 64,
        mechanism="rmgm" if setting.k else "dgm",
        columns=("(intercept)", *(a.name for a in SCHEMA)),
        gram=tuple(map(tuple, gram.tolist())),
        noise_variance=tuple(noise.tolist()),
        rows=rows,
        n=setting.n,
    )
    return PreparedMoments.of(moments, SCHEMA)


def synthetic(setting: Setting, *, releases: int) -> dict[IntervalFor, list[Trial]]:
    """Fits of `releases` tables, each released once."""
    draw, (_, _, truth) = (
        np.random.default_rng([setting.n, setting.k or 0, round(100 * setting.multiplier)]),
        population(),
    )
    found: dict[IntervalFor, list[Trial]] = {"table": [], "population": []}
    for _ in range(releases):
        S = table_moments(setting.n, draw)
        prepared = released(setting, S, draw)
        wanted: dict[IntervalFor, Array] = {"table": slopes(S), "population": truth}
        for interval_for, of in wanted.items():
            fit = fit_prepared(prepared, FitRequest(target=TARGET, interval_for=interval_for))
            found[interval_for].append(Trial(fit, of))
    return found


def real(
    values: Array, *, mechanism: Mechanism, epsilon: float, releases: int, sampler: Sampler | None = None
) -> tuple[list[Trial], int]:
    """Fits of one table (n, p) within [0, 1], released that often, and its published rows.

    With a sampler releases are made for real, without one drawn from their law.
    """
    spec = release_spec(len(values), party_sizes(values.shape[1], 3), epsilon, mechanism=mechanism)
    blocks = integer_rows(spec, 2 * values - 1)
    S, draw = private_moments(blocks), np.random.default_rng([len(values), round(epsilon)])
    made = [
        # a seed of its own for every release, as a study would have
        exact_moments(spec.model_copy(update={"seed": draw.bytes(32).hex()}), blocks, sampler)
        if sampler
        else drawn_moments(spec, S, draw)
        for _ in range(releases)
    ]
    prepared = (PreparedMoments.of(moments, spec.attributes) for moments in made)
    return [Trial(fit_prepared(p, FitRequest(target="y")), slopes(S)) for p in prepared], made[0].rows


def run(*, quick: bool, data: Path) -> dict[str, Any]:
    """Everything, as one JSON document."""
    releases = 20 if quick else 2_000
    results: list[dict[str, Any]] = []
    for setting in SETTINGS[::4] if quick else SETTINGS:
        for interval_for, trials in synthetic(setting, releases=releases).items():
            results.append({"table": "synthetic", **asdict(setting), "for": interval_for, **summary(trials)})
    for name in _TABLES if data.is_dir() else ():
        values = load(data, name)
        for mechanism, epsilon in _REAL:
            for sampler in (None, rounded_gaussian) if (name, (mechanism, epsilon)) == _CHECKED else (None,):
                count = min(releases, 400) if sampler else releases
                trials, rows = real(values, mechanism=mechanism, epsilon=epsilon, releases=count, sampler=sampler)
                facts = {"n": len(values), "k": rows if mechanism == "rmgm" else None, "epsilon": epsilon}
                results.append(
                    {"table": name, **facts, "exact": sampler is not None, "for": "table", **summary(trials)}
                )
    return {"benchmark": "coverage", "results": results}


def markdown(report: dict[str, Any]) -> str:
    """The table of docs/coverage.md."""
    heads = ("table", "n", "k", "noise", "for", "l_x", "l", "coverage", "least", "warned", "silent coverage")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for r in report["results"]:
        name = f"{r['table']}, released for real" if r.get("exact") else r["table"]
        noise = f"ε = {r['epsilon']:g}" if "epsilon" in r else f"{r['multiplier']:g}"
        silent = "-" if r["silent_mean"] is None else f"{r['silent_mean']:.3f}"
        cells = (name, f"{r['n']:,}", f"{r['k']:,}" if r["k"] else "dgm", noise, r["for"], f"{r['feature_root']:.3f}")
        rest = (f"{r['root']:.3f}", f"{r['mean']:.3f}", f"{r['least']:.3f}", f"{r['warned']:.1%}", silent)
        lines.append(f"| {' | '.join((*cells, *rest))} |")
    return "\n".join(lines)


@click.command()
@click.option("--quick", is_flag=True, help="Few releases, for CI.")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Run the study and print its table as Markdown."""
    report = run(quick=quick, data=data)
    print(markdown(report))
    if json_file is not None:
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
