"""Hazard ratios of one release of moments, adjusted for each other, with a test of proportionality.

`hazard_law` has the equations; docs/questions.md#hazard-ratios says what they estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from commingle.services.analysis.survival import cells_of, event_of, left_together, time_by_event, together_words
from commingle.services.analysis.tables import facts_of_test
from commingle.services.errors import LevelError
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, LogRatios, percent, require_confidence, two_sided
from commingle.services.models.factors import terms_of
from commingle.services.models.formula import Formula
from commingle.services.models.hazard_law import Hazards
from commingle.services.models.score import Equation
from commingle.services.plotting import Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import GAP, Levelled
from commingle.shared.estimation.cells import ENOUGH
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array, ProductNoise
from commingle.shared.estimation.method import names_of
from commingle.shared.estimation.prepared import PreparedMoments

ESTIMATES = (
    "A hazard ratio compares people who are at risk at the same time and have all other features alike. Where it "
    "changes with time, this is a mean over the follow-up. Leaving without the event may depend on the features."
)
PRIOR = "Log hazard ratios have a normal prior of mean 0 and standard deviation 1."
_SUSPICIOUS = 0.05
_CLEAR = 40.0  # standard errors of its noise, for the count of a level


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HazardRatios(Drawn):
    """Hazard ratios of m terms, each a level of a feature against its first level.

    NaN where too few people have the level.

    Attributes:
        outcome: the crossed attribute.
        terms: m labels.
        coefficients: (m,) log hazard ratios.
        standard_errors: (m,) for the population, as are all intervals and tests.
        p_values: (m,) two-sided, in agreement with the intervals.
        ratios: (m,).
        ratio_intervals: (m, 2).
        covariance: (m, m) of the coefficients.
        change_p_values: (m,) of no steady change of a log ratio over the intervals; NaN where there is one interval.
        statistic, degrees_of_freedom, p_value: of the test that no ratio changes so.
        intervals: the intervals of time that have hazards: those that stand out of the noise, but not the last.
        interval_ratios: (m, H) in each interval, if the test says that ratios change; NaN otherwise.
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
        """Hazard ratios of all levels against the first."""
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
        event: a level of the outcome's second part; all other ends count as leaving without it. By default any level
            but the first.
        confidence_level: between 0 and 1.
        entropy: seeds the drawing of weighted rows.

    Raises:
        NoTablesError: the release has no moments, or an attribute has no levels.
        LevelError: the outcome is not time by event, cannot have this event or feature, or nobody has the event.
        EstimationError: see `services.errors` and `shared.errors`.
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
    together = left_together(cells_of(sums, outcome, None), times, len(parts[1].levels))
    ends = together_words([k for k in together if k < size], times)
    said = event_of(parts[1], event)
    gone = [term for term, so in zip(terms, nobody, strict=True) if so]
    cautions = _cautions(few, gone, times.levels, size, changes.p_value, ends=ends)
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
        warnings=(*equation.merged, *cautions, *whose.doubts),
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
    """The law of the intervals whose people at risk stand out of the noise, and of a rest. Raises LevelError."""
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
    """By term (m,) people with the event, and whether noise leaves open if anybody has the level; also rare levels."""
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


def _cautions(
    few: list[str], gone: list[str], intervals: tuple[str, ...], size: int, p_value: float, *, ends: list[str]
) -> list[str]:
    said = [*ends]
    if gone:
        said.append(f"There are too few people with {', '.join(gone)}: no ratio is given.")
        few = [level for level in few if level not in gone]
    if p_value < _SUSPICIOUS:
        change = "seem to change with time, which such an end of follow-up also does" if ends else "change with time"
        said.append(f"Hazard ratios {change}: read those of each interval. One for all is a mean.")
    if few:
        said.append(
            f"Few may have the event, or be there, at {', '.join(few)}: the prior has the say in their ratios, and "
            "intervals may hold less often than they say."
        )
    if size < len(intervals) - 1:
        said.append(f"Too few people are still at risk from {intervals[size]}: hazards end there.")
    return said
