"""Forecasts of the planner beside releases: errors of coefficients, R^2, and the constant's R^2.

Tables are synthetic, or real with a regression target, at three parties. All else is by default: first stages where
they suit, analytic calibration, and the k that the planner chooses from the uniform assumption. Sums, maps and rows are
the product's. Moments of releases are drawn from their law (`release_law`) and fitted with the product's estimators.
There are two forecasts: from the table's own second moments, as if it were public, and from the default assumption.
Errors are distances of standardised slopes to the fit without privacy on the same rows.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from benchmarks.harness import Asked, Experiment, Panel, Report, draw_panels, generator
from benchmarks.release_law import Array, party_sizes, proposed, release, study_of
from benchmarks.tables import at_hand, entry
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.services.simulation.parties import Wanted
from commingle.services.simulation.preparing import prepare
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.study import Study
from commingle.shared.dp.fixed_point import SCALE, quantise
from commingle.shared.encoding import encode_rows
from commingle.shared.errors import PlanningError, SingularError
from commingle.shared.forecast.forecast import forecast, with_best_k
from commingle.shared.forecast.task import Assumptions, task_of
from commingle.shared.mechanisms.prediction import RegressionTask
from commingle.shared.release.checks import terms_of

Kind = Literal["rmgm", "dgm", "moments"]

TABLES = (
    *("bike_hour", "diabetes130", "gpu_sgemm", "kin40k", "protein", "winequality_white"),
    *("tamielectric", "airfoil", "concrete", "insurance_numeric"),
)
_EPSILONS = (1.0, 3.0, 10.0, 30.0, 100.0)
_PARTIES = 3
_RELIABLE = 0.1  # share of fits with a warning up to which a row counts


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A table as the parties hold it: encoded rows (n, p - 1), with the columns of each party in turn."""

    name: str
    target: str
    attributes: tuple[Attribute, ...]
    sizes: tuple[int, ...]
    rows: Array

    @property
    def moments(self) -> Array:
        """(p, p) A^T A / n."""
        A = np.column_stack([np.ones(len(self.rows)), self.rows])
        return np.asarray(A.T @ A / len(A))


def synthetic(n: int, columns: int) -> Case:
    """Uniform features, and a label that they explain with R^2 about 0.3."""
    draw = generator(0)
    x = draw.uniform(-1, 1, (n, columns - 1))
    signal = x @ draw.choice([-1.0, 1.0], columns - 1)
    y = signal + draw.normal(0, np.std(signal) * sqrt(0.7 / 0.3), n)
    rows = np.column_stack([x, np.clip(y / (4 * np.std(y)), -1, 1)])
    attributes = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(columns))
    sizes = tuple(party_sizes(columns, _PARTIES))
    return Case(f"uniform, {columns} columns", attributes[-1].name, attributes, sizes, rows)


def real(name: str, data: Path) -> Case:
    """A table of the data folder, divided as `commingle simulate --parties 3` divides it."""
    about = entry(data, name)
    table, target = data / about["file"], about["target_column"]
    held = prepare(Wanted(table=table, target=target, parties=_PARTIES, features=tuple(about["feature_columns"])))
    rows = encode_rows(held.attributes, held.table.columns) / SCALE
    return Case(name, held.target, held.attributes, tuple(map(len, held.parties.values())), rows)


def study(case: Case, mechanism: Kind, epsilon: float) -> Study:
    """The study, with the k that the planner chooses from the uniform assumption."""
    asked = study_of(case.attributes, case.sizes, len(case.rows), epsilon, mechanism=mechanism)
    design = terms_of(asked)
    chosen = with_best_k(design, task_of(design, Assumptions(target=case.target)))
    return asked.model_copy(update={"k": chosen.k})


def releases(case: Case, asked: Study, repeats: int) -> Iterator[PreparedMoments]:
    spec, draw, rows = proposed(asked), generator(1), quantise(case.rows)
    for _ in range(repeats):
        yield release(spec, rows, draw)


def compared(case: Case, mechanism: Kind, epsilon: float, *, repeats: int) -> list[dict[str, Any]]:
    """Errors are rms distances of slopes; `warned` counts warnings of signal, as nearly all fits warn of cut rows."""
    default = Assumptions(target=case.target)
    table = replace(default, second_moments=case.moments)
    asked = study(case, mechanism, epsilon)
    design = terms_of(asked)
    truth = task_of(design, table)
    owners = [a.name for a in design.attributes for _ in a.columns]
    mean_y = float(case.rows[:, truth.y].mean())
    errors, losses, constants, warned = [], [], [], 0
    for prepared in releases(case, asked, repeats):

        def fitted(estimator: str, prepared: PreparedMoments = prepared) -> tuple[float, Array, bool]:
            fit = fit_prepared(prepared, case.target, estimator=estimator)
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
            {
                "case": case.name,
                "mechanism": mechanism,
                "epsilon": epsilon,
                "n": design.n,
                "k": design.k,
                "assumed": name,
                "predicted_error": predicted,
                "realised_error": realised,
                "ratio": None if predicted is None else predicted / realised,
                "predicted_r2": f.r_squared,
                "realised_r2": 1 - float(np.mean(losses)),
                "loss_ratio": (1 - f.r_squared) / float(np.mean(losses)),
                "predicted_constant": f.r_squared_constant,
                "realised_constant": float(np.mean(constants)),
                "useful": f.useful,
                "warned": warned / repeats,
            }
        )
    return found


def _length(task: RegressionTask) -> float:
    return sqrt(float(np.diag(task.xx) @ task.b**2) / task.yy)


def measure(asked: Asked) -> Report:
    makers: list[Callable[[], Case]] = [partial(synthetic, 20_000, 6)]
    if not asked.quick:
        makers += [partial(synthetic, 200_000, 12), partial(synthetic, 100_000, 30)]
        makers += [partial(real, name, asked.data) for name in at_hand(asked.data, TABLES)]
    rows, refused, repeats = list[dict[str, Any]](), list[str](), asked.times(10, 40)
    for make in makers:
        case = make()
        for mechanism in get_args(Kind):
            for epsilon in (10.0,) if asked.quick else _EPSILONS:
                try:
                    rows += compared(case, mechanism, epsilon, repeats=repeats)
                except (PlanningError, SingularError) as error:
                    refused.append(f"{case.name}, {mechanism}, epsilon {epsilon:g}: {error}")
    return {"repeats": repeats, "refused": refused, "results": rows}


def draw(report: Report, folder: Path) -> None:
    sure = [r for r in report["results"] if r["warned"] <= _RELIABLE and r["predicted_error"] is not None]
    found = [r["realised_error"] for r in sure]
    ends = (0.5 * min(found), 2 * max(found))
    known = {f"{times:.2g} of what is realised": [(e, times * e) for e in ends] for times in (1, 1.5, 1 / 1.5)}
    points = {
        f"assumed: {assumed}": [(r["realised_error"], r["predicted_error"]) for r in sure if r["assumed"] == assumed]
        for assumed in ("table", "default")
    }
    label = "realised relative error of the slopes"
    draw_panels(folder / "planning.png", [Panel("", label, "predicted", points, known, joined=False)], columns=1)


EXPERIMENT = Experiment("planning", __doc__, measure, draw=draw)

if __name__ == "__main__":
    EXPERIMENT.command()
