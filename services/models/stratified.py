"""Odds ratios of two attributes within the levels of a third (Mantel and Haenszel, 1959), from weighted rows.

A release has pairs. On three attributes these rows say what follows from pairs: one odds ratio in all strata.
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from commingle.services.analysis import cross_table
from commingle.services.analysis.tables import tells
from commingle.services.errors import LevelError
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, LogRatios, normal_reach, percent, standard_errors
from commingle.services.models.factors import Factor, in_use
from commingle.services.models.weighted_rows import WeightedRows, weighted_rows
from commingle.services.plotting import Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import Attribute
from commingle.shared.estimation.cells import Cells, in_common
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import fieller, mapped

RIDGE = 2.0
"""lambda of the weighted rows, too weak to shrink a ratio. A lambda by evidence shrinks the very ratio that you ask for
where noise is large: at epsilon 0.5 and 5,000 people intervals then held .72, and with this one .95 (measured)."""
_NOTHING = 1e-12  # of the other sum
ENOUGH = 40.0
"""Standard errors of a level's count below which intervals hold less often than they say."""
ONE_RATIO = (
    "A release has tables of two attributes. What it says of three follows from these: one odds ratio in all strata. "
    "It cannot tell whether strata differ."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StratifiedTable(Drawn):
    """How one level of an attribute goes with levels of another, within the levels of a third.

    Attributes:
        event: the level of `column` whose odds are compared.
        reference: the level of `row` with which others are compared.
        compared: the R other known levels of `row`.
        strata: the known levels of `within`.
        odds_ratios: (R,) pooled over the strata; NaN where noise leaves it open, with 0 to infinity as interval.
        odds_intervals: (R, 2) for the population.
        log_errors: (R,) standard errors of their logarithms.
        crude: (R,) odds ratios without strata, with `crude_intervals` (R, 2).
    """

    row: str
    column: str
    within: str
    event: str
    reference: str
    compared: tuple[str, ...]
    strata: tuple[str, ...]
    odds_ratios: Array
    odds_intervals: Array
    log_errors: Array
    crude: Array
    crude_intervals: Array
    confidence_level: float
    sentence: str
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]

    def table(self) -> ResultTable:
        return ResultTable(
            title=f"{self.row} by {self.column}, within {self.within}",
            facts=(
                ("event", f"{self.column} = {self.event}"),
                ("strata", f"{len(self.strata)}"),
                ("intervals", percent(self.confidence_level)),
            ),
            heading=self.row,
            labels=self.compared,
            columns=(
                ResultColumn("pooled odds ratio", self.odds_ratios, ".3g", interval=self.odds_intervals),
                ResultColumn("odds ratio without strata", self.crude, ".3g", interval=self.crude_intervals),
            ),
            notes=(
                self.sentence,
                f"Rows are compared with {self.row} = {self.reference}.",
                ONE_RATIO,
                INTERVALS,
                *self.subjects,
            ),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Intervals, ...]:
        """Pooled odds ratios by level of `row`."""
        against = f"{self.row} = {self.reference}, within {self.within}"
        picture = Intervals(
            title=f"{self.column} = {self.event} by {self.row}",
            axis=f"odds ratio against {against} ({percent(self.confidence_level)} intervals)",
            labels=self.compared,
            values=self.odds_ratios,
            intervals=self.odds_intervals,
            of="ratios",
        )
        return (picture,)


