"""Fits of a release by every estimator, judged by their errors on held-out rows and by the fit without privacy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.client.release import Release
from commingle.services.fit import ESTIMATORS
from commingle.services.fit.predicting import public_bounds
from commingle.services.simulation.dataset import StudyTable
from commingle.services.tables import Table
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.encoding import encode_conforming
from commingle.shared.errors import EstimationError
from commingle.shared.estimation.method import IntervalFor
from commingle.shared.values import as_numbers

Numbers = NDArray[np.float64]

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
    """Least squares without privacy on the training rows, and the held-out rows on which fits are compared.

    Attributes:
        terms: labels of the slopes.
        slopes: (p,) in original units, beside `intercept`.
        unit: (p,) sd(feature) / sd(target) in training; a slope times its unit is the standardised slope.
        mean: of the target in training.
        test_x, test_y: (m, p) and (m,), the held-out rows in original units.
        bounds: of the target; they clip predictions, as in `Fit.predict`.
    """

    target: str
    terms: tuple[str, ...]
    intercept: float
    slopes: Numbers
    unit: Numbers
    mean: float
    test_x: Numbers
    test_y: Numbers
    bounds: tuple[float, float]

    def score(self, coefficients: Mapping[str, float]) -> Score:
        """Score a fit by its coefficients in original units; a term without one counts as 0."""
        slopes = np.array([coefficients.get(term, 0.0) for term in self.terms])
        predictions = np.clip(coefficients.get(INTERCEPT, 0.0) + self.test_x @ slopes, *self.bounds)
        mse = float(np.mean((self.test_y - predictions) ** 2))
        variance = float(np.var(self.test_y))
        length = float(np.linalg.norm(self.slopes * self.unit))
        distance = float(np.linalg.norm((slopes - self.slopes) * self.unit))
        return Score(distance / length if length else None, mse, 1 - mse / variance if variance else None)

    @property
    def constant(self) -> Score:
        """The score of predicting the training mean for everybody."""
        return self.score({INTERCEPT: self.mean})

    @property
    def coefficients(self) -> dict[str, float]:
        """Coefficients of the fit without privacy, by term."""
        return {INTERCEPT: self.intercept, **dict(zip(self.terms, self.slopes.tolist(), strict=True))}

    def standardised(self, coefficients: Mapping[str, float | None]) -> Numbers:
        """Slopes, or their standard errors, in standard deviations, (p,); NaN where there is none."""
        given = [coefficients.get(term) for term in self.terms]
        return np.array([np.nan if value is None else value for value in given]) * self.unit


def reference(dataset: StudyTable, training: Table, held_out: Table) -> Reference:
    """Least squares on clipped training rows; of equally good fits, the one with the shortest standardised slopes."""
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
        bounds=public_bounds(_response(dataset)),
    )


def design(table: Table, attributes: tuple[Attribute, ...]) -> Numbers:
    """Rows as a model in original units sees them, (n, p): clipped to their bounds, missing values at the midpoint."""
    return np.hstack([_terms(table, attribute) for attribute in attributes])


def response(table: Table, dataset: StudyTable, *, clip: bool) -> Numbers:
    """The target in original units, (n,); a binary one is the indicator of its second level."""
    attribute = _response(dataset)
    if isinstance(attribute, NumericAttribute) and not clip:
        return as_numbers(attribute.name, table.columns[attribute.name])
    return _terms(table, attribute)[:, 0]


def _response(dataset: StudyTable) -> Attribute:
    return next(a for a in dataset.attributes if a.name == dataset.target)


def _terms(table: Table, attribute: Attribute) -> Numbers:
    # the encoding of the rows, undone but for rounding, (n, width)
    exact = encode_conforming(attribute, table.columns[attribute.name]).exact
    offset, scale = zip(*((column.offset, column.scale) for column in attribute.columns), strict=True)
    terms: Numbers = np.array(offset) + np.array(scale) * exact
    return terms


@dataclass(frozen=True, slots=True)
class ScoredFit:
    """One fit with its score.

    Attributes:
        coefficients, standard_errors: by term, in original units; None where there is no error.
        intervals: both ends by term.
        interval_for: what intervals cover: the fit on the private table, or the fit on the population.
    """

    name: str
    coefficients: dict[str, float]
    standard_errors: dict[str, float | None]
    intervals: dict[str, list[float | None]]
    interval_for: str
    warnings: tuple[str, ...]
    score: Score


def fit_all(release: Release, reference: Reference) -> tuple[list[ScoredFit], dict[str, str]]:
    """The fits of all estimators that this release allows, and the reason why it does not allow the others.

    For keyed data sets intervals are for the population: the reference has everybody's rows, which no party has.
    """
    fits, unfit = list[ScoredFit](), dict[str, str]()
    interval_for: IntervalFor = "population" if release.spec.keyed else "table"
    for name in ESTIMATORS:
        try:
            found = release.fit(reference.target, estimator=name, interval_for=interval_for)
        except EstimationError as error:
            unfit[name] = str(error)
        else:
            fits.append(_score(found.to_dict(), reference))
    return fits, unfit


def _score(fit: dict[str, Any], reference: Reference) -> ScoredFit:
    def by_term(values: list[Any]) -> dict[str, Any]:
        return dict(zip(fit["terms"], values, strict=True))

    coefficients = by_term(fit["coefficients"])
    return ScoredFit(
        name=fit["estimator"],
        coefficients=coefficients,
        standard_errors=by_term(fit["standard_errors"]),
        intervals=by_term(fit["intervals"]),
        interval_for=fit["interval_for"],
        warnings=tuple(fit["warnings"]),
        score=reference.score(coefficients),
    )
