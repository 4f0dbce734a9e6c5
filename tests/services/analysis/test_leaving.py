"""People who leave at one time: survival and hazard ratios warn of it, and a short interval of its own mends it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from statsmodels.duration.survfunc import SurvfuncRight

from commingle.services.analysis import Survival, survival
from commingle.services.models import HazardRatios, hazard_ratios
from commingle.shared.documents.schema import BinaryAttribute
from commingle.shared.documents.study import Crossed, CutNumber
from tests.world.categorical import release_of

DIED, ARM, SEX = (
    BinaryAttribute(name=name, levels=levels)
    for name, levels in {"died": ("no", "yes"), "arm": ("A", "B"), "sex": ("f", "m")}.items()
)
RATES = np.array([0.03, 0.045])
FAR = "Far more people leave without the event in [12, 24)"
Leaving = Callable[[NDArray[np.int64], np.random.Generator], NDArray[np.float64]]
SHORT = (12.0, 12.01, 24.0)
WITHOUT = 1e5
"""An epsilon at which noise is nothing beside a person."""


def at_one_time(arm: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.float64]:
    """Sites end follow-up at exactly 12 months, more often in B."""
    return np.where(draw.random(len(arm)) < np.array([0.3, 0.7])[arm], 12.0, 1e3)


def and_on_the_way(arm: NDArray[np.int64], draw: np.random.Generator) -> NDArray[np.float64]:
    return np.minimum(at_one_time(arm, draw), draw.exponential(200, len(arm)))


def uniform(end: float) -> Leaving:
    return lambda arm, draw: draw.uniform(0, end, len(arm))


def exponential(mean: float) -> Leaving:
    return lambda arm, draw: draw.exponential(mean, len(arm))


def cells_of(n: int, seed: int, leaving: Leaving) -> dict[str, list[Any]]:
    draw = np.random.default_rng(seed)
    arm = draw.choice(2, n)
    death, left = draw.exponential(1 / RATES[arm]), np.minimum(leaving(arm, draw), 60.0)
    return {
        "months": np.minimum(death, left).tolist(),
        "died": np.where(death <= left, "yes", "no").tolist(),
        "arm": np.array(ARM.levels)[arm].tolist(),
        "sex": np.array(SEX.levels)[draw.choice(2, n)].tolist(),
    }


def answers(
    cells: dict[str, list[Any]], cuts: str | tuple[float, ...] = "every 12", **choices: Any
) -> tuple[Survival, HazardRatios]:
    months = CutNumber(name="months", lower=0, upper=60, unit="months", cuts=cuts).as_levels
    outcome = Crossed(name="outcome", cross=(months, DIED)).as_levels
    made = release_of((outcome, ARM, SEX), (1, 2), cells, **choices)
    return survival(made, "outcome", by="arm"), hazard_ratios(made, "outcome", "arm")


@pytest.mark.parametrize("leaving", [at_one_time, and_on_the_way])
def test_follow_up_that_ends_at_one_cut_is_warned_of_by_curves_and_ratios(leaving: Leaving) -> None:
    curves, ratios = answers(cells_of(6000, 1, leaving), (12.0, 24.0), epsilon=10.0, seed=1)
    assert curves.warnings[0].startswith(FAR)
    assert ratios.warnings[0].startswith(FAR)
    assert ratios.p_value < 0.05, "the release shows a change that is not there"
    assert "Hazard ratios seem to change with time" in ratios.warnings[1]


def test_short_interval_of_its_own_gives_the_curve_and_the_ratio_without_a_warning() -> None:
    curves, ratios = answers(cells_of(6000, 1, at_one_time), SHORT, epsilon=10.0, seed=1)
    assert (curves.warnings, ratios.warnings) == ((), ())
    assert curves.survival[:, 2] == pytest.approx(np.exp(-24 * RATES), abs=0.04)
    assert ratios.ratios == pytest.approx(1.5, abs=0.2)
    assert ratios.p_value > 0.05


@pytest.mark.parametrize(
    ("leaving", "cuts"),
    [
        (uniform(90), "every 12"),
        (uniform(40), "every 12"),
        (exponential(20), "every 12"),
        (exponential(20), (6.0, 12.0, 24.0, 30.0)),
        (uniform(1e6), "every 12"),
    ],
)
def test_leaving_at_any_time_is_no_end_of_follow_up(leaving: Leaving, cuts: str | tuple[float, ...]) -> None:
    found = answers(cells_of(6000, 1, leaving), cuts, epsilon=WITHOUT)
    assert not [said for each in found for said in each.warnings if "Far more people" in said]


def test_note_bounds_the_curve_of_the_rows_whenever_people_left_within_intervals() -> None:
    cells = cells_of(6000, 1, at_one_time)
    curves, _ = answers(cells, (12.0, 24.0), epsilon=WITHOUT)
    (note,) = (said for said in curves.table().notes if "as it begins" in said)
    for g, arm in enumerate(ARM.levels):
        mine = np.array(cells["arm"]) == arm
        rows = SurvfuncRight(np.array(cells["months"])[mine], (np.array(cells["died"]) == "yes")[mine])
        share = rows.surv_prob[np.searchsorted(rows.surv_times, 24.0) - 1]
        assert f"{arm} {share:.1%} to " in note, "everybody who leaves does so as the interval begins"
        assert share < curves.survival[g, 1] - 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaving", "overlap", "epsilon", "warned"),
    [
        (at_one_time, None, 10.0, 20),
        (at_one_time, 0.9, 3.0, 20),
        (and_on_the_way, None, 3.0, 20),
        (uniform(90), 0.9, 3.0, 0),
        (uniform(30), None, 3.0, 0),
        (exponential(20), None, 3.0, 0),
        (exponential(60), 0.9, 3.0, 0),
    ],
)
def test_noise_neither_hides_an_end_of_follow_up_nor_makes_one(
    leaving: Leaving, overlap: float | None, epsilon: float, warned: int
) -> None:
    found = [
        answers(cells_of(6000, seed, leaving), epsilon=epsilon, overlap=overlap, seed=seed, pseudonyms=seed)
        for seed in range(20)
    ]
    for answer in zip(*found, strict=True):
        assert sum(any("Far more people" in said for said in each.warnings) for each in answer) == warned
