"""The covariance of some columns of the private table, as a release tells it: that of the posterior mode."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commingle.services.analysis.errors import NoSignalError
from commingle.shared.estimation.errors import FeaturesError
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import names_of
from commingle.shared.estimation.system import System, build_system, centre

_ROUNDING = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """Per subject, in encoded units, the intercept partialled out.

    Attributes:
        labels: of the p columns.
        total: (p, p) as released, noise included.
        noise: (p, p), what of `total` is noise on average.
        values: (p, p) of the posterior mode; without noise `total` itself.
        root: (p, p) with values = root^T root: p rows whose moments are exactly these, for solvers that take rows.
        buried: directions in which `total` has less than `noise`, so that the prior has the say.
        rows: degrees of freedom in `total`.
        n: subjects.
        doubts: warnings about how many these are.
    """

    labels: tuple[str, ...]
    total: Array
    noise: Array
    values: Array
    root: Array
    buried: int
    rows: int
    n: int
    doubts: tuple[str, ...]

    @property
    def deviations(self) -> Array:
        """(p,) standard deviations."""
        return np.sqrt(np.diag(self.values))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must be told about directions without signal, and about who they are of."""
        if not self.buried:
            return self.doubts
        warning = (
            f"In {self.buried} of {len(self.labels)} directions there is less than the noise that is expected. What is "
            "said about them is what is assumed of any table, and not to be relied on. Name fewer attributes."
        )
        return (warning, *self.doubts)


def estimate(prepared: PreparedMoments, columns: tuple[int, ...]) -> Covariance:
    """The covariance of these columns.

    Raises:
        NoSignalError: nothing of one of them stands out of the noise.
        TooFewRowsError: no more published rows than columns.
    """
    # the label of this system is one of its terms, which is all right as long as nobody solves it
    system = build_system(prepared, columns[0], columns, intercept=True)
    c, regular = centre(system), system.regularised()
    total, V = _per_subject(system, c.X / c.rows), _per_subject(system, c.V)
    visible, buried = _above_noise(total - V, V)
    empty = visible <= _ROUNDING * np.diag(total)
    if empty.any():
        raise NoSignalError(
            f"no variance of {system.terms[1 + int(np.argmax(empty))]} is left once the noise is taken off",
            remedy="Leave it out, or use a release with a larger epsilon.",
        )
    mode = centre(regular)
    values = _per_subject(regular, mode.X / mode.rows)
    roots, axes = np.linalg.eigh(values)
    root = np.sqrt(np.maximum(roots, 0.0))[:, None] * axes.T
    n, doubts = prepared.shared(columns), prepared.misjudged(columns)
    return Covariance(system.terms[1:], total, V, values, root, buried, c.rows, n, doubts)


def _per_subject(system: System, of_a_row: Array) -> Array:
    return of_a_row * (system.rows / system.n)


def _above_noise(C: Array, V: Array) -> tuple[Array, int]:
    """What of each column's variance is in the directions of C that are not negative, (p,), and how many are.

    Where the noise is white, V = L L^T: the directions of L^-1 C L^-T.
    """
    L = np.linalg.cholesky(V) if (np.diag(V) > 0).all() else np.eye(len(C))
    inverse = np.linalg.inv(L)
    values, vectors = np.linalg.eigh(inverse @ C @ inverse.T)
    negative = values < -_ROUNDING * np.abs(values).max()
    return (L @ vectors) ** 2 @ np.maximum(values, 0.0), int(negative.sum())


def columns_of(prepared: PreparedMoments, names: str | Sequence[str] | None) -> tuple[int, ...]:
    """Indices of the columns of these attributes, or of all.

    Raises:
        UnknownAttributeError: one that the release does not have.
        FeaturesError: none, or one twice.
    """
    chosen = names_of(prepared.attributes if names is None else names)
    for name in chosen:
        prepared.attribute(name)
    if not chosen or len(set(chosen)) < len(chosen):
        raise FeaturesError("no attributes are named, or one twice", remedy="Name each attribute once.")
    return tuple(i for name in chosen for i in prepared.columns[name])
