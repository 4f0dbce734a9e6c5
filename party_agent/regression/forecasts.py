"""What a regression will be worth, and which method to take: from n, bounds, epsilon, delta and public rows alone.

First order in the noise, at features that explain half of the variance of the target
(docs/design/estimation.md#outlook). The formulas say nothing of floating-point methods: `auto` never takes these.
Measured: docs/regression.md#which-method.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import erf, inf, sqrt
from types import MappingProxyType
from typing import get_args

import numpy as np

from commingle.party_agent.private.regression.measuring import Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.problem import Floats, RowMap
from commingle.party_agent.private.regression.sums import ROUNDS, norm_bound, stages_of, sums_sensitivity, tail
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.two_stages import expected_sums
from commingle.shared.errors import ParameterError, SpecError
from commingle.shared.estimation.posterior import exponent
from commingle.shared.forecast.task import attribute_law

_TAILS = 4.0
"""How much worse than its forecast we take dp_pmtolse to be in a comparison: rows of tables have longer tails."""
_POOR = 0.5
_TOLD_FROM_NONE = 2.25
"""How many standard errors of the number of rows n has to be for two stages, if that number is one of their sums."""
_PREFERENCE = "; two_stage is taken wherever it is below 0.5"

_EXPLAINED = 0.5
_ITERATIONS = 20
_LEAST = 1e-12  # of a label's mean square: who gives public moments may give any


@dataclass(frozen=True, slots=True)
class RegressionDesign:
    """What is known of rows and target before any is read.

    Attributes:
        moment: D x D second moment of a row, the intercept first if there is one.
        label: mean square of the encoded target.
        public_rows: rows `moment` was taken from; 0 if it was assumed.
    """

    moment: Floats
    label: float
    n: int
    row_bound: float
    label_bound: float
    public_rows: int = 0
    intercept: bool = True

    @property
    def signal(self) -> float:
        """Root mean square of what the features explain, in encoded units of the target."""
        return sqrt(_EXPLAINED * self.label)


def _values(design: RegressionDesign) -> Floats:
    return np.linalg.eigvalsh(design.moment).astype(np.float64)


def _coefficients(design: RegressionDesign, values: Floats) -> float:
    """||theta||^2 where each principal direction explains as much as any other: v_j theta_j^2 = signal^2 / D."""
    return design.signal**2 * float(np.mean(1 / values))


def _noise(design: RegressionDesign, privacy: Privacy) -> tuple[float, float]:
    gram = gaussian_multiplier(privacy, 1) * sums_sensitivity(design.row_bound, replaces=privacy.replaces)
    return gram, gram * design.label_bound / design.row_bound


def _squared(gram: float, cross: float, squared_coefficients: float, d: int) -> float:
    """Mean square of an entry of noise_b - noise_A theta: off-diagonal entries have half the variance."""
    return cross**2 + gram**2 * squared_coefficients * (1 + 1 / d) / 2


def _ssp(design: RegressionDesign, privacy: Privacy) -> float:
    """As adassp without its ridge, unless the noise drowns the least eigenvalue."""
    gram, _ = _noise(design, privacy)
    usable = design.n * float(_values(design)[0]) > gram * norm_bound(len(design.moment))
    return _from_noisy_sums(design, privacy, ridge=0.0) if usable else inf


def _adassp(design: RegressionDesign, privacy: Privacy) -> float:
    return _from_noisy_sums(design, privacy, ridge=_ridge(design, _noise(design, privacy)[0]))


def _from_noisy_sums(design: RegressionDesign, privacy: Privacy, *, ridge: float) -> float:
    """E^2 = sum_j (sd^2 v_j + lambda^2 signal^2 / D) / (n v_j + lambda)^2, sd^2 of `_squared`."""
    gram, cross = _noise(design, privacy)
    values, d = _values(design), len(design.moment)
    noise = _squared(gram, cross, _coefficients(design, values), d)
    shrunk = ridge**2 * design.signal**2 / d
    return sqrt(float(np.sum((noise * values + shrunk) / (design.n * values + ridge) ** 2)))


def _ridge(design: RegressionDesign, gram: float) -> float:
    return max(0.0, gram * norm_bound(len(design.moment)) - design.n * float(_values(design)[0]))


def _boosted_adassp(design: RegressionDesign, privacy: Privacy) -> float:
    """Shrinkage m_j and variance w_j along every principal direction, round by round, from signal^2 / D and 0.

    Residuals of deviation r, taken as Gaussian, pass g = erf(Y / (T r sqrt 2)) of themselves through the cut (Bussgang
    1952), so a round leaves 1 - g n v_j / (n v_j + lambda) of either and adds adassp's noise, with g of that in X^T X.
    """
    gram, cross = _noise(design, privacy)
    values, ridge, clip, d = _values(design), _ridge(design, gram), design.label_bound / ROUNDS, len(design.moment)
    left, moved = np.full(d, design.signal**2 / d), np.zeros(d)
    unexplained = design.label - design.signal**2
    for _ in range(ROUNDS):
        passed = erf(clip / sqrt(2 * (unexplained + float(np.sum(left + moved)))))
        noise = _squared(passed * gram, cross / sqrt(ROUNDS), float(np.sum((left + moved) / values)), d)
        kept = (1 - passed * design.n * values / (design.n * values + ridge)) ** 2
        left, moved = kept * left, kept * moved + noise * values / (design.n * values + ridge) ** 2
    return sqrt(float(np.sum(left + moved)))


def _two_stage(design: RegressionDesign, privacy: Privacy) -> float:
    """As from noisy sums of mapped rows, of which cutting leaves a share, with the ridge that the prior amounts to.

    The map is that of first sums without noise, every column counted as a number. It divides by the number of rows: if
    noise may leave hardly any of them, the map is arbitrary.
    """
    means, centred = _centred(design)
    numbers = tuple(NumericAttribute(name=str(j), lower=-1, upper=1) for j in range(len(means) + 1))
    try:
        stages = stages_of(privacy, numbers[-1], numbers[:-1], design.n)
    except ParameterError:
        return inf
    if stages.first.keyed and design.n * SCALE < _TOLD_FROM_NONE * stages.first.sigma:
        return inf
    label = max(design.label, _LEAST)
    squares = np.append(np.diag(centred) + means**2, label)
    made = stages.map(expected_sums(stages.first, np.append(means, 0.0), squares).astype(np.float64))
    inverse, centre = made.undo()
    scales, count = 1 / np.diag(inverse), len(means)
    spread = squares - np.append(means, 0.0) ** 2 + (np.append(means, 0.0) - centre) ** 2
    square = float(spread @ scales**2)
    rows = design.n * min(1.0, 1 / square)
    sd, linear = stages.sigma / SCALE**2, stages.linear_sigma / SCALE
    values = np.maximum(np.linalg.eigvalsh(centred * np.outer(scales[:-1], scales[:-1])), 0.0)
    mapped = label * scales[-1] ** 2
    bias = _attenuation(square, (1 - _EXPLAINED) * mapped) if float(scales @ scales) > 1 else 0.0
    each, coefficients = _EXPLAINED * mapped / count, 0.0
    for _ in range(_ITERATIONS):
        noise = _squared(sd, sd / sqrt(2), coefficients, count)
        ridge = exponent(count + 1) * noise / (rows * (1 - _EXPLAINED) * mapped)
        coefficients = each * float(np.sum(values * (rows / (rows * values + ridge)) ** 2))
    slopes = float(np.sum((noise * values + ridge**2 * each) / (rows * values + ridge) ** 2))
    level = (linear / rows) ** 2 * (1 + coefficients) if design.intercept else 0.0
    return sqrt(slopes + level + bias**2 * _EXPLAINED * mapped) / float(scales[-1])


def _attenuation(square: float, residual: float) -> float:
    """By how much slopes fall short if rows of that mean square norm are cut at 1, with residuals' part as given.

    A row is weighed down by its own residual: 2 v / (1 + 2 v) for v = residual / square, of the share that is cut.
    """
    share = 2 * residual / square
    return share / (1 + share) / (1 + square**-3)


def _centred(design: RegressionDesign) -> tuple[Floats, Floats]:
    """Means of the features, 0 where no intercept tells them, and their second moments about these."""
    if not design.intercept:
        return np.zeros(len(design.moment)), design.moment
    means = design.moment[0, 1:]
    return means, design.moment[1:, 1:] - np.outer(means, means)


def _dp_pmtolse(design: RegressionDesign, privacy: Privacy) -> float:
    """Transformed rows have moment I, radius^2 D t and labels radius^2 t: as ssp, in units of the label's deviation."""
    t, d = tail(design.n), len(design.moment)
    mapped = RegressionDesign(np.eye(d), 1.0, design.n, sqrt(d * t), sqrt(t), design.public_rows)
    return sqrt(design.label) * _ssp(mapped, privacy)


