import numpy as np
import pytest
from scipy.stats import norm, truncnorm

from commingle.shared.estimation.bounded import posterior_levels, posterior_mean


# further out the oracle itself loses its digits
@pytest.mark.parametrize(
    ("x", "s"), [(-30.0, 3.0), (-1.2, 0.4), (-1.2, 0.05), (0.0, 0.01), (0.9, 3.0), (2.5, 0.4), (12.0, 0.4), (12.0, 3.0)]
)
def test_posterior_mean_is_that_of_a_truncated_normal(x: float, s: float) -> None:
    expected = truncnorm.mean((-1 - x) / s, (1 - x) / s, loc=x, scale=s)
    assert posterior_mean(np.array([x]), s, -1.0, 1.0)[0] == pytest.approx(np.clip(expected, -1, 1), abs=1e-6)


@pytest.mark.parametrize(("x", "s"), [(0.2, 1e-15), (1e6, 1.0), (-1e6, 1.0), (0.0, 1e6), (5.0, 1e-3)])
def test_posterior_mean_stays_between_the_bounds_at_any_scale(x: float, s: float) -> None:
    [mean] = posterior_mean(np.array([x]), s, -1.0, 1.0)
    assert -1 <= mean <= 1
    if abs(x) < 1 and s < 1:
        assert mean == pytest.approx(x)


@pytest.mark.parametrize("truth", [-1.0, -0.95, -0.6, 0.0, 1.0])
@pytest.mark.parametrize("s", [0.05, 0.36, 1.0, 4.0])
def test_posterior_mean_has_no_larger_risk_than_the_observation(truth: float, s: float) -> None:
    x = truth + s * np.linspace(-7, 7, 4001)
    weights = norm.pdf(x, truth, s) / norm.pdf(x, truth, s).sum()
    risk = float(weights @ (posterior_mean(x, s, -1.0, 1.0) - truth) ** 2)
    assert risk <= s**2 * (1 + 1e-6)


@pytest.mark.parametrize("x", [-6.0, 0.3, 9.0])
def test_levels_are_quantiles_of_the_truncated_normal(x: float) -> None:
    levels = posterior_levels(x, 1.0, 0.0, 5.0, 3)
    expected = truncnorm.ppf([1 / 6, 1 / 2, 5 / 6], -x, 5 - x, loc=x)
    np.testing.assert_allclose(levels, expected, atol=1e-6)
