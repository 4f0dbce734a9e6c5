"""Shares, differences and ratios of counts: without noise they are statsmodels' own, and with few events they hold."""

import numpy as np
import pytest
from scipy.special import ndtri
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.entry_noise import Array, TableNoise
from commingle.shared.estimation.shares import against, share_of, wilson

Z = float(ndtri(0.975))
NOTHING = np.zeros((2, 2))


def table(counts: Array, sd: float = 0.0) -> Cells:
    """Two rows of people without and with the event; each count has noise of its own."""
    return Cells(("a", "b"), ("no", "yes"), counts, TableNoise(sd**2 * np.eye(4).reshape(2, 2, 2, 2)))


@pytest.mark.parametrize(("events", "people"), [(0, 56), (3, 150), (40, 90), (60, 60)])
def test_share_without_noise_has_the_interval_of_wilson(events: int, people: int) -> None:
    share, ends = share_of(events, people, NOTHING, Z)
    assert share == events / people
    assert ends == pytest.approx(proportion_confint(events, people, method="wilson"), abs=1e-12)


@pytest.mark.parametrize(("one", "other"), [((3, 150), (80, 4000)), ((40, 90), (20, 90)), ((0, 50), (5, 60))])
def test_difference_without_noise_has_the_interval_of_newcombe(one: tuple[int, int], other: tuple[int, int]) -> None:
    counts = np.array([[n - e, e] for e, n in (one, other)], np.float64)
    found = against(table(counts), (0, 1), 1, Z)
    expected = confint_proportions_2indep(*one, *other, compare="diff", method="newcomb")
    assert found["difference_intervals"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("compare", ["ratio", "odds-ratio"])
def test_ratios_of_many_events_without_noise_are_those_of_the_score_test(compare: str) -> None:
    one, other = (300, 1000), (400, 2000)
    counts = np.array([[n - e, e] for e, n in (one, other)], np.float64)
    found = against(table(counts), (0, 1), 1, Z)
    expected = confint_proportions_2indep(*one, *other, compare=compare, method="score")
    assert found[{"ratio": "ratio_intervals", "odds-ratio": "odds_intervals"}[compare]] == pytest.approx(
        expected, rel=0.01
    )


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.3, 2.0, 6.0])
@pytest.mark.parametrize(
    ("people", "shares"), [((150, 4000), (0.02, 0.06)), ((60, 200), (0.05, 0.1)), ((100, 1000), (0.9, 0.95))]
)
def test_intervals_of_few_events_hold_as_often_as_they_say(
    people: tuple[int, int], shares: tuple[float, float], noise: float
) -> None:
    """Of 2,000 tables. A share has a standard error of .005; the method itself held .941 to .971 in 4,000 others."""
    draw, (p, q) = np.random.default_rng(7), shares
    truth = {"share": p, "difference": p - q, "ratio": p / q, "odds": p * (1 - q) / q / (1 - p)}
    held = dict.fromkeys(truth, 0)
    for _ in range(2000):
        events = draw.binomial(people, shares)
        counts = np.column_stack([np.array(people) - events, events]) + draw.normal(0, noise, (2, 2))
        found = against(table(counts, noise), (0, 1), 1, Z)
        for name, value in truth.items():
            low, high = found[f"{name}_intervals"]
            held[name] += bool(low <= value <= high)
    assert all(0.935 * 2000 <= count <= 0.985 * 2000 for count in held.values()), held


def test_ends_of_a_share_are_infinite_where_noise_hides_the_people_and_one_point_where_it_leaves_no_room() -> None:
    assert wilson(3, 10, 100 * np.eye(2), Z) == (-np.inf, np.inf)
    assert share_of(3, 10, 100 * np.eye(2), Z) == (0.3, (0.0, 1.0))
    assert np.isnan(share_of(3, -1, NOTHING, Z)[0])
    low, high = wilson(-50, 1000, np.eye(2), Z)
    assert low <= 0 < high < 0.01, "as if nobody had the event"
