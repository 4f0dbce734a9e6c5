"""Hazard ratios of one release of moments, adjusted for each other, with a test of proportionality.

The equations are those of `hazards`; what they estimate is said in docs/questions.md#hazard-ratios.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, ndtr, ndtri

from commingle.services.analysis.errors import LevelError
from commingle.services.analysis.survival import time_by_event
from commingle.services.analysis.tables import INTERVALS, facts_of_test
from commingle.services.fit.subjects import about_tables
from commingle.services.models.formula import Formula
from commingle.services.models.hazards import Hazards
from commingle.services.models.score import Design, errors, first_term, solve
from commingle.services.models.tree import Factor
from commingle.services.models.weighted_rows import WeightedRows, weighted_rows
from commingle.services.plotting import INK, draw_ratios, new_axes, plain_label
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import GAP
from commingle.shared.estimation.cells import ENOUGH
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.errors import ConfidenceError
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import names_of

if TYPE_CHECKING:  # matplotlib is slow to import and only plots need it
    from matplotlib.axes import Axes

ESTIMATES = (
    "A hazard ratio compares people who are at risk at the same time and have all other features alike. Where it "
    "changes with time, this is a mean over the follow-up. Leaving without the event may depend on the features."
)
PRIOR = "Log hazard ratios have a normal prior of mean 0 and standard deviation 1."
_SUSPICIOUS = 0.05
_CLEAR = 40.0  # standard errors of its noise, for the count of a level
_SMALLEST = 0.9  # of an interval's share: what noise may take of it


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardRatios(Drawn):
    """Hazard ratios of m terms, levels of features against the first ones.

    NaN where noise leaves open whether anybody has the level.

    Attributes:
        outcome: the crossed attribute.
        event: what they are of.
        features: attributes.
        terms: m labels.
        coefficients: (m,) log hazard ratios.
        standard_errors: (m,) for the population, as all that follows.
        p_values: (m,) two-sided, of the normal law.
        ratios: (m,).
        ratio_intervals: (m, 2).
        covariance: (m, m) of the coefficients.
        change_p_values: (m,) of no steady change of a log ratio over the intervals; NaN where there is one interval.
        statistic, degrees_of_freedom, p_value: of the test that no ratio changes so.
        intervals: of time in which there are hazards, as many as stand out of the noise, without the last.
        interval_ratios: (m, H) in each, where the test says that they change; NaN otherwise.
        interval_ratio_intervals: (m, H, 2).
        events: (m,) people with each level and the event, negative where noise is larger.
        confidence_level: of all intervals.
        sentence: what the clearest term says.
        subjects: where they are keyed, how many parties hold and share.
        warnings: sentences for people.
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
        """A row for each term; the ratios of each interval where they change."""
        changing = () if np.isnan(self.interval_ratios).all() else enumerate(self.intervals)
        return ResultTable(
            title=f"Hazard ratios of {self.event}",
            facts=(
                *facts_of_test("change with time, chi-squared", self.statistic, self.degrees_of_freedom, self.p_value),
                ("intervals", f"{100 * self.confidence_level:g} %"),
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

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the hazard ratio of every level against the first one, with its interval; on `ax` or a new figure."""
        if ax is None:
            ax = new_axes(rows=len(self.terms))
        draw_ratios(ax, tuple(map(plain_label, self.terms)), self.ratios, self.ratio_intervals)
        ax.set_title(plain_label(self.event), fontsize=11, color=INK)
        covered = f"{100 * self.confidence_level:g} % intervals"
        ax.set_xlabel(f"hazard ratio against the first level ({covered})", fontsize=9)
        return ax


def hazard_ratios(
    prepared: PreparedMoments,
    outcome: str,
    features: str | Sequence[str],
    *,
    confidence_level: float = 0.95,
    entropy: int = 0,
) -> HazardRatios:
    """Hazard ratios of the event of a crossed attribute, intervals of time by whether the event came.

    Args:
        prepared: a release of moments.
        outcome: the crossed attribute; the event is the last level of its second part.
        features: attributes with levels, of any parties.
        confidence_level: between 0 and 1.
        entropy: of the drawing of weighted rows.

    Raises:
        NoTablesError: no moments, or an attribute without levels.
        LevelError: an outcome that is not time by event, a feature that is a part of it, or nobody with the event.
        EstimationError: see `errors` here and in shared.estimation.
    """
    if not 0 < confidence_level < 1:
        raise ConfidenceError(f"a confidence level of {confidence_level} is not between 0 and 1", remedy="Use 0.95.")
    sums = CrossProducts.of(prepared)
    times, parts = time_by_event(prepared, outcome)
    names = Formula.of(outcome, names_of(features), tuple(prepared.attributes)).features
    if inside := {part.name for part in parts} & set(names):
        raise LevelError(f"{', '.join(inside)} is a part of {outcome}", remedy="Leave it out of the features.")
    factors = [Factor.of(sums, name) for name in names]
    law = _law(sums, outcome)
    sums, kept = sums.using(np.vstack([law.known, law.indicators, *(f.indicators for f in factors)]))
    law, factors = law.at(kept), [f.at(kept) for f in factors]
    columns = [i for name in (outcome, *names) for i in prepared.columns[name]]
    if prepared.pairs is not None:
        prepared.pairs.require(np.array(columns, np.intp) - 1)
    missing = Factor("", ("known", GAP), np.array([law.known, law.present - law.known]), law.present)
    rows = weighted_rows(sums, [*factors, *([missing] if law.gaps else [])], entropy=entropy)
    asked = _Asked(sums, rows, factors, law, prepared.shared(columns))
    b, covariance = asked.fit(np.ones((law.size, 1)))
    events, nobody, few = asked.rare()
    b[nobody] = covariance[nobody] = covariance[:, nobody] = np.nan
    change, statistic, degrees = asked.change()
    p_value = float(chdtrc(degrees, statistic)) if degrees else float("nan")
    z = float(ndtri((1 + confidence_level) / 2))
    each, reach = asked.by_interval(z, changing=p_value < _SUSPICIOUS)
    each[nobody] = reach[nobody] = change[nobody] = np.nan
    se = np.sqrt(np.diag(covariance))
    with np.errstate(over="ignore"):
        ratios, reaches = np.exp(b), np.exp(np.column_stack([b - z * se, b + z * se]))
    terms = tuple(f"{f.name}[{label}]" for f in factors for label in f.labels[1:])
    whose = about_tables(prepared, (outcome, *names))
    event = f"{parts[1].name} = {parts[1].levels[-1]}"
    gone = [term for term, so in zip(terms, nobody, strict=True) if so]
    return HazardRatios(
        outcome=outcome,
        event=event,
        features=names,
        terms=terms,
        coefficients=b,
        standard_errors=se,
        p_values=2 * ndtr(-np.abs(b / se)),
        ratios=ratios,
        ratio_intervals=reaches,
        covariance=covariance,
        change_p_values=change,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p_value,
        intervals=times.levels[: law.size],
        interval_ratios=each,
        interval_ratio_intervals=reach,
        events=events,
        confidence_level=confidence_level,
        sentence=_sentence(event, factors, (b, se, ratios, reaches), confidence_level),
        subjects=whose.notes,
        warnings=(*_cautions(few, gone, times.levels, law.size, p_value), *whose.doubts),
    )


def _law(sums: CrossProducts, outcome: str) -> Hazards:
    """Intervals as long as those at risk stand out of the noise, and a rest. Raises LevelError: none."""
    labels, indicators = sums.levels(outcome)
    known = [i for i, label in enumerate(labels) if label != GAP]
    left, ended = indicators[known][::2], indicators[known][1::2]
    later = np.cumsum((left + ended)[::-1], axis=0)[::-1]
    present = sums.present(outcome)
    enough = _stand_out(*sums.sums(products(later, present[None])))
    size = min(int(np.append(enough, False).argmin()), len(enough) - 1)
    if not _stand_out(*sums.sums(products(ended[:size].sum(axis=0)[None], present[None]))).all():
        raise LevelError(
            "noise leaves open whether anybody at risk had the event", remedy="Use a release with a larger epsilon."
        )
    levels = np.vstack([ended[:size], left[:size], later[size : size + 1]])
    counts, _ = sums.sums(products(levels, present[None]))
    return Hazards.of(levels, present, counts, np.ones((size, 1)), gaps=len(known) < len(labels))


def _stand_out(counts: Array, noise: Array) -> NDArray[np.bool_]:
    return np.asarray(counts > ENOUGH * np.sqrt(np.maximum(np.diag(noise), 0.0) + np.maximum(counts, 0.0)))


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    sums: CrossProducts
    rows: WeightedRows
    factors: Sequence[Factor]
    law: Hazards
    n: int

    @property
    def terms(self) -> int:
        return sum(len(f.labels) - 1 for f in self.factors)

    def fit(self, basis: Array) -> tuple[Array, Array]:
        """Log ratios of each function of the basis, (r m,), and their covariance for the population."""
        law, m = self.law.along(basis), self.terms
        twice = [column for f in self.factors for column in f.indicators[1:]] * (basis.shape[1] + 1)
        whose = [f.present for f in self.factors for _ in f.labels[1:]] * (basis.shape[1] + 1)
        alone = [law.present] * (2 * law.size)
        weights = self.rows.weights * (self.rows.codes[:, -1] == 0) if law.gaps else self.rows.weights
        design = Design(
            self.rows.points.X[:, : 1 + m],
            weights,
            np.array([*alone, *twice]),
            np.array([*alone, *whose]),
            self.n,
            len(alone),
        )
        t = first_term(self.sums, design, law)[0]
        t[: len(alone)] = np.maximum(t[: len(alone)], -_SMALLEST * law.shares[:-1])
        b = solve(design, law, t)
        used = slice(len(alone), len(alone) + basis.shape[1] * m)
        return b[used], errors(self.sums, self.rows, design, law, b).population[used, used]

    def change(self) -> tuple[Array, float, int]:
        """P values of no change with time, (m,); chi-squared of all, and its degrees of freedom."""
        m, H = self.terms, self.law.size
        if H == 1:
            return np.full(m, np.nan), float("nan"), 0
        events, k = self.law.shares[:H] / self.law.shares[:H].sum(), np.arange(H, dtype=float)
        about = k - events @ k
        b, covariance = self.fit(np.column_stack([np.ones(H), about / np.sqrt(events @ about**2)]))
        b, covariance = b[m:], covariance[m:, m:]
        alone = 2 * ndtr(-np.abs(b) / np.sqrt(np.diag(covariance)))
        return alone, float(b @ np.linalg.solve(covariance, b)), m

    def by_interval(self, z: float, *, changing: bool) -> tuple[Array, Array]:
        """Ratios in each interval, (m, H), and their intervals, where they change; NaN otherwise."""
        m, H = self.terms, self.law.size
        if not changing:
            return np.full((m, H), np.nan), np.full((m, H, 2), np.nan)
        b, covariance = self.fit(np.eye(H))
        b, reach = b.reshape(H, m).T, z * np.sqrt(np.diag(covariance)).reshape(H, m).T
        with np.errstate(over="ignore"):
            return np.exp(b), np.exp(np.stack([b - reach, b + reach], axis=2))

    def rare(self) -> tuple[Array, NDArray[np.bool_], list[str]]:
        """By term (m,) people with the event, and whether noise leaves open if anybody has its level; rare levels."""
        sums, few = self.sums, list[str]()
        found, open_levels = [], []
        for f in self.factors:
            events, noise = sums.sums(products(f.indicators, self.law.indicators[: self.law.size].sum(axis=0)[None]))
            people, people_noise = sums.sums(products(f.indicators, self.law.known[None]))
            hidden = people < _CLEAR * np.sqrt(np.maximum(np.diag(people_noise), 0.0))
            rare = ~_stand_out(events, noise) | hidden
            few += [f"{f.name}[{label}]" for label, so in zip(f.labels, rare, strict=True) if so]
            found.append(events[1:])
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


def _sentence(
    event: str, factors: Sequence[Factor], found: tuple[Array, Array, Array, Array], confidence_level: float
) -> str:
    b, se, ratios, reaches = found
    at = [(f, label) for f in factors for label in f.labels[1:]]
    clear = np.abs(b) / np.maximum(se, 1e-12)
    if np.isnan(clear).all():
        return f"Noise leaves open how the hazard of {event} goes with these features."
    term = int(np.nanargmax(clear))
    factor, label = at[term]
    (low, high), name = reaches[term].tolist(), factor.name
    return (
        f"All other features alike, the hazard of {event} is {ratios[term]:.2f} times as high at {name}[{label}] "
        f"as at {name}[{factor.labels[0]}] ({100 * confidence_level:g} % interval {low:.2f} to {high:.2f})."
    )
