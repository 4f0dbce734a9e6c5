"""Proportional odds of an outcome with ordered levels, by sums that a release has: P(y <= k | x) = F(a_k - x b).

The likelihood's score has products of levels with chances that depend on all features, which no sums of pairs hold. In
its place are, with r the ridit of a level (the share below it and half of its own),

    E 1(y <= k) - E F(a_k - x b) = 0 for each level but the last,
    E x (2 r(y) - 1) - E x (2 R(x) - 1) - P b / n = 0,

R(x) = E(r(y) | x): linear in what is released for any fixed r, and the score itself where there are two levels.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from commingle.services.models.outcome import Outcome
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.prepared import Array

_LEAST = 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ordered(Outcome):
    """K levels in order; `value` is the ridit.

    Attributes:
        labels: of the levels.
        indicators: (K, q) of each, as combinations of columns.
        shares: (K,) of them among people with an outcome.
    """

    labels: tuple[str, ...]
    indicators: Array
    shares: Array

    @classmethod
    def of(cls, sums: CrossProducts, name: str, labels: tuple[str, ...], indicators: Array, *, gaps: bool) -> Self:
        """Levels of a release in the order of the study; no share counts as less than one in a thousand."""
        present = sums.present(name)
        counts, _ = sums.sums(products(indicators, present[None]))
        kept = np.maximum(counts, _LEAST * max(float(counts.sum()), 1.0))
        shares = kept / kept.sum()
        return cls(
            name=name,
            family="ordinal",
            value=(np.cumsum(shares) - shares / 2) @ indicators,
            known=indicators.sum(axis=0),
            present=present,
            gaps=gaps,
            labels=labels,
            indicators=indicators,
            shares=shares,
        )

    def at(self, columns: NDArray[np.intp]) -> Self:
        """The same of some columns of the release."""
        value, known, present = (form[columns] for form in (self.value, self.known, self.present))
        return replace(self, value=value, known=known, present=present, indicators=self.indicators[:, columns])

    @property
    def ratio(self) -> str:
        """Of being above a level, whichever it is."""
        return "odds ratio"

    @property
    def intercepts(self) -> tuple[str, ...]:
        """One for each level but the last."""
        return tuple(f"{self.name} <= {label}" for label in self.labels[:-1])

    @property
    def steps(self) -> Array:
        """(K - 1,) differences of 2 r between a level and the next."""
        return np.asarray(2 * np.diff(np.cumsum(self.shares) - self.shares / 2))

    def ys(self, p: int) -> Array:
        """Cumulative indicators less their shares, then 2 r - 1."""
        below = np.cumsum(self.indicators, axis=0)[:-1] - np.outer(np.cumsum(self.shares)[:-1], self.known)
        return np.vstack([below, np.tile(2 * self.value - self.known, (p - len(below), 1))])

    def start(self, t: Array, share: float) -> Array:
        """Log odds of the cumulative shares."""
        del share
        below = np.clip(np.cumsum(self.shares)[:-1], _LEAST, 1 - _LEAST)
        return np.concatenate([np.log(below / (1 - below)), np.zeros(len(t) - len(below))])

    def cumulative(self, X: Array, b: Array) -> Array:
        """(N, K - 1) F(a_k - x b)."""
        k = len(self.labels) - 1
        return expit(b[:k] - (X[:, 1:] @ b[k:])[:, None])

    def expectation(self, X: Array, b: Array) -> Array:
        """F less shares, and x (2 R - 1): 2 R - 1 = 2 r_K - 1 - sum of steps F."""
        F = self.cumulative(X, b)
        return np.hstack(
            [F - np.cumsum(self.shares)[:-1], X[:, 1:] * (self.shares[:-1].sum() - F @ self.steps)[:, None]]
        )

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        """With f = F (1 - F): dF_k = f_k (da_k - x db), d(2 R) = sum of steps f_k (x db - da_k)."""
        F, x, k = self.cumulative(X, b), X[:, 1:], len(self.labels) - 1
        f = w[:, None] * F * (1 - F)
        found = np.zeros((len(b),) * 2)
        found[:k, :k] = np.diag(f.sum(axis=0))
        found[:k, k:] = -f.T @ x
        found[k:, :k] = -x.T @ (f * self.steps)
        found[k:, k:] = (x * (f @ self.steps)[:, None]).T @ x
        return found

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        """Cov(1(y <= k), 1(y <= l)) = F_k (1 - F_l) for k <= l; 2 r(y) falls by a step for each."""
        F, x, k = self.cumulative(X, b), X[:, 1:], len(self.labels) - 1
        each, least = F * self.steps, np.minimum.outer(np.arange(k), np.arange(k))
        # along_k = sum_l steps_l Cov(1(y <= k), 1(y <= l))
        along = np.cumsum(each, axis=1) - each + F * (np.cumsum(self.steps[::-1])[::-1] - each.sum(axis=1)[:, None])
        found = np.zeros((len(b),) * 2)
        found[:k, :k] = (w @ F)[least] - (F * w[:, None]).T @ F
        found[k:, :k] = -x.T @ (along * w[:, None])
        found[:k, k:] = found[k:, :k].T
        found[k:, k:] = (x * (w * (along @ self.steps))[:, None]).T @ x
        return found

    def mean(self, X: Array, b: Array) -> Array:
        """R."""
        return np.asarray((1 + self.shares[:-1].sum() - self.cumulative(X, b) @ self.steps) / 2)

    def variance(self, mean: Array) -> Array:
        """That of ridits, sum of shares r^2 - 1/4, whatever the mean."""
        ridits = np.cumsum(self.shares) - self.shares / 2
        return np.full_like(mean, float(self.shares @ ridits**2) - 0.25)

    def prediction(self, X: Array, b: Array) -> Array:
        """(N, K) chances of the levels."""
        F = self.cumulative(X, b)
        return np.diff(F, axis=1, prepend=0.0, append=1.0)
