"""Intervals and tests of the normal law, for values and for ratios, and the words for them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from commingle.shared.errors import ConfidenceError

Array = NDArray[np.float64]
_ROUNDING = 1e-9
NEGATIVE = "A count below zero is noise around few people or none."
INTERVALS = "Intervals are for the population, and count the privacy noise and the drawing of these people."


def require_confidence(level: float) -> None:
    """Raise ConfidenceError unless the level is between 0 and 1."""
    try:
        holds = 0 < level < 1
    except TypeError:
        raise ConfidenceError(f"a confidence level of {level!r} is not a number", remedy="Use 0.95.") from None
    if not holds:
        raise ConfidenceError(f"a confidence level of {level} is not between 0 and 1", remedy="Use 0.95.")


def normal_reach(confidence_level: float) -> float:
    """z: how many standard errors an interval reaches to either side. Raises ConfidenceError: not in (0, 1)."""
    require_confidence(confidence_level)
    return float(ndtri((1 + confidence_level) / 2))


def percent(confidence_level: float) -> str:
    return f"{100 * confidence_level:g} %"


def standard_errors(covariance: Array) -> Array:
    """(p,) of a covariance (p, p). A variance that rounding left below 0 counts as 0; one further below gives NaN."""
    variances = np.diag(covariance)
    rounding = _ROUNDING * max(1.0, float(np.abs(covariance).max(initial=0.0)))
    return np.sqrt(np.where(variances < -rounding, np.nan, np.maximum(variances, 0.0)))


def around(values: Array, reach: Array) -> Array:
    """Intervals (..., 2) that reach as far to both sides of values (...)."""
    return np.stack([values - reach, values + reach], axis=-1)


def two_sided(values: Array, errors: Array) -> Array:
    """P values (...) by the normal law of tests that values (...) are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(2 * ndtr(-np.abs(values / errors)))


@dataclass(frozen=True, slots=True, eq=False)
class LogRatios:
    """Logarithms of ratios.

    Attributes:
        logs: (...).
        errors: (...) their standard errors.
        of_rates: whether ratios are of rates or hazards. Noise may leave a rate near 0, where its logarithm has a long
            tail below. Ends are then r (1 +- z error) of the ratio r, the lower one 0 at least. If the error is above
            1, r itself may be far too low, and the upper end is the logarithm's.
    """

    logs: Array
    errors: Array
    confidence_level: float
    of_rates: bool = False

    @property
    def intervals(self) -> Array:
        """(..., 2) of the logarithms."""
        reach = normal_reach(self.confidence_level) * self.errors
        found = around(self.logs, reach)
        if self.of_rates:
            with np.errstate(divide="ignore"):
                found[..., 0] = self.logs + np.log1p(-np.minimum(reach, 1.0))
            found[..., 1] = self.logs + np.where(self.errors <= 1, np.log1p(reach), reach)
        return found

    @property
    def p_values(self) -> Array:
        """(...) of no difference, in agreement with the intervals."""
        by_ratio = self.of_rates & ((self.errors <= 1) | (self.logs > 0))
        # 1 is an end of r (1 +- z error) where 1 - 1 / r is z errors from 0
        return two_sided(
            -np.expm1(np.where(by_ratio, -self.logs, 0.0)) + np.where(by_ratio, 0.0, self.logs), self.errors
        )

    @property
    def ratios(self) -> Array:
        """(...), infinite where a ratio is too large for a number."""
        with np.errstate(over="ignore"):
            return np.exp(self.logs)

    @property
    def ratio_intervals(self) -> Array:
        """(..., 2)."""
        with np.errstate(over="ignore"):
            return np.exp(self.intervals)

    def clearest(
        self, what: str, terms: tuple[str, ...], references: tuple[str, ...], *, doubtful: Collection[str] = ()
    ) -> str | None:
        """A sentence on the term that is furthest from 1 in standard errors; None where no term is known.

        `what` begins it, as "odds are". Terms and references that are `doubtful` make no sentence.
        """
        known = np.array([{term, base}.isdisjoint(doubtful) for term, base in zip(terms, references, strict=True)])
        clear = np.where(known, np.abs(self.logs) / np.maximum(self.errors, 1e-12), np.nan)
        if np.isnan(clear).all():
            return None
        term = int(np.nanargmax(clear))
        low, high = self.ratio_intervals[term].tolist()
        return (
            f"All other features alike, {what} {self.ratios[term]:.2f} times as high at {terms[term]} as at "
            f"{references[term]} ({percent(self.confidence_level)} interval {low:.2f} to {high:.2f})."
        )
