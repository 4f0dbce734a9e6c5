"""How often intervals hold what they are for, in small."""

import numpy as np
import pytest

from benchmarks import keyed
from benchmarks.coverage import Setting, population, real, slopes, summary, synthetic, table_moments
from benchmarks.keyed import covered
from commingle.shared.dp.noise import Sampler
from tests.world.noise import seeded_noise


def test_tables_are_drawn_around_the_population() -> None:
    S = table_moments(1_000_000, np.random.default_rng(0))
    mean, covariance, b = population()
    assert S[0] / 1_000_000 == pytest.approx([1.0, *mean], abs=0.003)
    centred = S[1:, 1:] / 1_000_000 - np.outer(S[0, 1:], S[0, 1:]) / 1_000_000**2
    assert centred == pytest.approx(covariance, abs=0.003)
    assert slopes(S) == pytest.approx(b, abs=0.01)


def test_fits_with_signal_cover_at_the_stated_rate_and_do_not_warn() -> None:
    for trials in synthetic(Setting(200_000, 300, 0.5), releases=150).values():
        found = summary(trials)
        # ten slopes, 150 releases: standard error of the mean about 0.006
        assert 0.93 < found["mean"] < 0.975
        assert found["warned"] == 0.0
        assert found["silent_mean"] == found["mean"]


def test_fits_without_signal_warn() -> None:
    found = summary(synthetic(Setting(50_000, 300, 3.73), releases=20)["table"])
    assert (found["warned"], found["silent_mean"]) == (1.0, None)


@pytest.mark.parametrize("sampler", [None, seeded_noise(5)], ids=["law", "made"])
def test_release_of_a_table_covers_its_own_slopes(sampler: Sampler | None) -> None:
    draw = np.random.default_rng(6)
    x = draw.uniform(0, 1, (2000, 3))
    values = np.column_stack([x, np.clip(x.mean(axis=1) + draw.normal(0, 0.1, 2000), 0, 1)])
    trials, rows = real(values, mechanism="rmgm", epsilon=300.0, releases=40, sampler=sampler)
    assert 3 < rows < 2000
    # fixed seeds; at a rate of 0.95 one seed in 10^4 fails, were the three slopes of a release right together
    assert summary(trials)["mean"] > 0.8


def test_intervals_of_keyed_subjects_hold_most_coefficients_at_half_an_overlap() -> None:
    found = covered(keyed.Setting("moments", 2000, 50.0, 0.5), releases=12)
    assert found["answered"] == 1
    assert found["coverage"] is not None
    assert 0.85 < found["coverage"] <= 1
