"""Wu et al. 2022, Differentially Private Multi-Party Data Release for Linear Regression: their experiments and ours.

Releases are drawn from the law of their second moments (release_law.py). `law_check` compares this law with releases
that the product's own code makes. Fits of Commingle are the product's.

Synthetic: w of ten weights U(-1, 1) divided by their absolute sum, so that |y| <= 1 whatever the row; x U(-1, 1);
y = x^T w without error. Three parties of 4, 4 and 3 columns, the label last.

Real tables, as their code treats them: four fifths to train, columns scaled to [0, 1], parties of equal numbers of
columns with the label last, no intercept. Test MSE is in units of the scaled label, predictions clamped to [-1, 1].
Hessians are divided by n and get lambda I, lambda = 1e-5.
Commingle gets the public bounds 0 and 1, encodes them to [-1, 1] itself, plans k, and fits `shrunken`, its default for
predictions, with an intercept: once with one stage and listed subjects as in the paper, and once by the defaults of a
study. Tables that are not at hand are left out.

Rates of theorems 1 and 2: w fixed and S = n E[a a^T], as at such n the rows' own chance is nothing beside the noise.
DGM-OLS is to fall like n^(-1/2), RMGM-OLS with k = n^(2/3) like n^(-1/3), but for logarithms and factors of sigma, d.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, Experiment, Panel, Report, draw_panels, generator, spread
from benchmarks.keyed import Setting, predicted
from benchmarks.release_law import (
    Array,
    dgm_gram,
    drawn_moments,
    entry_variance,
    integer_rows,
    made,
    moments_release,
    party_sizes,
    private_moments,
    proposed,
    rmgm_gram,
    study_of,
    tables,
)
from benchmarks.tables import at_hand, scaled
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.noise import rounded_gaussian

DELTA = 1e-5
RIDGE = 1e-5
GRID = (100, 300, 1000, 3000, 10000)
LABEL = "y"


def multiplier(epsilon: float) -> float:
    """Sigma = sqrt(2 ln(1.25/delta))/epsilon (Dwork, Roth 2014, theorem A.1), which the paper uses beyond epsilon 1."""
    return sqrt(2 * log(1.25 / DELTA)) / epsilon


def noise_variances(sizes: Sequence[int], epsilon: float) -> Array:
    """4 d_j sigma^2 for each of the d_j columns of party j, (p,): replace-one neighbours, attributes bounded by 1."""
    return np.concatenate([np.full(size, 4 * size * multiplier(epsilon) ** 2) for size in sizes])


def sketch_size(n: int) -> int:
    return round(float(n ** (2 / 3)))


def hessian(G: Array, n: int) -> Array:
    """G_xx/n + lambda I, (p - 1, p - 1)."""
    return G[:-1, :-1] / n + RIDGE * np.eye(len(G) - 1)


def ols(G: Array, n: int) -> Array:
    """(G_xx/n + lambda I)^-1 G_xy/n: OLS on S itself, BGM-OLS on a dgm release, RMGM-OLS on an rmgm release."""
    return np.asarray(np.linalg.solve(hessian(G, n), G[:-1, -1] / n), dtype=np.float64)


def debiased_hessian(G: Array, noise: Array, n: int) -> Array:
    """G_xx/n - V_xx + lambda I: DGM-OLS's, whose eigenvalues may come arbitrarily close to 0."""
    return hessian(G, n) - np.diag(noise[:-1])


def dgm_ols(G: Array, noise: Array, n: int) -> Array:
    """(G_xx/n - V_xx + lambda I)^-1 G_xy/n."""
    return np.asarray(np.linalg.solve(debiased_hessian(G, noise, n), G[:-1, -1] / n), dtype=np.float64)


def published(S: Array, n: int, sizes: Sequence[int], epsilon: float, draw: np.random.Generator) -> dict[str, Array]:
    """Coefficients of every published private fit, of RMGM-OLS with the k of theorem 2 and of the grid."""
    noise = noise_variances(sizes, epsilon)
    G = dgm_gram(S, noise, n, draw)
    sketches = {"n^(2/3)": sketch_size(n), **{str(k): k for k in GRID}}
    fits = {"BGM-OLS": ols(G, n), "DGM-OLS": dgm_ols(G, noise, n)}
    return fits | {f"RMGM-OLS k={name}": ols(rmgm_gram(S, noise, k, draw), n) for name, k in sketches.items()}


