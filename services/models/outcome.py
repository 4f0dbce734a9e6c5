"""The outcomes of generalised linear models, by family, as combinations of a release's columns.

`Ordered` is proportional odds of an outcome with ordered levels, by sums that a release has: P(y <= k | x) =
F(a_k - x b). The likelihood's score has products of levels with chances that depend on all features, which sums of
pairs do not hold. In its place stand, with r the ridit of a level (the share below it and half of its own),

    E 1(y <= k) - E F(a_k - x b) = 0 for each level but the last,
    E x (2 r(y) - 1) - E x (2 R(x) - 1) - P b / n = 0,

R(x) = E(r(y) | x). They are linear in what is released for any fixed r, and the score itself for two levels.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.special import expit

from commingle.services.errors import FamilyError
from commingle.services.models.formula import Formula
from commingle.services.models.score import Law, Solved
from commingle.shared.documents.schema import GAP, Attribute, NumericAttribute
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.errors import CategoricalTargetError
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.entry_noise import Array

FAMILIES = ("binomial", "poisson", "ordinal")
LARGEST = 30.0
LEAST = 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome(Law):
    """The outcome y of a release.

    Attributes:
        name: of the attribute, with the event in brackets where one level is modelled.
        family: binomial, poisson or ordinal.
        value: (q,) y as a combination of columns, 0 where it is missing.
    """

    FORMS = ("value", *Law.FORMS)

    name: str
    family: str
    value: Array

    @property
    def alone(self) -> int:
        return len(self.intercepts)

    @property
    @abstractmethod
    def ratio(self) -> str:
        """What exp of a coefficient is called."""

    @property
    @abstractmethod
    def intercepts(self) -> tuple[str, ...]:
        """Labels of the first terms, which belong to no feature."""

    @abstractmethod
    def mean(self, X: Array, b: Array) -> Array:
        """(N,) expected `value`."""

    @abstractmethod
    def variance(self, mean: Array) -> Array:
        """(N,) of y, by its mean."""

    def drawn(self, mean: Array, per: Array, w: Array) -> Array:
        """(t,) variances of y less `mean` times `per` by level, in units of `per`; `w` are the people there."""
        del per, w
        return self.variance(mean)

    @abstractmethod
    def prediction(self, X: Array, b: Array) -> Array:
        """What users are told of rows: (N,) expected y, or (N, K) chances of levels."""

    @property
    def counted(self) -> tuple[Array, ...]:
        """Counts, as combinations of columns, that must stand out of the noise at every level."""
        return ()

    @property
    def per(self) -> Array:
        """(q,) what a mean outcome divides the sum of `value` by, as a combination of columns."""
        return self.known

    def expected_per(self, X: Array, b: Array) -> Array:
        """(N,) expected `per` of people with an outcome."""
        del b
        return np.ones(len(X))

    @property
    def also(self) -> tuple[str, ...]:
        """Further attributes of the equation, besides outcome and features."""
        return ()

    def assumed(self, terms: tuple[str, ...], bent: Array) -> tuple[str, ...]:
        """Sentences on further assumptions; `bent` is `Solved.bent` in standard errors of each term."""
        del terms, bent
        return ()

    def reported(self, solved: Solved) -> Solved:
        """The part of a solution that users see: `intercepts`, and one term for each level of a feature."""
        return solved


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scalar(Outcome):
    """An event or a count, with the canonical link of its family, logit or log.

    Attributes:
        centre: c of the score; near the mean, it leaves most to the first term.
        square: E y^2 of a count.
    """

    centre: float
    square: float | None = None

    @property
    def balance(self) -> Array:
        return np.ones((1, 1))

    @property
    def largest_covariance(self) -> Array:
        return np.array([[0.25 if self.square is None else max(self.square - self.centre**2, self.centre)]])

    @property
    def ratio(self) -> str:
        return "odds ratio" if self.family == "binomial" else "rate ratio"

    @property
    def intercepts(self) -> tuple[str, ...]:
        return (INTERCEPT,)

    @property
    def counted(self) -> tuple[Array, ...]:
        return (self.value, self.known - self.value) if self.family == "binomial" else (self.value,)

    def ys(self, p: int) -> Array:
        return np.tile(self.value - self.centre * self.known, (p, 1))

    def start(self, t: Array, share: float) -> Array:
        mean = max(float(t[0]) / share + self.centre, LEAST)
        b = np.zeros(len(t))
        b[0] = np.log(mean / max(1 - mean, LEAST)) if self.family == "binomial" else np.log(mean)
        return b

    def link_inverse(self, eta: Array) -> Array:
        """Expected y at the linear predictor."""
        return expit(eta) if self.family == "binomial" else np.exp(np.minimum(eta, LARGEST))

    def expectation(self, X: Array, b: Array) -> Array:
        return X * (self.mean(X, b) - self.centre)[:, None]

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        # E_w x x' mu'
        half = X * np.sqrt(w * self.variance(self.mean(X, b)))[:, None]
        return np.asarray(half.T @ half)

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        # of a count times its dispersion
        return (1.0 if self.square is None else self.dispersion(w, self.mean(X, b))) * self.slope(X, w, b)

    def dispersion(self, w: Array, mean: Array, kept: float = 1.0) -> float:
        """(E y^2 - kept E mean^2) / E mean, at least 0.1: over people with a count, whom `square` is of."""
        each = w / w.sum()
        return max((float(self.square or 0) - kept * float(each @ mean**2)) / float(each @ mean), 0.1)

    def drawn(self, mean: Array, per: Array, w: Array) -> Array:
        del per
        return self.variance(mean) if self.square is None else self.dispersion(w, mean) * mean

    def mean(self, X: Array, b: Array) -> Array:
        return self.link_inverse(X @ b)

    def variance(self, mean: Array) -> Array:
        # the derivative of the mean by the predictor too
        return mean * (1 - mean) if self.family == "binomial" else mean

    def prediction(self, X: Array, b: Array) -> Array:
        return self.mean(X, b)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Ordered(Outcome):
    """K levels in order; `value` is the ridit.

    Attributes:
        indicators: (K, q) of the levels, as combinations of columns.
        shares: (K,) of the levels among people with an outcome.
    """

    FORMS = ("indicators", *Outcome.FORMS)

    labels: tuple[str, ...]
    indicators: Array
    shares: Array

    @classmethod
    def of(cls, sums: CrossProducts, name: str, labels: tuple[str, ...], indicators: Array, *, gaps: bool) -> Self:
        """Levels in the order of the study; each share counts as at least one in a thousand."""
        present = sums.present(name)
        counts = sums.crossed(indicators, present[None])[0].ravel()
        kept = np.maximum(counts, LEAST * max(float(counts.sum()), 1.0))
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

    @property
    def ratio(self) -> str:
        return "odds ratio"

    @property
    def intercepts(self) -> tuple[str, ...]:
        return tuple(f"{self.name} <= {label}" for label in self.labels[:-1])

    @property
    def steps(self) -> Array:
        """(K - 1,) differences of 2 r between a level and the next."""
        return np.asarray(2 * np.diff(np.cumsum(self.shares) - self.shares / 2))

    @property
    def balance(self) -> Array:
        return -self.steps[None]

    @property
    def largest_covariance(self) -> Array:
        return 4 * self.variance(np.zeros((1, 1)))

    def ys(self, p: int) -> Array:
        # cumulative indicators less their shares, then 2 r - 1
        below = np.cumsum(self.indicators, axis=0)[:-1] - np.outer(np.cumsum(self.shares)[:-1], self.known)
        return np.vstack([below, np.tile(2 * self.value - self.known, (p - len(below), 1))])

    def start(self, t: Array, share: float) -> Array:
        del share
        below = np.clip(np.cumsum(self.shares)[:-1], LEAST, 1 - LEAST)
        return np.concatenate([np.log(below / (1 - below)), np.zeros(len(t) - len(below))])

    def cumulative(self, X: Array, b: Array) -> Array:
        """(N, K - 1) F(a_k - x b)."""
        k = len(self.labels) - 1
        return expit(b[:k] - (X[:, 1:] @ b[k:])[:, None])

    def expectation(self, X: Array, b: Array) -> Array:
        # F less shares, and x (2 R - 1): 2 R - 1 = 2 r_K - 1 - sum of steps F
        F = self.cumulative(X, b)
        return np.hstack(
            [F - np.cumsum(self.shares)[:-1], X[:, 1:] * (self.shares[:-1].sum() - F @ self.steps)[:, None]]
        )

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        # with f = F (1 - F): dF_k = f_k (da_k - x db), d(2 R) = sum of steps f_k (x db - da_k)
        F, x, k = self.cumulative(X, b), X[:, 1:], len(self.labels) - 1
        f = w[:, None] * F * (1 - F)
        found = np.zeros((len(b),) * 2)
        found[:k, :k] = np.diag(f.sum(axis=0))
        found[:k, k:] = -f.T @ x
        found[k:, :k] = -x.T @ (f * self.steps)
        found[k:, k:] = (x * (f @ self.steps)[:, None]).T @ x
        return found

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        # Cov(1(y <= k), 1(y <= l)) = F_k (1 - F_l) for k <= l; 2 r(y) falls by a step for each
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
        return np.asarray((1 + self.shares[:-1].sum() - self.cumulative(X, b) @ self.steps) / 2)

    def variance(self, mean: Array) -> Array:
        # of ridits, sum of shares r^2 - 1/4, whatever the mean
        ridits = np.cumsum(self.shares) - self.shares / 2
        return np.full_like(mean, float(self.shares @ ridits**2) - 0.25)

    def prediction(self, X: Array, b: Array) -> Array:
        F = self.cumulative(X, b)
        return np.diff(F, axis=1, prepend=0.0, append=1.0)


def outcome_of(sums: CrossProducts, formula: Formula, family: str) -> Outcome:
    """The outcome of a formula in a family.

    Raises:
        FamilyError: the family is unknown, or cannot have this outcome.
        CategoricalTargetError: the outcome has three levels or more, and the formula names no event.
        NoTablesError: missing cells count as something else, or the release has no sums.
        UnknownAttributeError: the release has no attribute of that name.
    """
    attribute = sums.prepared.attribute(formula.outcome)
    if family in {"binomial", "ordinal"}:
        return _of_levels(sums, formula, attribute, family)
    if family != "poisson":
        raise FamilyError(f"there is no family {family!r}", remedy=f"Families: {', '.join(FAMILIES)}.")
    if formula.event is not None or not isinstance(attribute, NumericAttribute) or attribute.lower < 0:
        raise FamilyError(
            f"{formula.outcome} is not a count: it has levels, or its lower bound is negative",
            remedy='Choose a number that cannot be negative, or the family "binomial" for levels.',
        )
    value, known = sums.number(formula.outcome)
    present = sums.present(formula.outcome)
    (total, squares, n), _ = sums.sums(
        np.concatenate([products(value[None], np.array([present, value])), products(known[None], present[None])])
    )
    mean = max(float(total / max(n, 1.0)), 1e-3)
    gaps = attribute.missing == "indicator"
    return Scalar(
        name=formula.outcome,
        family=family,
        value=value,
        known=known,
        present=present,
        gaps=gaps,
        centre=mean,
        square=float(squares / max(n, 1.0)),
    )


def _of_levels(sums: CrossProducts, formula: Formula, attribute: Attribute, family: str) -> Outcome:
    name, event = formula.outcome, formula.event
    if isinstance(attribute, NumericAttribute):
        raise FamilyError(
            f"{name} is a number, and the outcome of a model of the family {family!r} has levels",
            remedy='Choose an attribute with levels; or propose the study with "cuts" for it.',
        )
    labels, indicators = sums.levels(name)
    known = [label for label in labels if label != GAP or attribute.missing != "indicator"]
    if family == "ordinal":
        if event is not None:
            raise FamilyError("an ordinal model has no event", remedy=f"Write {name} ~ …; its levels are in order.")
        return Ordered.of(sums, name, tuple(known), indicators[: len(known)], gaps=len(labels) > len(known))
    if event is None and len(known) > 2:  # noqa: PLR2004 - a binary outcome
        raise CategoricalTargetError(
            f"{name!r} has more than two levels, and no event is named",
            remedy=f"Write {name}[{known[-1]}] ~ …, with one of: {', '.join(known)}; or use the family ordinal.",
        )
    event = known[-1] if event is None else event
    if event not in known:
        raise FamilyError(f"{name} has no level {event!r}", remedy=f"Its levels: {', '.join(known)}.")
    place = known.index(event)
    return Scalar(
        name=f"{name}[{event}]",
        family="binomial",
        value=indicators[place],
        known=indicators[: len(known)].sum(axis=0),
        present=sums.present(name),
        gaps=len(labels) > len(known),
        centre=0.5,
    )
