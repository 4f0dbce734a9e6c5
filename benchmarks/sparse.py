"""Sparse mixing beside dense mixing: coverage of intervals, tails of errors and R^2, released for real.

python -m benchmarks.sparse [--quick] [--data DIR] [--json FILE]

Every release is made by the product's own code, with a seed and noise of its own: `measurement_error` for the 95 %
intervals of all slopes around the fit of the whole table, `shrunken` for R^2 on a fifth of the rows that was held out.
`tail` is the 99 % quantile of |slope - truth| / standard error, 2.58 of a normal law, and the largest. `excess` is the
excess kurtosis of a mixed entry before noise, (k - 3) kappa / n of the column where it is largest
(docs/proofs/projection.md, 3.3).
Real tables of three parties have the planned k; tables with columns that follow from others are left out. Made-up ones
have up to n rows of the sketch, and people who dominate their columns. Of those a second table has what noise hides:
how far the product of two mixed columns is from the product itself, in its standard deviations, over many seeds.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.coverage import slopes
from benchmarks.release_law import Array, exact_moments, integer_rows, private_moments
from benchmarks.reporting import heading, options, row, write_json
from benchmarks.tables import entries
from benchmarks.wu2022_real import load, party_sizes, release_spec
from commingle.services.fit import FitRequest, PreparedMoments, fit_prepared
from commingle.shared.documents.spec import Projection
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.noise import rounded_gaussian
from commingle.shared.mechanisms.rows.sketch import SKETCHES

_PROJECTIONS: tuple[Projection | None, ...] = (None, "sparse")
KINDS = ("normal", "binary", "dominant")
_MADE_UP_ROWS = 5_000
_MOST_PRODUCTS = 3e8  # n k d of one dense release of a real table: larger tables are cut
_EPSILONS = (10.0, 100.0)
_NEARLY_NO_NOISE = 10_000.0
_MOST_CONDITION = 1e8


@dataclass(frozen=True, slots=True)
class Result:
    """One table, k and projection; figures are over all releases, coverage and tail over all slopes too."""

    table: str
    projection: str
    n: int
    k: int
    epsilon: float
    releases: int
    excess: float
    coverage: float
    tail: float
    largest: float
    r_squared: float
    r_squared_deviation: float


def made_up(kind: str, draw: np.random.Generator, n: int = _MADE_UP_ROWS) -> Array:
    """Four features and a label within [0, 1], (n, 5): R^2 about 0.7, the middle encoded as 0."""
    x = draw.normal(0, 0.15, (n, 4)).clip(-0.5, 0.5)
    if kind == "binary":
        x = draw.integers(0, 2, (n, 4)) - 0.5
    size = np.ones(n)
    if kind == "dominant":  # one person in a thousand is at a bound, everybody else near the middle
        size[n // 1000 :] = 0.002
        x = draw.choice([-0.5, 0.5], (n, 4)) * size[:, None]
    y = x @ np.array([0.4, -0.3, 0.2, 0.0])
    return np.column_stack([x, (y + size * draw.normal(0, 0.6 * (y / size).std(), n)).clip(-0.5, 0.5)]) + 0.5


def excess_kurtosis(values: Array, k: int) -> float:
    """(k - 3) sum u^4 / (sum u^2)^2 of encoded columns u, the largest."""
    u = 2 * values - 1
    return float((k - 3) * np.max(np.sum(u**4, axis=0) / np.sum(u**2, axis=0) ** 2))


def compare(name: str, values: Array, *, epsilon: float, k: int | None, releases: int) -> Iterator[Result]:
    """Dense and sparse releases of the same four fifths of a table (n, p) within [0, 1]."""
    draw = np.random.default_rng([len(values), round(epsilon)])
    values = values[draw.permutation(len(values))]
    n = len(values) * 4 // 5
    train, test = values[:n], values[n:]
    spec = release_spec(n, party_sizes(values.shape[1], 3), epsilon)
    blocks = integer_rows(spec, 2 * train - 1)
    S = private_moments(blocks)
    if np.linalg.cond(S) > _MOST_CONDITION:
        return
    truth, chosen = slopes(S), k or spec.k or n
    for projection in _PROJECTIONS:
        changes = {"projection": projection, "k": chosen}
        held, errors, explained = [], [], []
        for _ in range(releases):
            made = spec.model_copy(update={**changes, "seed": draw.bytes(32).hex()})
            prepared = PreparedMoments.of(exact_moments(made, blocks, rounded_gaussian), spec.attributes)
            fit = fit_prepared(prepared, FitRequest(target="y"))
            encoded = np.asarray(fit.coefficients)[1:]
            low, high = fit.intervals[1:].T
            held.append((low <= truth) & (truth <= high))
            errors.append(np.abs(encoded - truth) / np.asarray(fit.standard_errors)[1:])
            b = np.asarray(fit_prepared(prepared, FitRequest(target="y", estimator="shrunken")).coefficients)
            residual = test[:, -1] - b[0] - test[:, :-1] @ b[1:]
            explained.append(1 - np.mean(residual**2) / np.var(test[:, -1]))
        yield Result(
            table=name,
            projection=projection or "dense",
            n=n,
            k=chosen,
            epsilon=epsilon,
            releases=releases,
            excess=excess_kurtosis(train, chosen),
            coverage=float(np.mean(held)),
            tail=float(np.quantile(errors, 0.99)),
            largest=float(np.max(errors)),
            r_squared=float(np.mean(explained)),
            r_squared_deviation=float(np.std(explained)),
        )


def deviations(values: Array, k: int, projection: Projection | None, *, seeds: int) -> Array:
    """(seeds,) of |(S x)^T (S y) / w - x^T y| over its standard deviation, x the first column and y the last.

    The variance is (sum x^2 sum y^2 + (sum xy)^2 - 2 sum x^2 y^2) / k (docs/proofs/projection.md, 3.2).
    """
    q = quantise(2 * values[:, [0, -1]] - 1)
    x, y = q.astype(np.float64).T
    exact, variance = x @ y, ((x @ x) * (y @ y) + (x @ y) ** 2 - 2 * (x * x) @ (y * y)) / k
    sketch, draw, products = SKETCHES[projection], np.random.default_rng(k), np.empty(seeds)
    for i in range(seeds):
        mixed = sketch.mixed_rows(draw.bytes(32), k=k, d=2)
        mixed.add(np.arange(len(q)), q)
        first, last = mixed.total().astype(np.float64).T
        products[i] = first @ last / sketch.squared_norm(k)
    return np.asarray(np.abs(products - exact) / np.sqrt(variance))


def run_without_noise(*, quick: bool) -> list[dict[str, Any]]:
    """Deviations of made-up tables."""
    found = []
    for kind in KINDS:
        values = made_up(kind, np.random.default_rng(1), 500 if quick else _MADE_UP_ROWS)
        for k in (round(len(values) ** (2 / 3)), len(values) // 2):
            facts = {"table": kind, "n": len(values), "k": k, "excess": excess_kurtosis(values, k)}
            both = {p or "dense": deviations(values, k, p, seeds=20 if quick else 1000) for p in _PROJECTIONS}
            tails = {f"{name} tail": float(np.quantile(d, 0.99)) for name, d in both.items()}
            found.append({**facts, **tails, **{f"{name} largest": float(d.max()) for name, d in both.items()}})
    return found


def run(*, quick: bool, data: Path) -> list[Result]:
    """Made-up tables, then the real ones that are there."""
    releases, results = (6 if quick else 150), list[Result]()
    for kind in KINDS:
        values = made_up(kind, np.random.default_rng(1), 500 if quick else _MADE_UP_ROWS)
        n = len(values) * 4 // 5
        for k in (round(n ** (2 / 3)), n // 8, n // 2, n):
            results += compare(f"made up, {kind}", values, epsilon=_NEARLY_NO_NOISE, k=k, releases=releases)
    for about in entries(data):
        if about["rows"] < _MADE_UP_ROWS:
            continue
        values = load(data, about["name"])
        for epsilon in _EPSILONS:
            k = release_spec(len(values), party_sizes(values.shape[1], 3), epsilon).k or 0
            most = int(_MOST_PRODUCTS / k / values.shape[1])
            cut = values[np.random.default_rng(2).permutation(len(values))[:most]]
            results += compare(about["name"], cut, epsilon=epsilon, k=None, releases=max(6, releases // 5))
    return results


def markdown(results: list[Result]) -> str:
    """One line for each table, epsilon and k, dense beside sparse."""
    names = ("table", "n", "k", "n / k", "ε", "excess", "coverage dense", "sparse", "tail dense", "sparse")
    lines = heading(*names, "R² dense", "sparse")
    for dense, sparse in zip(results[::2], results[1::2], strict=True):
        cells = (dense.table, f"{dense.n:,}", f"{dense.k:,}", f"{dense.n / dense.k:.1f}", f"{dense.epsilon:g}")
        pairs = [f"{each.coverage:.3f}" for each in (dense, sparse)]
        pairs += [f"{each.tail:.2f}, {each.largest:.1f}" for each in (dense, sparse)]
        pairs += [f"{each.r_squared:.3f} ± {each.r_squared_deviation:.3f}" for each in (dense, sparse)]
        lines.append(row(*cells, f"{sparse.excess:.2f}", *pairs))
    return "\n".join(lines)


def _line(r: dict[str, Any]) -> str:
    tails = (f"{r[f'{name} tail']:.2f}, {r[f'{name} largest']:.1f}" for name in ("dense", "sparse"))
    return row(r["table"], f"{r['n']:,}", f"{r['k']:,}", f"{r['excess']:.2f}", *tails)


@click.command(help=__doc__)
@options("A few releases of made-up rows, to see that it runs.")
def main(*, quick: bool, data: Path, json_file: Path | None, pictures: Path | None) -> None:
    """Print the table, and write the figures where asked."""
    del pictures  # there are none
    results, without_noise = run(quick=quick, data=data), run_without_noise(quick=quick)
    click.echo(markdown(results))
    click.echo("\n".join(["", *heading("made up", "n", "k", "excess", "dense", "sparse"), *map(_line, without_noise)]))
    report = {"benchmark": "sparse", "results": [asdict(r) for r in results], "without_noise": without_noise}
    write_json(report, json_file)


if __name__ == "__main__":
    main()
