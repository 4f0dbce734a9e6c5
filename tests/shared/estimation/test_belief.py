"""Slopes given a release: against normal laws written out, and the bound on what a table without signal loses."""

import itertools

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import chi2, multivariate_normal

from commingle.shared.estimation.odds import MOST_ODDS, NULL_LOSS
from commingle.shared.mechanisms.rows import belief
from commingle.shared.mechanisms.rows.belief import Belief, Directions, Label, prior_log_odds, shrinkage
from tests.shared.estimation.tables import Array

ROWS = 60
LABEL = Label(total=np.array([1.4, 2.0, 3.1]), signal=np.array([0.4, 1.0, 2.1]))


def directions(share: Array, seed: int = 0) -> Directions:
    draw = np.random.default_rng(seed)
    features = draw.normal(size=(len(share), len(share)))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    z = draw.normal(0, 1.5, len(share))
    return Directions(np.eye(len(share)), 1 - share + 0.05, share, z, features)


def priors(d: Directions) -> list[tuple[float, float, Array]]:
    """(probability, total, covariance of zeta over tau^2) of everything that may be, written out one by one."""
    found = []
    shape = d.share * np.sqrt(d.share / d.noise)
    shapes = [(1 - belief.ALONE, np.diag(shape))]
    shapes += [(belief.ALONE / len(d.z), np.outer(u, u)) for u in d.features]
    steps = np.gradient(np.append(0.0, belief.R_SQUARED))[1:]
    for (p, C), (r2, step), j in itertools.product(shapes, zip(belief.R_SQUARED, steps, strict=True), range(3)):
        scaled = C / np.sum(np.diag(C) / d.share)
        explained = r2 * LABEL.signal[j] / LABEL.total[j]
        h = ROWS * explained / (1 - explained * np.trace(scaled)) * scaled
        tau2 = LABEL.total[j] * (1 - explained * np.trace(scaled))
        found.append((p * step / steps.sum() / 3, tau2, h))
    return found


def likelihood(z: Array, rest: float, tau2: float, h: Array) -> float:
    """Of z ~ N(0, tau^2 (I + h)) and a residual tau^2 chi^2."""
    normal = multivariate_normal(np.zeros(len(z)), tau2 * (np.eye(len(z)) + h)).logpdf(z)
    return float(np.exp(normal + chi2(ROWS - len(z)).logpdf(rest / tau2)) / tau2)


@pytest.mark.parametrize("share", [np.array([0.9, 0.5, 0.1]), np.array([0.3]), np.array([0.02, 0.8, 0.4, 0.4])])
def test_slopes_are_those_of_normal_laws_written_out(share: Array) -> None:
    d = directions(share)
    rest, q = 70.0, len(share)
    # the levels of the label's variance are equally likely given yy: each is compared with no signal at its own
    odds, zeta = 0.0, np.zeros(q)
    for index, (p, tau2, h) in enumerate(priors(d)):
        none = likelihood(d.z, rest, float(LABEL.total[index % 3]), np.zeros((q, q)))
        weight = p * likelihood(d.z, rest, tau2, h) / none
        odds += weight
        zeta += weight * h @ np.linalg.solve(np.eye(q) + h, d.z)
    [log_bayes], [left], [alone] = Belief.of(d, ROWS, LABEL).given(d.z[None], np.array([d.z @ d.z + rest]))
    assert np.exp(log_bayes) == pytest.approx(odds, rel=1e-9)
    np.testing.assert_allclose(left * d.z + alone * (d.features @ d.z) @ d.features, zeta / odds, rtol=1e-9)


def test_table_without_signal_loses_what_is_allowed_on_other_draws() -> None:
    d = directions(np.array([0.5, 0.6, 0.7, 0.8]))
    b = Belief.of(d, ROWS, LABEL)
    log_odds = prior_log_odds(b)
    draw, repeats, lost = np.random.default_rng(5), 4000, []
    for total, signal in zip(LABEL.total, LABEL.signal, strict=True):
        z = draw.normal(0, np.sqrt(total), (repeats, 4))
        yy = (z**2).sum(axis=1) + total * draw.chisquare(ROWS - 4, repeats)
        log_bayes, left, alone = b.given(z, yy)
        zeta = expit(log_bayes + log_odds)[:, None] * (left * z + (alone * (z @ d.features.T)) @ d.features)
        lost.append(np.mean(np.sum(zeta**2 / d.price(ROWS), axis=1)) / ROWS / signal)
    # 4000 draws here and 128 evenly spread ones there are within a tenth of each other
    assert np.mean(lost) == pytest.approx(NULL_LOSS, rel=0.25)


def test_odds_are_the_most_where_there_is_little_to_lose_and_small_where_there_is_much() -> None:
    d = directions(np.full(4, 0.9))
    some, many = (prior_log_odds(Belief.of(d, rows, LABEL)) for rows in (ROWS, 100_000))
    assert some < np.log(MOST_ODDS) - 1
    assert many == pytest.approx(np.log(MOST_ODDS))


def test_strong_signal_is_left_nearly_whole_and_more_of_it_where_more_is_signal() -> None:
    d = directions(np.array([0.2, 0.9]))
    strong = Directions(d.basis, d.noise, d.share, np.array([9.0, 9.0]), np.eye(2))
    left = np.diag(shrinkage(Belief.of(strong, ROWS, LABEL), 200.0))
    assert 0 < left[0] < left[1] < 1
    assert left[1] > 0.8
