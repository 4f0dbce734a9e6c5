import pickle
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.inspection import permutation_importance
from sklearn.utils import estimator_checks as checks

from commingle import CommingleRegressor, Release
from commingle.shared.errors import RowsError, UnknownAttributeError
from tests.world.released import SLOPES, published

TARGET = "charges, yearly"
RELEASE = Release.of(published()[1])
ROWS = pd.DataFrame({"smoker": ["no", "yes", "no"], "age": [30.0, 40.0, 50.0], "bmi": [20, 25, 30], "other": [1, 2, 3]})


def regressor() -> CommingleRegressor:
    return CommingleRegressor(RELEASE, TARGET)


@pytest.mark.parametrize(
    "check",
    [
        checks.check_do_not_raise_errors_in_init_or_set_params,
        checks.check_dict_unchanged,
        checks.check_dont_overwrite_parameters,
        checks.check_estimator_cloneable,
        checks.check_estimator_repr,
        checks.check_estimator_tags_renamed,
        checks.check_estimators_fit_returns_self,
        checks.check_estimators_overwrite_params,
        checks.check_estimators_unfitted,
        checks.check_fit_check_is_fitted,
        checks.check_fit_score_takes_y,
        checks.check_get_params_invariance,
        checks.check_methods_sample_order_invariance,
        checks.check_methods_subset_invariance,
        checks.check_mixin_order,
        checks.check_no_attributes_set_in_init,
        checks.check_readonly_memmap_input,
        checks.check_requires_y_none,
        checks.check_set_params,
        checks.check_valid_tag_types,
    ],
    ids=lambda check: str(check.__name__),
)
@pytest.mark.filterwarnings("ignore::commingle.services.fit.predicting.OutsideBoundsWarning")  # its rows are made up
def test_check_of_scikit_learn_holds(check: Callable[[str, CommingleRegressor], None]) -> None:
    # three numbers: what most of these checks make up; those that count on learning from rows cannot hold
    check("CommingleRegressor", CommingleRegressor(RELEASE, "smoker", ["age", "bmi", TARGET]))


def test_fit_without_rows_is_that_of_the_release() -> None:
    model = regressor().fit()
    expected = RELEASE.fit(TARGET, estimator="shrunken")
    assert model.feature_names_in_.tolist() == ["age", "bmi", "smoker"]
    np.testing.assert_array_equal([model.intercept_, *model.coef_], expected.coefficients)
    assert dict(zip(SLOPES, model.coef_, strict=True)) == pytest.approx(SLOPES, abs=0.8)


def test_rows_given_to_fit_are_not_looked_at() -> None:
    np.testing.assert_array_equal(regressor().fit(ROWS, [1, 2, 3]).coef_, regressor().fit().coef_)


def test_frame_is_read_by_name_and_array_in_order() -> None:
    model = regressor().fit()
    expected = model.fit_.predict({name: ROWS[name].tolist() for name in ("age", "bmi", "smoker")})
    np.testing.assert_array_equal(model.predict(ROWS), expected)
    np.testing.assert_array_equal(model.predict(ROWS[["age", "bmi", "smoker"]].to_numpy()), expected)
    np.testing.assert_array_equal(model.predict([[30.0, 20, "no"], [40.0, 25, "yes"], [50.0, 30, "no"]]), expected)
    numbers = CommingleRegressor(RELEASE, TARGET, ["age", "bmi"]).fit()
    assert numbers.predict(np.array([[30.0, 20.0]])).shape == (1,)


def test_score_and_inspection_of_scikit_learn_work() -> None:
    model = regressor().fit()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(20, 80, 80), "bmi": 30.0, "smoker": rng.choice(["no", "yes"], 80)})
    y = 2 * frame["age"] - 30 + 12 * (frame["smoker"] == "yes")
    assert model.score(frame, y) > 0.9
    importance = permutation_importance(model, frame, y, n_repeats=2, random_state=0).importances_mean
    assert importance[0] > importance[2] > importance[1]


def test_clone_shares_the_verified_release_and_is_not_fitted() -> None:
    model = CommingleRegressor(RELEASE, TARGET, ["age"], estimator="ols").fit()
    copy = clone(model)
    assert copy.get_params() == {**model.get_params(), "release": RELEASE}
    assert copy.release is RELEASE
    with pytest.raises(NotFittedError):
        copy.predict(ROWS)


def test_pickled_regressor_predicts_the_same() -> None:
    model = regressor().fit()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(ROWS), model.predict(ROWS))  # noqa: S301 - our own bytes


def test_array_of_another_width_is_refused() -> None:
    with pytest.raises(RowsError, match=r"not rows of 3 features"):
        regressor().fit().predict(np.zeros((2, 2)))


def test_unknown_feature_is_refused_at_fit_and_not_before() -> None:
    model = CommingleRegressor(RELEASE, TARGET, ["height"])
    with pytest.raises(UnknownAttributeError):
        model.fit()


def test_constant_predicts_as_many_rows_as_it_is_given() -> None:
    model = CommingleRegressor(RELEASE, TARGET, estimator="constant").fit()
    assert model.predict(ROWS).shape == (3,)
    assert model.predict(np.empty((2, 0))).shape == (2,)