def ours(spec: ReleaseSpec, moments: SecondMoments, estimators: Sequence[str]) -> dict[str, Array]:
    """Coefficients of Commingle's fits of one release, the intercept first, 0 where a fit has none."""
    prepared, found = PreparedMoments.of(moments, spec.terms.attributes), {}
    for name in estimators:
        fitted = fit_prepared(prepared, LABEL, estimator=name).coefficients
        found[f"Commingle {name}"] = np.pad(fitted, (0, len(spec.terms.attributes) - len(fitted)))
    return found


def of_moments(
    S: Array, attributes: Sequence[Attribute], sizes: Sequence[int], epsilon: float, draw: np.random.Generator
) -> Array:
    """Coefficients of `shrunken` on one `moments` release of the same parties; S has the intercept first."""
    prepared = moments_release(S, entry_variance(attributes, sizes, epsilon=epsilon), attributes, draw)
    return fit_prepared(prepared, LABEL, estimator="shrunken").coefficients


def eigenvalues(
    S: Array, n: int, sizes: Sequence[int], truth: Array, *, trials: int, draw: np.random.Generator
) -> dict[str, list[tuple[float, float]]]:
    """(smallest |eigenvalue| of the Hessian, ||w_hat - w||) of DGM-OLS and BGM-OLS, `trials` releases at epsilon 1."""
    noise = noise_variances(sizes, 1.0)
    points: dict[str, list[tuple[float, float]]] = {"DGM-OLS": [], "BGM-OLS": []}
    for _ in range(trials):
        G = dgm_gram(S, noise, n, draw)
        for name, H, found in (
            ("DGM-OLS", debiased_hessian(G, noise, n), dgm_ols(G, noise, n)),
            ("BGM-OLS", hessian(G, n), ols(G, n)),
        ):
            least, error = np.abs(np.linalg.eigvalsh(H)).min(), np.linalg.norm(found - truth)
            points[name].append((float(f"{least:.4g}"), float(f"{error:.4g}")))  # no more than a picture shows
    return points


