"""The real tables of Wu et al. 2022, as their code treats them, and Commingle's defaults on the same splits.

Four fifths to train, columns scaled to [0, 1], parties of equal numbers of columns with the label last, no intercept.
Test MSE is in units of the scaled label, predictions clamped to [-1, 1]. Commingle gets the bounds 0 and 1 as public
bounds, encodes them to [-1, 1] itself, plans k, and fits `shrunken`, its default for predictions, with an intercept.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np

from benchmarks.moments_noise import entry_variance, noisy_moments
from benchmarks.release_law import (
    Array,
    dgm_gram,
    drawn_moments,
    integer_rows,
    private_moments,
    proposed,
    rmgm_gram,
)
from benchmarks.tables import columns
from benchmarks.wu2022_methods import DELTA, GRID, debiased_hessian, dgm_ols, hessian, noise_variances, ols
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study, StudyParty

TABLES: Mapping[str, int] = {"insurance_numeric": 5, "bike_hour": 5, "gpu_sgemm": 5, "superconductor_500": 10}
EPSILONS = (0.1, 0.3, 1.0)
ESTIMATORS = ("shrunken", "constant")


def load(data: Path, name: str) -> Array:
    """Features and label, (n, p), each scaled to [0, 1] by its least and greatest value."""
    values = np.column_stack(columns(data, name))
    low, high = values.min(axis=0), values.max(axis=0)
    varying = high > low
    return np.asarray((values[:, varying] - low[varying]) / (high - low)[varying])


def party_sizes(columns: int, parties: int) -> list[int]:
    """Numbers of columns as equal as can be."""
    return [len(part) for part in np.array_split(np.arange(columns), parties)]


def release_spec(
    n: int, sizes: list[int], epsilon: float, *, mechanism: Literal["rmgm", "dgm"] = "rmgm"
) -> ReleaseSpec:
    """Commingle's defaults; no row_norm, since nothing but the bounds is public."""
    ends = np.cumsum([0, *sizes])
    names = [*(f"x{i}" for i in range(ends[-1] - 1)), "y"]
    parties = tuple(
        StudyParty(
            name=f"party{number}",
            dataset="table",
            attributes=tuple(NumericAttribute(name=name, lower=0, upper=1) for name in names[start:end]),
            first_stage_share=None,  # the paper has one stage
        )
        for number, (start, end) in enumerate(pairwise(ends))
    )
    study = Study(
        study="wu2022", mechanism=mechanism, subjects="listed", epsilon=epsilon, delta=DELTA, n=n, parties=parties
    )
    return proposed(study)


def clamped_error(test: Array, slopes: Array, intercept: float = 0.0) -> float:
    """Mean squared error with predictions clamped to [-1, 1]."""
    predicted = np.clip(intercept + test[:, :-1] @ slopes, -1, 1)
    return float(np.mean((predicted - test[:, -1]) ** 2))


def published_errors(
    S: Array, n: int, test: Array, *, sizes: list[int], epsilon: float, draw: np.random.Generator
) -> dict[str, float]:
    """Test MSE of the paper's private fits."""
    noise = noise_variances(sizes, epsilon)
    G = dgm_gram(S, noise, n, draw)
    fits = {"BGM-OLS": ols(G, n), "DGM-OLS": dgm_ols(G, noise, n)}
    for name, k in {"n^(2/3)": round(n ** (2 / 3)), **{str(k): k for k in GRID}}.items():
        fits[f"RMGM-OLS k={name}"] = ols(rmgm_gram(S, noise, k, draw), n)
    return {name: clamped_error(test, slopes) for name, slopes in fits.items()}


def our_errors(spec: ReleaseSpec, moments: SecondMoments, test: Array) -> dict[str, float]:
    """Test MSE of Commingle's fits of one release."""
    prepared, found = PreparedMoments.of(moments, spec.attributes), {}
    for name in ESTIMATORS:
        b = np.zeros(test.shape[1])
        fitted = fit_prepared(prepared, FitRequest(target="y", estimator=name)).coefficients
        b[: len(fitted)] = fitted
        found[f"Commingle {name}"] = clamped_error(test, b[1:], b[0])
    return found


