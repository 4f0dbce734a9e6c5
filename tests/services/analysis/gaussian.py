"""Releases whose rows are draws of N(0, S/k + V): what rmgm publishes, without making it."""

from collections.abc import Iterator

import numpy as np

from commingle.services.fit import PreparedMoments
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.prepared import Array
from tests.shared.estimation.tables import moments_of


def schema(names: str) -> tuple[NumericAttribute, ...]:
    """One attribute on [-1, 1] per letter."""
    return tuple(NumericAttribute(name=name, lower=-1.0, upper=1.0) for name in names)


def moments(covariance: Array, *, n: int) -> Array:
    """S of n rows with an intercept, that covariance and means of 0.2."""
    p = len(covariance)
    S = np.full((p + 1, p + 1), 0.04)
    S[0], S[:, 0], S[0, 0] = 0.2, 0.2, 1.0
    S[1:, 1:] += covariance
    return n * S


def releases(
    names: str, covariance: Array, *, k: int, noise: float, n: int, count: int, seed: int
) -> Iterator[PreparedMoments]:
    """`count` of them."""
    rng = np.random.default_rng(seed)
    S = moments(covariance, n=n)
    V = np.diag([0.0, *[noise] * len(covariance)])
    root = np.linalg.cholesky(S / k + V).T
    for _ in range(count):
        P = rng.normal(size=(k, len(S))) @ root
        yield PreparedMoments.of(moments_of(P.T @ P, schema(names), noise=noise, rows=k, n=n), schema(names))