def stratified(
    prepared: PreparedMoments,
    row: str,
    column: str,
    within: str,
    *,
    event: str | None = None,
    reference: str | None = None,
    confidence_level: float = 0.95,
) -> StratifiedTable:
    """Compare the odds of one level of `column` between levels of `row`, within the levels of `within`.

    Each pair of the three is over people who have both, as if cells were missing by chance.

    Args:
        prepared: a release of moments.
        row: an attribute with levels.
        column: another.
        within: a third.
        event: a level of `column`; the last where left out.
        reference: a level of `row`; the first where left out.
        confidence_level: between 0 and 1.

    Raises:
        NoTablesError: the release has no moments, or an attribute has no levels.
        UnknownAttributeError, LevelError: an attribute or a level does not exist, or you name an attribute twice.
        NoOverlapError: two parties share too few subjects.
        FeaturesError: there are too many levels.
    """
    crude = cross_table(prepared, row, column, event=event, reference=reference, confidence_level=confidence_level)
    if within in {row, column}:
        raise LevelError(f"{within!r} is named twice", remedy="Name three attributes.")
    sums, names = CrossProducts.of(prepared), (row, column, within)
    sure = {*Cells.balanced(sums, row, column).known().filled().rows} - {crude.reference}
    others = [i for i, label in enumerate(crude.compared) if label in sure]
    compared = tuple(crude.compared[i] for i in others)
    pooled = _pooled(sums, names, (*compared, crude.reference), crude.event)
    ratios, intervals = np.exp(pooled.logs), pooled.intervals(confidence_level)
    whose = about_tables(prepared, names)
    gone = [label for label in crude.compared if label not in {*compared, crude.reference}]
    open_levels = ", ".join(label for label, ratio in zip(compared, ratios, strict=True) if np.isnan(ratio))
    no_ratio = f"Noise leaves open how {column} = {crude.event} goes with {row} = {open_levels}: no ratio is given."
    return StratifiedTable(
        row=row,
        column=column,
        within=within,
        event=crude.event,
        reference=crude.reference,
        compared=compared,
        strata=pooled.strata,
        odds_ratios=ratios,
        odds_intervals=intervals,
        log_errors=pooled.errors,
        crude=crude.odds_ratios[others],
        crude_intervals=crude.odds_intervals[others],
        confidence_level=confidence_level,
        sentence=_sentence(names, (compared, crude.reference, crude.event), ratios, pooled.errors, intervals),
        warnings=(
            *(f"Not compared within strata, as hardly anybody has them: {label}." for label in gone),
            *([no_ratio] if open_levels else []),
            *pooled.warnings,
            *whose.doubts,
        ),
        subjects=whose.notes,
    )


class _Pooled(NamedTuple):
    """R and S of each level, of `_sums`, (L, 2), with the covariance of their errors, (L, 2, 2).

    If noise puts cells below 0, one of the two is nearly 0 beside the other: cells of weighted rows stay above 0, and
    do not tell how far below the noise puts them.
    """

    sums: Array
    covariances: Array
    strata: tuple[str, ...]
    warnings: list[str]

    @property
    def logs(self) -> Array:
        known = self.sums.min(axis=1) > _NOTHING * self.sums.max(axis=1)
        return np.array([np.log(R / S) if so else np.nan for (R, S), so in zip(self.sums, known, strict=True)])

    @property
    def errors(self) -> Array:
        """Standard errors of log R - log S, (L,)."""
        by_log = np.array([1.0, -1.0]) / np.where(np.isnan(self.logs)[:, None], np.nan, self.sums)
        return np.array([standard_errors(mapped(J[None], C))[0] for J, C in zip(by_log, self.covariances, strict=True)])

    def intervals(self, confidence_level: float) -> Array:
        """(L, 2) of R / S, by Fieller: noise may leave R or S near 0, where the logarithm has a long tail.

        If the logarithm's error is above 1, R or S and its error may be far too low. Intervals then reach at least as
        far as the logarithm's.
        """
        z, by_log = normal_reach(confidence_level), LogRatios(self.logs, self.errors, confidence_level).ratio_intervals
        found = np.array([fieller(R, S, C, z) for (R, S), C in zip(self.sums.tolist(), self.covariances, strict=True)])
        unsure, least, most = self.errors > 1, np.minimum(found, by_log), np.maximum(found, by_log)
        found[unsure] = np.column_stack([least[:, 0], most[:, 1]])[unsure]
        found[np.isnan(self.logs)] = 0.0, inf
        return found


def _pooled(sums: CrossProducts, names: tuple[str, str, str], levels: tuple[str, ...], event: str) -> _Pooled:
    prepared = sums.prepared
    sums, whole, _ = in_use(sums, [Factor.of(sums, name) for name in names])
    factors = [_known(f, prepared.attributes[f.name]) for f in whole]
    rows = weighted_rows(sums, factors, ridge=RIDGE)
    if len(levels) == 1:
        raise LevelError(
            f"hardly anybody has another level of {names[0]!r} than {levels[0]}", remedy="Compare other attributes."
        )
    places = [factors[0].labels.index(label) for label in levels]
    found = [_sums(rows, (i, places[-1]), factors[1].labels.index(event)) for i in places[:-1]]
    covariance = _covariance(sums, rows, whole, np.column_stack([g for _, g in found]))
    both = np.arange(2 * len(found)).reshape(-1, 2)
    covariances = covariance[both[:, :, None], both[:, None]]
    return _Pooled(np.array([s for s, _ in found]), covariances, factors[2].labels, _rare(sums, factors))


