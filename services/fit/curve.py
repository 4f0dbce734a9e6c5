"""What one number does to the target of a fit over its public range, every term that it is in together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from commingle.services.fit.terms import Values, term_matrix
from commingle.services.plotting import COLOURS, INK, new_axes, plain_label, tidy
from commingle.services.results import Drawn, ResultColumn, ResultTable, json_value
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, NumericAttribute, as_registered
from commingle.shared.estimation.errors import UnknownAttributeError
from commingle.shared.estimation.prepared import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from commingle.services.fit.result import Fit

_POINTS = 101
_SHOWN = 10  # steps of a table


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Curve(Drawn):
    """The expected target at each value of a number, less that at the middle of its bounds.

    What else the number is multiplied with stays at the middle of its bounds, or at its first level.

    Attributes:
        attribute: the number, as it is registered.
        target: of the fit.
        at: (m,) values, from one bound to the other.
        differences: (m,), in the target's unit.
        intervals: (m, 2), each by itself, as the fit's; NaN where it has none.
        confidence_level: of the intervals.
        warnings: of the fit.
    """

    attribute: NumericAttribute
    target: str
    at: Array
    differences: Array
    intervals: Array = field(repr=False)
    confidence_level: float
    warnings: tuple[str, ...] = ()

    @property
    def middle(self) -> float:
        """Where the curve is 0."""
        return self.attribute.columns[0].offset

    def table(self) -> ResultTable:
        """Eleven points of it."""
        shown = np.round(np.linspace(0, len(self.at) - 1, _SHOWN + 1)).astype(np.intp)
        unit = f" {self.attribute.unit}" if self.attribute.unit else ""
        change = ResultColumn(f"difference of {self.target}", self.differences[shown], interval=self.intervals[shown])
        return ResultTable(
            title=f"{self.target} by {self.attribute.name}, beside {self.attribute.name} of {self.middle:g}{unit}",
            heading=self.attribute.name,
            labels=tuple(self.at[shown].tolist()),
            columns=(change,),
            notes=(f"Each {100 * self.confidence_level:g} % interval is for its own point.",),
            warnings=self.warnings,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """The curve with its band; on `ax` or a new figure."""
        if ax is None:
            ax = new_axes(rows=7)
        ax.axhline(0, color=INK, linewidth=0.9)
        ax.fill_between(self.at, *self.intervals.T, color=COLOURS[0], alpha=0.2, linewidth=0)
        ax.plot(self.at, self.differences, color=COLOURS[0], linewidth=2)
        name, target = plain_label(self.attribute.name), plain_label(self.target)
        ax.set_title(f"{target} by {name}", fontsize=11, color=INK)
        unit = f" ({plain_label(self.attribute.unit)})" if self.attribute.unit else ""
        ax.set_xlabel(f"{name}{unit}", fontsize=9)
        ax.set_ylabel(f"change of {target} from {name} of {self.middle:g}", fontsize=9)
        tidy(ax)
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        names = ("target", "at", "differences", "intervals", "confidence_level", "warnings")
        return {"attribute": self.attribute.name} | {name: json_value(getattr(self, name)) for name in names}


def curve_of(fit: "Fit", name: str) -> Curve:
    """The curve of a number in a fit: of itself, of its intervals, and of the products that it is a factor of.

    Raises:
        UnknownAttributeError: no term of the fit is made of a number of that name.
    """
    numbers = {part.name: part for part in _values_of(fit.schema) if isinstance(part, NumericAttribute)}
    if name not in numbers:
        raise UnknownAttributeError(name, numbers)
    number = numbers[name]
    at, middle = np.linspace(number.lower, number.upper, _POINTS), number.columns[0].offset
    terms = _terms(fit, name, [*at.tolist(), middle])
    change = terms[:-1] - terms[-1]
    errors = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", change, fit.covariance, change), 0.0))
    reach = stdtrit(fit.degrees_of_freedom, (1 + fit.confidence_level) / 2) * errors
    differences = np.asarray(change @ fit.coefficients)
    return Curve(
        attribute=number,
        target=fit.target,
        at=at,
        differences=differences,
        intervals=np.column_stack([differences - reach, differences + reach]),
        confidence_level=fit.confidence_level,
        warnings=fit.warnings,
    )


def _values_of(schema: tuple[Attribute, ...]) -> Iterator[Attribute]:
    """What rows to predict from hold: numbers and levels as they are registered, but pairs as they are."""
    for attribute in schema:
        is_pairs = isinstance(attribute, CategoricalAttribute) and attribute.cross is not None
        yield from (attribute,) if is_pairs else as_registered(attribute)


def _terms(fit: "Fit", name: str, values: list[float]) -> Array:
    """(m, p_x) terms of rows that differ in that number alone."""
    rows: dict[str, Values] = {name: values}
    for part in _values_of(fit.schema):
        if isinstance(part, NumericAttribute):
            rows.setdefault(part.name, [part.columns[0].offset] * len(values))
        else:
            rows.setdefault(part.name, [part.levels[0]] * len(values))
    return term_matrix(rows, fit.schema, intercept=fit.intercept)