PREDICTED: Mapping[RegressionMethod, Callable[[RegressionDesign, Privacy], float]] = MappingProxyType(
    {
        "two_stage": _two_stage,
        "adassp": _adassp,
        "boosted_adassp": _boosted_adassp,
        "dp_pmtolse": _dp_pmtolse,
        "ssp": _ssp,
    }
)
"""If two have the same error, the former is taken: adassp is ssp if noise is small, and safe if it is not."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected root mean square error that noise adds to predictions, beside what the features explain.

    Both in encoded units of the target; `error` is infinite if the noisy system cannot be relied upon.
    """

    error: float
    signal: float

    @property
    def poor(self) -> bool:
        """Whether the coefficients will hardly be told from noise."""
        return self.error > _POOR * self.signal


def predict(method: RegressionMethod, design: RegressionDesign, privacy: Privacy) -> Outlook | None:
    error = PREDICTED.get(method)
    return None if error is None else Outlook(error(design, privacy), design.signal)


def choose(
    design: RegressionDesign, privacy: Privacy, *, among: Collection[RegressionMethod] = get_args(RegressionMethod)
) -> tuple[RegressionMethod, str]:
    """The method among these with the least predicted error, and the reason; no ssp or dp_pmtolse where noise drowns.

    Without public rows it takes two_stage unless that is poor: columns of tables are narrower than is assumed, which
    costs all others more. It looks at dp_pmtolse if there are more public rows than columns, and takes it if it is
    better by far.
    """
    able = [
        name
        for name in PREDICTED
        if name in among and (name != "dp_pmtolse" or design.public_rows > len(design.moment))
    ]
    if not able:
        raise SpecError(
            "auto has no method to choose from", remedy="Name one with --method, or allow one in policy.json."
        )
    errors = {name: PREDICTED[name](design, privacy) for name in able}
    compared = {name: error * (_TAILS if name == "dp_pmtolse" else 1.0) for name, error in errors.items()}
    least = best = min(compared, key=lambda name: compared[name])
    preferred = "two_stage" in able and not design.public_rows
    if preferred and errors["two_stage"] <= _POOR * design.signal:
        best = "two_stage"
    ground = "least predicted error" if best == least else "predicted error below half of the signal"
    errors_said = ", ".join(f"{name} {_said(error / design.signal)}" for name, error in errors.items())
    basis = f"{design.public_rows} public rows" if design.public_rows else "values spread evenly over their bounds"
    reason = (
        f"{ground} at n = {design.n}, {len(design.moment)} columns and epsilon {privacy.epsilon:g}, "
        f"by {basis}; error over signal: {errors_said}{_PREFERENCE if preferred else ''}"
    )
    return best, reason


