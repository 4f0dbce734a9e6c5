"""The law of hazard ratios: chances to leave in each interval, and the equations that the ratios solve.

In interval k people with features x leave by cause e (1 the event, 0 anything else) at the rate exp(a_ke + x b_ke),
b_k1 = sum_r G_kr b_r. The score of such a model has products of features with who is at risk, which are of three
attributes. In its place stand, with the martingale residual z_r = sum_k G_kr [event in k - h_k (time at risk in k)],
h_k of everybody,

    E 1(left in k by e) - E P(left in k by e | x) = 0,        E x z_r - E x E(z_r | x) - P b_r / n = 0,

and the same with z_0 of leaving without the event. They are linear in what is released, true for any h, and the score
where nobody's hazard differs. G = 1 is proportional hazards. docs/questions.md#hazard-ratios says what they estimate.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from commingle.services.models.score import Law
from commingle.shared.estimation.entry_noise import Array

_LARGEST = 30.0
_LEAST = 1e-4
_SMALLEST = 0.9  # of an interval's share: what noise may take of it


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Hazards(Law):
    """The law of H intervals and a rest, 2 H + 1 levels: event in each, left otherwise in each, still there at the end.

    Attributes:
        indicators: (2 H + 1, q) of the levels, as combinations of a release's columns.
        shares: (2 H + 1,) of the levels.
        basis: (H, r) G.
        residuals: (r + 1, 2 H + 1) z of each level, with leaving last.
    """

    FORMS = ("indicators", *Law.FORMS)

    indicators: Array
    shares: Array
    basis: Array
    residuals: Array

    @classmethod
    def of(cls, indicators: Array, present: Array, counts: Array, basis: Array, *, gaps: bool) -> Self:
        """The law of released `counts` (2 H + 1,); each share is at least one in ten thousand."""
        kept = np.maximum(counts, _LEAST * max(float(counts.sum()), 1.0))
        made = cls(
            indicators=indicators,
            known=indicators.sum(axis=0),
            present=present,
            shares=kept / kept.sum(),
            basis=basis,
            residuals=np.zeros((basis.shape[1] + 1, len(counts))),
            gaps=gaps,
        )
        return made.along(basis)

    def along(self, basis: Array) -> Self:
        """The same law with ratios along other functions of time."""
        z = np.vstack([basis.T @ self.residual(0), self.residual(1).sum(axis=0)])
        return replace(self, basis=basis, residuals=z)

    @property
    def size(self) -> int:
        return len(self.basis)

    @property
    def alone(self) -> int:
        return 2 * self.size

    @property
    def repeats(self) -> int:
        return len(self.residuals)

    @property
    def balance(self) -> Array:
        return self.residuals[:, :-1] - self.residuals[:, -1:]

    @property
    def largest_covariance(self) -> Array:
        return np.asarray((self.residuals * self.shares) @ self.residuals.T)

    @property
    def pooled(self) -> Array:
        """(2, H) rates of everybody, the event's first: both add up to -log(1 - d / n) if d of n at risk leave."""
        left = self.shares[:-1].reshape(2, -1)
        gone = left.sum(axis=0)
        at_risk = np.cumsum(np.append(gone, self.shares[-1])[::-1])[::-1][:-1]
        return np.asarray(-np.log1p(-gone / at_risk) * left / gone)

    def residual(self, cause: int) -> Array:
        """(H, 2 H + 1) for each interval: 1 for who leaves in it by the cause, less h times their time at risk in it.

        That time is the whole interval for those who stay, and f for those who leave, so that residuals add up to 0.
        """
        H, left = self.size, self.shares[:-1].reshape(2, -1)
        gone = left.sum(axis=0)
        at_risk = np.cumsum(np.append(gone, self.shares[-1])[::-1])[::-1]
        h = self.pooled
        f = 1 / h.sum(axis=0) - at_risk[1:] / gone
        there = np.triu(np.ones((H, H + 1)), 1)
        there[np.arange(H), np.arange(H)] = f
        exposed = np.hstack([there[:, :H], there[:, :H], there[:, H:]])
        events = np.zeros((H, 2 * H + 1))
        events[np.arange(H), cause * H + np.arange(H)] = 1.0
        return np.asarray(events - h[cause][:, None] * exposed)

    def ys(self, p: int) -> Array:
        # indicators less their shares, then residuals for each feature
        levels = self.indicators[:-1] - np.outer(self.shares[:-1], self.known)
        m = (p - len(levels)) // len(self.residuals)
        return np.vstack([levels, np.repeat(self.residuals @ self.indicators, m, axis=0)])

    def bounded(self, t: Array) -> Array:
        return np.append(np.maximum(t[: self.alone], -_SMALLEST * self.shares[:-1]), t[self.alone :])

    def start(self, t: Array, share: float) -> Array:
        del share
        return np.concatenate([np.log(self.pooled).ravel(), np.zeros(len(t) - 2 * self.size)])

    def expectation(self, X: Array, b: Array) -> Array:
        # chances less shares, and x E(z | x)
        p, _ = self._chances(X, b)
        z = p @ self.residuals.T
        features = (z[:, :, None] * X[:, None, 1:]).reshape(len(X), -1)
        return np.hstack([p[:, :-1] - self.shares[:-1], features])

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        p, parts = self._chances(X, b)
        H, r, x = self.size, self.basis.shape[1], X[:, 1:]
        alone, along = list[Array](), [np.zeros_like(p) for _ in range(r + 1)]
        for cause in range(2):
            for j in range(H):
                moved = _moved(p, parts, cause, j) * w[:, None]
                alone.append(np.concatenate([moved[:, :-1].sum(axis=0), (self.residuals @ (moved.T @ x)).ravel()]))
                for place, by in enumerate([0.0] * r + [1.0] if cause else [*self.basis[j].tolist(), 0.0]):
                    if by:
                        along[place] += by * moved
        blocks = [np.array(alone).T]
        for moved in along:
            z = moved @ self.residuals.T
            products = [(x * z[:, [i]]).T @ x for i in range(r + 1)]
            blocks.append(np.vstack([moved[:, :-1].T @ x, *products]))
        return np.hstack(blocks)

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        p, _ = self._chances(X, b)
        x, Z = X[:, 1:], self.residuals
        mean, chances = p @ Z.T, p[:, :-1]
        levels = np.diag(w @ chances) - (chances * w[:, None]).T @ chances
        cross = [((chances * (Z[i, :-1] - mean[:, [i]])) * w[:, None]).T @ x for i in range(len(Z))]
        both = [
            [(x * (w * (p @ (Z[i] * Z[j]) - mean[:, i] * mean[:, j]))[:, None]).T @ x for j in range(len(Z))]
            for i in range(len(Z))
        ]
        side = np.hstack(cross)
        return np.block([[levels, side], [side.T, np.block(both)]])

    def _chances(self, X: Array, b: Array) -> tuple[Array, tuple[Array, Array]]:
        """(N, 2 H + 1) of the levels; (N, 2, H) rates, and (N, H) who is at risk."""
        H, x = self.size, X[:, 1:]
        a, by = b[: 2 * H].reshape(2, H), b[2 * H :].reshape(-1, x.shape[1])
        effects = x @ by.T
        predictors = np.stack([effects[:, :-1] @ self.basis.T, np.repeat(effects[:, -1:], H, axis=1)], axis=1) + a
        rates = np.exp(np.minimum(predictors, _LARGEST))
        total = rates.sum(axis=1)
        at_risk = np.exp(-np.cumsum(np.hstack([np.zeros((len(x), 1)), total]), axis=1))
        left = (at_risk[:, :-1] - at_risk[:, 1:])[:, None] * rates / total[:, None]
        return np.hstack([left.reshape(len(x), -1), at_risk[:, -1:]]), (rates, at_risk)


def _moved(p: Array, parts: tuple[Array, Array], cause: int, j: int) -> Array:
    """(N, 2 H + 1) derivatives of chances by the log of the rate l_j of a cause.

    Later ones fall by l_j p. In j itself p_e = R l_e phi(t), t the sum of both rates and phi = (1 - exp(-t)) / t:
    p_e [e is the cause] + R l_e l phi'(t).
    """
    rates, at_risk = parts
    H = rates.shape[2]
    rate, total = rates[:, cause, j], rates[:, :, j].sum(axis=1)
    found = np.zeros_like(p)
    later = np.r_[j + 1 : H, H + j + 1 : 2 * H + 1]
    found[:, later] = -rate[:, None] * p[:, later]
    phi = -np.expm1(-total) / total
    phi_slope = (np.exp(-total) - phi) / total
    for e in range(2):
        found[:, e * H + j] = at_risk[:, j] * rates[:, e, j] * rate * phi_slope
    found[:, cause * H + j] += p[:, cause * H + j]
    return found
