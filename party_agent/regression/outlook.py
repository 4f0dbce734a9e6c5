"""What a regression will be worth, and which method to take: from n, bounds, epsilon and public rows alone.

By the formulas of `forecasts`, which say nothing of floating-point methods: `auto` never takes these. Measured:
docs/regression.md#which-method.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import inf, sqrt
from typing import get_args

import numpy as np

from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.problem import Floats
from commingle.party_agent.private.regression.row_map import RowMap
from commingle.party_agent.regression.forecasts import PREDICTED, RegressionDesign
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.schema import Attribute
from commingle.shared.forecast.task import attribute_law

_TAILS = 4.0
"""By how much dp_pmtolse is taken to be worse than forecast where it is compared: rows of tables have longer tails."""
_POOR = 0.5
_PREFERENCE = "; two_stage is taken wherever it is below 0.5"


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
    error = PREDICTED.get(method)
    return None if error is None else Outlook(error(design, privacy), design.signal)


def choose(
    design: RegressionDesign, privacy: Privacy, *, among: Collection[RegressionMethod] = get_args(RegressionMethod)
) -> Choice:
    """The method among these with the least predicted error; ssp and dp_pmtolse not where noise drowns them.

    Without public rows two_stage is taken wherever it is not poor: columns of tables are narrower than is assumed,
    which costs all others more. dp_pmtolse is looked at where there are more public rows than columns, and taken where
    it is better by far.

    Raises:
        SpecError: none of them is one that can be chosen.
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
    return Choice(
        best,
        f"{ground} at n = {design.n}, {len(design.moment)} columns and epsilon {privacy.epsilon:g}, "
        f"by {basis}; error over signal: {errors_said}{_PREFERENCE if preferred else ''}",
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