def describe(outlook: Outlook | None) -> str:
    if outlook is None:
        return "No forecast for this method."
    if outlook.error == inf:
        return "The noise is larger than the data's own moments: coefficients will be arbitrary. More rows or epsilon."
    ratio = outlook.error / outlook.signal
    said = f"The noise is expected to move predictions by {ratio:.2g} of what the features explain (taken as R2 = 0.5)."
    return said + (" The coefficients will hardly be told from noise: n is too small." if outlook.poor else "")


def assumed_moment(features: tuple[Attribute, ...], rows: RowMap) -> tuple[Floats, float]:
    """Second moment of a row for independent attributes spread evenly over bounds and levels, D x D, as mapped.

    Also by how much the mapping shrinks squares: 1, or 1 over the mean square of a row's norm.
    """
    laws = [attribute_law(attribute) for attribute in features]
    means = np.concatenate([[1.0], *(mean for mean, _ in laws)])
    blocks = [np.zeros((1, 1)), *(covariance for _, covariance in laws)]
    moment = np.outer(means, means)
    start = 0
    for block in blocks:
        moment[start : start + len(block), start : start + len(block)] += block
        start += len(block)
    square = float(np.trace(moment)) - 1
    scale = np.ones(len(means))
    scale[1:] = 1.0 if rows.row_norm is None else min(1.0, rows.row_norm / sqrt(square))
    moment = (moment * np.outer(scale, scale))[1 - rows.intercept :, 1 - rows.intercept :]
    shrunk = 1.0 if rows.mapping == "maximum" else 1 / float(np.trace(moment))
    return np.asarray(shrunk * moment, np.float64), shrunk


def _said(ratio: float) -> str:
    return "beyond use" if ratio == inf else f"{ratio:.2g}"
