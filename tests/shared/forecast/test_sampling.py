from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.forecast.forecast import forecast, question_of, range_of
from commingle.shared.forecast.sampling import expected
from commingle.shared.forecast.task import Assumptions, task_of
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed
from tests.shared.forecast.designs import design, numeric

Array = NDArray[np.float64]


def moments_of(rows: Array) -> Array:
    whole = np.column_stack([np.ones(len(rows)), rows])
    return np.asarray(whole.T @ whole / len(rows), dtype=np.float64)


def of(rows: Array, *, number: int | None = None) -> Assumptions:
    """The last column is the label."""
    return Assumptions(target=f"x{rows.shape[1] - 1}", second_moments=moments_of(rows), public_rows=number or len(rows))


def table(draw: np.random.Generator, *, features: int, n: int, explained: float) -> Array:
    """Normal columns that move together, of which half are as good as nothing."""
    x = draw.normal(size=(n, features)) @ (np.eye(features) + 0.3 * draw.normal(size=(features, features)))
    signal = x @ (draw.normal(size=features) * (np.arange(features) % 2))
    y = signal / signal.std() + draw.normal(size=n) * np.sqrt(1 / explained - 1)
    rows = np.column_stack([x, y])
    return np.asarray(np.clip(rows / (4 * rows.std(axis=0)), -1, 1))


def test_expected_r_squared_is_about_the_adjusted_one_and_slopes_keep_their_direction() -> None:
    draw, asked = np.random.default_rng(0), numeric(11)
    for rows, explained in ((100, 0.6), (60, 0.4), (400, 0.1)):
        sample = task_of(asked, of(table(draw, features=10, n=rows, explained=explained)))
        adjusted = 1 - (1 - sample.r_squared) * (rows - 1) / (rows - 11)
        likely = expected(sample, rows)
        assert likely.r_squared == pytest.approx(adjusted, abs=0.06)  # the prior pulls by less than a standard error
        assert likely.b / np.linalg.norm(likely.b) == pytest.approx(sample.b / np.linalg.norm(sample.b))


def test_rows_of_chance_alone_promise_next_to_nothing() -> None:
    draw = np.random.default_rng(1)
    samples = [task_of(numeric(11), of(draw.uniform(-1, 1, (40, 11)))) for _ in range(50)]
    assert np.mean([s.r_squared for s in samples]) > 0.2  # 10/39 is expected
    assert np.mean([expected(s, 40).r_squared for s in samples]) < 0.12


def test_many_rows_leave_nothing_open_and_give_the_forecast_of_their_moments() -> None:
    rows = table(np.random.default_rng(2), features=5, n=2000, explained=0.5)
    asked = numeric(6, n=1_000_000)
    exact = forecast(asked, replace(of(rows), public_rows=None))
    found = forecast(asked, of(rows, number=10**9))
    assert (exact.r_squared_range, exact.public_rows) == (None, None)
    assert found.r_squared == pytest.approx(exact.r_squared, abs=1e-6)
    assert found.r_squared_range == pytest.approx([exact.r_squared] * 2, abs=1e-3)


@pytest.mark.parametrize(("features", "public"), [(5, 50), (5, 300), (15, 100)])
def test_release_of_everybody_lies_in_the_range_as_often_as_stated(features: int, public: int) -> None:
    """60 samples: 49 or fewer within have a chance of 3 % at 90 % each; seeds are fixed."""
    asked, within = numeric(features + 1, parties=3, n=300_000, epsilon=3.0), 0
    planner = mechanism_of(asked).planner
    for seed in range(60):
        draw = np.random.default_rng([seed, features])
        everybody = table(draw, features=features, n=10_000, explained=0.5)
        sample = of(everybody[draw.choice(len(everybody), public, replace=False)])
        question = question_of(asked, sample)
        k = planner.best_k(closed(asked), question.expected)
        chosen = replace(asked, k=k)
        found = range_of(chosen, question, planner.predict(closed(chosen), question.expected).r_squared)
        realised = planner.predict(closed(chosen), task_of(chosen, replace(of(everybody), public_rows=None))).r_squared
        assert found is not None
        within += found[0] <= realised <= found[1]
    assert within >= 50


def test_range_is_narrower_with_more_public_rows() -> None:
    everybody = table(np.random.default_rng(3), features=5, n=20_000, explained=0.5)
    widths = []
    for rows in (50, 300, 3000):
        found = forecast(numeric(6, n=1_000_000), of(everybody[:rows])).r_squared_range
        assert found is not None
        widths.append(found[1] - found[0])
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 4 * widths[-1]


def few_rows_design() -> Terms:
    attributes = tuple(NumericAttribute(name=f"x{i}", lower=-1, upper=1) for i in range(31))
    return design((PartyTerms(name="p", attributes=attributes),), n=10**6)


def test_no_more_public_rows_than_columns_are_forecast_as_next_to_nothing_known() -> None:
    rows = np.random.default_rng(4).uniform(-1, 1, (20, 31))
    f = forecast(few_rows_design(), of(rows))
    assert f.r_squared_assumed < 0.3
    assert f.r_squared_range is not None


def test_columns_that_are_alike_in_few_public_rows_do_not_stop_the_plan() -> None:
    rows = table(np.random.default_rng(5), features=4, n=80, explained=0.5)
    rows[:, 1] = rows[:, 0]
    f = forecast(numeric(5, n=1_000_000), of(rows))
    error = {t.term: t.encoded or 0 for t in f.terms}
    assert error["x1"] > 2 * error["x3"]


def test_rows_too_few_to_be_sure_of_any_use_are_said_to_be() -> None:
    rows = table(np.random.default_rng(8), features=5, n=3000, explained=0.4)
    asked = numeric(6, n=300_000, epsilon=1.0)
    few, many = forecast(asked, of(rows[:40])), forecast(asked, of(rows))
    assert few.useful
    assert many.useful
    assert few.r_squared_range is not None
    assert few.r_squared_range[0] <= 0
    assert any("too few to be sure" in sentence for sentence in few.sentences)
    assert not any("too few to be sure" in sentence for sentence in many.sentences)
