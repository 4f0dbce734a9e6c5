"""The probability of signal in noisy moments: against normal laws written out, and what it costs without any."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal

from commingle.shared.estimation.posterior import MOST_ODDS, NULL_LOSS
from commingle.shared.mechanisms.moments.fit import Slopes, least_label
from tests.shared.estimation.tables import Array

N, EXPONENT = 2000, 4.0
X = N * (0.1 * np.eye(4) + 0.05)
B = np.array([0.5, -0.4, 0.2, 0.0])
YY = float(B @ X @ B) + 0.1 * N


def omega(sd: float) -> Array:
    """Noise of the cross moments: not alike, and correlated a little."""
    return np.asarray(sd**2 * (np.diag([1.0, 0.5, 2.0, 1.0]) + 0.1))


def slopes(sd: float, b: Array = B) -> Slopes:
    return Slopes.of(X, X @ b, YY, omega=omega(sd), exponent=EXPONENT)


@pytest.mark.parametrize("sd", [5.0, 60.0, 500.0])
def test_bayes_factor_is_that_of_normal_laws_written_out(sd: float) -> None:
    found, g = slopes(sd), X @ B + 10.0
    with_slopes = multivariate_normal(np.zeros(4), omega(sd) + found.tau * X).logpdf(g)
    without = multivariate_normal(np.zeros(4), omega(sd)).logpdf(g)
    assert float(found.log_bayes(found.basis.T @ g)) == pytest.approx(with_slopes - without, rel=1e-9)


def test_prior_variance_of_a_slope_is_the_residual_of_the_label_over_the_exponent() -> None:
    assert slopes(5.0).tau == pytest.approx(0.1 * N / EXPONENT)
    np.testing.assert_allclose(slopes(5.0).values, B, atol=1e-12)


@pytest.mark.parametrize("sd", [20.0, 60.0, 150.0])
def test_table_without_signal_loses_what_is_allowed_on_other_draws(sd: float) -> None:
    found, draw = slopes(sd, np.zeros(4)), np.random.default_rng(5)
    g = draw.multivariate_normal(np.zeros(4), omega(sd), size=4000)
    P = expit(found.log_bayes(g @ found.basis) + found.log_odds(YY))
    b = P[:, None] * (g @ np.linalg.inv(X + omega(sd) / found.tau))
    lost = np.mean(np.einsum("ni,ij,nj->n", b, X, b)) / YY
    assert lost < 1.25 * NULL_LOSS  # 256 draws make the odds
    if found.log_odds(YY) < np.log(MOST_ODDS):
        assert lost > NULL_LOSS / 1.25


def test_odds_are_the_most_where_there_is_little_to_lose_and_small_where_there_is_much() -> None:
    assert slopes(2.0).log_odds(YY) == pytest.approx(np.log(MOST_ODDS))
    assert slopes(60.0).log_odds(YY) < np.log(MOST_ODDS) - 1
    assert slopes(60.0).log_odds(YY / 10) < slopes(60.0).log_odds(YY)


@pytest.mark.parametrize("sd", [2.0, 60.0])
def test_clear_signal_is_believed_and_none_is_not(sd: float) -> None:
    found = slopes(sd)
    assert found.probability(X @ (8 * B), YY) > 0.99
    assert found.probability(np.zeros(4), YY) < 0.5


@pytest.mark.parametrize("mean", [0.0, 0.9, None])
def test_label_counts_with_no_more_than_its_mean_lets_it_vary(mean: float | None) -> None:
    clear, hidden = (least_label(0.1 * N, error * N, mean, n=N) for error in (1e-6, 0.3))
    assert clear == pytest.approx(0.1 * N, rel=1e-3)
    assert hidden > 0
    assert mean is None or hidden < (1 - mean**2) * N
    assert mean is None or hidden < least_label(0.1 * N, 0.3 * N, 0.0, n=N) + 1e-9


def test_label_that_noise_hides_counts_with_less_than_was_released() -> None:
    assert least_label(0.1 * N, 0.08 * N, 0.0, n=N) < 0.1 * N
