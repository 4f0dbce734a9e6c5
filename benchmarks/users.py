"""R^2 of `commingle party regress` by its defaults, on every table of numbers, for both kinds of subjects.

Epsilon is 1, delta 1e-5; the method is the one that `auto` takes without public rows, with analytic calibration. A
public tenth of the rows gives bounds and nothing else. Figures are R^2 of a tested tenth, with features and predictions
clipped to the bounds: means of 18 runs, or of 180 for fewer than 2,000 rows, each with its own noise. Keyed: neighbours
differ by one row, and n is public in one digit. Listed: one row is replaced. Beside them stand `two_stage` and
`boosted_adassp` of listed subjects, and least squares without noise. Only `TUNING` tables had a part in choosing
constants.
"""

from math import sqrt
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from benchmarks.harness import Asked, Experiment, Report
from benchmarks.release_law import drawn_by
from benchmarks.tables import at_hand, columns, recorded
from commingle.party_agent.private.regression.measuring import FloatingPoint, Privacy
from commingle.party_agent.private.regression.problem import Floats, RowMap, clip_sample
from commingle.party_agent.private.regression.regress import METHODS, ExactMethod
from commingle.party_agent.private.regression.sums import stages_of, two_stage
from commingle.party_agent.regression.forecasts import RegressionDesign, assumed_moment, choose
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.sensitivity import Adjacency

TABLES = tuple(
    name for name, about in recorded().items() if about["target"] and about["values_sha256"] and name != "challenger"
)
"""All tables of numbers but one: the public tenth of its 23 rows has one label only."""
TUNING = (
    *("concrete", "airfoil", "skillcraft", "winequality_white", "pol", "elevators", "protein", "gpu_sgemm"),
    *("servo", "machine", "housing", "stock", "autos", "pumadyn32nm"),
)
KINDS = {"keyed": Adjacency.ADD_REMOVE, "listed": Adjacency.REPLACE_ONE}
_FOLDS, _FEW = 10, 2000
_AMONG: tuple[RegressionMethod, ...] = ("two_stage", "adassp", "boosted_adassp")
_BESIDE: tuple[RegressionMethod, ...] = ("two_stage", "boosted_adassp")
Split = tuple[tuple[Floats, Floats], tuple[Floats, Floats]]


def split(table: tuple[Floats, Floats], tested: int) -> Split:
    """Private rows and tested ones, encoded by the public tenth's bounds, a column of ones first."""
    x, y = table
    fold = default_rng(13).permutation(len(y)) % _FOLDS
    public = fold == 0
    varied = np.ptp(x[public], axis=0) > 0
    low, high = (end(np.column_stack([x[:, varied], y])[public], axis=0) for end in (np.min, np.max))
    encoded = np.clip((2 * np.column_stack([x[:, varied], y]) - low - high) / (high - low), -1, 1)
    whole = np.column_stack([np.ones(len(y)), encoded])
    private, test = whole[~public & (fold != tested)], whole[fold == tested]
    return (private[:, :-1], private[:, -1]), (test[:, :-1], test[:, -1])


def chosen(n: int, d: int, privacy: Privacy) -> RegressionMethod:
    """The method that `auto` takes for n rows of d columns, with the column of ones, without public rows."""
    *features, _ = numbers(d)
    moment, _ = assumed_moment(tuple(features), RowMap())
    return choose(RegressionDesign(moment, 1 / 3, n, sqrt(d), 1.0), privacy, among=_AMONG)[0]


def numbers(count: int) -> tuple[NumericAttribute, ...]:
    return tuple(NumericAttribute(name=f"x{j}", lower=-1, upper=1) for j in range(count))


def fit(rows: tuple[Floats, Floats], method: RegressionMethod, privacy: Privacy, n: int, draw: Generator) -> Floats:
    """Coefficients, with noise of a generator instead of the operating system's; n is public."""
    x, y = rows
    plain = METHODS.get(method)
    if isinstance(plain, ExactMethod):
        sample = clip_sample(x, y, row_bound=sqrt(x.shape[1]), label_bound=1.0)
        return plain.run(sample, privacy, FloatingPoint(draw)).coefficients

    *features, label = numbers(x.shape[1])
    stages = stages_of(privacy, label, tuple(features), n)
    q = quantise(np.column_stack([x[:, 1:], y]))
    return two_stage(q, stages, drawn_by(draw)).coefficients


def explained(predicted: Floats, tested: tuple[Floats, Floats]) -> float:
    """R^2 of predictions clipped to public bounds."""
    y = tested[1]
    return 1 - float(np.mean((y - np.clip(predicted, -1, 1)) ** 2) / np.var(y))


def of_table(table: tuple[Floats, Floats], *, runs: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    taken: dict[str, RegressionMethod] = {}
    for run in range(runs):
        rows, tested = split(table, 1 + run % (_FOLDS - 1))
        n, d = rows[0].shape
        for kind, adjacency in KINDS.items():
            privacy = Privacy(1.0, 1e-5, adjacency)
            public = round(n, 1 - len(str(n))) if kind == "keyed" else n
            taken[kind] = chosen(public, d, privacy)
            theta = fit(rows, taken[kind], privacy, public, default_rng(run))
            found.setdefault(kind, []).append(explained(tested[0] @ theta, tested))
        for method in _BESIDE:
            if taken["listed"] == method:  # and with its noise
                found.setdefault(method, []).append(found["listed"][-1])
            else:
                beside = fit(rows, method, Privacy(1.0, 1e-5), n, default_rng(run))
                found.setdefault(method, []).append(explained(tested[0] @ beside, tested))
        found.setdefault("not_private", []).append(explained(np.asarray(tested[0] @ np.linalg.lstsq(*rows)[0]), tested))
    return {"n": n, "features": d - 1, "taken": taken, **{name: float(np.mean(v)) for name, v in found.items()}}


def measure(asked: Asked) -> Report:
    found = []
    for name in at_hand(asked.data, TABLES):
        table = columns(asked.data, name)
        few = 10 if len(table[1]) < _FEW else 1
        part = "tuning" if name in TUNING else "reporting"
        found.append({"table": name, "part": part, **of_table(table, runs=asked.times(2, 18 * few))})
    return {"tables": found}


EXPERIMENT = Experiment("users", __doc__, measure)
if __name__ == "__main__":
    EXPERIMENT.command()
