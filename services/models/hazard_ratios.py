"""Hazard ratios of one release of moments, adjusted for each other, with a test of proportionality.

In interval k people with features x leave by cause e (1 the event, 0 anything else) at the rate exp(a_ke + x b_ke),
b_k1 = sum_r G_kr b_r. The score of such a model has products of features with who is at risk, three attributes. In its
place are, with the martingale residual z_r = sum_k G_kr [event in k - h_k (time at risk in k)], h_k of everybody,

    E 1(left in k by e) - E P(left in k by e | x) = 0,        E x z_r - E x E(z_r | x) - P b_r / n = 0,

and the same with z_0 of leaving without the event: linear in what is released, true for any h, and the score where
nobody's hazard differs. G = 1 is proportional hazards. What they estimate: docs/questions.md#hazard-ratios.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from commingle.services.analysis.survival import event_of, time_by_event
from commingle.services.analysis.tables import facts_of_test
from commingle.services.errors import LevelError
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, LogRatios, percent, require_confidence, two_sided
from commingle.services.models.factors import terms_of
from commingle.services.models.formula import Formula
from commingle.services.models.score import Equation, Law
from commingle.services.plotting import Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import GAP, Levelled
from commingle.shared.estimation.cells import ENOUGH
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array, ProductNoise
from commingle.shared.estimation.method import names_of
from commingle.shared.estimation.prepared import PreparedMoments

_LARGEST = 30.0
_LEAST = 1e-4
_SMALLEST = 0.9  # of an interval's share: what noise may take of it


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Hazards(Law):
    """The law of H intervals and a rest, 2 H + 1 levels: event in each, left otherwise in each, still there after them.

    Attributes:
        indicators: (2 H + 1, q) of the levels, as combinations of a release's columns.
        shares: (2 H + 1,) of the levels.
        basis: (H, r) G.
        residuals: (r + 1, 2 H + 1) z of each level, leaving last.
    """

    FORMS = ("indicators", *Law.FORMS)

    indicators: Array
    shares: Array
    basis: Array
    residuals: Array

    @classmethod
    def of(cls, indicators: Array, present: Array, counts: Array, basis: Array, *, gaps: bool) -> Self:
        """The law of `counts` (2 H + 1,), as released; none is less than one in ten thousand."""
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
        """The law with ratios that move along other functions of time."""
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
        """(2, H) rates of everybody, the event's first: of n at risk d leave, a rate -log(1 - d / n) between them."""
        left = self.shares[:-1].reshape(2, -1)
        gone = left.sum(axis=0)
        at_risk = np.cumsum(np.append(gone, self.shares[-1])[::-1])[::-1][:-1]
        return np.asarray(-np.log1p(-gone / at_risk) * left / gone)

    def residual(self, cause: int) -> Array:
        """(H, 2 H + 1) of each interval: who leaves in it less h times the part of it that those at risk are there.

        That is all of it for those who stay, and f for those who leave, so that residuals add up to 0.
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


ESTIMATES = (
    "A hazard ratio compares people who are at risk at the same time and have all other features alike. Where it "
    "changes with time, this is a mean over the follow-up. Leaving without the event may depend on the features."
)
PRIOR = "Log hazard ratios have a normal prior of mean 0 and standard deviation 1."
_SUSPICIOUS = 0.05
_CLEAR = 40.0  # standard errors of its noise, for the count of a level


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardRatios(Drawn):
    """Hazard ratios of m terms, levels of features against the first ones.

    NaN where noise leaves open whether anybody has the level.

    Attributes:
        outcome: the crossed attribute.
        terms: m labels.
        coefficients: (m,) log hazard ratios.
        standard_errors: (m,) for the population, as all that follows.
        p_values: (m,) two-sided, as intervals say it.
        ratios: (m,).
        ratio_intervals: (m, 2).
        covariance: (m, m) of the coefficients.
        change_p_values: (m,) of no steady change of a log ratio over the intervals; NaN where there is one interval.
        statistic, degrees_of_freedom, p_value: of the test that no ratio changes so.
        intervals: of time in which there are hazards, as many as stand out of the noise, without the last.
        interval_ratios: (m, H) in each, where the test says that they change; NaN otherwise.
        interval_ratio_intervals: (m, H, 2).
        events: (m,) people with each level and the event, negative where noise is larger.
    """

    outcome: str
    event: str
    features: tuple[str, ...]
    terms: tuple[str, ...]
    coefficients: Array
    standard_errors: Array
    p_values: Array
    ratios: Array
    ratio_intervals: Array
    covariance: Array
    change_p_values: Array
    statistic: float
    degrees_of_freedom: int
    p_value: float
    intervals: tuple[str, ...]
    interval_ratios: Array
    interval_ratio_intervals: Array
    events: Array
    confidence_level: float
    sentence: str
    subjects: tuple[str, ...]
    warnings: tuple[str, ...]

    def table(self) -> ResultTable:
        changing = () if np.isnan(self.interval_ratios).all() else enumerate(self.intervals)
        return ResultTable(
            title=f"Hazard ratios of {self.event}",
            facts=(
                *facts_of_test("change with time, chi-squared", self.statistic, self.degrees_of_freedom, self.p_value),
                ("intervals", percent(self.confidence_level)),
            ),
            heading="term",
            labels=self.terms,
            columns=(
                ResultColumn("hazard ratio", self.ratios, ".3f", interval=self.ratio_intervals),
                ResultColumn("p", self.p_values, "p"),
                ResultColumn("p of change", self.change_p_values, "p"),
                ResultColumn("events", self.events, ",.0f"),
                *(
                    ResultColumn(f"in {name}", self.interval_ratios[:, k], ".3f", self.interval_ratio_intervals[:, k])
                    for k, name in changing
                ),
            ),
            notes=(self.sentence, ESTIMATES, INTERVALS, PRIOR, *self.subjects),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Intervals, ...]:
        """The hazard ratio of every level against the first one."""
        picture = Intervals(
            title=self.event,
            axis=f"hazard ratio against the first level ({percent(self.confidence_level)} intervals)",
            labels=self.terms,
            values=self.ratios,
            intervals=self.ratio_intervals,
            of="ratios",
        )
        return (picture,)


def hazard_ratios(
    prepared: PreparedMoments,
    outcome: str,
    features: str | Sequence[str],
    *,
    event: str | None = None,
    confidence_level: float = 0.95,
    entropy: int = 0,
) -> HazardRatios:
    """Hazard ratios of the event of a crossed attribute, intervals of time by whether the event came.

    Args:
        prepared: a release of moments.
        outcome: the crossed attribute.
        features: attributes with levels, of any parties.
        event: a level of the outcome's second part, and others leave without it; by default any but the first.
        confidence_level: between 0 and 1.
        entropy: of the drawing of weighted rows.

    Raises:
        NoTablesError: no moments, or an attribute without levels.
        LevelError: an outcome that is not time by event, an event or a feature that it cannot have, or nobody with it.
        EstimationError: see `services.errors` and `shared.estimation.errors`.
    """
    require_confidence(confidence_level)
    sums = CrossProducts.of(prepared)
    times, parts = time_by_event(prepared, outcome)
    names = _features(prepared, outcome, features, parts)
    equation = Equation.of(sums, outcome, _law(sums, outcome, _ends_by(parts[1], event)), names, entropy)
    events, nobody, few = _rare(equation)
    size = equation.law.size
    b, covariance = _fit(equation, np.ones((size, 1)))
    b[nobody] = covariance[nobody] = covariance[:, nobody] = np.nan
    found = LogRatios(b, np.sqrt(np.diag(covariance)), confidence_level, of_rates=True)
    changes = _changes(equation, confidence_level)
    changes.by_interval.logs[nobody] = changes.p_values[nobody] = np.nan
    terms, references = terms_of(equation.factors)
    whose = about_tables(prepared, (outcome, *names))
    said = event_of(parts[1], event)
    gone = [term for term, so in zip(terms, nobody, strict=True) if so]
    return HazardRatios(
        outcome=outcome,
        event=said,
        features=names,
        terms=terms,
        coefficients=b,
        standard_errors=found.errors,
        p_values=found.p_values,
        ratios=found.ratios,
        ratio_intervals=found.ratio_intervals,
        covariance=covariance,
        change_p_values=changes.p_values,
        statistic=changes.statistic,
        degrees_of_freedom=changes.degrees,
        p_value=changes.p_value,
        intervals=times.levels[:size],
        interval_ratios=changes.by_interval.ratios,
        interval_ratio_intervals=changes.by_interval.ratio_intervals,
        events=events,
        confidence_level=confidence_level,
        sentence=found.clearest(f"the hazard of {said} is", terms, references, doubtful=few)
        or f"Noise leaves open how the hazard of {said} goes with these features.",
        subjects=whose.notes,
        warnings=(*equation.merged, *_cautions(few, gone, times.levels, size, changes.p_value), *whose.doubts),
    )


def _features(
    prepared: PreparedMoments, outcome: str, features: str | Sequence[str], parts: tuple[Levelled, Levelled]
) -> tuple[str, ...]:
    names = Formula.of(outcome, names_of(features), tuple(prepared.attributes)).features
    if inside := {part.name for part in parts} & set(names):
        raise LevelError(f"{', '.join(inside)} is a part of {outcome}", remedy="Leave it out of the features.")
    return names


def _ends_by(ended: Levelled, event: str | None) -> NDArray[np.bool_]:
    if event is not None and event not in ended.levels[1:]:
        raise LevelError(
            f"{ended.name} has no event {event!r}", remedy=f"Its events are {', '.join(ended.levels[1:])}."
        )
    return np.array([False, *(event in {None, level} for level in ended.levels[1:])])


def _law(sums: CrossProducts, outcome: str, ends: NDArray[np.bool_]) -> Hazards:
    """Intervals while those at risk stand out of the noise, and a rest; `ends` are the event. Raises LevelError."""
    labels, indicators = sums.levels(outcome)
    known = [i for i, label in enumerate(labels) if label != GAP]
    each = indicators[known].reshape(-1, len(ends), indicators.shape[1])
    left, ended = each[:, ~ends].sum(axis=1), each[:, ends].sum(axis=1)
    later = np.cumsum((left + ended)[::-1], axis=0)[::-1]
    present = sums.present(outcome)
    enough = _stand_out(*sums.crossed(later, present[None]))
    size = min(int(np.append(enough, False).argmin()), len(enough) - 1)
    if not _stand_out(*sums.crossed(ended[:size].sum(axis=0)[None], present[None])).all():
        raise LevelError(
            "noise leaves open whether anybody at risk had the event", remedy="Use a release with a larger epsilon."
        )
    if size == 1 and not enough[1]:
        raise LevelError(
            "noise leaves open whether anybody is left after the first interval, where all may have left together",
            remedy="Use a study with shorter intervals.",
        )
    levels = np.vstack([ended[:size], left[:size], later[size : size + 1]])
    counts, _ = sums.crossed(levels, present[None])
    return Hazards.of(levels, present, counts.ravel(), np.ones((size, 1)), gaps=len(known) < len(labels))


def _stand_out(counts: Array, noise: ProductNoise) -> NDArray[np.bool_]:
    return np.asarray(counts > ENOUGH * np.sqrt(noise.variances + np.maximum(counts, 0.0))).ravel()


def _fit(equation: Equation[Hazards], basis: Array) -> tuple[Array, Array]:
    """Log ratios of each function of the basis, (r m,), and their covariance for the population."""
    law = equation.law.along(basis)
    found = equation.solved(law)
    m = (len(found.b) - law.alone) // law.repeats
    used = slice(law.alone, law.alone + basis.shape[1] * m)
    return found.b[used], found.population[used, used]


class _Changes(NamedTuple):
    p_values: Array
    statistic: float
    degrees: int
    p_value: float
    by_interval: LogRatios


def _changes(equation: Equation[Hazards], confidence_level: float) -> _Changes:
    """P values of no change with time, (m,), a test of all, and ratios in each interval, (m, H), where they change."""
    m, H = len(terms_of(equation.factors)[0]), equation.law.size
    alone, statistic, degrees = np.full(m, np.nan), float("nan"), 0
    if H > 1:
        events, k = equation.law.shares[:H] / equation.law.shares[:H].sum(), np.arange(H, dtype=float)
        about = k - events @ k
        b, covariance = _fit(equation, np.column_stack([np.ones(H), about / np.sqrt(events @ about**2)]))
        b, covariance = b[m:], covariance[m:, m:]
        alone, degrees = two_sided(b, np.sqrt(np.diag(covariance))), m
        statistic = float(b @ np.linalg.solve(covariance, b))
    p_value = float(chdtrc(degrees, statistic))
    logs = errors = np.full((m, H), np.nan)
    if p_value < _SUSPICIOUS:
        b, covariance = _fit(equation, np.eye(H))
        logs, errors = b.reshape(H, m).T, np.sqrt(np.diag(covariance)).reshape(H, m).T
    return _Changes(alone, statistic, degrees, p_value, LogRatios(logs, errors, confidence_level, of_rates=True))


def _rare(equation: Equation[Hazards]) -> tuple[Array, NDArray[np.bool_], list[str]]:
    """By term (m,) people with the event, and whether noise leaves open if anybody has its level; rare levels."""
    sums, law, few = equation.sums, equation.law, list[str]()
    found, open_levels = [], []
    for f in equation.factors:
        events, noise = sums.crossed(f.indicators, law.indicators[: law.size].sum(axis=0)[None])
        people, people_noise = sums.crossed(f.indicators, law.known[None])
        rare = ~_stand_out(events, noise) | (people < _CLEAR * people_noise.errors).ravel()
        few += [name for name, so in zip(f.names, rare, strict=True) if so]
        found.append(events[1:, 0])
        open_levels.append(~_stand_out(people, people_noise)[1:])
    return np.concatenate(found), np.concatenate(open_levels), few


def _cautions(few: list[str], gone: list[str], intervals: tuple[str, ...], size: int, p_value: float) -> list[str]:
    said = []
    if gone:
        said.append(f"Noise leaves open whether there is anybody with {', '.join(gone)}: no ratio is given.")
        few = [level for level in few if level not in gone]
    if p_value < _SUSPICIOUS:
        said.append("Hazard ratios change with time: read those of each interval. One for all is a mean.")
    if few:
        said.append(
            f"Few may have the event, or be there, at {', '.join(few)}: the prior has the say in their ratios, and "
            "intervals may hold less often than they say."
        )
    if size < len(intervals) - 1:
        said.append(f"Noise leaves open who is still at risk from {intervals[size]}: hazards end there.")
    return said
