"""Two accuracy goals: R^2 0.45 on airfoil (`moments`, epsilon 1) and 0.37 on gpu_sgemm (`rmgm`, epsilon 3).

Releases and splits are those of `benchmarks.choice`: three members, listed subjects, two stages, predictions clipped as
`predict` clips them. Beside `shrunken` stand fits that no learner can make: the ridge, with the features' noisy moments
or with their exact ones, that is best for the tested rows; and an oracle that knows the features' moments, the truth
and the noise: in each principal direction it takes the factor that is best over all releases of a split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.choice import spec_of
from benchmarks.harness import Asked, Experiment, Report, generator, spread
from benchmarks.release_law import Array, release
from benchmarks.tables import at_hand, columns
from benchmarks.users import Split, explained, split
from commingle.services.fit import fit_prepared
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.estimation.system import build_system

GOALS = (("airfoil", "moments", 1.0, 0.45), ("gpu_sgemm", "rmgm", 3.0, 0.37))
TABLES = tuple(table for table, *_ in GOALS)
_FOLDS = 9
_RIDGES = np.geomspace(1e-5, 10, 25)
"""Times the mean square of the features."""


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """One release, in encoded units.

    Attributes:
        theta: coefficients of `shrunken`.
        noisy, cross: X^T X (p, p) and X^T y (p,) of the release, less what noise adds on average.
    """

    theta: Array
    noisy: Array
    cross: Array


def released(spec: ReleaseSpec, data: Split, draw: np.random.Generator) -> Released:
    (x, y), _ = data
    *features, label = (a.name for a in spec.terms.attributes)
    prepared = release(spec, quantise(np.column_stack([x[:, 1:], y])), draw)
    fit = fit_prepared(prepared, label, tuple(features), estimator="shrunken")
    chosen = tuple(i for name in features for i in prepared.columns[name])
    system = build_system(prepared, prepared.columns[label][0], chosen, intercept=True)
    k = system.rows
    return Released(fit.coefficients, system.xx - k * system.V_xx, system.xy - k * system.v_xy)


def ridges(xx: Array, xy: Array) -> Iterator[Array]:
    """Coefficients for each damping of the slopes that makes the matrix definite."""
    damped = np.diag([0.0, *np.ones(len(xy) - 1)]) * np.trace(xx[1:, 1:]) / len(xy)
    for ridge in _RIDGES:
        H = xx + ridge * damped
        if np.linalg.eigvalsh(H)[0] > 0:
            yield np.linalg.solve(H, xy)


def with_factors(made: Sequence[Released], exact: Array, truth: Array) -> list[Array]:
    """Each principal direction's b times E[b z] / E[z^2] over the releases; z is what they say of b."""
    values, axes = np.linalg.eigh(exact)
    found = np.array([one.cross for one in made]) @ axes / values
    factors = axes.T @ truth * found.mean(axis=0) / (found**2).mean(axis=0)
    return [axes @ (factors * z) for z in found]


def of_split(spec: ReleaseSpec, data: Split, *, releases: int, fold: int) -> Iterator[dict[str, float]]:
    """R^2 of every way for each release."""
    (x, y), tested = data
    exact, truth = x.T @ x, np.asarray(np.linalg.lstsq(x, y)[0])
    made = [released(spec, data, generator(fold, number)) for number in range(releases)]

    def scored(theta: Array) -> float:
        return explained(np.asarray(tested[0] @ theta), tested)

    for one, factored in zip(made, with_factors(made, exact, truth), strict=True):
        yield {
            "shrunken": scored(one.theta),
            "best ridge": max(map(scored, ridges(one.noisy, one.cross))),
            "best ridge, exact features": max(map(scored, ridges(exact, one.cross))),
            "oracle": scored(factored),
            "not private": scored(truth),
        }


def measure(asked: Asked) -> Report:
    found: list[dict[str, Any]] = []
    for name, mechanism, epsilon, goal in (each for each in GOALS if each[0] in at_hand(asked.data, TABLES)):
        table, scores = columns(asked.data, name), dict[str, list[float]]()
        for fold in range(1, 2 if asked.quick else 1 + _FOLDS):
            data = split(table, fold)
            n, d = data[0][0].shape
            for one in of_split(spec_of(n, d - 1, mechanism, epsilon), data, releases=asked.times(2, 10), fold=fold):
                for way, value in one.items():
                    scores.setdefault(way, []).append(value)
        about = {"table": name, "mechanism": mechanism, "epsilon": epsilon, "goal": goal}
        found.append({**about, "r_squared": {way: spread(values) for way, values in scores.items()}})
    return {"goals": found}


EXPERIMENT = Experiment("goals", __doc__, measure)
if __name__ == "__main__":
    EXPERIMENT.command()
