"""The covariance of some columns of the private table, as a release tells it: noise subtracted, then made possible."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commingle.services.analysis.errors import NoSignalError
from commingle.shared.estimation.errors import FeaturesError
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.system import build_system, centre

_ROUNDING = 1e-10  # of the largest eigenvalue


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """Per subject, in encoded units, the intercept partialled out.

    Attributes:
        labels: of the p columns.
        total: (p, p), noise included.
        noise: (p, p), what of `total` is noise.
        values: (p, p), `total` less `noise`, made positive semidefinite.
        root: (p, p) with values = root^T root: p rows whose moments are exactly these, for solvers that take rows.
        buried: directions in which more noise was subtracted than there was, and which now count as empty.
        rows: degrees of freedom in `total`.
    """

    labels: tuple[str, ...]
    total: Array
    noise: Array
    values: Array
    root: Array
    buried: int
    rows: int

    @property
    def deviations(self) -> Array:
        """(p,) standard deviations."""
        return np.sqrt(np.diag(self.values))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must be told about the repair."""
        if not self.buried:
            return ()
        warning = (
            f"In {self.buried} of {len(self.labels)} directions there is less than the noise that was subtracted. They "
            "count as empty, and what is said about them is not to be relied on. Name fewer attributes."
        )
        return (warning,)


def estimate(prepared: PreparedMoments, columns: tuple[int, ...]) -> Covariance:
    """The covariance of these columns.

    Raises:
        NoSignalError: nothing is left of one of them.
        TooFewRowsError: no more published rows than columns.
    """
    # the label of this system is one of its terms, which is all right as long as nobody solves it
    system = build_system(prepared, columns[0], columns, intercept=True)
    c = centre(system)
    per_subject = prepared.rows / prepared.n
    total, V = c.X / c.rows * per_subject, c.V * per_subject
    root, buried = nearest_possible(total - V, V)
    values = root.T @ root
    empty = np.diag(values) <= _ROUNDING * np.diag(total)
    if empty.any():
        raise NoSignalError(
            f"no variance of {system.terms[1 + int(np.argmax(empty))]} is left once the noise is taken off",
            remedy="Leave it out, or use a release with a larger epsilon.",
        )
    return Covariance(system.terms[1:], total, V, values, root, buried, c.rows)


def nearest_possible(C: Array, V: Array) -> tuple[Array, int]:
    """A root F, F^T F the covariance nearest to the symmetric C, and how many directions of C were negative.

    Where the noise is white, V = L L^T, negative eigenvalues of L^-1 C L^-T become 0: the restricted maximum of the
    Wishart likelihood (Amemiya 1985). Without known V that is the nearest in Frobenius norm (Higham 1988).
    """
    L = np.linalg.cholesky(V) if (np.diag(V) > 0).all() else np.eye(len(C))
    inverse = np.linalg.inv(L)
    values, vectors = np.linalg.eigh(inverse @ C @ inverse.T)
    negative = values < -_ROUNDING * np.abs(values).max()
    return np.sqrt(np.maximum(values, 0.0))[:, None] * (L @ vectors).T, int(negative.sum())


def columns_of(prepared: PreparedMoments, names: Sequence[str] | None) -> tuple[int, ...]:
    """Indices of the columns of these attributes, or of all.

    Raises:
        UnknownAttributeError: one that the release does not have.
        FeaturesError: none, or one twice.
    """
    chosen = tuple(prepared.attributes if names is None else names)
    for name in chosen:
        prepared.attribute(name)
    if not chosen or len(set(chosen)) < len(chosen):
        raise FeaturesError("no attributes are named, or one twice", remedy="Name each attribute once.")
    return tuple(i for name in chosen for i in prepared.columns[name])