EPSILONS = (0.1, 0.3, 1.0, 3.0)
N = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
FEATURES, SIZES = 10, (4, 4, 3)
ATTRIBUTES = tuple(NumericAttribute(name=name, lower=-1, upper=1) for name in (*(f"x{i}" for i in range(10)), LABEL))
ESTIMATORS = ("measurement_error", "adaptive_ridge", "shrunken")
THRESHOLDS = (0.1, 0.2, 0.3)
"""Of figure 2, whose own thresholds our text of the paper lacks. Weights of 0 err by about 0.36."""
TABLES: Mapping[str, int] = {"insurance_numeric": 5, "bike_hour": 5, "gpu_sgemm": 5, "superconductor_500": 10}
LARGE = tuple(10**power for power in range(5, 13))
EXPONENTS = {"DGM-OLS": -1 / 2, "RMGM-OLS k=n^(2/3)": -1 / 3}
_RATED = ("DGM-OLS", "RMGM-OLS k=n^(2/3)", "RMGM-OLS best k", "Commingle moments")
_KS = tuple(round(10 ** (power / 2)) for power in range(4, 17))  # 100 to 10^8
_SHOWN = ("bike_hour", "gpu_sgemm")  # figure 3b: the largest of the paper's tables that are whole
_SYNTHETIC = (
    *("BGM-OLS", "DGM-OLS", "RMGM-OLS k=n^(2/3)", "RMGM-OLS best k"),
    *("Commingle measurement_error", "Commingle shrunken", "Commingle moments"),
)
_REAL = (
    *("OLS", "constant", "BGM-OLS", "DGM-OLS", "RMGM-OLS k=n^(2/3)", "RMGM-OLS best k"),
    *("Commingle constant", "Commingle shrunken", "Commingle moments"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """One draw of the synthetic experiment: (10,) w, and (n, 11) features and label, all within [-1, 1]."""

    weights: Array
    rows: Array


def make_table(n: int, draw: np.random.Generator) -> Table:
    w = draw.uniform(-1, 1, FEATURES)
    w /= np.abs(w).sum()
    x = draw.uniform(-1, 1, (n, FEATURES))
    return Table(w, np.column_stack([x, x @ w]))


def synthetic_spec(n: int, epsilon: float) -> ReleaseSpec:
    """Commingle's defaults; row norms are public: d columns of U(-1, 1) have norm about sqrt(d/3)."""
    study = study_of(ATTRIBUTES, SIZES, n, epsilon)
    parties = (p.model_copy(update={"row_norm": sqrt(len(p.attributes) / 3)}) for p in study.parties)
    return proposed(study.model_copy(update={"parties": tuple(parties)}))


def distances(fits: Mapping[str, Array], weights: Array) -> dict[str, float]:
    """||w_hat - w|| of each fit, without the intercept where it has one."""
    return {name: float(np.linalg.norm(found[-FEATURES:] - weights)) for name, found in fits.items()}


def cells(n: int, epsilons: Sequence[float], *, trials: int) -> list[dict[str, Any]]:
    specs = {epsilon: synthetic_spec(n, epsilon) for epsilon in epsilons}
    errors: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in epsilons}
    norms = []
    for trial in range(trials):
        draw, apart = generator(n, trial), generator(n, trial, 1)
        table = make_table(n, draw)
        S, sums = table.rows.T @ table.rows, table.rows.sum(axis=0)
        whole = np.block([[np.array([[n]]), sums[None, :]], [sums[:, None], S]])
        clipped = private_moments(integer_rows(specs[epsilons[0]], table.rows))  # row_norm is the same for all epsilon
        norms.append(float(np.linalg.norm(table.weights)))
        for epsilon, spec in specs.items():
            fits = {"OLS": ols(S, n)} | published(S, n, SIZES, epsilon, draw)
            fits |= ours(spec, drawn_moments(spec, clipped, draw), ESTIMATORS)
            fits["Commingle moments"] = of_moments(whole, ATTRIBUTES, SIZES, epsilon, apart)
            errors[epsilon].append(distances(fits, table.weights))
    of_w = float(np.mean(norms))
    return [{"n": n, "norm_of_w": of_w, **_record(specs[epsilon], errors[epsilon])} for epsilon in epsilons]


def _record(spec: ReleaseSpec, errors: list[dict[str, float]]) -> dict[str, Any]:
    found = {name: np.array([each[name] for each in errors]) for name in errors[0]}
    record: dict[str, Any] = {
        name: {**spread(values), "above": [float((values > threshold).mean()) for threshold in THRESHOLDS]}
        for name, values in found.items()
    }
    best = min((f"RMGM-OLS k={k}" for k in GRID), key=lambda name: float(record[name]["mean"]))
    record["RMGM-OLS best k"] = {**record[best], "k": int(best.rpartition("=")[2])}
    return {"epsilon": spec.epsilon, "commingle_k": spec.k, "methods": record}


def of_scatter(n: int, *, trials: int) -> dict[str, list[tuple[float, float]]]:
    draw = generator(n, 77)
    table = make_table(n, draw)
    S = table.rows.T @ table.rows
    return eigenvalues(S, n, SIZES, table.weights, trials=trials, draw=draw)


def of_real_scatter(values: Array, parties: int, *, trials: int) -> dict[str, list[tuple[float, float]]]:
    """Figure 3b: the same of a real table (m, p); the truth is least squares on the same rows."""
    n = len(values) * 4 // 5
    draw = generator(n, 78)
    train = values[draw.permutation(len(values))[:n]]
    S, sizes = train.T @ train, party_sizes(values.shape[1], parties)
    return eigenvalues(S, n, sizes, ols(S, n), trials=trials, draw=draw)


def clamped_error(test: Array, slopes: Array, intercept: float = 0.0) -> float:
    """Mean squared error with predictions clamped to [-1, 1]."""
    predicted = np.clip(intercept + test[:, :-1] @ slopes, -1, 1)
    return float(np.mean((predicted - test[:, -1]) ** 2))


def real(values: Array, name: str, *, seeds: int) -> dict[str, Any]:
    """One table: mean test MSE of every method and epsilon over that many splits and releases."""
    sizes, n, p = party_sizes(values.shape[1], TABLES[name]), len(values) * 4 // 5, values.shape[1]
    attributes = [NumericAttribute(name=f"x{i}" if i < p - 1 else LABEL, lower=0, upper=1) for i in range(p)]
    specs = {  # nothing but the bounds is public, and the paper has one stage
        epsilon: proposed(study_of(attributes, sizes, n, epsilon, first_stage_share=None)) for epsilon in EPSILONS[:3]
    }
    errors: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in specs}
    for seed in range(seeds):
        draw, apart = generator(n, seed), generator(n, seed, 1)
        train, test = np.split(values[draw.permutation(len(values))], [n])
        S = train.T @ train
        encoded = private_moments(integer_rows(specs[EPSILONS[0]], 2 * train - 1))
        mean = float(train[:, -1].mean())
        known = {"OLS": clamped_error(test, ols(S, n)), "constant": clamped_error(test, np.zeros(p - 1), mean)}
        for epsilon, spec in specs.items():
            own = ours(spec, drawn_moments(spec, encoded, draw), ("shrunken", "constant"))
            theirs = published(S, n, sizes, epsilon, draw)
            own["Commingle moments"] = of_moments(encoded, attributes, sizes, epsilon, apart)
            found = {method: clamped_error(test, slopes) for method, slopes in theirs.items()}
            found |= {method: clamped_error(test, b[1:], b[0]) for method, b in own.items()}
            errors[epsilon].append(known | found)
    records = [_record(specs[epsilon], errors[epsilon]) for epsilon in specs]
    return {"table": name, "n": n, "features": p - 1, "parties": len(sizes), "cells": records}


