"""Rates: counts y of people whose time t differs, E(y | x, t) = t exp(x b).

The score E x (y - t exp(x b)) has features, time and features again, three attributes. In its place are

    E x t - E x m - P g / n = 0,        E x y - E x m exp(x b) - P b / n = 0,        m = exp(x g),

which are linear in what is released: the mean time m of people with equal features, a product over features as rates
are, stands for t. Apart from the prior this is exact where E(t | x) is such a product, and where no rate differs,
whatever t is: then both equations are one. Otherwise E(t | x) = m (1 + u), and the equations move by E x m u and
E x m u exp(x b). We take u as a sum over pairs of levels of two features A, B, independent, of mean 0 and variance
`USUAL`^2 s_A s_B, with s the standard deviation of x g over people by one feature alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from commingle.services.errors import FamilyError
from commingle.services.models.outcome import LARGEST, LEAST, Outcome, Scalar
from commingle.services.models.score import Design, Solved
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.entry_noise import Array

USUAL = 0.5
"""How far two features usually change a mean together, beside what each does alone (docs/design/inference.md)."""
_SHORT = 0.45
"""A further error, in units of the stated one, with which 95 % intervals hold 93 %."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rates(Scalar):
    """A count by time. Terms of t and of y take turns: both intercepts, slopes g of t, slopes b of y.

    Attributes:
        time: (q,) t in units of its mean, as a combination of columns.
        time_name: the attribute t, with `time_unit` of the schema, empty where it states none.
        unit: the mean of t.
        time_square: E t^2 in these units, and `time_count` E t y.
    """

    FORMS = ("time", *Scalar.FORMS)

    time: Array
    time_name: str
    time_unit: str
    unit: float
    time_square: float
    time_count: float

    @classmethod
    def of(cls, sums: CrossProducts, count: Outcome, name: str, features: Sequence[str]) -> Self:
        """A count of a release by the time of the same people, an attribute and no feature.

        Raises:
            FamilyError: the outcome is no count, the offset is no time or is a feature, or either has missing cells.
            NoTablesError, UnknownAttributeError: as `CrossProducts.number` does.
        """
        attribute = sums.prepared.attribute(name)
        if not isinstance(count, Scalar) or count.square is None:
            raise FamilyError("an offset goes with counts alone", remedy='Choose the family "poisson"; or no offset.')
        if not isinstance(attribute, NumericAttribute) or attribute.lower < 0:
            raise FamilyError(
                f"{name} is not a time: it has levels, or its lower bound is negative",
                remedy="Choose a number that cannot be negative, in a study without cuts for it.",
            )
        if name == count.name:
            raise FamilyError(f"{name} is both outcome and offset", remedy="Name another number as the offset.")
        if name in features:
            raise FamilyError(
                f"{name!r} is both offset and feature", remedy="Leave it out on the right; or choose no offset."
            )
        gaps = count.gaps or attribute.missing != "error"
        if gaps or not np.array_equal(sums.present(name), count.known):
            raise FamilyError(
                f"{count.name} and {name} are not of the same people: cells are missing, or two members hold them",
                remedy="Propose a study in which one member holds both, of the people who have both.",
            )
        time, known = sums.number(name)
        forms = products(np.array([time]), np.array([known, time, count.value]))
        (total, squares, crossed, n), _ = sums.sums(np.concatenate([forms, products(known[None], known[None])]))
        unit = max(float(total / max(n, 1.0)), LEAST * attribute.upper)
        held = {each.name: getattr(count, each.name) for each in fields(count)} | {"name": f"{count.name} per {name}"}
        square, both = (float(each / max(n, 1.0)) for each in (squares / unit**2, crossed / unit))
        said = attribute.unit or ""
        return cls(
            **held,
            time=time / unit,
            time_name=name,
            time_unit=said,
            unit=unit,
            time_square=square,
            time_count=both,
        )

    def assumed(self, terms: tuple[str, ...], bent: Array) -> tuple[str, ...]:
        said = (
            f"Rates are per unit of {self._measured}: its mean is taken to be a product over features, as they are. "
            "Intervals count how far two features usually change it together."
        )
        open_ = ", ".join(term for term, by in zip(terms, bent.tolist(), strict=True) if by > _SHORT * USUAL)
        more = (
            f"Intervals of {open_} are too short where two features change {self.time_name} together as much as each "
            "does alone: cross such features in the study."
        )
        return (said, more) if open_ else (said,)

    @property
    def _measured(self) -> str:
        return f"{self.time_name} ({self.time_unit})" if self.time_unit else self.time_name

    @property
    def per(self) -> Array:
        return self.time * self.unit

    def expected_per(self, X: Array, b: Array) -> Array:
        return self.means(X, b)[0] * self.unit

    @property
    def also(self) -> tuple[str, ...]:
        return (self.time_name,)

    @property
    def alone(self) -> int:
        return 2

    @property
    def repeats(self) -> int:
        return 2

    @property
    def balance(self) -> Array:
        return np.eye(2)

    @property
    def largest_covariance(self) -> Array:
        # twice the variances alone are above any covariance
        of_time = max(self.time_square - 1, LEAST)
        return np.asarray(2 * np.diag([of_time, float(super(Rates, self).largest_covariance[0, 0])]))

    @property
    def counted(self) -> tuple[Array, ...]:
        return (self.value, self.time)

    def ys(self, p: int) -> Array:
        both = np.array([self.time - self.known, self.value - self.centre * self.known])
        return np.vstack([both, np.repeat(both, p // 2 - 1, axis=0)])

    def start(self, t: Array, share: float) -> Array:
        return np.append([0.0, *super(Rates, self).start(t[1:2], share)], np.zeros(len(t) - 2))

    def means(self, X: Array, b: Array) -> tuple[Array, Array]:
        """(N,) expected time and count."""
        of_time, of_count = _places(len(b))
        linear = X @ b[of_time]
        return np.exp(np.minimum(linear, LARGEST)), np.exp(np.minimum(linear + X @ b[of_count], LARGEST))

    def expectation(self, X: Array, b: Array) -> Array:
        time, count = self.means(X, b)
        found = np.empty((len(X), len(b)))
        for places, mean in zip(_places(len(b)), (time - 1, count - self.centre), strict=True):
            found[:, places] = X * mean[:, None]
        return found

    def slope(self, X: Array, w: Array, b: Array) -> Array:
        time, count = self.means(X, b)
        return _blocks(X, w, [[time, None], [count, count]])

    def spread(self, X: Array, w: Array, b: Array) -> Array:
        # of means over x of y^2 and t y: Var(y | x) = d mu, Cov(t, y | x) = k rate Var(t | x); k = 1 where y follows t,
        # and below 0 where an event ends the time
        time, count = self.means(X, b)
        rate, variance = count / time, self._variance(w, time)
        dispersion = self.dispersion(w, count)
        least = -np.sqrt(dispersion * float(w @ count) / max(float(w @ (rate**2 * variance)), LEAST))
        follows = (self.time_count - float(w @ (time * count))) / max(float(w @ (rate * variance)), LEAST)
        both = float(np.clip(follows, least, 1.0)) * rate * variance
        of_count = np.maximum(dispersion * count, 0.1 * count + both**2 / np.maximum(variance, LEAST))
        return _blocks(X, w, [[variance, both], [both, of_count]])

    def drawn(self, mean: Array, per: Array, w: Array) -> Array:
        # of y - r t: E(t^2) and E(t y) of a level are taken to be in proportion to T^2 and r T^2, T its mean time
        time, each = per / self.unit, w / w.sum()
        squares, both = (
            of / float(each @ (by * time**2))
            for of, by in ((self.time_square, np.ones_like(mean)), (self.time_count, mean * self.unit))
        )
        return self.dispersion(w, mean * per, 2 * both - squares) * mean

    def unseen(self, X: Array, w: Array, b: Array) -> Array:
        # of t alone: x t, and x t times the rate
        time, count = self.means(X, b)
        rate, variance = count / time, self._variance(w, time)
        return _blocks(X, w, [[variance, variance * rate], [variance * rate, variance * rate**2]])

    def bent(self, design: Design, b: Array, covariance: Array) -> Array:
        X, places, blocks = design.X, _places(len(b)), design.blocks
        by_score = [design.weights * mean for mean in self.means(X, b)]
        levels = [np.column_stack([1 - X[:, block].sum(axis=1), X[:, block]]) for block in blocks]
        alone = [self._alone(design, block, b, covariance) for block in blocks]
        found = np.zeros((len(b),) * 2)
        for i, own in enumerate(alone):
            others = [np.sqrt(own * alone[j]) * levels[j] for j in range(i + 1, len(blocks)) if own * alone[j] > 0]
            if not others:
                continue
            other = np.hstack(others)
            for rows in levels[i].T > 0:
                moved = np.empty((len(b), other.shape[1]))
                for at, by in zip(places, by_score, strict=True):
                    moved[at] = (X[rows] * by[rows, None]).T @ other[rows]
                found += moved @ moved.T
        return USUAL**2 * found

    @staticmethod
    def _alone(design: Design, block: slice, b: Array, covariance: Array) -> float:
        # the standard deviation s of x g over levels, less what noise and drawing put into its square
        at, shares = _places(len(b))[0][block], design.weights @ design.X[:, block]
        C = np.diag(shares) - np.outer(shares, shares)
        square = float(b[at] @ C @ b[at] - np.sum(C * covariance[np.ix_(at, at)]))
        return float(np.sqrt(max(square, 0.0)))

    def _variance(self, w: Array, time: Array) -> Array:
        return time * max((self.time_square - float(w @ time**2)) / float(w @ time), 0.0)

    def mean(self, X: Array, b: Array) -> Array:
        return self.means(X, b)[1]

    def prediction(self, X: Array, b: Array) -> Array:
        return self.link_inverse(X @ b)

    def reported(self, solved: Solved) -> Solved:
        # the rate of one unit of time
        _, at = _places(len(solved.b))
        each = np.ix_(at, at)
        b = solved.b[at] - np.append(np.log(self.unit), np.zeros(len(at) - 1))
        return replace(
            solved,
            b=b,
            table=solved.table[each],
            population=solved.population[each],
            beyond=solved.beyond[at],
            bent=solved.bent[at],
        )


def _places(p: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    half = p // 2
    return np.append(0, np.arange(2, half + 1)), np.append(1, np.arange(half + 1, p))


def _blocks(X: Array, w: Array, of: list[list[Array | None]]) -> Array:
    """A matrix of blocks E_w x x' a, one for each a, (N,); zeros where there is no a."""
    p = 2 * X.shape[1]
    found = np.zeros((p, p))
    for rows, row in zip(_places(p), of, strict=True):
        for columns, each in zip(_places(p), row, strict=True):
            if each is not None:
                found[np.ix_(rows, columns)] = (X * (w * each)[:, None]).T @ X
    return found
