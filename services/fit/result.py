"""A fitted linear model in original units."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtr, stdtrit

from commingle.services.display.plain import plain
from commingle.services.display.table import Shown, Table
from commingle.services.fit.notebook import draw, fit_table
from commingle.services.fit.prediction import Values, term_matrix
from commingle.services.fit.summary import render
from commingle.shared.documents.schema import Attribute
from commingle.shared.estimation.diagnostics import Diagnostics
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import Coverage

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fit(Shown):
    """Coefficients in units of the target per unit of the attribute, or per level against the reference level.

    Attributes:
        features: attributes in use; none for `constant`.
        terms: p_x labels, the intercept first if there is one.
        coefficients: (p_x,).
        covariance: (p_x, p_x), of the coefficients; NaN where there is none, and so is all that follows from it.
        interval_for: what the intervals cover: the coefficients of the same fit on the private `table`, those of
            the `population`, those of an endless noisy `release` like this one (`ols`), or `none`.
        n: subjects.
        rows: published rows; n where there are none.
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
    degrees_of_freedom: int
    confidence_level: float
    interval_for: Coverage
    n: int
    rows: int
    mechanism: str
    diagnostics: Diagnostics
    warnings: tuple[str, ...]
    schema: tuple[Attribute, ...] = field(repr=False)

    @property
    def standard_errors(self) -> Array:
        """(p_x,)."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    @property
    def t_values(self) -> Array:
        """Coefficient over standard error, (p_x,); infinite where an error is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.coefficients / self.standard_errors

    @property
    def p_values(self) -> Array:
        """Two-sided tail of t with `degrees_of_freedom`, (p_x,)."""
        return np.asarray(2 * stdtr(self.degrees_of_freedom, -np.abs(self.t_values)))

    @property
    def intervals(self) -> Array:
        """(p_x, 2), t quantiles with `degrees_of_freedom`, at `confidence_level`."""
        reach = stdtrit(self.degrees_of_freedom, (1 + self.confidence_level) / 2) * self.standard_errors
        return np.column_stack([self.coefficients - reach, self.coefficients + reach])

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
        asked = ("estimator", "target", "intercept", "degrees_of_freedom", "confidence_level", "interval_for")
        release = ("n", "rows", "mechanism")
        found = ("features", "terms", "warnings", "coefficients", "standard_errors", "p_values", "intervals")
        names = (*asked, *release, *found, "covariance", "t_values")
        return {**{name: plain(getattr(self, name)) for name in names}, "diagnostics": self.diagnostics.to_dict()}