def as_proposed(values: Array, parties: int, *, seeds: int) -> dict[str, Any]:
    """Test MSE at epsilon 1 with a study's own terms: keyed, two stages. None where fits are refused."""
    found: dict[str, Any] = {}
    for mechanism in ("moments", "rmgm"):
        errors: list[float] = []
        for seed in range(seeds):
            draw = generator(len(values), seed, 2)
            train, test = np.split(2 * values[draw.permutation(len(values))] - 1, [len(values) * 4 // 5])
            setting = Setting(mechanism, len(train), 1.0, overlap=1.0)
            guess = predicted(train, test, setting, parties=parties, keyed=True, draw=draw)
            if guess is not None:
                errors.append(float(np.mean((test[:, -1] - guess) ** 2)) / 4)  # labels within [0, 1]
        found[mechanism] = {**spread(errors), "answered": len(errors)} if errors else None
    return found


def expected_moments(weights: Array) -> Array:
    """E[a a^T] of features U(-1, 1) and their label, (11, 11)."""
    cross = weights / 3
    return np.block([[np.eye(FEATURES) / 3, cross[:, None]], [cross[None], np.array([[weights @ cross]])]])


def errors_at(n: int, weights: Array, epsilon: float, draw: np.random.Generator) -> dict[str, float]:
    """||w_hat - w|| of one release by every method, as the theorems have it."""
    S, noise = n * expected_moments(weights), noise_variances(SIZES, epsilon)
    fits = {"DGM-OLS": dgm_ols(dgm_gram(S, noise, n, draw), noise, n)}
    for k in {sketch_size(n), *_KS}:
        fits[f"k={k}"] = ols(rmgm_gram(S, noise, k, draw), n)
    fits["RMGM-OLS k=n^(2/3)"] = fits[f"k={sketch_size(n)}"]
    whole = np.zeros((FEATURES + 2, FEATURES + 2))
    whole[0, 0], whole[1:, 1:] = n, S
    fits["Commingle moments"] = of_moments(whole, ATTRIBUTES, SIZES, epsilon, draw)
    return distances(fits, weights)


def rates(sizes: Sequence[int], epsilon: float, *, trials: int) -> list[dict[str, Any]]:
    """Median errors over n; the best k is the one with the least median."""
    found = []
    for n in sizes:
        errors = [
            errors_at(n, make_table(1, generator(trial, 9)).weights, epsilon, generator(n % 2**32, trial, 8))
            for trial in range(trials)
        ]
        medians = {name: float(np.median([each[name] for each in errors])) for name in errors[0]}
        best = min((f"k={k}" for k in _KS), key=medians.__getitem__)
        medians["RMGM-OLS best k"] = medians[best]
        kept = {name: medians[name] for name in _RATED}
        found.append({"n": n, "best_k": int(best.removeprefix("k=")), "median": kept, "epsilon": epsilon})
    return found


def law_check(n: int, epsilon: float, *, releases: int) -> dict[str, Any]:
    """Mean ||w_hat - w|| over releases of one table that are made, and over as many drawn from their law."""
    spec, table = synthetic_spec(n, epsilon), make_table(n, generator(n, 99))
    S, draw = private_moments(integer_rows(spec, table.rows)), generator(n, 5)
    held = tables(table.rows, SIZES, None, draw)
    report: dict[str, Any] = {"n": n, "epsilon": epsilon, "k": spec.k, "releases": releases}
    for kind in ("exact", "law"):
        errors = []
        for _ in range(releases):
            seeded = spec.model_copy(update={"seed": draw.bytes(32).hex()})
            exact = kind == "exact"
            moments = made(seeded, held, rounded_gaussian)[0] if exact else drawn_moments(spec, S, draw)
            errors.append(distances(ours(spec, moments, ESTIMATORS), table.weights))
        report[kind] = {name: spread([each[name] for each in errors]) for name in errors[0]}
    return report


def measure(asked: Asked) -> Report:
    quick, trials = asked.quick, asked.times(5, 100)
    sizes, n = (N[0], N[2]) if quick else N, 10_000 if quick else 1_000_000
    values = {name: scaled(asked.data, name) for name in at_hand(asked.data, list(TABLES)[: 1 if quick else None])}
    return {
        "delta": DELTA,
        "trials": trials,
        "synthetic": [cell for n in sizes for cell in cells(n, EPSILONS, trials=trials)],
        "eigenvalues": {"n": n, "points": of_scatter(n, trials=4 * trials)},
        "rates": rates(LARGE[::4] if quick else LARGE, 1.0, trials=asked.times(5, 50)),
        "eigenvalues_real": {
            name: of_real_scatter(values[name], TABLES[name], trials=4 * trials) for name in _SHOWN if name in values
        },
        "law_check": law_check(2_000 if quick else 20_000, 10.0, releases=asked.times(4, 500)),
        "real": [real(table, name, seeds=asked.times(2, 100)) for name, table in values.items()],
        "as_proposed": {
            name: as_proposed(table, TABLES[name], seeds=asked.times(1, 10)) for name, table in values.items()
        },
    }


def draw(report: Report, folder: Path) -> None:
    """Figure 2, a row of panels per epsilon but the least; errors against smallest eigenvalues; theorems' rates."""
    panels = []
    for epsilon in EPSILONS[1:]:
        chosen = [cell for cell in report["synthetic"] if cell["epsilon"] == epsilon]
        for place, threshold in enumerate(THRESHOLDS):
            shares = {m: [(c["n"], c["methods"][m]["above"][place]) for c in chosen] for m in _SYNTHETIC}
            label = f"share with ‖ŵ-w‖ > {threshold:g}"
            panels.append(Panel(f"ε = {epsilon:g}", "subjects n", label, shares, {}, log_y=False))
        means = {m: [(c["n"], c["methods"][m]["mean"]) for c in chosen] for m in _SYNTHETIC}
        nothing = {"w = 0 for all": [(c["n"], c["norm_of_w"]) for c in chosen]}
        panels.append(Panel(f"ε = {epsilon:g}", "subjects n", "mean of ‖ŵ-w‖", means, nothing, y_limits=(2e-4, 40)))
    draw_panels(folder / "wu2022_synthetic.png", panels, columns=len(THRESHOLDS) + 1)
    scatter = {f"one table, n = {report['eigenvalues']['n']:,}": report["eigenvalues"]["points"]}
    panels = [
        Panel(title, "smallest |eigenvalue| of the Hessian", "‖ŵ-w‖", points, {}, joined=False)
        for title, points in (scatter | report["eigenvalues_real"]).items()
    ]
    draw_panels(folder / "wu2022_eigenvalues.png", panels, columns=len(panels))
    draw_panels(folder / "wu2022_rates.png", [_rates_panel(report["rates"])], columns=1, legend_each=True)


def _rates_panel(found: Sequence[Mapping[str, Any]]) -> Panel:
    over = {name: [(cell["n"], cell["median"][name]) for cell in found] for name in _RATED}
    lines = {}
    for number, (name, exponent) in enumerate(EXPONENTS.items(), start=1):
        end, error = over[name][-1]
        lines[f"theorem {number}"] = [(n, error * (n / end) ** exponent) for n, _ in over[name]]
    return Panel("ε = 1", "subjects n", "median of ‖ŵ-w‖", over, lines)


EXPERIMENT = Experiment("wu2022", __doc__, measure, draw=draw)

if __name__ == "__main__":
    EXPERIMENT.command()
