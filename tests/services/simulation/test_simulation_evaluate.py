import numpy as np
import pyarrow as pa
import pytest
import statsmodels.api as sm

from commingle.services.client.release import Release
from commingle.services.fit import ESTIMATORS
from commingle.services.simulation.dataset import StudyTable, cohort, holdout
from commingle.services.simulation.evaluate import design, fit_all, reference
from commingle.services.tables import Table
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import EstimationError
from commingle.shared.values import Cells
from tests.world.released import published


def test_holdout_is_a_fifth_and_repeats_with_its_seed() -> None:
    training, held_out = holdout(101, seed=3)
    assert (len(training), len(held_out)) == (80, 21)
    assert sorted([*training, *held_out]) == list(range(101))
    assert np.array_equal(training, holdout(101, seed=3)[0])
    assert not np.array_equal(training, holdout(101, seed=4)[0])


def test_reference_is_least_squares_in_original_units() -> None:
    dataset = cohort(seed=1, subjects=3_000)
    training, held_out = (dataset.table.rows(rows) for rows in holdout(3_000, seed=0))
    found = reference(dataset, training, held_out)
    x = design(training, dataset.features)
    oracle = sm.OLS(np.clip(training.columns[dataset.target].to_numpy(), 0, 20), sm.add_constant(x)).fit()
    assert list(found.coefficients.values()) == pytest.approx(oracle.params.tolist(), rel=1e-8)
    predicted = oracle.predict(sm.add_constant(design(held_out, dataset.features)))
    errors = held_out.columns[dataset.target].to_numpy() - predicted
    score = found.score(found.coefficients)
    assert score.test_mse == pytest.approx(float(np.mean(errors**2)))
    assert score.relative_error == 0
    assert 0.45 < (score.test_r2 or 0) < 0.6
    assert found.constant.relative_error == pytest.approx(1)
    assert found.constant.test_r2 == pytest.approx(0, abs=0.01)


def test_relative_error_is_measured_on_standardised_slopes() -> None:
    n = 400
    draw = np.random.default_rng(0)
    a, b = draw.normal(size=n), 1_000 * draw.normal(size=n)
    table = Table(np.arange(n).astype(str), {"a": pa.array(a), "b": pa.array(b), "y": pa.array(a + 0.001 * b)})
    attributes = tuple(NumericAttribute(name=name, lower=-1e4, upper=1e4) for name in "aby")
    found = reference(StudyTable(table, {"p": attributes}, "y"), table, table)
    score = found.score({"(intercept)": 0.0, "a": 1.0, "b": 0.0})
    sd = np.array([a.std(), 0.001 * b.std()])
    assert score.relative_error == pytest.approx(sd[1] / np.linalg.norm(sd))


def test_fit_that_is_refused_is_left_out_with_its_reason_alone() -> None:
    dataset = cohort(seed=0, subjects=200)
    judge = reference(dataset, dataset.table, dataset.table)
    release = Release.of(published(title="refused")[1])
    with pytest.raises(EstimationError) as refused:
        release.fit(dataset.target)
    assert fit_all(release, judge) == ([], dict.fromkeys(ESTIMATORS, str(refused.value)))


def test_design_has_a_column_for_marks() -> None:
    attribute = NumericAttribute(name="x", lower=0, upper=4, missing="indicator")
    table = Table(np.array(["a", "b"]), {"x": pa.array([None, 9.0])})
    assert design(table, (attribute,)).tolist() == [[2, 1], [4, 0]]


def test_design_clips_and_puts_what_is_missing_at_the_midpoint() -> None:
    columns: dict[str, Cells] = {
        "x": pa.array([-5.0, None, 9.0]),
        "b": pa.array(["no", None, "yes"]),
        "c": pa.array(["r", "s", "t"]),
    }
    attributes = (
        NumericAttribute(name="x", lower=0, upper=4, missing="midpoint"),
        BinaryAttribute(name="b", levels=("no", "yes"), missing="midpoint"),
        CategoricalAttribute(name="c", levels=("r", "s", "t")),
    )
    expected = [[0, 0, 0, 0], [2, 0.5, 1, 0], [4, 1, 0, 1]]
    assert design(Table(np.array(["1", "2", "3"]), columns), attributes).tolist() == expected


def test_feature_that_does_not_vary_in_training_gets_no_slope_and_collinear_ones_do_not_explode() -> None:
    n = 50
    x = np.linspace(0, 1, n)
    same = pa.array(np.zeros(n))
    columns: dict[str, Cells] = {"x": pa.array(x), "twin": pa.array(x), "same": same, "y": pa.array(3 * x)}
    table = Table(np.arange(n).astype(str), columns)
    attributes = tuple(NumericAttribute(name=name, lower=0, upper=3) for name in table.columns)
    found = reference(StudyTable(table, {"p": attributes}, "y"), table, table)
    assert found.slopes.tolist() == pytest.approx([1.5, 1.5, 0])
    assert found.score(found.coefficients).test_mse == pytest.approx(0, abs=1e-20)


def test_cohort_repeats_with_its_seed_and_fits_its_schema() -> None:
    first, again = cohort(seed=5, subjects=500), cohort(seed=5, subjects=500)
    for name, values in first.table.columns.items():
        assert values.equals(again.table.columns[name])
    assert {a.name for a in first.attributes} == set(first.table.columns)
    for attribute in first.attributes:
        held = first.table.columns[attribute.name].to_numpy(zero_copy_only=False)
        if isinstance(attribute, NumericAttribute):
            assert np.mean((held < attribute.lower) | (held > attribute.upper)) < 0.03
        else:
            assert set(held.tolist()) == set(attribute.levels)
