"""The likelihood of what a release says about second moments (docs/design/estimation.md#posterior-mode)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self

import numpy as np

from commingle.shared.estimation.prepared import Array

_LEAST_VARIANCE = 1e-16  # of the largest: an entry that is exact among noisy ones counts as nearly so


@dataclass(frozen=True, slots=True)
class Likelihood(ABC):
    """Of M = S / n, (p, p), the intercept first.

    Attributes:
        key: of what was released: two likelihoods with one key are the same.
        rough: (p, p), an unbiased estimate of M; not always of positive definite covariance.
        spread: (p, p), about the standard deviations of its entries.
    """

    key: bytes
    rough: Array = field(compare=False)
    spread: Array = field(compare=False)

    @abstractmethod
    def loss(self, M: Array) -> tuple[float, Array]:
        """Minus the log-likelihood up to a constant, and its symmetric derivative Q: d loss = tr(Q dM)."""


@dataclass(frozen=True, slots=True)
class EntryLikelihood(Likelihood):
    """Of noisy moments B M B^T + E, E symmetric with independent normal entries.

    Where B mixes columns, entries of the moments in the unmixed columns share noise.

    Attributes:
        released: (p, p) per subject.
        weight: (p, p) 1 / Var(E_kl), 0 where the entry is not noisy; twice that on the diagonal of `counted`.
        counted: (p, p) the weights halved off the diagonal, as every entry there stands twice.
        basis: (p, p) B.
    """

    released: Array = field(compare=False)
    counted: Array = field(compare=False)
    basis: Array = field(compare=False)

    @classmethod
    def of(cls, gram: Array, variance: Array, *, n: int, basis: Array | None = None) -> Self:
        """From n (B M B^T + E) = `gram` and the variances of n E, (p, p); B is the identity unless given."""
        B = np.eye(len(gram)) if basis is None else basis
        undo = np.linalg.inv(B)
        per_subject = np.maximum(variance, _LEAST_VARIANCE * variance.max()) / n**2
        weight = 1 / per_subject
        weight[0, 0] = 0.0  # the count is exact and M has it built in
        return cls(
            key=_key(gram, variance, B, np.array([n])),
            rough=undo @ (gram / n) @ undo.T,
            spread=np.sqrt(undo**2 @ per_subject @ undo.T**2),
            released=gram / n,
            counted=(weight + np.diag(np.diag(weight))) / 2,
            basis=B,
        )

    def loss(self, M: Array) -> tuple[float, Array]:
        """1/2 sum_{k <= l} (released - B M B^T)_kl^2 / Var(E_kl)."""
        gap = self.basis @ M @ self.basis.T - self.released
        weighted = self.counted * gap
        return float(np.sum(weighted * gap)) / 2, self.basis.T @ weighted @ self.basis


@dataclass(frozen=True, slots=True)
class WishartLikelihood(Likelihood):
    """Of G = P^T P for k rows P that behave like draws of N(0, (n/k) M + V), V public.

    The intercept has no noise and its moment is known, so this is the law of the other columns given it, whether the
    intercept was mixed or stands as it is.
    """

    gram: Array = field(compare=False)
    V: Array = field(compare=False)
    rows: int = field(compare=False)
    n: int = field(compare=False)

    @classmethod
    def of(cls, gram: Array, V: Array, *, rows: int, n: int) -> Self:
        """From G and V, (p, p), the rows k and the subjects n."""
        kappa, means = n / rows, gram[0] / gram[0, 0]
        total = (gram - gram[0, 0] * np.outer(means, means)) / (rows - 1)
        variances = np.diag(total)
        spread = np.sqrt((np.outer(variances, variances) + total**2) / rows) / kappa
        spread[0] = spread[:, 0] = np.sqrt(variances / gram[0, 0])  # of a mean over G_11 = about n
        return cls(
            key=_key(gram, V, np.array([rows, n])),
            rough=(total - V) / kappa + np.outer(means, means),
            spread=spread,
            gram=gram,
            V=V,
            rows=rows,
            n=n,
        )

    def loss(self, M: Array) -> tuple[float, Array]:
        """1/2 (k log|Sigma| + tr(Sigma^-1 G)), Sigma = (n/k) M + V."""
        kappa = self.n / self.rows
        Sigma = kappa * M + self.V
        triangle, inverse = np.linalg.cholesky(Sigma), np.linalg.inv(Sigma)
        explained = inverse @ self.gram
        value = self.rows * float(np.log(np.diag(triangle)).sum()) + float(np.trace(explained)) / 2
        return value, np.asarray(kappa / 2 * (self.rows * inverse - explained @ inverse))


def _key(*parts: Array) -> bytes:
    digest = sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.digest()
