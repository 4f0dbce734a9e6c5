"""The matrix operations that estimators share."""

import numpy as np

from commingle.shared.estimation.errors import SingularError
from commingle.shared.estimation.prepared import Array


def inverse(matrix: Array) -> Array:
    """The inverse of a symmetric matrix, definite or not, (p, p).

    Raises:
        SingularError: it has none.
    """
    try:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None


def largest_eigenvalue(V: Array) -> float:
    """Of a covariance (q, q); 0 of an empty one."""
    return float(np.linalg.eigvalsh(V)[-1]) if V.size else 0.0
