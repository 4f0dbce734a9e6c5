"""The synthetic experiment of Wu et al. 2022, and Commingle's defaults on the same tables.

w of ten weights U(-1, 1) divided by their absolute sum, so that |y| <= 1 whatever the row; x U(-1, 1); y = x^T w
without error. Three parties of 4, 4 and 3 columns, the label last.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from benchmarks.moments_noise import entry_variance, noisy_moments
from benchmarks.release_law import Array, Integers, drawn_moments, integer_rows, private_moments, proposed, rmgm_gram
from benchmarks.release_law import dgm_gram as dgm
from benchmarks.wu2022_methods import (
    DELTA,
    GRID,
    RULES,
    debiased_hessian,
    dgm_ols,
    hessian,
    noise_variances,
    ols,
)
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty

FEATURES = 10
SIZES = (4, 4, 3)
THRESHOLD = 0.2
ESTIMATORS = ("measurement_error", "adaptive_ridge", "shrunken")
_NAMES = (*(f"x{i}" for i in range(FEATURES)), "y")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One draw of the experiment.

    Attributes:
        weights: (10,) w.
        rows: (n, 11) features and label, all within [-1, 1].
    """

    weights: Array
    rows: Array


def make_table(n: int, draw: np.random.Generator) -> Table:
    """Weights and n rows."""
    w = draw.uniform(-1, 1, FEATURES)
    w /= np.abs(w).sum()
    x = draw.uniform(-1, 1, (n, FEATURES))
    return Table(w, np.column_stack([x, x @ w]))


def release_spec(n: int, epsilon: float) -> ReleaseSpec:
    """Commingle's defaults: zCDP calibration, planned k, the paper's adjacency.

    row_norm is public knowledge: d columns of U(-1, 1) have norm about sqrt(d/3); of the label only its bound is known.
    """
    ends = np.cumsum((0, *SIZES))
    parties = tuple(
        StudyParty(
            name=f"party{number}",
            dataset="table",
            attributes=tuple(NumericAttribute(name=name, lower=-1, upper=1) for name in _NAMES[start:end]),
            row_norm=sqrt((end - start) / 3),
        )
        for number, (start, end) in enumerate(pairwise(ends))
    )
    return proposed(Study(study="wu2022", subjects="listed", epsilon=epsilon, delta=DELTA, n=n, parties=parties))


def our_weights(spec: ReleaseSpec, moments: SecondMoments) -> dict[str, Array]:
    """The ten slopes by estimator; the intercept is fitted, as by default, and left out."""
    prepared = PreparedMoments.of(moments, spec.attributes)
    requests = {name: FitRequest(target="y", estimator=name) for name in ESTIMATORS}
    return {name: fit_prepared(prepared, request).coefficients[1:] for name, request in requests.items()}


