"""Terms of generalised linear models that data say nothing of: the prior decides, and errors are as wide as it is."""

from typing import Any

import numpy as np
import pytest

from commingle.services.intervals import LogRatios, standard_errors
from commingle.services.models import GeneralisedFit, glm
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from tests.world.categorical import release_of

EVENT = BinaryAttribute(name="event", levels=("no", "yes"))
WARD = CategoricalAttribute(name="ward", levels=("a", "b", "c"))
COPY = CategoricalAttribute(name="copy", levels=("a", "b", "c"))
SEX = BinaryAttribute(name="sex", levels=("f", "m"))


def copied(n: int, epsilon: float, seed: int) -> GeneralisedFit:
    """Two members hold the same feature; log odds ratios .5 and 1.5."""
    draw = np.random.default_rng(seed)
    ward = draw.integers(0, 3, n)
    event = draw.random(n) < 1 / (1 + np.exp(1.5 - np.array([0, 0.5, 1.5])[ward]))
    names = np.array(WARD.levels)[ward].tolist()
    cells = {"ward": names, "copy": names, "event": np.where(event, "yes", "no").tolist()}
    release = release_of(
        (WARD, COPY, EVENT), (1, 1, 1), cells, epsilon=epsilon, seed=seed, pseudonyms=seed, overlap=1.0
    )
    return glm(release, "event ~ ward + copy")


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_a_feature_and_its_copy_hold_what_either_may_be(seed: int) -> None:
    found = copied(20_000, 1000, seed)
    low, high = found.intervals[1:].T
    truth = np.array([0.5, 1.5, 0, 0])
    assert ((low <= truth) & (truth <= high)).all()
    # the data tell the sum of both, so each has half of the prior's variance
    assert found.standard_errors[1:] == pytest.approx(np.sqrt(0.5), rel=0.1)
    sums = found.covariance[1:3, 1:3] + found.covariance[3:, 3:] + 2 * found.covariance[1:3, 3:]
    assert (np.sqrt(np.diag(sums)) < 0.1).all()


def test_noise_in_who_is_shared_leaves_no_interval_of_no_width_where_features_are_collinear() -> None:
    found = copied(20_000, 10, 8)
    assert np.linalg.eigvalsh(found.covariance)[0] > 0
    assert (found.standard_errors[1:] > 0.5).all()


@pytest.mark.parametrize(("family", "outcome"), [("binomial", "event"), ("poisson", "falls")])
def test_level_that_nobody_has_is_as_unsure_as_the_prior(family: Any, outcome: str) -> None:
    draw = np.random.default_rng(1)
    cells: dict[str, list[Any]] = {
        "sex": draw.choice(["f", "m"], 2000).tolist(),
        "ward": draw.choice(["a", "b"], 2000).tolist(),
        "event": draw.choice(["no", "yes"], 2000).tolist(),
        "falls": draw.poisson(2, 2000).astype(float).tolist(),
    }
    attributes: tuple[Attribute, ...] = (SEX, WARD, EVENT, NumericAttribute(name="falls", lower=0, upper=20))
    found = glm(release_of(attributes, (2, 2), cells, epsilon=1e6), f"{outcome} ~ sex + ward", family=family)
    assert found.terms[-1] == "ward[c]"
    assert found.standard_errors[-1] == pytest.approx(1, rel=0.02)
    assert found.standard_errors[1] < 0.15


def test_variance_far_below_zero_has_no_error_and_one_by_rounding_the_error_zero() -> None:
    errors = standard_errors(np.diag([4.0, -0.05, -1e-16]))
    assert errors[[0, 2]].tolist() == [2.0, 0.0]
    assert np.isnan(errors[1])
    ratios = LogRatios(np.ones(3), errors, 0.95)
    assert np.isnan(ratios.intervals[1]).all()
    assert np.isnan(ratios.p_values[1])
