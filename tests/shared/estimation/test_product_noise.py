"""Noise of tables by parts is that of all forms at once, in time and memory that tables of many levels leave."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from commingle.services.analysis import cross_table
from commingle.services.analysis.tables import independence
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.entry_noise import Array, PairLaw, inverse_form
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import mapped
from tests.world.categorical import release_of

STAGE = CategoricalAttribute(name="stage", levels=("i", "ii", "iii"), missing="indicator")
SITE = CategoricalAttribute(name="site", levels=("a", "b", "c", "d"))
BACK = BinaryAttribute(name="back", levels=("no", "yes"))


def released(overlap: float | None) -> PreparedMoments:
    draw, n = np.random.default_rng(4), 600
    cells: dict[str, list[Any]] = {
        "stage": np.array(["i", "ii", "iii", None])[draw.integers(0, 4, n)].tolist(),
        "site": draw.choice(SITE.levels, n, p=[0.6, 0.3, 0.06, 0.04]).tolist(),
        "back": draw.choice(BACK.levels, n).tolist(),
    }
    return release_of((STAGE, SITE, BACK), (2, 1), cells, epsilon=3.0, overlap=overlap, seed=1)


DRAW = np.random.default_rng(2)
VARIANCE, ROWS = DRAW.uniform(1, 2, (6, 6)), DRAW.normal(size=(9, 6))
SAME = np.equal.outer(*[np.arange(6) // 3] * 2) * 1.0
VARIANCE, GRAM = VARIANCE + VARIANCE.T, ROWS.T @ ROWS
LAWS: dict[str, tuple[PairLaw, Callable[[Array, Array], float]]] = {
    "entries": (PairLaw.of_entries(VARIANCE), lambda W, U: np.sum(W * U * VARIANCE * (2 - np.eye(6)))),
    "rows": (PairLaw.of_rows(GRAM, 9), lambda W, U: 2 / 9 * np.trace(W @ GRAM @ U @ GRAM)),
    "strangers": (
        PairLaw(7 - 7 * SAME, GRAM * SAME),
        lambda W, U: 2 * np.sum(W * (7 - 7 * SAME) * (GRAM * SAME @ U @ (GRAM * SAME))),
    ),
}


@pytest.mark.parametrize("kind", LAWS)
def test_law_of_noise_has_the_covariances_of_its_kind_whatever_columns_rows_share(kind: str) -> None:
    law, covariance = LAWS[kind]
    draw = np.random.default_rng(3)
    left, right = draw.normal(size=(3, 6)), draw.normal(size=(2, 6)) * (np.arange(6) < 4)
    left[0, 1:] = left[1, 2:] = 0
    forms = products(left, right)
    expected = np.array([[covariance(W, U) for U in forms] for W in forms])
    assert law.covariances(forms) == pytest.approx(expected)
    assert law.across(left, right).reshape(6, 6) == pytest.approx(expected)
    assert law.variances(left, right).ravel() == pytest.approx(np.diag(expected))
    assert [np.sum(law.along(forms[0]) * form) for form in forms] == pytest.approx(expected[0])
    used = np.array([0, 2, 5])
    some = forms * np.isin(np.arange(6), used) * np.isin(np.arange(6), used)[:, None]
    assert law.on(used).covariances(some[:, used[:, None], used]) == pytest.approx(law.covariances(some))


@pytest.mark.parametrize("overlap", [None, 0.8])
@pytest.mark.parametrize("pair", [("stage", "site"), ("site", "back"), ("site", "site")])
def test_tables_by_parts_are_those_of_all_forms(overlap: float | None, pair: tuple[str, str]) -> None:
    sums = CrossProducts.of(released(overlap))
    (_, left), (_, right) = map(sums.levels, pair)
    counts, covariance = sums.sums(products(left, right))
    cells = Cells.of(sums, *pair)
    assert cells.counts.ravel() == pytest.approx(counts)
    assert cells.noise.covariance == pytest.approx(covariance, rel=1e-9, abs=1e-9)
    assert cells.errors.ravel() == pytest.approx(np.sqrt(np.diag(covariance)))
    w = np.random.default_rng(1).normal(size=cells.counts.shape)
    assert cells.noise.along(w).ravel() == pytest.approx(covariance @ w.ravel())
    rows, columns = w[:, :2].T, w[:1]
    found, both = cells.sums(rows, columns)
    which = np.asarray(np.kron(rows, columns), np.float64)
    assert found.ravel() == pytest.approx(which @ counts)
    assert both == pytest.approx(mapped(which, covariance + np.diag(np.maximum(counts, 0))))


@pytest.mark.parametrize("overlap", [None, 0.8])
def test_independence_is_that_of_the_whole_covariance(overlap: float | None) -> None:
    cells = Cells.of(CrossProducts.of(released(overlap)), "stage", "site").known().filled()
    c, (rows, columns) = cells.counts, cells.counts.shape
    r, s, total = c.sum(axis=1), c.sum(axis=0), c.sum()
    expected = np.outer(r, s) / total
    # D_ab = c_ab - r_a s_b / T, to first order
    J = np.eye(c.size) + np.tile((expected.ravel() / total)[:, None], c.size)
    J -= np.kron(np.eye(rows), np.outer(s / total, np.ones(columns)))
    J -= np.kron(np.outer(r / total, np.ones(rows)), np.eye(columns))
    kept = [a * columns + b for a in range(rows - 1) for b in range(columns - 1)]
    covariance = mapped(J, cells.noise.covariance + np.diag(expected.ravel()))[np.ix_(kept, kept)]
    D = (c - expected).ravel()[kept]
    statistic, degrees = independence(cells)
    assert statistic == pytest.approx(float(D @ np.linalg.solve(covariance, D)), rel=1e-9)
    assert degrees == len(kept)


def test_form_of_a_covariance_that_is_never_written_down_is_that_of_its_inverse() -> None:
    draw = np.random.default_rng(1)
    turned = np.linalg.qr(draw.normal(size=(8, 8)))[0]
    C = turned @ np.diag(draw.uniform(1, 9, 8)) @ turned.T
    x = draw.normal(size=8)
    assert inverse_form(lambda v: C @ v, np.diag(C), x) == pytest.approx(x @ np.linalg.solve(C, x), rel=1e-10)


def test_form_that_does_not_converge_is_no_number() -> None:
    C = np.diag(10.0 ** np.linspace(-300, 0, 1200))
    assert np.isnan(inverse_form(lambda v: C @ v, np.ones(1200), np.ones(1200)))


@pytest.mark.slow
def test_table_of_127_levels_by_127_takes_little_memory_and_time() -> None:
    """All its covariances would take 2 GB."""
    levels, n = tuple(f"l{i}" for i in range(127)), 60_000
    many = [CategoricalAttribute(name=name, levels=levels) for name in ("a", "b")]
    draw = np.random.default_rng(1)
    a = draw.integers(0, 127, n)
    b = np.where(draw.random(n) < 0.02, a, draw.integers(0, 127, n))
    cells = {name: np.array(levels)[codes].tolist() for name, codes in (("a", a), ("b", b))}
    prepared = release_of((*many, BACK), (2, 1), cells | {"back": ["no", "yes"] * (n // 2)}, epsilon=100.0, seed=1)
    tracemalloc.start()
    found = cross_table(prepared, "a", "b")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert found.degrees_of_freedom == 126**2
    assert found.p_value < 1e-6
