"""Hazard ratios: near Cox's on the rows without noise, held by their intervals with it, and a test of their change."""

from typing import Any

import numpy as np
import pytest

from benchmarks.harness import covers
from commingle.services.analysis import survival
from commingle.services.client.release import Release
from commingle.services.errors import LevelError
from commingle.services.models import HazardRatios, hazard_ratios
from commingle.services.models.hazard_law import Hazards
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.documents.study import Crossed, CutNumber
from commingle.shared.errors import ConfidenceError, TargetAmongFeaturesError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments
from tests.services.analysis.test_survival import ARM, ENDS, FOLLOWUP, OUTCOME
from tests.world.categorical import release_of
from tests.world.released import published_survival

SEX = BinaryAttribute(name="sex", levels=("f", "m"))
FEATURES = ("sex", "arm")
TRUTH = np.log([1.4, 1.5, 2.2])
WITHOUT = 1e5
"""An epsilon at which noise is nothing beside a person."""


def cells_of(
    n: int,
    seed: int,
    *,
    leaving: float = 0.0,
    late: float | None = None,
    months: float = 70.0,
    rare: float = 1.4,
    log_ratio: float = TRUTH[2],
) -> dict[str, list[Any]]:
    """Weibull times to death; those of arm c leave sooner by `leaving`; `late` is the log ratio of sex after a year.

    `months` are those after which 63 % would be dead. Those whose severity is above `rare` have arm c, of `log_ratio`.
    """
    draw = np.random.default_rng(seed)
    severity = draw.normal(size=n)
    sex, arm = (severity + draw.normal(size=n) > 0) * 1, np.digitize(severity + draw.normal(size=n), [0, rare])
    by_arm = np.array([0, TRUTH[1], log_ratio])[arm]
    hazard = draw.exponential(size=n) / np.exp(by_arm + TRUTH[0] * sex)
    death = months * hazard ** (1 / 1.2)
    if late is not None:
        year = (12 / 70) ** 1.2
        rest = np.maximum(hazard - year, 0) * np.exp((TRUTH[0] - late) * sex)
        death = 70 * (np.minimum(hazard, year) + rest) ** (1 / 1.2)
    left = np.minimum(draw.exponential(60 * np.exp(-leaving * (arm == 2))), 60)
    return {
        "followup": np.minimum(death, left).tolist(),
        "died": np.where(death < left, "yes", "no").tolist(),
        "sex": np.array(SEX.levels)[sex].tolist(),
        "arm": np.array(ARM.levels)[arm].tolist(),
    }


def released(cells: dict[str, list[Any]], **choices: Any) -> PreparedMoments:
    return release_of((OUTCOME, SEX, ARM), (2, 1), cells, **choices)


def cox(cells: dict[str, list[Any]]) -> tuple[Array, Array]:
    """Log ratios of the partial likelihood by Newton's method, and their standard errors; no two die at one time."""
    x = np.array([np.array(cells["sex"]) == "m", *(np.array(cells["arm"]) == arm for arm in ("b", "c"))]).T * 1.0
    order = np.argsort(cells["followup"], kind="stable")[::-1]
    x, died, b = x[order], (np.array(cells["died"]) == "yes")[order], np.zeros(3)
    for _ in range(8):
        weight = np.exp(x @ b)[:, None]
        at_risk = np.cumsum(weight, axis=0)
        mean = np.cumsum(weight * x, axis=0) / at_risk
        square = np.cumsum(weight[:, :, None] * x[:, :, None] * x[:, None], axis=0) / at_risk[:, :, None]
        information = (square - mean[:, :, None] * mean[:, None])[died].sum(axis=0)
        b = b + np.linalg.solve(information, (x - mean)[died].sum(axis=0))
    return b, np.sqrt(np.diag(np.linalg.inv(information)))


@pytest.mark.parametrize("basis", [np.ones((4, 1)), np.eye(4)])
def test_slope_and_spread_are_those_of_the_expectation(basis: Array) -> None:
    draw, m = np.random.default_rng(0), 2
    law = Hazards.of(np.eye(9), np.ones(9), draw.uniform(50, 200, 9), basis, gaps=False)
    X, w = np.hstack([np.ones((30, 1)), draw.integers(0, 2, (30, m))]), draw.dirichlet(np.ones(30))
    b = law.start(np.zeros(8 + (basis.shape[1] + 1) * m), 1.0)
    assert w @ law.expectation(X, b) == pytest.approx(0, abs=1e-12)
    b = b + draw.normal(size=len(b)) / 3
    moved = [w @ (law.expectation(X, b + step) - law.expectation(X, b - step)) / 2e-5 for step in 1e-5 * np.eye(len(b))]
    assert law.slope(X, w, b) == pytest.approx(np.array(moved).T, abs=1e-9)
    expected = np.zeros_like(law.slope(X, w, b))
    for x, weight, mean in zip(X, w, law.expectation(X, b), strict=True):
        chances = np.append(mean[:8] + law.shares[:8], 0.0)
        chances[8] = 1 - chances.sum()
        ys = np.vstack(
            [np.eye(9)[:8], np.repeat(law.residuals, m, axis=0) * np.tile(x[1:], len(law.residuals))[:, None]]
        )
        expected += weight * ((ys * chances) @ ys.T - np.outer(ys @ chances, ys @ chances))
    assert law.spread(X, w, b) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("basis", [np.ones((4, 1)), np.eye(4)])
