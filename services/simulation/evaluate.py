"""How good a fit is on rows that no party was given, and how far from the fit without any privacy."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from commingle.services.simulation.dataset import Dataset
from commingle.services.simulation.table import Numbers, Table, missing
from commingle.shared.documents.schema import Attribute, NumericAttribute

INTERCEPT = "(intercept)"


@dataclass(frozen=True, slots=True)
class Score:
    """One fit on the held-out rows.

    Attributes:
        relative_error: ||b - b_ols|| / ||b_ols|| over the standardised slopes; None where b_ols is 0.
        test_mse: in squared units of the target.
        test_r2: 1 - test_mse / variance of the held-out target; None where it does not vary.
    """

    relative_error: float | None
    test_mse: float
    test_r2: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Ordinary least squares without privacy on the training rows, and everything fits are compared on.

    Attributes:
        target: what is predicted.
        terms: labels of the slopes.
        slopes: (p,) in original units, beside `intercept`.
        unit: (p,) a slope times its unit is the standardised slope: sd(feature) / sd(target) in training.
        mean: of the target in training.
        test_x, test_y: (m, p) and (m,), the held-out rows in original units.
    """

    target: str
    terms: tuple[str, ...]
    intercept: float
    slopes: Numbers
    unit: Numbers
    mean: float
    test_x: Numbers
    test_y: Numbers

    def score(self, coefficients: Mapping[str, float]) -> Score:
        """A fit's coefficients by term, in original units; a term that is not there counts as 0."""
        slopes = np.array([coefficients.get(term, 0.0) for term in self.terms])
        errors = self.test_y - coefficients.get(INTERCEPT, 0.0) - self.test_x @ slopes
        mse = float(np.mean(errors**2))
        variance = float(np.var(self.test_y))
        length = float(np.linalg.norm(self.slopes * self.unit))
        distance = float(np.linalg.norm((slopes - self.slopes) * self.unit))
        return Score(distance / length if length else None, mse, 1 - mse / variance if variance else None)

    @property
    def constant(self) -> Score:
        """Of predicting the training mean for everybody."""
        return self.score({INTERCEPT: self.mean})

    @property
    def coefficients(self) -> dict[str, float]:
        """Of the non-private fit, by term."""
        return {INTERCEPT: self.intercept, **dict(zip(self.terms, self.slopes.tolist(), strict=True))}

    def standardised(self, coefficients: Mapping[str, float | None]) -> Numbers:
        """Slopes (or their standard errors) in standard deviations, (p,); NaN for what is None or not there."""
        given = [coefficients.get(term) for term in self.terms]
        return np.array([np.nan if value is None else value for value in given]) * self.unit


def reference(dataset: Dataset, training: Table, held_out: Table) -> Reference:
    """Least squares on clipped training rows; of several equally good fits the shortest in standardised slopes."""
    x, y = design(training, dataset.features), response(training, dataset, clip=True)
    centre, spread = x.mean(axis=0), x.std(axis=0)
    spread[spread == 0] = np.inf  # an attribute that does not vary in training gets the slope 0
    x -= centre  # in place: x may be most of what fits into memory
    x /= spread
    standardised: Numbers = np.linalg.lstsq(x, y - y.mean(), rcond=1e-10)[0]
    slopes = standardised / spread
    test_y = response(held_out, dataset, clip=False)
    return Reference(
        target=dataset.target,
        terms=tuple(column.label for attribute in dataset.features for column in attribute.columns),
        intercept=float(y.mean() - centre @ slopes),
        slopes=slopes,
        unit=np.where(np.isinf(spread), 0.0, spread) / (y.std() or 1.0),
        mean=float(y.mean()),
        test_x=design(held_out, dataset.features),
        test_y=test_y,
    )


def design(table: Table, attributes: tuple[Attribute, ...]) -> Numbers:
    """Rows as a model in original units sees them, (n, p): clipped to their bounds, what is missing at midpoint."""
    return np.column_stack([part for attribute in attributes for part in _terms(table, attribute)])


def response(table: Table, dataset: Dataset, *, clip: bool) -> Numbers:
    """The target in original units, (n,); a binary one is the indicator of its second level."""
    [attribute] = (a for a in dataset.attributes if a.name == dataset.target)
    if isinstance(attribute, NumericAttribute) and not clip:
        numbers: Numbers = table.columns[attribute.name]
        return numbers
    return _terms(table, attribute)[0]


def _terms(table: Table, attribute: Attribute) -> list[Numbers]:
    values = table.columns[attribute.name]
    if isinstance(attribute, NumericAttribute):
        parts = [np.clip(values, attribute.lower, attribute.upper)]
    else:
        parts = [(values == level).astype(np.float64) for level in attribute.levels[1:]]
    absent = missing(values)
    return [np.where(absent, column.offset, part) for part, column in zip(parts, attribute.columns, strict=True)]
