"""The simulated year beside closed forms."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.year import DAY, Assumptions, Costs, Replicas, proposals, simulated, worked

HOUR = 3600.0
QUIET = Assumptions(lost=0.0, away=0.0, nightly=0.0)
CHEAP = Costs(release=0.02, member=0.03, follower=1e-6)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_requests_at_random_times_wait_as_long_as_queueing_theory_says(number: int, load: float) -> None:
    """M/M/1: the mean wait is load / (1 - load) service times; 400 000 arrivals leave it a standard error of 1 %."""
    rng = np.random.default_rng(number)
    replicas = Replicas(number, spare=0.5, rng=rng)
    for at in np.cumsum(rng.exponential(2.0 / load / number, 400_000)).tolist():
        replicas.serve(at, 1.0)
    assert np.mean(replicas.waits) == pytest.approx(2.0 * load / (1 - load), rel=0.05)
    assert sum(replicas.busy.values()) == pytest.approx(400_000 * 2.0, rel=0.02)


def test_open_releases_are_as_many_as_begin_while_one_lasts() -> None:
    """Little's law, where decisions take minutes, so that few releases are open at the end."""
    assumed = replace(QUIET, releases=2_000_000, automatic=1.0, block=1800.0)
    found = simulated(assumed, CHEAP, days=7, rng=np.random.default_rng(1))
    lasted = found["seconds after approval"]
    assert found["published"] > 36_000
    assert lasted["median"] < lasted["p99"]
    mean = found["open"]["average"] * 7 * DAY / found["published"]
    # of n blocks of mean 1800 s the last comes after the n-th harmonic number of them
    harmonic = {n: sum(1 / i for i in range(1, n + 1)) for n in assumed.members_of_release}
    expected = sum(s * harmonic[n] for n, s in zip(assumed.members_of_release, assumed.shares, strict=True)) * 1800
    assert mean == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(
    ("at", "seconds", "zone", "then"),
    [
        (0.0, 0.0, 0, 9 * HOUR),
        (0.0, 8 * HOUR, 0, 17 * HOUR),
        (16 * HOUR, 2 * HOUR, 0, DAY + 10 * HOUR),
        (20 * HOUR, HOUR, 0, DAY + 10 * HOUR),
        (4 * DAY + 16 * HOUR, 2 * HOUR, 0, 7 * DAY + 10 * HOUR),
        (0.0, 40 * HOUR, 0, 4 * DAY + 17 * HOUR),
        (0.0, HOUR, 9, HOUR),
    ],
    ids=["night", "a day", "over the evening", "evening", "over the weekend", "a week", "an office nine hours ahead"],
)
def test_offices_work_from_nine_to_five_on_five_days(at: float, seconds: float, zone: float, then: float) -> None:
    assert worked(at, seconds, zone) == then


def test_proposals_come_in_working_hours_and_those_of_timers_after_midnight() -> None:
    assumed = replace(QUIET, releases=3_650_000, nightly=0.25, zones=(0,))
    found = proposals(assumed, 14, np.random.default_rng(2))
    assert len(found) == pytest.approx(140_000, rel=0.02)
    assert np.all(np.diff(found) >= 0)
    night, rest = found[found % DAY < 60], found[found % DAY >= 60]
    assert len(night) / len(found) == pytest.approx(0.25, abs=0.01)
    assert np.all((rest % DAY >= 9 * HOUR) & (rest % DAY <= 17 * HOUR) & (rest // DAY % 7 < 5))


def test_year_of_more_agents_than_replicas_carry_is_refused_with_what_to_do() -> None:
    with pytest.raises(SystemExit, match="2 replicas do not carry 10,000 agents that wait: take more"):
        simulated(QUIET, replace(CHEAP, follower=1e-3), days=1, rng=np.random.default_rng(3))
