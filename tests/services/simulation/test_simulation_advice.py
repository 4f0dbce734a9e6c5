"""What is suggested where no release beat the mean."""

import numpy as np
import pyarrow as pa
import pytest

from commingle.services.simulation.dataset import PartyShare, StudyTable
from commingle.services.simulation.releases import Planned, Releases, plan_releases
from commingle.services.simulation.run import suggestions
from commingle.services.simulation.wide import wide_attributes
from commingle.services.tables.reading import Table
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.terms import MechanismName


def _table(n: int, *, tail: float) -> StudyTable:
    """y follows x; a tail gives it a few values far out. Bounds are the extremes, as they are drafted."""
    draw = np.random.default_rng(2)
    x = draw.uniform(0, 1, n)
    y = x + 0.2 * draw.normal(size=n)
    y[: n // 200] += tail
    columns = {"x": x, "y": y}
    shares = [
        PartyShare(f"party-{name}", (NumericAttribute(name=name, lower=float(v.min()), upper=float(v.max())),))
        for name, v in columns.items()
    ]
    subjects = np.arange(n).astype(str)
    return StudyTable(Table(subjects, {name: pa.array(v) for name, v in columns.items()}), tuple(shares), "y")


def _planned(dataset: StudyTable, mechanism: MechanismName, epsilon: float) -> tuple[Planned, ...]:
    terms = Releases(mechanisms=(mechanism,), epsilons=(epsilon,), delta=1e-5, k=None, row_norm=None, subjects="listed")
    return plan_releases(dataset, terms)


def test_attribute_with_bounds_that_a_few_rows_set_is_named_and_another_is_not() -> None:
    dataset = _table(2_000, tail=40)
    assert wide_attributes(dataset, dataset.table) == ("y",)
    [bounds, *_] = suggestions(dataset, dataset.table, _planned(dataset, "rmgm", 1))
    assert bounds.startswith("98 % of the values of y lie within less than half of the bounds")
    assert "--schema" in bounds
    assert wide_attributes(_table(2_000, tail=0), dataset.table) == ()


def test_mechanism_that_is_forecast_to_be_of_use_is_suggested() -> None:
    dataset = _table(2_000, tail=0)
    [said] = suggestions(dataset, dataset.table, _planned(dataset, "rmgm", 0.5))
    assert "moments is forecast to explain" in said
    assert said.endswith("Try: --mechanism moments")


def test_epsilon_is_suggested_where_no_mechanism_is_of_use() -> None:
    dataset = _table(100, tail=0)
    [said] = suggestions(dataset, dataset.table, _planned(dataset, "moments", 0.05))
    assert "No mechanism is forecast to be of use here at epsilon 0.05" in said
    assert float(said.rpartition("--epsilon ")[2]) == pytest.approx(1, abs=0.9)
