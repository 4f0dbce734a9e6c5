"""What the planner predicts beside what releases then give: errors of coefficients, R^2, and the constant's R^2.

python -m benchmarks.planning [--quick] [--data DIR] [--json FILE] [--picture FILE]

Synthetic tables and real ones with a regression target, three parties, studies that say nothing else: first stages
where they suit, analytic calibration, k as the planner chooses it from the uniform assumption. Sums, maps and rows are
the product's, moments of every release are drawn from their law (`release_law`) and fitted with the product's
estimators. A forecast is made twice: from the table's own second moments, as if it were public, and from the default
assumption. Errors are distances of standardised slopes to the fit without privacy on the same rows.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Literal, get_args

import click
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.release_law import proposed
from benchmarks.stages import release
from benchmarks.tables import DATA, entry
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.services.planning.public_table import encode
from commingle.services.simulation.preparing import Wanted, prepare
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import Study, StudyParty
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.estimation.errors import SingularError
from commingle.shared.forecast.forecast import forecast, with_best_k
from commingle.shared.planning.design import PartyDesign, design_of
from commingle.shared.planning.errors import PlanningError
from commingle.shared.planning.task import Assumptions, RegressionTask, task_of

Array = NDArray[np.float64]
Kind = Literal["rmgm", "dgm", "moments"]

_TABLES = (
    *("bike_hour", "diabetes130", "gpu_sgemm", "kin40k", "protein", "winequality_white"),
    *("tamielectric", "airfoil", "concrete", "insurance_numeric"),
)
_EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
_PARTIES = 3
_CLOSE = 0.05
_RELIABLE = 0.1  # share of fits with a warning up to which a row counts


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A table as the parties hold it: encoded rows (n, p - 1)."""

    name: str
    target: str
    shares: tuple[PartyDesign, ...]
    rows: Array

    def study(self, mechanism: Kind, epsilon: float) -> Study:
        """What would be asked for."""
        parties = (StudyParty(name=s.name, dataset="data", attributes=s.attributes) for s in self.shares)
        return Study(
            study="Benchmark",
            mechanism=mechanism,
            subjects="listed",
            epsilon=epsilon,
            delta=1e-5,
            n=len(self.rows),
            parties=tuple(parties),
        )

    @property
    def moments(self) -> Array:
        """(p, p) A^T A / n."""
        n = len(self.rows)
        mean = self.rows.mean(axis=0)
        return np.block([[np.ones((1, 1)), mean[None]], [mean[:, None], self.rows.T @ self.rows / n]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One release and one assumption: predicted and realised figures.

    Attributes:
        ratio: predicted over realised rms distance of the slopes.
        loss_ratio: predicted over realised mean squared error of prediction.
        warned: share of fits with a warning about their signal; that rows were cut is said of nearly all.
    """

    case: str
    mechanism: str
    epsilon: float
    n: int
    k: int | None
    assumed: str
    predicted_error: float | None
    realised_error: float
    ratio: float | None
    predicted_r2: float
    realised_r2: float
    loss_ratio: float
    predicted_constant: float
    realised_constant: float
    useful: bool
    warned: float


def synthetic(n: int, columns: int, *, seed: int) -> Case:
    """Uniform features, a label that they explain with R^2 about 0.3."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, (n, columns - 1))
    signal = x @ draw.choice([-1.0, 1.0], columns - 1)
    y = signal + draw.normal(0, np.std(signal) * sqrt(0.7 / 0.3), n)
    rows = np.column_stack([x, np.clip(y / (4 * np.std(y)), -1, 1)])
    attributes = [NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(columns)]
    ends = np.linspace(0, columns, _PARTIES + 1).round().astype(int).tolist()
    parts = [tuple(attributes[a:b]) for a, b in pairwise(ends)]
    shares = tuple(PartyDesign(name=f"party-{i}", attributes=part) for i, part in enumerate(parts))
    return Case(f"uniform, {columns} columns", attributes[-1].name, shares, rows)


def real(name: str, data: Path) -> Case:
    """A table of the data folder, divided as `commingle simulate --parties 3` would."""
    about = entry(data, name)
    table, target = data / about["file"], about["target_column"]
    held = prepare(Wanted(table=table, target=target, parties=_PARTIES, features=tuple(about["feature_columns"])))
    shares = tuple(PartyDesign(name=party.name, attributes=party.attributes) for party in held.parties)
    return Case(name, held.target, shares, np.hstack([encode(held.table, share) for share in shares]))


def with_planned_k(case: Case, asked: Study) -> Study:
    """The study with the k that the planner chooses from the uniform assumption."""
    design = design_of(asked)
    chosen = with_best_k(design, task_of(design, Assumptions(target=case.target)))
    return asked.model_copy(update={"k": chosen.k})


def releases(case: Case, asked: Study, repeats: int) -> Iterator[PreparedMoments]:
    """Releases drawn anew, as a learner reads them."""
    spec, random, rows = proposed(asked), np.random.default_rng(1), quantise(case.rows)
    for _ in range(repeats):
        yield release(spec, rows, random)


def measure(case: Case, mechanism: Kind, epsilon: float, *, repeats: int) -> list[Row]:
    """One design, under both assumptions."""
    default = Assumptions(target=case.target)
    table = replace(default, second_moments=case.moments)
    asked = with_planned_k(case, case.study(mechanism, epsilon))
    design = design_of(asked)
    truth = task_of(design, table)
    owners = [a.name for a in design.attributes for _ in a.columns]
    mean_y = float(case.rows[:, truth.y].mean())
    errors, losses, constants, warned = [], [], [], 0
    for prepared in releases(case, asked, repeats):

        def fitted(estimator: str, prepared: PreparedMoments = prepared) -> tuple[float, Array, bool]:
            fit = fit_prepared(prepared, FitRequest(target=case.target, estimator=estimator))
            label = owners.index(case.target) + 1
            slopes = fit.coefficients[1:] * truth.scale[: len(fit.coefficients) - 1] / truth.unit
            level = float(fit.coefficients[0] - prepared.offset[label]) / truth.unit
            offset = float(slopes @ (truth.offset / truth.scale)[: len(slopes)])
            return level + offset, slopes, any("signal" in warning for warning in fit.warnings)

        _, slopes, unsure = fitted("ols" if mechanism == "moments" else "measurement_error")
        errors.append(float(np.diag(truth.xx) @ (slopes - truth.b) ** 2))
        warned += unsure
        level, slopes, _ = fitted("shrunken")
        gap, bias = slopes - truth.b, level + float(slopes @ truth.mean) - mean_y
        losses.append((truth.residual + float(gap @ truth.xx @ gap) + bias**2) / truth.yy)
        constants.append(-((fitted("constant")[0] - mean_y) ** 2) / truth.yy)
    realised = sqrt(np.mean(errors) / float(np.diag(truth.xx) @ truth.b**2))
    found = []
    for name, assumed in (("table", table), ("default", default)):
        f = forecast(design, assumed)
        # the default assumption has slopes of its own: compare distances, not distances per length
        length = _length(task_of(design, assumed)) / _length(truth)
        predicted = None if f.relative_error is None else f.relative_error * length
        found.append(
            Row(
                case=case.name,
                mechanism=mechanism,
                epsilon=epsilon,
                n=design.n,
                k=design.k,
                assumed=name,
                predicted_error=predicted,
                realised_error=realised,
                ratio=None if predicted is None else predicted / realised,
                predicted_r2=f.r_squared,
                realised_r2=1 - float(np.mean(losses)),
                loss_ratio=(1 - f.r_squared) / float(np.mean(losses)),
                predicted_constant=f.r_squared_constant,
                realised_constant=float(np.mean(constants)),
                useful=f.useful,
                warned=warned / repeats,
            )
        )
    return found


def _length(task: RegressionTask) -> float:
    """Of the standardised slopes."""
    return sqrt(float(np.diag(task.xx) @ task.b**2) / task.yy)


def show(rows: list[Row]) -> None:
    """The table, then how many of the rows without a warning are within a factor 1.5, and how R^2 and verdicts did."""
    print(
        f"{'table':<20}{'mech':>8}{'eps':>6}{'n':>9}{'k':>6} {'assumed':<8}{'error':>7}{'real':>7}{'ratio':>7}"
        f"{'R2':>8}{'real':>8}{'const':>8}{'real':>8}{'useful':>7}{'warned':>8}"
    )
    for r in rows:
        ratio = "-" if r.ratio is None or r.predicted_error is None else f"{r.predicted_error:7.3f}"
        print(
            f"{r.case:<20}{r.mechanism:>8}{r.epsilon:>6g}{r.n:>9}{r.k or '-':>6} {r.assumed:<8}{ratio:>7}"
            f"{r.realised_error:>7.3f}{r.ratio or 0:>7.2f}{r.predicted_r2:>8.3f}{r.realised_r2:>8.3f}"
            f"{r.predicted_constant:>8.3f}{r.realised_constant:>8.3f}{'yes' if r.useful else 'no':>7}{r.warned:>8.0%}"
        )
    for assumed in ("table", "default"):
        ratios = [r.ratio for r in rows if r.assumed == assumed and r.warned <= _RELIABLE and r.ratio is not None]
        within = sum(1 / 1.5 <= ratio <= 1.5 for ratio in ratios)
        if ratios:
            print(f"{assumed}: {within} of {len(ratios)} within 1.5 ({min(ratios):.2f} to {max(ratios):.2f})")
        every = [r for r in rows if r.assumed == assumed]
        close = sum(abs(r.predicted_r2 - r.realised_r2) <= _CLOSE for r in every)
        hoped = sum(r.useful and r.realised_r2 <= 0 for r in every)
        missed = sum(not r.useful and r.realised_r2 > _CLOSE for r in every)
        print(
            f"  R2 within {_CLOSE} in {close} of {len(every)}; called useful but R2 <= 0: {hoped}; "
            f"called not useful but R2 > {_CLOSE}: {missed}"
        )


def draw_picture(rows: list[Row], path: Path) -> None:
    """Predicted against realised error, a point per row whose fits do not warn."""
    sure = [r for r in rows if r.warned <= _RELIABLE and r.predicted_error is not None]
    if not sure:
        return
    figure = Figure(figsize=(5.2, 5.0), dpi=150, layout="constrained")
    ax = figure.subplots()
    line = np.array([0.5 * min(r.realised_error for r in sure), 2 * max(r.realised_error for r in sure)])
    ax.fill_between(line, line / 1.5, line * 1.5, color="#e8eef5", label="within a factor 1.5")
    ax.plot(line, line, color="#888888", linewidth=1)
    for assumed, colour, marker in (("table", "#1f6fb4", "o"), ("default", "#d9772b", "^")):
        chosen = [r for r in sure if r.assumed == assumed]
        realised, predicted = [r.realised_error for r in chosen], [r.predicted_error or 0 for r in chosen]
        ax.scatter(realised, predicted, s=22, color=colour, marker=marker, label=f"assumed: {assumed}")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("realised relative error of the slopes")
    ax.set_ylabel("predicted")
    ax.legend(frameon=False)
    figure.savefig(path)


@click.command()
@click.option("--quick", is_flag=True, help="One small synthetic table, for CI.")
@click.option("--data", type=click.Path(path_type=Path), default=DATA, help="Folder of the real tables.")
@click.option("--repeats", type=int, default=40, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--picture", type=click.Path(path_type=Path))
def main(*, quick: bool, data: Path, repeats: int, json_file: Path | None, picture: Path | None) -> None:
    """Print predicted beside realised figures."""
    makers: list[Callable[[], Case]] = [partial(synthetic, 20_000, 6, seed=0)]
    if not quick:
        makers += [partial(synthetic, 200_000, 12, seed=0), partial(synthetic, 100_000, 30, seed=0)]
        makers += [partial(real, name, data) for name in _TABLES]
    rows: list[Row] = []
    for make in makers:
        case = make()
        for mechanism in get_args(Kind):
            for epsilon in (10.0,) if quick else _EPSILONS:
                try:
                    rows += measure(case, mechanism, epsilon, repeats=repeats)
                except (PlanningError, SingularError) as error:
                    print(f"{case.name}, {mechanism}, epsilon {epsilon:g}: {error}")
    show(rows)
    if json_file is not None:
        json_file.write_text(json.dumps({"repeats": repeats, "results": [asdict(row) for row in rows]}, indent=1))
    if picture is not None:
        draw_picture(rows, picture)


if __name__ == "__main__":
    main()
