"""Intervals for the population where residuals spread unalike by level, against the sandwich of statsmodels."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import TargetAmongFeaturesError
from tests.world.categorical import release_of

N = 6000
VISITS = NumericAttribute(name="visits", lower=0, upper=40)
SQUARE = NumericAttribute(name="visits squared", lower=-1, upper=1, product=(VISITS, VISITS))
FEATURES: tuple[Attribute, ...] = (
    CategoricalAttribute(name="health", levels=("good", "fair", "poor")),
    BinaryAttribute(name="insured", levels=("no", "yes")),
    BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
)
AGE = NumericAttribute(name="age", lower=0, upper=1)
READMITTED = BinaryAttribute(name="readmitted", levels=("no", "yes"))
NAMES = tuple(a.name for a in FEATURES)
WITHOUT = 1e6
"""An epsilon at which noise is nothing beside a person."""


def without_levels(prepared: PreparedMoments, name: str) -> PreparedMoments:
    """A release whose fits take residuals to spread alike, since cells of this feature may be anything."""
    unsure = prepared.attributes[name].model_copy(update={"missing": "midpoint"})
    return replace(prepared, attributes={**prepared.attributes, name: unsure})


@cache
def people() -> dict[str, Any]:
    """Few are in poor health; their visits differ most, and they are readmitted as often as not."""
    draw = np.random.default_rng(8)
    health = draw.choice(3, N, p=[0.75, 0.22, 0.03])
    insured = (draw.random(N) < 0.3 + 0.2 * health).astype(int)
    smoker = np.where(draw.random(N) < 0.2, 2, draw.random(N) < 0.3 + 0.15 * insured)
    spread = np.sqrt(np.array([1.0, 6.0, 50.0])[health] + 1.5 * insured)
    visits = np.clip(12 + np.array([0, 1, 3])[health] + 0.5 * insured + spread * draw.normal(size=N), 0, 40)
    chance = np.array([0.05, 0.1, 0.4])[health] + 0.03 * insured
    return {
        "visits": visits.tolist(),
        "age": draw.random(N).tolist(),
        "readmitted": np.where(draw.random(N) < chance, "yes", "no").tolist(),
        "health": np.array(["good", "fair", "poor"])[health].tolist(),
        "insured": np.array(["no", "yes"])[insured].tolist(),
        "smoker": np.array(["no", "yes", None])[smoker].tolist(),
    }


def release(*own: Attribute, epsilon: float = WITHOUT, overlap: float | None = None) -> PreparedMoments:
    return release_of((*own, *FEATURES), (len(own), 2, 1), people(), epsilon=epsilon, overlap=overlap, seed=5)


def design() -> np.ndarray:
    """Ones, then as terms of a fit are: a missing cell of `smoker` counts as halfway beside its mark."""
    held = people()
    columns = [[level == other for level in held["health"]] for other in ("fair", "poor")]
    columns.append([level == "yes" for level in held["insured"]])
    columns.append([{"no": 0.0, "yes": 1.0, None: 0.5}[level] for level in held["smoker"]])
    columns.append([level is None for level in held["smoker"]])
    return np.column_stack([np.ones(N), *np.array(columns, float)])


def fitted(prepared: PreparedMoments, target: str, features: Sequence[str] | None = NAMES, **asked: Any) -> Fit:
    return fit_prepared(prepared, target, features, **{"interval_for": "population", **asked})


@pytest.mark.parametrize(
    ("own", "y"),
    [
        ((VISITS, SQUARE), lambda held: held["visits"]),
        ((READMITTED,), lambda held: np.equal(held["readmitted"], "yes")),
    ],
)
def test_errors_for_the_population_are_those_of_the_sandwich_where_the_square_is_known(
    own: tuple[Attribute, ...], y: Any
) -> None:
    result = fitted(release(*own), own[0].name)
    rows = sm.OLS(np.asarray(y(people()), float), design()).fit()
    np.testing.assert_allclose(result.coefficients, rows.params, rtol=0.02, atol=0.01)
    unlike = rows.HC0_se / rows.bse
    assert unlike.max() > 1.5  # of poor health, as if residuals spread alike
    assert unlike.min() < 0.95
    np.testing.assert_allclose(result.standard_errors / rows.HC0_se, 1, atol=0.06)
    assert result.to_dict()["counts_spread"]
    assert "count how differently residuals spread by level" in " ".join(result.summary().split())


def test_errors_of_keyed_people_grow_and_shrink_as_those_of_the_rows() -> None:
    prepared = release(VISITS, SQUARE, overlap=0.9)
    result, alike = fitted(prepared, "visits"), fitted(without_levels(prepared, "health"), "visits")
    assert (result.counts_spread, alike.counts_spread) == (True, False)
    rows = sm.OLS(people()["visits"], design()).fit()
    unlike = (rows.HC0_se / rows.bse)[1:]
    np.testing.assert_allclose((result.standard_errors / alike.standard_errors)[1:], unlike, rtol=0.1)


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ((VISITS,), {}),
        ((VISITS, SQUARE, AGE), {"features": ("age", *NAMES)}),
        ((VISITS, SQUARE), {"intercept": False}),
        ((VISITS, SQUARE), {"interval_for": "table"}),
        ((VISITS, SQUARE), {"estimator": "shrunken"}),
    ],
)
def test_fits_that_the_square_says_nothing_of_are_as_they_are_without_it(
    own: tuple[Attribute, ...], asked: dict[str, Any]
) -> None:
    result = fitted(release(*own), "visits", **asked)
    assert not result.counts_spread
    assert "by level" not in result.summary()


def test_fit_that_explains_much_takes_residuals_to_spread_alike() -> None:
    held = people()
    visits = (10 + 20 * np.equal(held["insured"], "yes") + np.random.default_rng(1).normal(size=N)).tolist()
    made = release_of((VISITS, SQUARE, *FEATURES), (2, 2, 1), {**held, "visits": visits}, epsilon=WITHOUT, seed=5)
    assert not fitted(made, "visits").counts_spread


def test_levels_that_noise_hides_leave_residuals_as_if_alike() -> None:
    result = fitted(release(VISITS, SQUARE, epsilon=0.3), "visits")
    assert (result.interval_for, result.counts_spread) == ("population", False)


@pytest.mark.parametrize("epsilon", [10.0, 300.0])
def test_residuals_that_spread_alike_are_not_said_to_differ_where_noise_may_be_all(epsilon: float) -> None:
    alike = (20 + 0.4 * np.random.default_rng(2).normal(size=N)).tolist()
    made = release_of((VISITS, SQUARE, *FEATURES), (2, 2, 1), {**people(), "visits": alike}, epsilon=epsilon, seed=5)
    assert not fitted(made, "visits").counts_spread


def test_what_is_made_of_the_target_is_no_feature_of_it() -> None:
    prepared = release(VISITS, SQUARE)
    assert fitted(prepared, "visits", None).features == NAMES
    with pytest.raises(TargetAmongFeaturesError, match="'visits squared' is made of 'visits'"):
        fitted(prepared, "visits", ["visits squared"])
