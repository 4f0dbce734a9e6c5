"""Predictions within what a release knows: features and expected targets lie within their public bounds.

Nobody has rows beyond the bounds: agents clip them. A line that is drawn on beyond them promises what no row said.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from commingle.services.fit.terms import Values, term_matrix
from commingle.shared.documents.schema import Attribute, NumericAttribute, parts_of
from commingle.shared.estimation.prepared import Array


class OutsideBoundsWarning(UserWarning):
    """Values to predict from, or predictions, lay outside public bounds and were clipped to them."""


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Expected targets.

    Attributes:
        values: (m,), in the target's unit.
        warnings: what was clipped, a sentence each.
    """

    values: Array
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A linear model with what is public of its attributes.

    Attributes:
        coefficients: (p_x,), the intercept first if there is one.
        schema: the attributes of the features.
        response: that of the target.
        intercept: whether there is one.
    """

    coefficients: Array
    schema: tuple[Attribute, ...]
    response: Attribute
    intercept: bool = True

    def of(self, rows: Mapping[str, Values], *, extrapolate: bool = False) -> Predicted:
        """Expected targets of m rows in original units: numbers, or levels as strings, by attribute name.

        Args:
            rows: by attribute; those that the model does not use are ignored.
            extrapolate: take numbers and predictions as they are, beyond public bounds too.

        Raises:
            RowsError: an attribute is missing, of another length, or holds what is not one of its values.
        """
        terms = term_matrix(rows, self.schema, intercept=self.intercept)
        if extrapolate:
            return Predicted(np.asarray(terms @ self.coefficients))
        said, place = [], int(self.intercept)
        for attribute in self.schema:
            if isinstance(attribute, NumericAttribute):
                for factor in parts_of(attribute):  # the product is of clipped values
                    said += _outside(factor, rows[factor.name])
                said += _clip(terms[:, place], attribute.lower, attribute.upper, f"values of {attribute.name}")
            place += len(attribute.columns)
        values = np.asarray(terms @ self.coefficients)
        said += _clip(values, *public_bounds(self.response), f"predictions of {self.response.name}")
        return Predicted(values, tuple(dict.fromkeys(said)))

    def warned(self, rows: Mapping[str, Values], *, extrapolate: bool = False) -> Array:
        """The same (m,), with an OutsideBoundsWarning for each kind of value that was clipped. Raises RowsError."""
        found = self.of(rows, extrapolate=extrapolate)
        for said in found.warnings:
            warnings.warn(f"{said} Pass extrapolate=True to take them as they are.", OutsideBoundsWarning, stacklevel=3)
        return found.values


def public_bounds(response: Attribute) -> tuple[float, float]:
    """Between which the expected target lies: its own bounds, or those of a share."""
    return (response.lower, response.upper) if isinstance(response, NumericAttribute) else (0.0, 1.0)


def _outside(factor: Attribute, values: Values) -> list[str]:
    if not isinstance(factor, NumericAttribute):
        return []
    return _clip(np.array(values, np.float64), factor.lower, factor.upper, f"values of {factor.name}")


def _clip(values: Array, lower: float, upper: float, what: str) -> list[str]:
    """Clip in place, and say how many were outside."""
    outside = int(np.count_nonzero((values < lower) | (values > upper)))
    np.clip(values, lower, upper, out=values)
    if not outside:
        return []
    return [f"{outside:,} of {len(values):,} {what} lay outside {lower:g} to {upper:g} and were clipped."]
