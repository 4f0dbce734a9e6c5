"""A scikit-learn regressor that learns from a release instead of rows."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from commingle.services.client.release import Release
from commingle.shared.errors import MissingExtraError, RowsError
from commingle.shared.estimation.entry_noise import Array

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtraError("scikit-learn", extra="sklearn") from None


class CommingleRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn ships no types
    """A fit of one release behind scikit-learn's interface, for its scores, inspection and pipelines.

    Args:
        release: a verified release.
        target: a numeric or binary attribute.
        features: attributes, in the order of the columns that `predict` takes; None for all but the target.
        estimator: one of `services.fit.ESTIMATORS`.
        intercept: whether the model has one.

    Attributes after `fit`:
        fit_: the `Fit`, with its errors, diagnostics and warnings.
        coef_, intercept_: in original units; one coefficient per term, so one per level of a categorical attribute.
        feature_names_in_, n_features_in_: of the columns that `predict` takes.
    """

    def __init__(
        self,
        release: Release,
        target: str,
        features: str | Sequence[str] | None = None,
        *,
        estimator: str = "shrunken",
        intercept: bool = True,
    ) -> None:
        self.release = release
        self.target = target
        self.features = features
        self.estimator = estimator
        self.intercept = intercept

    def fit(self, X: object = None, y: object = None) -> Self:  # noqa: ARG002 - scikit-learn passes rows; the release has them
        """Fit the release, and ignore any rows. Raises EstimationError: as `Release.fit` does."""
        fit = self.release.fit(self.target, self.features, estimator=self.estimator, intercept=self.intercept)
        self.fit_ = fit
        self.intercept_ = float(fit.coefficients[0]) if fit.intercept else 0.0
        self.coef_ = fit.coefficients[int(fit.intercept) :]
        self.feature_names_in_ = np.array(fit.features, dtype=object)
        self.n_features_in_ = len(fit.features)
        return self

    def predict(self, X: Any, *, extrapolate: bool = False) -> Array:  # noqa: ANN401 - a data frame or an array; pandas is optional
        """Expected target, (m,), for m rows in original units: numbers, or levels as strings.

        Takes a data frame by the names of its columns, and ignores columns that are no features; or an array (m, q) in
        the order of `feature_names_in_`. Clips to public bounds as `Fit.predict` does, unless `extrapolate`.

        Raises RowsError: a feature is missing, or holds a value that it cannot have.
        """
        check_is_fitted(self)
        if hasattr(X, "columns"):
            rows = {name: X[name].to_numpy() for name in X.columns}
        else:
            array = np.asarray(X, dtype=None if isinstance(X, np.ndarray) else object)
            if array.ndim != 2 or array.shape[1] != self.n_features_in_:  # noqa: PLR2004 - rows and columns
                raise RowsError(
                    f"an array of shape {array.shape} is not rows of {self.n_features_in_} features",
                    remedy=f"Give one column for each of: {', '.join(self.feature_names_in_)}.",
                )
            rows = {name: array[:, i] for i, name in enumerate(self.feature_names_in_)} or {"": array}
        return self.fit_.predict(rows, extrapolate=extrapolate)
