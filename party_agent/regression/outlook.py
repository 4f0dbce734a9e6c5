"""What a regression will be worth, and which method to take: from n, bounds, epsilon and public rows alone.

The prediction is first order in the noise, at features that explain half of the target's variance. It says nothing of
floating-point methods, which `auto` never takes. Measured beside it: benchmarks/regression_choice.py.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from math import erf, inf, sqrt
from types import MappingProxyType
from typing import get_args

import numpy as np

from commingle.party_agent.private.regression.calibration import Privacy, gaussian_multiplier
from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.public_moment import tail
from commingle.party_agent.private.regression.row_map import RowMap
from commingle.party_agent.private.regression.sufficient import ROUNDS
from commingle.party_agent.private.regression.sums import norm_bound, sums_sensitivity
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute

_EXPLAINED = 0.5
_UNIFORM = 1 / 3
"""Second moment of a value uniform on [-1, 1]."""
_TAILS = 4.0
"""By how much dp_pmtolse is taken to be worse than forecast where it is compared: rows of tables have longer tails."""
_POOR = 0.5


@dataclass(frozen=True, slots=True)
class RegressionDesign:
    """What is known of rows and target before any is read.

    Attributes:
        moment: D x D second moment of a row, intercept first.
        label: mean square of the encoded target.
        row_bound, label_bound: of the sample.
        public_rows: rows `moment` was taken from; 0 where it was assumed.
    """

    moment: Floats
    label: float
    n: int
    row_bound: float
    label_bound: float
    public_rows: int = 0

    @property
    def signal(self) -> float:
        """Root mean square of what the features explain, in encoded units of the target."""
        return sqrt(_EXPLAINED * self.label)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expected root mean square error that noise adds to predictions, beside what the features explain.

    Both in encoded units of the target; `error` is infinite where the noisy system cannot be relied upon.
    """

    error: float
    signal: float

    @property
    def poor(self) -> bool:
        """Whether the coefficients will hardly be told from noise."""
        return self.error > _POOR * self.signal


@dataclass(frozen=True, slots=True)
class Choice:
    """A method with the reason, in words."""

    method: RegressionMethod
    reason: str


def predict(method: RegressionMethod, design: RegressionDesign, privacy: Privacy) -> Outlook | None:
    """What to expect of a method; None for methods that are not predicted."""
    error = _PREDICTED.get(method)
    return None if error is None else Outlook(error(design, privacy), design.signal)


def choose(
    design: RegressionDesign, privacy: Privacy, *, among: Collection[RegressionMethod] = get_args(RegressionMethod)
) -> Choice:
    """The method among these with the least predicted error; ssp and dp_pmtolse not where noise drowns them.

    dp_pmtolse is looked at where there are more public rows than columns, and taken where it is better by far.

    Raises:
        SpecError: none of them is one that can be chosen.
    """
    able = [
        name
        for name in _PREDICTED
        if name in among and (name != "dp_pmtolse" or design.public_rows > len(design.moment))
    ]
    if not able:
        raise SpecError(
            "auto has no method to choose from", remedy="Name one with --method, or allow one in policy.json."
        )
    errors = {name: _PREDICTED[name](design, privacy) for name in able}
    best = min(errors, key=lambda name: errors[name] * (_TAILS if name == "dp_pmtolse" else 1.0))
    errors_said = ", ".join(f"{name} {_said(error / design.signal)}" for name, error in errors.items())
    basis = f"{design.public_rows} public rows" if design.public_rows else "values spread evenly over their bounds"
    return Choice(
        best,
        f"least predicted error at n = {design.n}, {len(design.moment)} columns and epsilon {privacy.epsilon:g}, "
        f"by {basis}; error over signal: {errors_said}",
    )


def describe(outlook: Outlook | None) -> str:
    """The outlook in a sentence or two."""
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
    means, blocks = [1.0], [np.zeros((1, 1))]
    for attribute in features:
        if isinstance(attribute, CategoricalAttribute):
            share = 1 / len(attribute.levels)
            width = len(attribute.columns)
            means += [share] * width
            blocks.append(share * np.eye(width) - share**2)
        else:
            means.append(0.0)
            blocks.append(np.array([[1.0 if isinstance(attribute, BinaryAttribute) else _UNIFORM]]))
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


def _values(design: RegressionDesign) -> Floats:
    return np.linalg.eigvalsh(design.moment).astype(np.float64)


def _coefficients(design: RegressionDesign, values: Floats) -> float:
    """||theta||^2 where each principal direction explains as much as any other: v_j theta_j^2 = signal^2 / D."""
    return design.signal**2 * float(np.mean(1 / values))


def _noise(design: RegressionDesign, privacy: Privacy) -> tuple[float, float]:
    """Standard deviations of the noise on the diagonal of X^T X, and in X^T y."""
    gram = gaussian_multiplier(privacy, 1) * sums_sensitivity(design.row_bound, replaces=privacy.replaces)
    return gram, gram * design.label_bound / design.row_bound


def _squared(gram: float, cross: float, squared_coefficients: float, d: int) -> float:
    """Mean square of an entry of noise_b - noise_A theta: off-diagonal entries have half the variance."""
    return cross**2 + gram**2 * squared_coefficients * (1 + 1 / d) / 2


def _ssp(design: RegressionDesign, privacy: Privacy) -> float:
    """As adassp without its ridge, where the noise does not drown the least eigenvalue."""
    gram, _ = _noise(design, privacy)
    usable = design.n * float(_values(design)[0]) > gram * norm_bound(len(design.moment))
    return _from_noisy_sums(design, privacy, ridge=0.0) if usable else inf


def _adassp(design: RegressionDesign, privacy: Privacy) -> float:
    """Of noisy sums with its lambda."""
    return _from_noisy_sums(design, privacy, ridge=_ridge(design, _noise(design, privacy)[0]))


def _from_noisy_sums(design: RegressionDesign, privacy: Privacy, *, ridge: float) -> float:
    """E^2 = sum_j (sd^2 v_j + lambda^2 signal^2 / D) / (n v_j + lambda)^2, sd^2 of `_squared`."""
    gram, cross = _noise(design, privacy)
    values, d = _values(design), len(design.moment)
    noise = _squared(gram, cross, _coefficients(design, values), d)
    shrunk = ridge**2 * design.signal**2 / d
    return sqrt(float(np.sum((noise * values + shrunk) / (design.n * values + ridge) ** 2)))


def _ridge(design: RegressionDesign, gram: float) -> float:
    """The lambda of adassp, at the expected least eigenvalue."""
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


def _dp_pmtolse(design: RegressionDesign, privacy: Privacy) -> float:
    """Transformed rows have moment I, radius^2 D t and labels radius^2 t: as ssp, in units of the label's deviation."""
    t, d = tail(design.n), len(design.moment)
    mapped = RegressionDesign(np.eye(d), 1.0, design.n, sqrt(d * t), sqrt(t), design.public_rows)
    return sqrt(design.label) * _ssp(mapped, privacy)


def _said(ratio: float) -> str:
    return "beyond use" if ratio == inf else f"{ratio:.2g}"


_PREDICTED: Mapping[RegressionMethod, Callable[[RegressionDesign, Privacy], float]] = MappingProxyType(
    {"adassp": _adassp, "boosted_adassp": _boosted_adassp, "dp_pmtolse": _dp_pmtolse, "ssp": _ssp}
)
"""Of two with the same error the former is taken: adassp is ssp where noise is small, and safe where it is not."""
