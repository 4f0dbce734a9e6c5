"""Marks of missing cells in linear fits: what their coefficients are compared with, against statsmodels on the rows."""

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from commingle.services.fit import fit_prepared
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from tests.world.categorical import release_of

ATTRIBUTES = (
    BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
    CategoricalAttribute(name="stage", levels=("i", "ii", "iii"), missing="indicator"),
    NumericAttribute(name="age", lower=0, upper=120, missing="indicator"),
    NumericAttribute(name="cost", lower=0, upper=60),
)
N = 3000


@pytest.mark.parametrize("intercept", [True, False])
def test_mark_of_a_binary_attribute_is_against_its_first_level_as_that_of_three_levels_is(*, intercept: bool) -> None:
    """Those of unknown smoking are as those who do not smoke, and those of unknown stage as those of the first."""
    draw = np.random.default_rng(1)
    smoker, stage = draw.choice(3, N, p=(0.5, 0.4, 0.1)), draw.choice(4, N, p=(0.4, 0.3, 0.2, 0.1))
    age, gone = draw.uniform(20, 80, N), draw.random(N) < 0.2
    cost = np.array([10, 20, 10])[smoker] + np.array([0, 4, 8, 0])[stage] + 0.1 * age + draw.normal(0, 2, N)
    cells: dict[str, list[Any]] = {
        "smoker": np.array(["no", "yes", None])[smoker].tolist(),
        "stage": np.array(["i", "ii", "iii", None])[stage].tolist(),
        "age": [None if lost else years for lost, years in zip(gone.tolist(), age.tolist(), strict=True)],
        "cost": cost.clip(0, 60).tolist(),
    }
    release = release_of(ATTRIBUTES, (2, 2), cells, epsilon=1e7)
    features = ("smoker", "stage", "age")
    found = fit_prepared(release, "cost", features, intercept=intercept, interval_for="population")
    marks = [smoker == 1, smoker == 2, stage == 1, stage == 2, stage == 3, np.where(gone, 60, age), gone]
    rows = np.column_stack([*([np.ones(N)] if intercept else []), *marks]).astype(float)
    wanted = sm.OLS(cost.clip(0, 60), rows).fit()
    assert found.terms[-7:-5] == ("smoker[yes]", "smoker[missing]")
    assert found.coefficients == pytest.approx(wanted.params, abs=0.02)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.05)
    assert found.predict({name: cells[name][:9] for name in features}) == pytest.approx(
        rows[:9] @ wanted.params, abs=0.1
    )
    assert "compared with age = 60, the middle of its bounds" in found.imputed[-1]
