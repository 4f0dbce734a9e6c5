"""What a generalised linear model explains: families, and their outcomes as combinations of a release's columns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.estimation.prepared import Array

_LARGEST = 30.0
_LEAST = 1e-3


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Outcome(ABC):
    """The outcome y of a release, and the estimating functions x (y - c) - x (mu(x b) - c) of its family.

    Attributes:
        name: of the attribute, with the event in brackets where one level is modelled.
        family: binomial, poisson or ordinal.
        value: (q,) y as a combination of columns, 0 where it is missing.
        known: (q,) who has one.
        present: (q,) who is at the party that holds it.
        gaps: whether some may lack it.
    """

    name: str
    family: str
    value: Array
    known: Array
    present: Array
    gaps: bool

    def at(self, columns: NDArray[np.intp]) -> Self:
        """The same of some columns of the release."""
        value, known, present = (form[columns] for form in (self.value, self.known, self.present))
        return replace(self, value=value, known=known, present=present)

    @property
    @abstractmethod
    def ratio(self) -> str:
        """What exp of a coefficient is."""

    @property
    @abstractmethod
    def intercepts(self) -> tuple[str, ...]:
        """Labels of the first terms, which no feature has."""

    @abstractmethod
    def ys(self, p: int) -> Array:
        """(p, q) y - c of each term, to be multiplied with its x."""

    @abstractmethod
    def start(self, t: Array, share: float) -> Array:
        """(p,) coefficients without features, by the first terms E[x (y - c)] and the share with an outcome."""

    @abstractmethod
    def expectation(self, X: Array, b: Array) -> Array:
        """(N, p) x (mu - c), for X (N, 1 + m) whose first column is 1."""

    @abstractmethod
    def slope(self, X: Array, w: Array, b: Array) -> Array:
        """(p, p) the derivative of E_w x mu by b."""

    @abstractmethod
    def spread(self, X: Array, w: Array, b: Array) -> Array:
        """(p, p) E_w Cov(x y given x)."""

    @abstractmethod
    def mean(self, X: Array, b: Array) -> Array:
        """(N,) expected `value`."""

    @abstractmethod
    def variance(self, mean: Array) -> Array:
        """Of y, by its mean."""

    @abstractmethod
    def prediction(self, X: Array, b: Array) -> Array:
        """What users want of rows: (N,) expected y, or (N, K) chances of levels."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scalar(Outcome):
    """An event, or a count, with the link of the family that makes slopes and variances alike: logit, log.

    Attributes:
        centre: c, so that the first term of the score says most.
        square: E y^2 of a count.
    """

    centre: float
    square: float | None = None

    @property
    def ratio(self) -> str:
        """What exp of a coefficient is."""
        return "odds ratio" if self.family == "binomial" else "rate ratio"

    @property
    def intercepts(self) -> tuple[str, ...]:
        """One."""
        return (INTERCEPT,)

    def ys(self, p: int) -> Array:
        """The same for every term."""
        return np.tile(self.value - self.centre * self.known, (p, 1))

    def start(self, t: Array, share: float) -> Array:
        """The link of the mean."""
        mean = max(float(t[0]) / share + self.centre, _LEAST)
        b = np.zeros(len(t))
        b[0] = np.log(mean / max(1 - mean, _LEAST)) if self.family == "binomial" else np.log(mean)
        return b

    def link_inverse(self, eta: Array) -> Array:
        """Expected y at the linear predictor."""
        return expit(eta) if self.family == "binomial" else np.exp(np.minimum(eta, _LARGEST))

    def expectation(self, X: Array, b: Array) -> Array:
        """(N, p) x (mu - c)."""
        return X * (self.mean(X, b) - self.centre)[:, None]

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        """E_w x x' mu'."""
        half = X * np.sqrt(w * self.variance(self.mean(X, b)))[:, None]
        return np.asarray(half.T @ half)

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        """The slope; of a count times its dispersion, (E y^2 - E mu^2) / E mu."""
        if self.square is None:
            return self.slope(X, w, b)
        mu = self.mean(X, b)
        dispersion = max((self.square - float(w @ mu**2)) / float(w @ mu), 0.1)
        return dispersion * self.slope(X, w, b)

    def mean(self, X: Array, b: Array) -> Array:
        """Mu."""
        return self.link_inverse(X @ b)

    def variance(self, mean: Array) -> Array:
        """The derivative of the mean by the predictor too."""
        return mean * (1 - mean) if self.family == "binomial" else mean

    def prediction(self, X: Array, b: Array) -> Array:
        """Chances, or rates."""
        return self.mean(X, b)