def moments_error(S: Array, test: Array, *, sizes: list[int], epsilon: float, draw: np.random.Generator) -> float:
    """Test MSE of `shrunken` on one `moments` release of the same parties; S is of encoded rows, intercept first."""
    attributes = release_spec(round(S[0, 0]), sizes, epsilon).attributes
    ends = np.cumsum([0, *sizes])
    shares = [PartyShare(f"party{k}", attributes[start:end]) for k, (start, end) in enumerate(pairwise(ends))]
    variance = entry_variance(shares, epsilon=epsilon, delta=DELTA)
    prepared = PreparedMoments.of(noisy_moments(S, variance, attributes, draw), attributes)
    b = fit_prepared(prepared, FitRequest(target="y", estimator="shrunken")).coefficients
    return clamped_error(test, b[1:], b[0])


def eigenvalues(values: Array, name: str, epsilon: float, *, trials: int) -> dict[str, list[tuple[float, float]]]:
    """Figure 3b: (smallest |eigenvalue| of the Hessian, ||w_hat - w||), w of least squares on the same rows."""
    sizes, n = party_sizes(values.shape[1], TABLES[name]), len(values) * 4 // 5
    draw = np.random.default_rng([n, 78])
    train = values[draw.permutation(len(values))[:n]]
    S, noise = train.T @ train, noise_variances(sizes, epsilon)
    plain, points = ols(S, n), {"DGM-OLS": list[tuple[float, float]](), "BGM-OLS": list[tuple[float, float]]()}
    for _ in range(trials):
        G = dgm_gram(S, noise, n, draw)
        for method, H, found in (
            ("DGM-OLS", debiased_hessian(G, noise, n), dgm_ols(G, noise, n)),
            ("BGM-OLS", hessian(G, n), ols(G, n)),
        ):
            least, error = np.abs(np.linalg.eigvalsh(H)).min(), np.linalg.norm(found - plain)
            points[method].append((float(f"{least:.4g}"), float(f"{error:.4g}")))  # no more than a picture shows
    return points


def measure(values: Array, name: str, *, seeds: int) -> dict[str, Any]:
    """One table: mean test MSE of every method and epsilon over that many splits and releases."""
    sizes = party_sizes(values.shape[1], TABLES[name])
    n = len(values) * 4 // 5
    specs = {epsilon: release_spec(n, sizes, epsilon) for epsilon in EPSILONS}
    errors: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in EPSILONS}
    for seed in range(seeds):
        draw, apart = np.random.default_rng([n, seed]), np.random.default_rng([n, seed, 1])
        train, test = np.split(values[draw.permutation(len(values))], [n])
        S = train.T @ train
        encoded = private_moments(integer_rows(specs[EPSILONS[0]], 2 * train - 1))
        public = {
            "OLS": clamped_error(test, ols(S, n)),
            "constant": clamped_error(test, np.zeros(len(S) - 1), float(train[:, -1].mean())),
        }
        for epsilon, spec in specs.items():
            ours = our_errors(spec, drawn_moments(spec, encoded, draw), test)
            ours["Commingle moments"] = moments_error(encoded, test, sizes=sizes, epsilon=epsilon, draw=apart)
            errors[epsilon].append(
                public | published_errors(S, n, test, sizes=sizes, epsilon=epsilon, draw=draw) | ours
            )
    cells = [_record(specs[epsilon], errors[epsilon]) for epsilon in EPSILONS]
    return {"table": name, "n": n, "features": values.shape[1] - 1, "parties": len(sizes), "cells": cells}


def _record(spec: ReleaseSpec, errors: list[dict[str, float]]) -> dict[str, Any]:
    columns = {name: np.array([found[name] for found in errors]) for name in errors[0]}
    methods = {
        name: {"mean": float(column.mean()), "standard_error": float(column.std(ddof=1) / sqrt(len(column)))}
        for name, column in columns.items()
    }
    best = min((f"RMGM-OLS k={k}" for k in GRID), key=lambda name: methods[name]["mean"])
    methods["RMGM-OLS best k"] = {**methods[best], "k": int(best.rpartition("=")[2])}
    return {"epsilon": spec.epsilon, "commingle_k": spec.k, "methods": methods}