def published_errors(table: Table, S: Array, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """||w_hat - w|| of every published method and every k."""
    n, noise = len(table.rows), noise_variances(SIZES, epsilon)
    G = dgm(S, noise, n, draw)
    fits = {"OLS": ols(S, n), "BGM-OLS": ols(G, n), "DGM-OLS": dgm_ols(G, noise, n)}
    sketches = {f"RMGM-OLS k={rule}": choose(n, epsilon) for rule, choose in RULES.items()}
    sketches |= {f"RMGM-OLS k={k}": k for k in GRID}
    fits |= {name: ols(rmgm_gram(S, noise, k, draw), n) for name, k in sketches.items()}
    return {name: float(np.linalg.norm(found - table.weights)) for name, found in fits.items()}


def our_errors(spec: ReleaseSpec, table: Table, S: Array, draw: np.random.Generator) -> dict[str, float]:
    """||w_hat - w|| of Commingle's estimators on one release; S is of the clipped rows, so clipping is counted."""
    fits = our_weights(spec, drawn_moments(spec, S, draw))
    return {f"Commingle {name}": float(np.linalg.norm(found - table.weights)) for name, found in fits.items()}


def attributes_of() -> tuple[NumericAttribute, ...]:
    """Features and label."""
    return tuple(NumericAttribute(name=name, lower=-1, upper=1) for name in _NAMES)


def shares_of() -> list[PartyShare]:
    """The three parties, without row norm."""
    ends = np.cumsum((0, *SIZES))
    return [PartyShare(f"party{k}", attributes_of()[start:end]) for k, (start, end) in enumerate(pairwise(ends))]


def moments_errors(table: Table, S: Array, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """||w_hat - w|| of `shrunken` on one `moments` release of the same parties, without row norm."""
    attributes, variance = attributes_of(), entry_variance(shares_of(), epsilon=epsilon, delta=DELTA)
    n, sums = len(table.rows), table.rows.sum(axis=0)
    whole = np.block([[np.array([[n]]), sums[None, :]], [sums[:, None], S]])
    prepared = PreparedMoments.of(noisy_moments(whole, variance, attributes, draw), attributes)
    found = fit_prepared(prepared, FitRequest(target="y", estimator="shrunken")).coefficients[1:]
    return {"Commingle moments": float(np.linalg.norm(found - table.weights))}


def cells(n: int, epsilons: Sequence[float], *, trials: int) -> list[dict[str, Any]]:
    """One record per epsilon: statistics of the errors over `trials` tables of n rows, each released once."""
    specs = {epsilon: release_spec(n, epsilon) for epsilon in epsilons}
    errors: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in epsilons}
    norms = []
    for trial in range(trials):
        draw, apart = np.random.default_rng([n, trial]), np.random.default_rng([n, trial, 1])
        table = make_table(n, draw)
        S = table.rows.T @ table.rows
        clipped = private_moments(integer_rows(specs[epsilons[0]], table.rows))  # row_norm is the same for all epsilon
        norms.append(float(np.linalg.norm(table.weights)))
        for epsilon, spec in specs.items():
            found = published_errors(table, S, epsilon, draw) | our_errors(spec, table, clipped, draw)
            errors[epsilon].append(found | moments_errors(table, S, epsilon, apart))
    return [_record(n, specs[epsilon], norms, errors[epsilon]) for epsilon in epsilons]


def _record(n: int, spec: ReleaseSpec, norms: list[float], errors: list[dict[str, float]]) -> dict[str, Any]:
    methods = {name: statistics(np.array([found[name] for found in errors])) for name in errors[0]}
    best = min((f"RMGM-OLS k={k}" for k in GRID), key=lambda name: methods[name]["mean"])
    methods["RMGM-OLS best k"] = {**methods[best], "k": int(best.rpartition("=")[2])}
    return {
        "n": n,
        "epsilon": spec.epsilon,
        "norm_of_w": float(np.mean(norms)),
        "commingle_k": spec.k,
        "rule_k": {rule: choose(n, spec.epsilon) for rule, choose in RULES.items()},
        "methods": methods,
    }


def statistics(errors: Array) -> dict[str, float]:
    """Mean of the errors with its standard error, their median, and the share above THRESHOLD."""
    return {
        "mean": float(errors.mean()),
        "standard_error": float(errors.std(ddof=1) / sqrt(len(errors))),
        "median": float(np.median(errors)),
        "above_threshold": float((errors > THRESHOLD).mean()),
    }


def eigenvalues(n: int, epsilon: float, *, trials: int) -> dict[str, list[tuple[float, float]]]:
    """(smallest |eigenvalue| of the Hessian, ||w_hat - w||) of DGM-OLS and BGM-OLS, one table, `trials` releases."""
    draw = np.random.default_rng([n, 77])
    table = make_table(n, draw)
    S, noise = table.rows.T @ table.rows, noise_variances(SIZES, epsilon)
    points: dict[str, list[tuple[float, float]]] = {"DGM-OLS": [], "BGM-OLS": []}
    for _ in range(trials):
        G = dgm(S, noise, n, draw)
        for name, H, found in (
            ("DGM-OLS", debiased_hessian(G, noise, n), dgm_ols(G, noise, n)),
            ("BGM-OLS", hessian(G, n), ols(G, n)),
        ):
            least, error = np.abs(np.linalg.eigvalsh(H)).min(), np.linalg.norm(found - table.weights)
            points[name].append((float(f"{least:.4g}"), float(f"{error:.4g}")))  # no more than a picture shows
    return points


def example(n: int, epsilon: float) -> tuple[ReleaseSpec, Table, tuple[Integers, ...]]:
    """A spec, a table and its integer rows, for comparing the law with releases made for real."""
    spec, table = release_spec(n, epsilon), make_table(n, np.random.default_rng([n, 99]))
    return spec, table, integer_rows(spec, table.rows)
