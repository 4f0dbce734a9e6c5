import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from commingle.services.simulation.dataset import cohort
from commingle.services.simulation.releases import Releases, allowance, plan_releases
from commingle.shared.documents.presets import RELEASES
from commingle.shared.dp.accounting import ZERO
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.gaussian import gaussian_rho
from commingle.shared.errors import CommingleError
from commingle.shared.release.plan import plan_blocks

DATASET = cohort(seed=0, subjects=50)
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
    more = replace(DATASET, others={DATASET.parties[0].name: DATASET.table.rows(np.arange(12))})
    [one, _] = plan_releases(more, terms)
    assert (one.spec.subjects, one.spec.n) == ("keyed", round(0.7 * (40 + 12 / 3)))
    allowed = allowance([one])
    assert allowed.max_epsilon >= max(plan.loss.epsilon(1e-5) for plan in plan_blocks(one.spec))


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
    assert most < gaussian_rho(allowed.epsilon_cap, allowed.delta) < 1.1 * most
    assert most < allowed.max_rho < 1.1 * most
    assert allowed.max_cells == 40 * 6


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
