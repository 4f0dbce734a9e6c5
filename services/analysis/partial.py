"""Correlation of two columns, all the others held fixed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commingle.services.analysis.errors import NoSignalError
from commingle.services.analysis.moments import Covariance, columns_of, estimate
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import IntervalFor, require_interval
from commingle.shared.mechanisms.registry import mechanism_of

_SINGULAR = 1e-10  # of a correlation matrix
_UNSURE = 0.3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartialCorrelations(Result):
    """Of every pair of columns.

    Attributes:
        labels: of the p columns.
        values: (p, p), 1 on the diagonal.
        standard_errors: (p, p), NaN on the diagonal, and everywhere if they are not known for this kind of release.
        interval_for: what the errors are around.
    """

    labels: tuple[str, ...]
    values: Array
    standard_errors: Array
    interval_for: IntervalFor
    n: int
    rows: int
    warnings: tuple[str, ...]

    def table(self) -> ResultTable:
        """The matrix of values."""
        return ResultTable(
            title="Partial correlations",
            facts=(("subjects", f"{self.n:,}"),),
            heading="column",
            labels=self.labels,
            columns=tuple(ResultColumn(label, self.values[:, i], ".3f") for i, label in enumerate(self.labels)),
            notes=(f"Standard errors: {_extent(self.standard_errors)}.",),
            warnings=self.warnings,
        )


def partial_correlations(
    prepared: PreparedMoments, attributes: str | Sequence[str] | None = None, *, interval_for: IntervalFor = "table"
) -> PartialCorrelations:
    """Of these attributes, or of all, each pair given all others named.

    Raises:
        NoSignalError: the noise leaves no variance in some direction, or a column follows from the others.
        EstimationError: an unknown attribute or interval.
    """
    require_interval(interval_for)
    covariance = estimate(prepared, columns_of(prepared, attributes))
    units = covariance.deviations
    R = covariance.values / np.outer(units, units)
    if covariance.buried or np.linalg.eigvalsh(R)[0] <= _SINGULAR:
        raise NoSignalError(
            "some combination of the columns has no variance once the noise is taken off",
            remedy="Name fewer attributes, or use a release with a larger epsilon.",
        )
    P = np.linalg.inv(R)
    U = P / np.sqrt(np.diag(P)) / units[:, None]  # columns u_i with C U scaled so that u_i^T C u_i = 1
    values = -P / np.sqrt(np.outer(np.diag(P), np.diag(P)))
    np.fill_diagonal(values, 1.0)
    errors = _errors(prepared, covariance, values, U.T @ covariance.total @ U, interval_for)
    return PartialCorrelations(
        labels=covariance.labels,
        values=values,
        standard_errors=errors,
        interval_for=interval_for,
        n=covariance.n,
        rows=prepared.rows,
        warnings=(*covariance.warnings, *_unsure(errors)),
    )


def _errors(prepared: PreparedMoments, c: Covariance, r: Array, T: Array, interval_for: IntervalFor) -> Array:
    """Delta method for m rows of N(0, total), T = U^T total U, per pair of columns.

    d r_ij = u_i^T dC u_j + r (u_i^T dC u_i + u_j^T dC u_j) / 2, hence with a = T_ii, b = T_jj, c = T_ij
    Var(r_ij) = [(r a + c)^2 + 2 (a + r c)(b + r c) + (r b + c)^2] / 2m,
    which is (1 - r^2)^2 / m without noise: what the rows of dgm vary around the table by not doing, and those of rmgm
    around the population by doing once more over n.
    """
    mechanism = mechanism_of(prepared)
    if not mechanism.of_rows:
        return np.full_like(r, np.nan)
    a, b = np.diag(T)[:, None], np.diag(T)[None]
    variance = ((r * a + T) ** 2 + 2 * (a + r * T) * (b + r * T) + (r * b + T) ** 2) / (2 * c.rows)
    variance += mechanism.fit.sampling(rows=c.rows, n=c.n, interval_for=interval_for) * (1 - r**2) ** 2
    np.fill_diagonal(variance, np.nan)
    return np.sqrt(np.maximum(variance, 0.0))


def _unsure(errors: Array) -> tuple[str, ...]:
    known = errors[np.isfinite(errors)]
    if not len(known):
        return ()
    unsure = int((known > _UNSURE).sum()) // 2
    pairs = len(known) // 2
    return (
        (f"{unsure} of {pairs} pairs have a standard error above {_UNSURE}: noise dominates them.",) if unsure else ()
    )


def _extent(errors: Array) -> str:
    known = errors[np.isfinite(errors)]
    return f"{known.min():.2g} to {known.max():.2g}" if len(known) else "not known for this kind of release"