def test_residuals_are_combinations_of_who_left_and_vary_as_is_said(basis: Array) -> None:
    law = Hazards.of(np.eye(9), np.ones(9), np.random.default_rng(0).uniform(50, 200, 9), basis, gaps=False)
    ys = law.ys(law.alone + law.repeats)
    assert law.balance @ ys[: law.alone] == pytest.approx(ys[law.alone :])
    assert law.largest_covariance == pytest.approx((ys[law.alone :] * law.shares) @ ys[law.alone :].T)


@pytest.mark.parametrize("leaving", [0.0, 1.0])
def test_ratios_without_noise_are_near_those_of_cox_on_the_rows(leaving: float) -> None:
    cells = cells_of(8000, 1, leaving=leaving)
    found, (log_ratios, deviations) = hazard_ratios(released(cells, epsilon=WITHOUT), "outcome", FEATURES), cox(cells)
    assert found.terms == ("sex[m]", "arm[b]", "arm[c]")
    assert found.coefficients == pytest.approx(log_ratios, abs=0.03)
    assert found.standard_errors == pytest.approx(deviations, rel=0.2)
    assert found.p_value > 0.05
    assert np.isnan(found.interval_ratios).all()


def test_ratios_that_change_are_found_and_given_for_each_interval() -> None:
    cells = cells_of(8000, 2, late=-1.0)
    found = hazard_ratios(released(cells, epsilon=3.0, seed=2), "outcome", FEATURES)
    assert found.p_value < 1e-6
    assert (found.change_p_values < 0.01).tolist() == [True, False, False]
    assert "change with time" in found.warnings[0]
    truth = np.array([TRUTH[0], TRUTH[0], -1.0, -1.0])
    assert found.intervals == ("[0, 6)", "[6, 12)", "[12, 24)", "[24, 36)")
    assert np.log(found.interval_ratios[0]) == pytest.approx(truth, abs=0.3)
    assert (found.interval_ratio_intervals[:, :, 0] < found.interval_ratios).all()
    assert "in [24, 36) high" in found.table().to_csv().splitlines()[0]


def test_level_with_hardly_an_event_is_marked() -> None:
    cells = cells_of(3000, 3)
    cells["arm"] = ["c" if i < 120 else "a" if arm == "c" else arm for i, arm in enumerate(cells["arm"])]
    found = hazard_ratios(released(cells, epsilon=1.0, seed=1), "outcome", FEATURES)
    assert "arm[c]" in found.warnings[-1]
    assert "the prior has the say" in found.warnings[-1]
    assert "sex" not in found.warnings[-1]


def test_what_has_no_hazard_ratios_is_refused_with_a_remedy() -> None:
    release = released(cells_of(300, 1), epsilon=WITHOUT)
    for outcome, features, error in (
        ("sex", ("arm",), LevelError),
        ("outcome", ("outcome",), TargetAmongFeaturesError),
    ):
        with pytest.raises(error) as refused:
            hazard_ratios(release, outcome, features)
        assert refused.value.remedy
    with pytest.raises(LevelError, match="died is a part of outcome"):
        Release.of(published_survival()[1]).hazard_ratios("outcome", ["died"])
    with pytest.raises(LevelError, match="anybody at risk had the event"):
        hazard_ratios(released(cells_of(100, 1), epsilon=0.02, seed=4), "outcome", FEATURES)
    with pytest.raises(ConfidenceError):
        hazard_ratios(release, "outcome", FEATURES, confidence_level=1.0)


def test_outcome_that_all_have_in_the_first_interval_is_refused() -> None:
    with pytest.raises(LevelError, match="whether anybody is left after") as refused:
        hazard_ratios(released(cells_of(4000, 3, months=1.0), epsilon=WITHOUT), "outcome", FEATURES)
    assert "shorter intervals" in refused.value.remedy


