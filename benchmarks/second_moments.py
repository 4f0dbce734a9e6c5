"""Estimators of `moments` releases over every real table at hand, with and without a signal.

python -m benchmarks.second_moments [--quick] [--data DIR] [--out FILE]

Three parties, delta = 1e-5 per party, replace_one, zcdp; releases are drawn from their law. Scores are mean test R^2
over releases and over five ways to hold out a fifth of the rows. Tables are divided as `benchmarks.adaptive` does: the
constants of the posterior mode were chosen on the tuning half. `unrelated` is the same table with a label made
independent of the features. The last column is the time of a fit, the search of the mode included.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

from benchmarks.adaptive import Array, encoded, is_tuning, without_signal
from benchmarks.moments_noise import entry_variance, moments_release
from benchmarks.reporting import heading, row
from benchmarks.tables import DATA, entries
from commingle.services.errors import TableError
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.services.simulation.dataset import StudyTable, holdout
from commingle.services.simulation.preparing import Wanted, prepare

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
ESTIMATORS = ("shrunken", "adaptive_ridge", "constant")
ALLOWED = 0.03  # of R^2 below predicting the mean
_QUICK = ("autompg", "servo")
_SPLITS = 5


@dataclass(frozen=True, slots=True)
class Setting:
    """Mean test R^2 on releases of one table, by estimator, and what least squares on the rows reaches."""

    table: str
    tuning: bool
    n: int
    features: int
    epsilon: float
    related: dict[str, float]
    unrelated: dict[str, float]
    exact: float
    milliseconds: float

    @property
    def changes(self) -> tuple[float, float]:
        """Of the default over the label mean, with the table's label and with an unrelated one."""
        with_label, without = (r["shrunken"] - r["constant"] for r in (self.related, self.unrelated))
        return with_label, without


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One table: moments (p, p) of training rows and, per row, of held-out ones, the intercept first."""

    name: str
    dataset: StudyTable
    splits: tuple[tuple[Array, Array], ...]
    label: int

    def changed(self, *, unrelated: bool) -> tuple[tuple[Array, Array], ...]:
        """The moments as they are, or without signal."""
        if not unrelated:
            return self.splits
        return tuple((without_signal(S, self.label), without_signal(test, self.label)) for S, test in self.splits)


def load(about: dict[str, Any], data: Path) -> Case:
    """A table of the manifest, its features in order and as evenly as possible over three parties."""
    target, features = about["target_column"], tuple(about["feature_columns"])
    dataset = prepare(Wanted(table=data / about["file"], target=target, parties=3, features=features))
    rows = encoded(dataset)
    label = 1 + sum(len(a.columns) for a in takewhile(lambda a: a.name != target, dataset.attributes))
    parts = [[rows[part] for part in holdout(len(rows), seed=seed)] for seed in range(_SPLITS)]
    splits = tuple((train.T @ train, test.T @ test / len(test)) for train, test in parts)
    return Case(about["name"], dataset, splits, label)


def score(case: Case, release: PreparedMoments, test: Array, estimator: str) -> float:
    """Test R^2 of one fit."""
    fitted = fit_prepared(release, FitRequest(target=case.dataset.target, estimator=estimator))
    # original units: y = sum_j b_j (offset_j + scale_j x_j), back to encoded ones
    used = [0, *(i for name in fitted.features for i in release.columns[name])]
    c = np.zeros(len(test))
    c[used] = -fitted.coefficients * release.scale[used]
    c[0] -= float(fitted.coefficients[1:] @ release.offset[used[1:]])
    c[case.label], c[0] = release.scale[case.label], c[0] + release.offset[case.label]
    about_mean = float(test[case.label, case.label] - test[0, case.label] ** 2)
    return 1 - float(c @ test @ c) / (about_mean * float(release.scale[case.label]) ** 2)


def exact_score(case: Case) -> float:
    """Mean test R^2 of least squares on the rows themselves."""
    found = []
    for S, test in case.splits:
        x = [i for i in range(len(S)) if i != case.label]
        b = np.linalg.lstsq(S[np.ix_(x, x)], S[x, case.label], rcond=None)[0]
        c = np.zeros(len(S))
        c[x], c[case.label] = -b, 1.0
        found.append(1 - float(c @ test @ c) / (test[case.label, case.label] - test[0, case.label] ** 2))
    return float(np.mean(found))


def mean_scores(case: Case, variance: Array, *, draws: int, unrelated: bool) -> dict[str, float]:
    """By estimator; without signal only of the default and the mean."""
    names = tuple(name for name in ESTIMATORS if not unrelated or name != "adaptive_ridge")
    random, found = np.random.default_rng([int(unrelated), *case.name.encode()]), []
    for draw in range(draws):
        S, test = case.changed(unrelated=unrelated)[draw % _SPLITS]
        if test[case.label, case.label] - test[0, case.label] ** 2 > 0:  # few rows may have one label
            release = moments_release(S, variance, case.dataset.attributes, random)
            found.append([score(case, release, test, name) for name in names])
    return dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))


def fit_time(case: Case, variance: Array) -> float:
    """Milliseconds of a first `shrunken` fit, the least of three releases."""
    random, times = np.random.default_rng(0), []
    for _ in range(3):
        release = moments_release(case.splits[0][0], variance, case.dataset.attributes, random)
        begun = perf_counter()
        fit_prepared(release, FitRequest(target=case.dataset.target, estimator="shrunken"))
        times.append(perf_counter() - begun)
    return 1000 * min(times)


def settings(case: Case, *, draws: int) -> Iterator[Setting]:
    """One for each epsilon."""
    exact = exact_score(case)
    for epsilon in EPSILONS:
        variance = entry_variance(case.dataset.parties, epsilon=epsilon, delta=1e-5)
        yield Setting(
            table=case.name,
            tuning=is_tuning(case.name),
            n=int(case.splits[0][0][0, 0]),
            features=len(variance) - 2,
            epsilon=epsilon,
            related=mean_scores(case, variance, draws=draws, unrelated=False),
            unrelated=mean_scores(case, variance, draws=draws, unrelated=True),
            exact=exact,
            milliseconds=fit_time(case, variance),
        )


def markdown(found: Sequence[Setting]) -> str:
    """A summary of either half and every setting."""
    lines = heading(
        "half (tables)", "mean R² of shrunken", "adaptive_ridge", "worst change", "unrelated", f"< -{ALLOWED}"
    )
    for name, tuning in (("tuning", True), ("reporting", False)):
        part = [s for s in found if s.tuning is tuning]
        if part:
            lines.append(_summary(f"{name} ({len({s.table for s in part})})", part))
    lines += ["", "Means count an R² below -0.3 as -0.3. Changes are over `constant`.", ""]
    lines += heading("table (n, features)", "half", "ε", *ESTIMATORS, "unrelated, change", "least squares", "ms")
    for s in found:
        scores = [f"{s.related[name]:.3f}" for name in ESTIMATORS]
        half = "tuning" if s.tuning else "reporting"
        cells = [*scores, f"{s.changes[1]:+.3f}", f"{s.exact:.3f}", f"{s.milliseconds:.0f}"]
        lines.append(row(f"{s.table} ({s.n:,}, {s.features})", half, f"{s.epsilon:g}", *cells))
    return "\n".join(lines) + "\n"


def _summary(label: str, part: Sequence[Setting]) -> str:
    means = [np.mean([max(s.related[name], -0.3) for s in part]) for name in ("shrunken", "adaptive_ridge")]
    changes = np.array([s.changes for s in part])
    worst = [
        f"{changes[i, j]:+.3f} ({part[i].table}, {part[i].epsilon:g})" for j, i in enumerate(changes.argmin(axis=0))
    ]
    beyond = " + ".join(str(count) for count in (changes < -ALLOWED).sum(axis=0))
    return row(label, *(f"{mean:.3f}" for mean in means), *worst, f"{beyond} of {len(part)}")


@click.command()
@click.option("--quick", is_flag=True, help="Two small tables and few draws, for CI.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write all figures here, as JSON.")
def main(*, quick: bool, data: Path, out: Path | None) -> None:
    """Run every table and print both halves."""
    found: list[Setting] = []
    for about in entries(data):
        if not quick or about["name"] in _QUICK:
            try:
                case = load(about, data)
            except TableError as error:
                print(f"{about['name']} is left out: {error}")
                continue
            found += settings(case, draws=5 if quick else 20)
    print(markdown(found))
    if out is not None:
        out.write_text(json.dumps([asdict(s) for s in found]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