def _sums(rows: WeightedRows, levels: tuple[int, int], event: int) -> tuple[Array, Array]:
    """R and S, (2,), with the pooled odds ratio R / S, and their gradients as functions of rows, (N, 2).

    In stratum k a, b have the level with and without the event, c, d the reference, T = a + b + c + d.
    R = sum a d / T, S = sum b c / T; dR = sum (d da + a dd) / T - a d dT / T^2, and S alike.
    """
    in_row, has = rows.codes[:, 0][:, None] == np.array(levels), rows.codes[:, 1] == event
    at = rows.codes[:, 2][:, None] == np.arange(len(rows.factors[2].labels))
    cells = np.array([[in_row[:, j] & so for so in (has, ~has)] for j in (0, 1)]).reshape(4, -1)
    a, b, c, d = shares = np.array([(rows.weights * cell) @ at for cell in cells])  # (4, K)
    T = np.maximum(shares.sum(axis=0), np.finfo(np.float64).tiny)
    products, zero = np.array([a * d, b * c]) / T, np.zeros_like(T)
    slopes = (np.array([[d, zero, zero, a], [zero, c, b, zero]]) - products[:, None]) / T
    return products.sum(axis=1), np.einsum("jn,sjk,nk->ns", cells, slopes, at)


def _known(factor: Factor, attribute: Attribute) -> Factor:
    """The attribute among those who have it; a stratum of missing cells would have the odds ratio without strata.

    So each pair of attributes is over the people who have both.
    """
    if attribute.missing != "indicator":
        return factor
    indicators = factor.indicators[:-1]
    return Factor(factor.name, factor.labels[:-1], indicators, indicators.sum(axis=0))


def _covariance(sums: CrossProducts, rows: WeightedRows, whole: list[Factor], g: Array) -> Array:
    """Cov(E_w g), which errors dm move by B dm: of noise, of the ridge's bias, and of drawing people.

    Drawing gives Cov(m) = C k / prod r, with k = 1 / n of those at the parties of both features (`in_common`), and r
    the share that has an attribute, for each attribute in both: cells are missing by chance.
    """
    has = np.array([sums.people(f.present[None])[0][0] for f in rows.factors])
    everybody = np.array([sums.people(f.present[None])[0][0] for f in whole])
    owner = np.array([-1, *(j for j, f in enumerate(rows.factors) for _ in f.labels[1:])])
    holds = (owner[rows.points.pairs][:, :, None] == np.arange(len(whole))).any(axis=1)  # (F, d)
    holds = np.vstack([holds, holds[rows.means.again.argmax(axis=1)]])
    lacking = np.exp(-(holds * np.log(np.clip(has / np.maximum(everybody, 1.0), 1e-3, 1.0))) @ holds.T)
    response, means = rows.response(g), rows.means
    noise = sums.covariance(np.tensordot(response.B, means.forms, axes=1)) + response.bias
    B = means.mixed(response.B)
    return np.asarray(noise + B @ (means.within(response.C) * in_common(sums, means.groups) * lacking) @ B.T)


def _rare(sums: CrossProducts, factors: list[Factor]) -> list[str]:
    found = list[str]()
    for factor in factors:
        counts, errors = sums.people(factor.indicators)
        few = counts < ENOUGH * errors
        found += [f"{factor.name} = {label}" for label, so in zip(factor.labels, few, strict=True) if so]
    said = f"Noise is more than 1/{ENOUGH:g} of the people with {', '.join(found)}: intervals may hold less often."
    return [said] if found else []


def _sentence(
    names: tuple[str, str, str],
    levels: tuple[tuple[str, ...], str, str],
    ratios: Array,
    errors: Array,
    intervals: Array,
) -> str:
    (row, column, within), (compared, reference, event) = names, levels
    clear = np.where(tells(intervals) & np.isfinite(errors), np.abs(np.log(ratios)) / np.maximum(errors, 1e-12), np.nan)
    if np.isnan(clear).all():
        return f"Noise or few people leave open how {column} = {event} goes with {row} within {within}."
    i = int(np.nanargmax(clear))
    low, high = intervals[i].tolist()
    times = f"{ratios[i]:.3g} times as high with {row} = {compared[i]} as with {row} = {reference}"
    ends = f"at least {low:.3g}" if np.isinf(high) else f"{low:.3g} to {high:.3g}"
    return (
        f"Among people with the same {within}, the odds of {column} = {event} are {times}, {ends} in the population, "
        f"if this ratio is the same at every level of {within}."
    )