def test_people_without_an_outcome_are_left_out() -> None:
    cells, draw = cells_of(8000, 4), np.random.default_rng(4)
    lacking = draw.random(8000) < 0.2
    log_ratios, _ = cox({name: np.array(values)[~lacking].tolist() for name, values in cells.items()})
    died = BinaryAttribute(name="died", levels=("no", "yes"), missing="indicator")
    followup = CutNumber(
        name="followup", lower=0, upper=60, cuts=tuple(ENDS[:-1].tolist()), missing="indicator"
    ).as_levels
    outcome = Crossed(name="outcome", cross=(followup, died)).as_levels
    cells["died"] = [None if gone else value for gone, value in zip(lacking, cells["died"], strict=True)]
    found = hazard_ratios(release_of((outcome, SEX, ARM), (2, 1), cells, epsilon=WITHOUT), "outcome", FEATURES)
    assert found.coefficients == pytest.approx(log_ratios, abs=0.1)


def test_event_is_any_level_but_the_first_as_in_curves_or_the_one_that_is_named() -> None:
    cells, draw = cells_of(6000, 6), np.random.default_rng(6)
    graft = np.equal(cells["died"], "yes") & (draw.random(6000) < 0.4)
    alone = {**cells, "died": np.where(graft, "no", cells["died"]).tolist()}
    ends = np.where(graft, "graft", np.where(np.equal(cells["died"], "yes"), "death", "none"))
    how = CategoricalAttribute(name="how", levels=("none", "death", "graft"))
    end = Crossed(name="end", cross=(FOLLOWUP, how)).as_levels
    several = release_of((end, SEX, ARM), (2, 1), {**cells, "how": ends.tolist()}, epsilon=WITHOUT)
    for event, same in ((None, cells), ("death", alone)):
        found, one = hazard_ratios(several, "end", FEATURES, event=event), released(same, epsilon=WITHOUT)
        assert found.coefficients == pytest.approx(hazard_ratios(one, "outcome", FEATURES).coefficients, abs=0.02)
        assert found.event == (f"how = {event}" if event else survival(several, "end").event)
    with pytest.raises(LevelError, match="how has no event 'none'") as refused:
        hazard_ratios(several, "end", FEATURES, event="none")
    assert "death, graft" in refused.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize(("overlap", "epsilon"), [(None, 1.0), (0.8, 2.0)])
def test_intervals_hold_the_ratios_of_the_population(overlap: float | None, epsilon: float) -> None:
    """Of 60 releases; a coverage of .95 of three terms is outside .89 to .99 about once in 30 runs."""
    found = list[HazardRatios]()
    for seed in range(60):
        cells = cells_of(6000, seed, leaving=0.5)
        release = released(cells, overlap=overlap, epsilon=epsilon, seed=seed, pseudonyms=seed)
        found.append(hazard_ratios(release, "outcome", FEATURES))
    held = covers(np.log([each.ratio_intervals for each in found]), TRUTH).mean(axis=0)
    assert 0.89 <= held.mean() <= 0.99
    assert np.mean([each.p_value < 0.05 for each in found]) <= 0.15


@pytest.mark.slow
def test_intervals_of_rare_levels_with_hardly_an_event_hold() -> None:
    """Arm c is 1 % of the people, and one or two of them die. 60 releases of fixed seeds, a standard error of .03.

    With ends at r exp(+- z s) intervals would hold .79.
    """
    held, by_log, truth = [], [], np.log(0.5)
    for seed in range(60):
        cells = cells_of(5000, seed, months=500.0, rare=3.29, log_ratio=truth)
        found = hazard_ratios(released(cells, epsilon=3.0, seed=seed), "outcome", FEATURES)
        low, high = found.ratio_intervals[2]
        held.append(low <= np.exp(truth) <= high)
        by_log.append(abs(found.coefficients[2] - truth) <= 1.96 * found.standard_errors[2])
    assert np.mean(held) > 0.9 > np.mean(by_log)


def test_level_that_noise_hides_has_no_ratio_and_no_headline() -> None:
    cells = cells_of(6000, 5)
    cells["arm"][:3] = ["d"] * 3
    arms = CategoricalAttribute(name="arm", levels=("a", "b", "c", "d"))
    made = hazard_ratios(release_of((OUTCOME, SEX, arms), (2, 1), cells, epsilon=1.0, seed=2), "outcome", FEATURES)
    assert made.terms[-1] == "arm[d]"
    assert np.isnan([made.ratios[-1], made.p_values[-1], *made.ratio_intervals[-1]]).all()
    assert np.isfinite(made.ratio_intervals[:-1]).all()
    assert "arm[d]" not in made.sentence
    assert "There are too few people with arm[d]: no ratio is given." in made.warnings
