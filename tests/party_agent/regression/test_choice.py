"""`auto` takes the method that is measured to be the best, on made-up rows of three shapes."""

from math import sqrt

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.methods import METHODS, STAGED, WITH_PUBLIC_ROWS, ExactMethod
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.public_moment import PublicMoments, transform
from commingle.party_agent.private.regression.sums import sums_loss
from commingle.party_agent.private.regression.two_stage import adjacency_of
from commingle.party_agent.regression.forecasts import RegressionDesign
from commingle.party_agent.regression.outlook import choose
from commingle.shared.documents.regression import RegressionMethod, measured_attributes
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.dp.two_stages import plan_two_stages

NAMES: tuple[RegressionMethod, ...] = ("two_stage", "ssp", "adassp", "boosted_adassp", "dp_pmtolse")
PUBLIC_ROWS = 200
FEATURES = 3


def made_up(draw: Generator, shape: str, n: int) -> tuple[Floats, Floats]:
    """Rows with a column of ones first, and labels; the features explain half of what labels vary."""
    if shape == "even":
        x = draw.uniform(-1, 1, (n, FEATURES))
    else:
        spread, common = np.geomspace(0.02, 0.5, FEATURES), draw.normal(size=(n, 1))
        x = np.clip(spread * (0.6 * common + 0.8 * draw.normal(size=(n, FEATURES))), -1, 1)
    mean = (x - x.mean(axis=0)) / x.std(axis=0) @ draw.normal(size=FEATURES)
    y = mean / mean.std() + draw.normal(size=n)
    return np.column_stack([np.ones(n), x]), np.clip(0.4 * y, -1, 1)


def two_stages(x: Floats, y: Floats, privacy: Privacy, draw: Generator) -> Floats:
    def noise(sigma: int, count: int) -> NDArray[np.int64]:
        return np.rint(draw.normal(0, sigma, count)).astype(np.int64)

    q = quantise(np.column_stack([x[:, 1:], y]))
    *features, label = (NumericAttribute(name=f"x{j}", lower=-1, upper=1) for j in range(q.shape[1]))
    attributes = measured_attributes(label, tuple(features))
    stages = plan_two_stages(attributes, n=len(q), rho=sums_loss(privacy).rho, adjacency=adjacency_of(privacy))
    return STAGED["two_stage"].run(q, stages, privacy, noise, intercept=True).coefficients


def coefficients(
    name: RegressionMethod, x: Floats, y: Floats, *, public: PublicMoments, privacy: Privacy, draw: Generator
) -> Floats:
    method = METHODS.get(name)
    if name in STAGED:
        return two_stages(x, y, privacy, draw)
    if isinstance(method, ExactMethod):
        sample = clip_sample(x, y, row_bound=sqrt(x.shape[1]), label_bound=1.0)
        return method.run(sample, privacy, FloatingPoint(draw)).coefficients
    mapped = transform(x, y, public, make=clip_sample)
    return WITH_PUBLIC_ROWS[name].run(mapped, public, privacy, FloatingPoint(draw)).coefficients


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "n", "best"),
    [("even", 50_000, "adassp"), ("narrow", 5_000, "two_stage"), ("even", 1_000, "boosted_adassp")],
)
def test_choice_is_the_method_that_is_measured_to_be_best(shape: str, n: int, best: str) -> None:
    draw, privacy = default_rng((n, FEATURES, 10)), Privacy(1.0, 1e-6)
    x, y = made_up(draw, shape, n + PUBLIC_ROWS)
    seen, own = slice(PUBLIC_ROWS), slice(PUBLIC_ROWS, None)
    second = x[seen].T @ x[seen] / PUBLIC_ROWS + 1e-3 * np.eye(FEATURES + 1)
    public = PublicMoments(second.astype(np.float64), float(np.mean(y[seen] ** 2)))
    without = np.linalg.lstsq(x[own], y[own])[0]

    def error(name: RegressionMethod) -> float:
        fits = [coefficients(name, x[own], y[own], public=public, privacy=privacy, draw=draw) for _ in range(21)]
        return float(np.median([sqrt(float(np.mean((x[own] @ (fit - without)) ** 2))) for fit in fits]))

    measured = {name: error(name) for name in NAMES}
    design = RegressionDesign(public.features, public.label, n, sqrt(FEATURES + 1), 1.0, PUBLIC_ROWS)
    chosen = choose(design, privacy).method
    assert chosen == best
    assert measured[chosen] < 1.3 * min(measured.values())
