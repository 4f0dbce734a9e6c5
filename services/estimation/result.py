"""A fitted linear model in original units."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from services.display.table import Shown, Table
from services.estimation.diagnostics import Diagnostics
from services.estimation.notebook import draw, fit_table
from services.estimation.prediction import Values, term_matrix
from services.estimation.prepared import Array
from services.estimation.request import Coverage
from services.estimation.summary import render
from shared.protocol.schema import Attribute

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fit(Shown):
    """Coefficients in units of the target per unit of the attribute, or per level against the reference level.

    Attributes:
        features: attributes in use; none for `constant`.
        terms: p_x labels, the intercept first if there is one.
        coefficients, standard_errors, p_values: (p_x,). Errors are NaN where there are none.
        covariance: (p_x, p_x).
        intervals: (p_x, 2), t quantiles with `degrees_of_freedom`, at `confidence_level`.
        interval_for: what the intervals cover: the coefficients of the same fit on the private `table`, those of
            the `population`, those of an endless noisy `release` like this one (`ols`), or `none`.
        n: subjects.
        rows: published rows: k of rmgm, n of dgm; moments have none and count as n.
        warnings: sentences for people.
        schema: the attributes of `features`.
    """

    estimator: str
    target: str
    features: tuple[str, ...]
    intercept: bool
    terms: tuple[str, ...]
    coefficients: Array
    covariance: Array
    standard_errors: Array
    p_values: Array
    intervals: Array
    degrees_of_freedom: int
    confidence_level: float
    interval_for: Coverage
    n: int
    rows: int
    mechanism: Literal["rmgm", "dgm", "moments"]
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    schema: tuple[Attribute, ...] = field(repr=False)

    @property
    def t_values(self) -> Array:
        """Coefficient over standard error, (p_x,)."""
        return t_values(self.coefficients, self.standard_errors)

    def predict(self, rows: Mapping[str, Values]) -> Array:
        """Expected target, (m,), for m rows in original units: numbers, or levels as strings, by attribute name.

        Values beyond the bounds of the schema extrapolate. `constant` takes its m from whatever is given.

        Raises:
            RowsError: an attribute is missing, of another length, or holds what is not one of its values.
        """
        return term_matrix(rows, self.schema, intercept=self.intercept) @ self.coefficients

    def summary(self, *, epsilon: str | None = None, delta: str | None = None) -> str:
        """The fit as a text table, with the privacy of the release if it is given."""
        return render(self, epsilon=epsilon, delta=delta)

    def table(self) -> Table:
        """The fit as rows and columns, one row per term."""
        return fit_table(self)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw what each term does to the target over its public range, with intervals; on `ax` or a new figure."""
        return draw(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: lists, and None for what is not a finite number."""
        arrays = ("coefficients", "standard_errors", "p_values", "intervals", "covariance")
        plain = ("estimator", "target", "intercept", "degrees_of_freedom", "confidence_level", "interval_for")
        rest = ("n", "rows", "mechanism")
        return {
            **{name: getattr(self, name) for name in (*plain, *rest)},
            **{name: list(getattr(self, name)) for name in ("features", "terms", "warnings")},
            **{name: _json(getattr(self, name).tolist()) for name in (*arrays, "t_values")},
            "diagnostics": self.diagnostics.to_dict(),
        }


def t_values(coefficients: Array, standard_errors: Array) -> Array:
    """Coefficient / standard error, (p_x,); infinite where an error is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return coefficients / standard_errors


def _json(value: Any) -> Any:  # noqa: ANN401 - nested lists of numbers
    if isinstance(value, list):
        return [_json(item) for item in value]
    return value if math.isfinite(value) else None
