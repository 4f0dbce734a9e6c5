"""Means of keyed people, without noise that the same means elsewhere show."""

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.services.models import glm
from commingle.services.models.factors import Factor
from commingle.services.models.weighted_rows import weighted_rows
from commingle.shared.estimation import cells
from commingle.shared.estimation.cells import Balanced
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from tests.services.models.test_glm import FEATURES, WITHOUT, people, release

NAMES = ("sex", "stage", "smoker", "readmitted")


def parts(sums: CrossProducts) -> tuple[Array, Array]:
    """Of the share of men, of men who were readmitted, and of men among those whom the other party has: W and N."""
    (_, men), (_, readmitted) = (sums.levels(name)[1] for name in ("sex", "readmitted"))
    here, there = sums.present("sex"), sums.present("readmitted")
    return (
        cells.outer(np.array([men, men, men]), np.array([here, readmitted, there])),
        cells.outer(np.array([here] * 3), np.array([here, there, there])),
    )


def balanced(sums: CrossProducts, spread: float = 0.25, selected: float = 0.0) -> Balanced:
    again, groups = np.array([[1.0, 0.0]]), [(0,), (0, 2), (0, 2)]
    return Balanced.of(sums, *parts(sums), groups, again=again, spread=np.array([[spread]]), selected=selected)


def test_means_are_what_is_said_of_those_that_they_are_made_of() -> None:
    sums = CrossProducts.of(release(1.0, 5, 0.9))
    found, (raw, forms) = balanced(sums), cells.ratios(sums, *parts(sums))
    mix = found.mixed(np.eye(2))
    assert found.values == pytest.approx(mix @ raw)
    assert found.forms == pytest.approx(np.tensordot(mix, forms, axes=1))
    assert found.covariance == pytest.approx(sums.covariance(found.forms))
    assert found.within(np.diag([1.0, 2.0])) == pytest.approx(np.array([[1, 0, 1], [0, 2, 0], [1, 0, 1]]))


def test_noise_is_less_and_none_is_left_that_the_difference_shows() -> None:
    sums = CrossProducts.of(release(1.0, 5, 0.9))
    raw = cells.ratios(sums, *parts(sums))[1]
    found, before = balanced(sums), sums.covariance(raw)
    assert found.covariance[1, 1] < 0.7 * before[1, 1]
    assert found.covariance[0, 0] <= before[0, 0]
    as_if_nobody_were_drawn = balanced(sums, spread=0.0)
    difference = raw[2] - raw[0]
    crossed = sums.covariance(np.vstack([as_if_nobody_were_drawn.forms, difference[None]]))
    assert crossed[:2, 2] == pytest.approx(0, abs=1e-6 * np.sqrt(crossed[2, 2] * before[1, 1]))


def test_doubt_is_what_those_who_are_not_shared_move() -> None:
    sums = CrossProducts.of(release(1.0, 5, 0.9))
    found, (whole, n) = balanced(sums, selected=0.5), cells.held(sums, [(0,), (0, 2)])
    moved = found.gain[:, 0] * 0.5 * np.sqrt(0.25) * (1 - n / whole)  # half a standard deviation of theirs
    assert found.doubt == pytest.approx(np.outer(moved, moved))
    assert np.diag(found.doubt).min() > 0
    assert not balanced(sums).doubt.any()


@pytest.mark.parametrize("overlap", [None, 0.9])
def test_means_without_noise_are_those_of_the_people(overlap: float | None) -> None:
    sums = CrossProducts.of(release(WITHOUT, None, overlap))
    rows = weighted_rows(sums, [Factor.of(sums, name) for name in NAMES])
    assert np.abs(rows.means.gain).max(initial=0.0) < 0.01


@pytest.mark.parametrize(
    ("formula", "family"), [("readmitted ~ sex", "binomial"), ("visits ~ sex", "poisson"), ("pain ~ sex", "ordinal")]
)
def test_outcome_of_a_feature_is_a_combination_of_those_without(formula: str, family: str) -> None:
    law = glm(release(1.0, 5), formula, family=family).law
    ys = law.ys(law.alone + 1)
    assert law.balance @ ys[: law.alone] == pytest.approx(ys[law.alone :])


def test_ordered_levels_of_keyed_people_are_as_sure_as_an_event_where_they_are_two() -> None:
    prepared = release(1.0, 5, 0.9)
    event, ordered = (glm(prepared, f"readmitted ~ {FEATURES}", family=f) for f in ("binomial", "ordinal"))
    assert ordered.standard_errors[1:] == pytest.approx(event.standard_errors[1:], rel=0.06)


def test_weighted_rows_of_keyed_people_are_nearer_to_them_than_the_tables_that_were_released() -> None:
    of_people = np.array([[cell == "m" for cell in people()["sex"]], *(_has("stage", i) for i in ("ii", "iii"))])
    truth, errors = (of_people & _has("readmitted", "yes")).mean(axis=1), np.zeros((2, 10))
    for seed in range(10):
        sums = CrossProducts.of(release(1.0, seed, 0.9))
        rows = weighted_rows(sums, [Factor.of(sums, name) for name in ("sex", "stage", "readmitted")])
        X, event = rows.points.X, sums.levels("readmitted")[1]
        tables = [sums.crossed(sums.levels(name)[1], event)[0] for name in ("sex", "stage")]
        of_tables = np.concatenate([table[1:, 1] / table.sum() for table in tables])
        for place, shares in enumerate((rows.weights @ (X[:, 1:4] * X[:, [4]]), of_tables)):
            errors[place, seed] = np.sum((shares - truth) ** 2)
    assert errors[0].mean() < 0.8 * errors[1].mean()


def _has(name: str, level: str) -> NDArray[np.bool_]:
    return np.array([cell == level for cell in people()[name]])


@pytest.mark.parametrize(("room", "fitted", "again"), [(25, 13, 12), (18, 6, 12), (17, 17, 0)])
def test_means_that_are_said_again_are_within_the_memory_of_all(
    room: int, fitted: int, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums = CrossProducts.of(release(1.0, 5, 0.9))
    monkeypatch.setattr("commingle.services.models.weighted_rows.MAX_ENTRIES", room * len(sums.values) ** 2)
    rows = weighted_rows(sums, [Factor.of(sums, name) for name in NAMES], to_be_drawn=True)
    assert rows.means.gain.shape == (fitted, again)
