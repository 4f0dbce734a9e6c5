"""Releases that a simulation and the demo ask for, and what is suggested where none beats the mean."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from commingle.services.simulation import story
from commingle.services.simulation.dataset import StudyTable, cohort
from commingle.services.simulation.releases import Planned, Releases, allowance, plan_releases
from commingle.services.simulation.run import suggestions, wide_attributes
from commingle.services.tables import Table
from commingle.shared.documents.presets import RELEASES
from commingle.shared.documents.schema import NumericAttribute, as_registered
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import MechanismName
from commingle.shared.dp.accounting import ZERO
from commingle.shared.dp.calibration import Calibration, gaussian_rho
from commingle.shared.errors import CommingleError
from commingle.shared.release.plan import plan_blocks

DATASET = cohort(seed=0, subjects=50)
PEOPLE = story.everybody(seed=3, subjects=500)
TERMS: dict[str, Any] = {
    "mechanisms": ("rmgm", "dgm"),
    "epsilons": (1.0, 0.1),
    "delta": 1e-5,
    "k": 30,
    "row_norm": None,
    "subjects": "listed",
}


def test_every_mechanism_is_released_at_every_epsilon() -> None:
    planned = plan_releases(DATASET, Releases(**TERMS))
    assert [p.folder for p in planned] == ["rmgm-epsilon-1", "rmgm-epsilon-0.1", "dgm-epsilon-1", "dgm-epsilon-0.1"]
    assert [p.spec.k for p in planned] == [30, 30, None, None]
    assert {p.spec.projection for p in planned} == {None}


def test_projection_is_that_of_the_mechanisms_that_have_one() -> None:
    planned = plan_releases(DATASET, Releases(**TERMS, projection="sparse"))
    assert [p.spec.projection for p in planned] == ["sparse", "sparse", None, None]


def test_keyed_subjects_are_about_as_many_as_a_party_is_given() -> None:
    terms = Releases(**{**TERMS, "mechanisms": ("rmgm",), "subjects": None, "k": 20, "overlap": 0.7})
    more = replace(DATASET, others={next(iter(DATASET.parties)): DATASET.table.rows(np.arange(12))})
    [one, _] = plan_releases(more, terms)
    assert (one.spec.keyed, one.spec.n) == (True, round(0.7 * (40 + 12 / 3)))
    allowed = allowance([one])
    assert allowed["policy"]["max_epsilon"] >= max(plan.loss.epsilon(1e-5) for plan in plan_blocks(one.spec))


@pytest.mark.parametrize(
    ("said", "listed"),
    [
        ({}, ("dgm",)),
        ({"projection": "sparse"}, ("rmgm", "dgm", "moments")),
        ({"subjects": "listed"}, ("rmgm", "dgm", "moments")),
        ({"subjects": "keyed"}, ()),
    ],
)
def test_subjects_are_keyed_where_the_mechanism_can_and_nothing_says_otherwise(
    said: dict[str, Any], listed: tuple[str, ...]
) -> None:
    assert Releases(**{**TERMS, "mechanisms": ("rmgm", "dgm", "moments"), "subjects": None, **said}).listed == listed


def test_allowance_holds_all_releases_together() -> None:
    planned = plan_releases(DATASET, Releases(**{**TERMS, "row_norm": 1.2}))
    allowed = allowance(planned)
    by_party = zip(*(plan_blocks(p.spec) for p in planned), strict=True)
    most = max(float(sum((plan.loss for plan in plans), start=ZERO)) for plans in by_party)
    assert most < gaussian_rho(allowed["epsilon_cap"], allowed["delta_cap"]) < 1.1 * most
    [rule] = allowed["policy"]["auto_approve"]
    assert most < rule["max_rho"] < 1.1 * most
    assert allowed["policy"]["max_cells"] == 40 * 6


@pytest.mark.parametrize(
    "change",
    [
        {"epsilons": (0.0,)},
        {"epsilons": (-1.0,)},
        {"epsilons": (math.nan,)},
        {"epsilons": (math.inf,)},
        {"epsilons": (1e300,)},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"k": 0},
        {"k": -3},
        {"k": 15},
        {"k": 41},
        {"row_norm": 0.0},
        {"row_norm": math.nan},
    ],
)
def test_terms_that_no_release_can_have_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CommingleError):
        plan_releases(DATASET, Releases(**{**TERMS, **change}))


def test_preset_replaces_what_a_release_would_have_otherwise() -> None:
    terms = Releases(**{**TERMS, "mechanisms": ("rmgm",), "epsilons": (1.0,), "k": None}, preset=RELEASES["wu2022"])
    [planned] = plan_releases(cohort(seed=0, subjects=400), terms)
    assert (planned.spec.k, planned.spec.keyed, planned.spec.calibration) == (47, False, Calibration.CLASSICAL)
    assert {party.first_stage_share for party in planned.spec.parties} == {None}


def _table(n: int, *, tail: float) -> StudyTable:
    """y follows x; a tail gives it a few values far out. Bounds are the extremes, as they are drafted."""
    draw = np.random.default_rng(2)
    x = draw.uniform(0, 1, n)
    y = x + 0.2 * draw.normal(size=n)
    y[: n // 200] += tail
    columns = {"x": x, "y": y}
    shares = {
        f"party-{name}": (NumericAttribute(name=name, lower=float(v.min()), upper=float(v.max())),)
        for name, v in columns.items()
    }
    subjects = np.arange(n).astype(str)
    return StudyTable(Table(subjects, {name: pa.array(v) for name, v in columns.items()}), shares, "y")


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


def test_study_asks_what_owners_register_and_their_rows_lie_within_it() -> None:
    study = Study.model_validate(
        {"mechanism": "moments", "epsilon": 1, "delta": 1e-5, "n": 450, "parties": story.parties(), **story.STUDY},
        strict=False,
    )
    for party in study.parties:
        asked = {a.name: a for one in party.attributes for a in as_registered(one)}
        held = story.tables(PEOPLE, seed=4)[party.name]
        assert [*held] == ["subject", *asked] == ["subject", *(a.name for a in story.SCHEMAS[party.name])]
        assert len(held["subject"]) == 450
        for name, attribute in asked.items():
            if attribute.kind == "numeric":
                assert attribute.lower <= held[name].min() <= held[name].max() <= attribute.upper
            else:
                assert set(held[name]) == set(attribute.levels)
