"""Does a model need the features that a smaller one leaves out?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import fdtrc

from commingle.services.analysis.errors import NestedError
from commingle.services.fit.fitting import fit_prepared
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import Coverage, FitRequest, IntervalFor, names_of


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison(Result):
    """Wald's test that the terms which only the larger model has are all zero.

    Attributes:
        larger: attributes of the larger model.
        smaller: those of the smaller one.
        terms: those tested.
        statistic: F; NaN where the larger model has no standard errors.
        degrees_of_freedom: of F, first and second.
        p_value: its tail.
        r_squared_larger: expected of the larger model on the private table; None where it cannot be said.
        r_squared_smaller: that of the smaller one.
        interval_for: whose coefficients are tested: those of the private table or of the population.
        warnings: those of the larger model.
    """

    target: str
    larger: tuple[str, ...]
    smaller: tuple[str, ...]
    terms: tuple[str, ...]
    statistic: float
    degrees_of_freedom: tuple[int, int]
    p_value: float
    r_squared_larger: float | None
    r_squared_smaller: float | None
    interval_for: Coverage
    warnings: tuple[str, ...]

    def table(self) -> ResultTable:
        """One row per model."""
        known = [np.nan if value is None else value for value in (self.r_squared_smaller, self.r_squared_larger)]
        first, second = self.degrees_of_freedom
        return ResultTable(
            title=f"Two models of {self.target}",
            facts=(("larger", ", ".join(self.larger)), ("smaller", ", ".join(self.smaller) or "the mean alone")),
            heading="model",
            labels=("smaller", "larger"),
            columns=(
                ResultColumn("expected R²", np.array(known), ".3f"),
                ResultColumn(f"F({first}, {second})", np.array([np.nan, self.statistic])),
                ResultColumn("p", np.array([np.nan, self.p_value]), ".3f"),
            ),
            notes=(f"Tested to be zero: {', '.join(self.terms)}.",),
            warnings=self.warnings,
        )


def compare(
    prepared: PreparedMoments,
    target: str,
    larger: str | Sequence[str] | None,
    smaller: str | Sequence[str],
    *,
    interval_for: IntervalFor = "population",
) -> Comparison:
    """Test the features of `larger` (None for all attributes) that `smaller` lacks; () is the mean alone.

    F = b^T Cov(b)^-1 b / d over the d tested coefficients, with the covariance of the fit, which knows the noise.

    Raises:
        NestedError: `smaller` is not part of `larger`, or all of it.
        EstimationError: as a fit.
    """
    big = fit_prepared(
        prepared,
        FitRequest(target=target, features=None if larger is None else names_of(larger), interval_for=interval_for),
    )
    smaller = names_of(smaller)
    if not set(smaller) < set(big.features):
        raise NestedError(
            "the smaller model must use some but not all features of the larger and no others",
            remedy=f"Choose it among: {', '.join(big.features)}.",
        )
    request = FitRequest(target=target, features=smaller, estimator=None if smaller else "constant")
    small = fit_prepared(prepared, request)
    index = np.array([i for i, term in enumerate(big.terms) if term not in small.terms])
    statistic = wald(big.coefficients[index], big.covariance[np.ix_(index, index)])
    degrees = (len(index), big.degrees_of_freedom)
    return Comparison(
        target=target,
        larger=big.features,
        smaller=small.features,
        terms=tuple(big.terms[i] for i in index),
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=float(fdtrc(*degrees, statistic)),
        r_squared_larger=big.diagnostics.r_squared,
        r_squared_smaller=small.diagnostics.r_squared,
        interval_for=big.interval_for,
        warnings=big.warnings,
    )


def wald(b: Array, covariance: Array) -> float:
    """b^T Cov^-1 b / d, NaN without errors; solved in standard errors, whatever the units of b (d,)."""
    errors = np.sqrt(np.diag(covariance))
    if not (errors > 0).all():  # NaN included
        return float("nan")
    t = b / errors
    return float(t @ np.linalg.solve(covariance / np.outer(errors, errors), t)) / len(b)
