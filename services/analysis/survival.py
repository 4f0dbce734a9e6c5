"""Survival over intervals of time, from a release with a crossed attribute: the time until the end, by how it ended.

In one group, c_k people end in interval k without an event and d_ek with event e; all are unbiased sums of the release.
n_k = sum over j >= k of c_j + sum over e of d_ej are at risk. Who leaves without an event counts for half an interval
(actuarial): h_ek = d_ek / (n_k - c_k / 2), S_k = prod over j <= k of 1 - sum over e of h_ej. The share with event e
before any other, its cumulative incidence (Aalen and Johansen), is sum over j <= k of S_j-1 h_ej. The last interval
also holds all who are followed to its end or for longer. They are at risk in all of it, so it has no h. Counts have the
law of a table (`services.analysis.tables`): noise of known covariance, and people drawn from a population.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from commingle.services.analysis.tables import facts_of_test
from commingle.services.errors import LevelError
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, normal_reach, percent, standard_errors
from commingle.services.plotting import Axes, Curves
from commingle.services.results import Drawn, ResultColumn, ResultTable, number_text
from commingle.shared.documents.schema import CategoricalAttribute, Intervals, Levelled
from commingle.shared.estimation.cells import ENOUGH, Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import mapped

EVERYBODY = "everybody"
_MEANS = "Restricted means take the hazard to be constant within an interval; sure bounds of a curve do not."
_LAST = "The last interval also holds everybody who is followed for longer, so no share is given at its end."
_HALF = "People are taken to leave halfway through an interval."
_BENT = "Noise lets a curve rise, or a share with an event fall, where few leave; intervals count that."
_TOPS = (0.04, 0.08, 0.2, 0.4, 0.6, 0.8, 1.0)  # of an axis of shares, so that quarters of it are round
_SMALL = 1e-4  # log of a ratio of shares, below which a series stands for the formula
# Times the rate of leaving in the intervals beside. All of 80 simulated releases in which 30 and 70 % of two groups
# leave at one cut exceed it; none of 900 in which people leave at uniform, exponential or Weibull times, or later on.
_TOGETHER = 2.5
_MANY = 0.1  # of the people at risk: fewer who leave at one time hardly move a curve
_SHORT = 0.1  # of the width of an interval beside: leaving within less of it moves no curve
_SURE = 3.0  # standard errors, by which a rate of leaving must stand out
_ONE_EVENT = 2  # kinds of end: without it, and with it
_MOST_SAID = 4  # groups that a sentence names one by one


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Survival(Drawn):
    """Kaplan-Meier curves at the ends of K intervals, of G groups.

    Attributes:
        outcome: the crossed attribute.
        by: the attribute whose levels are the groups; None if everybody is one group.
        time, event: its two parts; the event is all levels but the first.
        begin: where the first interval begins, and everybody is at risk.
        ends: (K,) where each interval ends.
        at_risk: (G, K) people at risk when an interval begins, negative where noise is larger.
        at_risk_errors: (G, K) standard errors of the noise in them.
        events: (G, K) events of any kind in each interval.
        survival: (G, K) shares without any event at the end of each interval; NaN in the last one, and where noise
            hides the few at risk.
        survival_intervals: (G, K, 2) for the population.
        causes: the E events that compete, in the study's order; empty where there is one event.
        incidence: (G, E, K) shares with each event, and no other before, at the end of each interval.
        incidence_intervals: (G, E, K, 2) for the population.
        restricted_means: (G,) mean time without the event up to `horizons`, the last end with a share; hazards are
            taken to be constant within each interval.
        restricted_mean_intervals: (G, 2) for the population.
        horizons: (G,) ends of the restricted means; NaN where no end has a share.
        statistic, degrees_of_freedom, p_value: of the log-rank test for any event, which knows the noise; NaN for one
            group.
    """

    outcome: str
    by: str | None
    time: str
    event: str
    unit: str | None
    intervals: tuple[str, ...]
    begin: float
    ends: Array
    groups: tuple[str, ...]
    at_risk: Array
    at_risk_errors: Array
    events: Array
    survival: Array
    survival_intervals: Array
    causes: tuple[str, ...]
    incidence: Array
    incidence_intervals: Array
    restricted_means: Array
    restricted_mean_intervals: Array
    horizons: Array
    statistic: float
    degrees_of_freedom: int
    p_value: float
    confidence_level: float
    sentence: str
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]

    def table(self) -> ResultTable:
        columns: list[ResultColumn] = []
        for g, name in enumerate(self.groups):
            of = f"{name}: " if self.by else ""
            share, reach = self.survival[g], self.survival_intervals[g]
            columns += [
                ResultColumn(f"{of}at risk", self.at_risk[g], ",.0f"),
                ResultColumn(f"{of}events", self.events[g], ",.0f"),
                ResultColumn(f"{of}without at its end", share, ".1%", interval=reach),
                *(
                    ResultColumn(f"{of}{cause} by its end", self.incidence[g, e], ".1%", self.incidence_intervals[g, e])
                    for e, cause in enumerate(self.causes)
                ),
            ]
        test = facts_of_test("log-rank chi-squared", self.statistic, self.degrees_of_freedom, self.p_value)
        return ResultTable(
            title=f"Time to {self.event}" + (f", by {self.by}" if self.by else ""),
            facts=(*(test if self.by else ()), ("intervals", percent(self.confidence_level))),
            heading=f"{self.time} ({self.unit})" if self.unit else self.time,
            labels=self.intervals,
            columns=tuple(columns),
            notes=(
                self.sentence,
                *(means := self._means()),
                *([_MEANS] if means else []),
                *self._halves(),
                _LAST,
                *([_BENT] if self._is_bent else []),
                INTERVALS,
                *self.subjects,
            ),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Curves, ...]:
        """Shares without any event, then each event that competes, on one scale."""
        shares, bands = self.incidence, self.incidence_intervals
        highest = bands[np.isfinite(bands)].max(initial=0.0)
        top = next(top for top in _TOPS if top >= highest)
        return (
            self._picture(f"without {self.event}", 1.0, self.survival, self.survival_intervals, top=1.0),
            *(
                self._picture(f"with {cause} before any other", 0.0, shares[:, e], bands[:, e], top=top)
                for e, cause in enumerate(self.causes)
            ),
        )

    def _picture(self, share: str, first: float, shares: Array, bands: Array, *, top: float) -> Curves:
        reached, shown = int(np.isfinite(self.survival).any(axis=0).sum()), self.table()
        return Curves(
            title=shown.title,
            share=f"{share} ({percent(self.confidence_level)} intervals)",
            time=shown.heading,
            by=self.by,
            groups=self.groups,
            times=np.append(self.begin, self.ends[:reached]),
            shares=np.insert(shares[:, :reached], 0, first, axis=1),
            bands=np.insert(bands[:, :reached], 0, first, axis=1),
            at_risk=self.at_risk[:, : reached + 1],
            top=top,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw each group's curve with its band, and how many are at risk below it.

        `ax` shows the shares without an event alone. A new figure shows each event that competes below them.
        """
        pictures = self.pictures()
        return Curves.stacked(pictures) if ax is None else pictures[0].draw(ax)

    @property
    def _is_bent(self) -> bool:
        return bool((np.diff(self.survival) > 0).any() or (np.diff(self.incidence) < 0).any())

    def _means(self) -> list[str]:
        unit = f" {self.unit}" if self.unit else ""
        return [
            f"{name}: restricted mean {mean:.4g} ({low:.4g} to {high:.4g}){unit}, up to {horizon:g}{unit}; "
            f"sure bounds {least:.4g} to {most:.4g}."
            for name, mean, (low, high), horizon, (least, most) in zip(
                self.groups,
                self.restricted_means,
                self.restricted_mean_intervals,
                self.horizons,
                self._bounds,
                strict=True,
            )
            if np.isfinite(mean)
        ]

    def _halves(self) -> list[str]:
        unit = f" {self.unit}" if self.unit else ""
        said = [
            f"{name} {bounds[k - 1, 0]:.1%} to {bounds[k - 1, 1]:.1%} at {self.ends[k - 1]:g}{unit}"
            for name, k, bounds in zip(
                self.groups, np.isfinite(self.survival).sum(axis=1), self._leaving_bounds, strict=True
            )
            if k
        ]
        return [_HALF, f"If all left as it begins, or all as it ends: {'; '.join(said)}."] if said else []

    @property
    def _leaving_bounds(self) -> Array:
        # (G, K - 1, 2) prod 1 - d_k / (n_k - c_k) and prod 1 - d_k / n_k, as n_k - c_k = n_k+1 + d_k
        n, d = self.at_risk, self.events[:, :-1]
        stayed = n[:, 1:] + d
        begin = np.where(stayed > d, n[:, 1:] / np.where(stayed > d, stayed, 1.0), 0.0)
        both = np.stack([np.maximum(begin, 0.0), 1 - d / np.where(n > 0, n, 1.0)[:, :-1]], axis=2)
        return np.sort(np.minimum(np.cumprod(both, axis=1), 1.0), axis=2)

    @property
    def _bounds(self) -> Array:
        # (G, 2) sum w_k S_k and sum w_k S_k-1: no curve with these shares at the ends has another restricted mean
        w, at_end = np.diff(self.ends, prepend=self.begin), self.survival
        at_start = np.where(np.isnan(at_end), np.nan, np.insert(at_end, 0, 1.0, axis=1)[:, :-1])
        return np.sort(np.column_stack([np.nansum(w * at_end, axis=1), np.nansum(w * at_start, axis=1)]), axis=1)


def survival(
    prepared: PreparedMoments, outcome: str, *, by: str | None = None, confidence_level: float = 0.95
) -> Survival:
    """Kaplan-Meier curves of a crossed attribute, intervals of time by whether the event came; by group, with a test.

    Args:
        prepared: a release of moments.
        outcome: the crossed attribute; the first level of its second part means no event.
        by: an attribute with levels, of any member, whose groups are compared.
        confidence_level: between 0 and 1.

    Raises:
        NoTablesError: the release has no moments, or an attribute has no levels.
        LevelError: the outcome is not time by event, or is also `by`.
        UnknownAttributeError: the release has no attribute of that name.
    """
    sums = CrossProducts.of(prepared)
    times, (time, ended) = time_by_event(prepared, outcome)
    if by == outcome:
        raise LevelError(f"{outcome!r} is named twice", remedy="Name another attribute for the groups.")
    cells = cells_of(sums, outcome, by)
    every, ends = list(range(len(cells.rows))), np.array([*times.cuts, times.upper])
    z = normal_reach(confidence_level)
    kinds, event = len(ended.levels), event_of(ended)
    curves = [_curve(cells.at(every, [g]), times.lower, ends, z) for g in range(len(cells.columns))]
    reached = [int(np.isfinite(curve["survival"]).sum()) for curve in curves]
    sure = [g for g, k in enumerate(reached) if k]
    statistic, degrees = log_rank(cells.at(every, sure), kinds) if len(sure) > 1 else (np.nan, 0)
    p_value = float(chdtrc(degrees, statistic))
    whose, named = about_tables(prepared, (outcome, by) if by else (outcome,)), cells.columns
    together = [k for g in range(len(named)) for k in left_together(cells.at(every, [g]), times, kinds)]
    if by:
        named = tuple(f"{by} = {name}" for name in named)
    made = {name: np.array([curve[name] for curve in curves]) for name in curves[0]}
    return Survival(
        outcome=outcome,
        by=by,
        time=time.name,
        event=event,
        unit=times.unit,
        intervals=times.levels,
        begin=times.lower,
        ends=ends,
        groups=cells.columns,
        causes=ended.levels[1:] if kinds > _ONE_EVENT else (),
        **made,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=p_value,
        confidence_level=confidence_level,
        sentence=_sentence(event, named, made["survival"], (ends, times.unit, p_value)),
        warnings=(*_few(named, reached, times.levels), *together_words(together, times), *whose.doubts),
        subjects=whose.notes,
    )


def _curve(cells: Cells, begin: float, ends: Array, z: float) -> dict[str, Any]:
    """What `Survival` has for one group, from one column of cells, rows c_0, d_10, d_20, ..., c_1, d_11, ...

    The first intervals have shares as long as enough people are at risk; the last interval has none.
    To first order d log S_k = - sum over j <= k of d h_j / (1 - h_j), d h_j = (d d_j - h_j d m_j) / m_j with
    m_j = n_j - c_j / 2: drawing alone gives Greenwood's variance. `restricted_mean` has the restricted mean.
    """
    K = len(ends)
    risk, left, *each = _sums_of(K, len(cells.rows) // K)
    event = np.sum(each, axis=0)
    x, covariance = cells.counts[:, 0], cells.covariance()
    n, m, d = risk @ x, left @ x, event @ x
    sampled = np.sqrt(np.diag(mapped(risk, covariance)))
    enough = (n > ENOUGH * sampled) & (m > 0) & (d < m)
    enough[-1] = False
    reached = int(enough.argmin())
    m, h = m[:reached], (d[:reached] / m[:reached])
    slopes = (event[:reached] - h[:, None] * left[:reached]) / m[:, None]
    J = -np.cumsum(slopes / (1 - h)[:, None], axis=0)
    S = np.exp(np.cumsum(np.log1p(-h)))
    reach = z * np.sqrt(np.diag(mapped(J, covariance)))
    shares, bands = np.full(K, np.nan), np.full((K, 2), np.nan)
    shares[:reached] = np.minimum(S, 1.0)
    bands[:reached] = np.minimum(np.column_stack([S * np.exp(-reach), S * np.exp(reach)]), 1.0)
    competing = each if len(each) > 1 else []
    incidence, reaches = np.full((len(competing), K), np.nan), np.full((len(competing), K, 2), np.nan)
    before, moved = np.append(1.0, S)[:reached], np.vstack([np.zeros_like(J[:1]), J])[:reached]
    for e, of in enumerate(competing):
        # I_k = sum over j <= k of S_j-1 h_ej, and its interval by log(1 - I), as log S has one
        h_of = (of @ x)[:reached] / m
        own = (of[:reached] - h_of[:, None] * left[:reached]) / m[:, None]
        share = np.cumsum(before * h_of)
        share = np.where(share < 1, share, 1 - S)  # noise may leave less than nobody with the other events
        along = np.cumsum(before[:, None] * (own + h_of[:, None] * moved), axis=0) / (1 - share)[:, None]
        apart = z * np.sqrt(np.diag(mapped(along, covariance)))
        incidence[e, :reached] = np.maximum(share, 0.0)
        reached_to = 1 - (1 - share)[:, None] * np.exp(np.column_stack([apart, -apart]))
        reaches[e, :reached] = np.maximum(reached_to, 0.0)
    w = np.diff(ends[:reached], prepend=begin)
    mean, by_log = restricted_mean(w, S) if reached else (np.nan, np.zeros(0))
    spread = z * np.sqrt(mapped(by_log @ J, covariance)) if reached else np.nan
    return {
        "at_risk": n,
        "at_risk_errors": standard_errors(mapped(risk, cells.noise.covariance)),
        "events": d,
        "survival": shares,
        "survival_intervals": bands,
        "incidence": incidence,
        "incidence_intervals": reaches,
        "restricted_means": mean,
        "restricted_mean_intervals": np.array([mean - spread, mean + spread]),
        "horizons": ends[reached - 1] if reached else np.nan,
    }


def restricted_mean(w: Array, S: Array) -> tuple[float, Array]:
    """The restricted mean with a constant hazard within each interval, and its gradient by log S, (K,).

    It is sum w_k S_k-1 f(a_k), a_k = log(S_k-1 / S_k), f(a) = (1 - exp(-a)) / a: w_k (S_k-1 - S_k) / a_k, with limit
    w_k S_k-1 at a_k = 0. d/d log S_k is w_k (f(a_k) - exp(-a_k)) / a_k S_k-1 of interval k and, of the next one,
    w_k+1 S_k (f + f') with f' = (exp(-a) - f) / a.
    """
    before = np.append(1.0, S[:-1])
    a = np.log(before) - np.log(S)
    small = np.abs(a) < _SMALL
    safe = np.where(small, 1.0, a)
    f = np.where(small, 1 - a / 2, -np.expm1(-safe) / safe)
    slope = np.where(small, a / 3 - 1 / 2, (np.exp(-safe) - f) / safe)
    each = w * before
    return float(each @ f), np.append((each * (f + slope))[1:], 0.0) - each * slope


def _sums_of(K: int, kinds: int) -> tuple[Array, ...]:
    """(K, K kinds) each: n, m and every d_e of rows c_0, d_10, d_20, ..., c_1, d_11, ..."""
    at_risk = np.repeat(np.triu(np.ones((K, K))), kinds, axis=1)
    of_kinds: list[Array] = [np.kron(np.eye(K), kind).astype(np.float64) for kind in np.eye(kinds)]
    return at_risk, at_risk - of_kinds[0] / 2, *of_kinds[1:]


def left_together(cells: Cells, times: Intervals, kinds: int) -> list[int]:
    """The intervals, but the last, in which one group's people leave without an event as if many did so at one time.

    l_k = c_k / (n_k - sum over e of d_ek / 2), of width w_k. Leaving at a uniform time has l_k / w_k equal to
    o_k-1 / w_k-1, o = l / (1 - l), and a rising l_k / w_k; leaving at a constant rate has equal l_k / w_k, and
    smaller ones than the o_k-1 / w_k-1. Here l_k / w_k is clearly more than `_TOGETHER` times both o_k-1 / w_k-1
    and l_k+1 / w_k+1, where these are known.
    """
    K = len(cells.rows) // kinds
    risk, _, *each = _sums_of(K, kinds)
    left, whole = np.kron(np.eye(K), np.eye(kinds)[0]), risk - np.sum(each, axis=0) / 2
    x, covariance = cells.counts[:, 0], cells.covariance()
    known = (risk @ x > ENOUGH * np.sqrt(np.diag(mapped(risk, covariance)))) & (whole @ x > 0)
    known[-1] = False
    reached = int(known.argmin())
    n, w = (whole @ x)[:reached], np.diff(np.array([times.lower, *times.cuts, times.upper]))[:reached]
    share = (left @ x)[:reached] / n
    by = (left[:reached] - share[:, None] * whole[:reached]) / (n * w)[:, None]
    odds, stays = share / (1 - share), 1 - share
    found = []
    for k in np.flatnonzero(share > _MANY):
        if w[k] < _SHORT * w[max(k - 1, 0) : k + 2].max():
            continue
        before = [(odds[k - 1] / w[k - 1], by[k - 1] / stays[k - 1] ** 2)] if k else []
        after = [(share[k + 1] / w[k + 1], by[k + 1])] if k + 1 < reached else []
        more = [
            (share[k] / w[k] - _TOGETHER * rate, mapped(by[k] - _TOGETHER * slope, covariance))
            for rate, slope in before + after
        ]
        if more and all(apart > _SURE * np.sqrt(variance) for apart, variance in more):
            found.append(int(k))
    return found


def together_words(found: Sequence[int], times: Intervals) -> list[str]:
    where = ", ".join(times.levels[k] for k in sorted(set(found)))
    said = (
        f"Far more people leave without the event in {where} than in the intervals beside. If follow-up of many ended "
        "at one time, shares and hazards from there on are wrong: use a study that gives this time a short interval of "
        "its own (docs/questions.md#until-an-event)."
    )
    return [said] if found else []


def log_rank(cells: Cells, kinds: int = _ONE_EVENT) -> tuple[float, int]:
    """The log-rank statistic of G groups that knows the noise, and its degrees of freedom.

    `kinds` is the number of kinds of end: without an event, and one for each event.

    D_g = sum_k d_gk - m_gk d_k / m_k is 0 on average where no group's hazard differs. D^T (V + J N J^T)^-1 D without
    the last group: V of drawing, sum_k d_k (m_k - d_k) / (m_k - 1) (diag(q) - q q^T), q = m_gk / m_k; N of the noise.
    """
    K, G = len(cells.rows) // kinds, len(cells.columns)
    risk, left, *each = _sums_of(K, kinds)
    event = np.sum(each, axis=0)
    n, m, d = (form @ cells.counts for form in (risk, left, event))
    total, ended = m.sum(axis=1), d.sum(axis=1)
    everybody = np.repeat(risk, G, axis=1)
    used = (n.sum(axis=1) > ENOUGH * np.sqrt(np.diag(mapped(everybody, cells.covariance())))) & (total > 1)
    used[-1] = False
    D, V, J = np.zeros(G), np.zeros((G, G)), np.zeros((G, len(cells.rows) * G))
    for k in np.flatnonzero(used):
        q, h = m[k] / total[k], ended[k] / total[k]
        D += d[k] - m[k] * h
        drawn = np.maximum(q, 0.0) / np.maximum(q, 0.0).sum()
        V += max(ended[k], 0.0) * (total[k] - ended[k]) / (total[k] - 1) * (np.diag(drawn) - np.outer(drawn, drawn))
        # d D_g = d d_g - h d m_g - q_g (d d - h d m), with d and m of all groups
        one = event[k] - h * left[k]
        J += np.kron(one, np.eye(G) - q[:, None])
    kept = slice(0, G - 1)
    if not used.any():
        return float("nan"), 0
    covariance = (V + mapped(J, cells.noise.covariance))[kept, kept]
    return float(D[kept] @ np.linalg.solve(covariance, D[kept])), G - 1


def time_by_event(prepared: PreparedMoments, outcome: str) -> tuple[Intervals, tuple[Levelled, Levelled]]:
    """The intervals of a crossed attribute's time, and both its parts. Raises LevelError, UnknownAttributeError."""
    attribute = prepared.attribute(outcome)
    if isinstance(attribute, CategoricalAttribute) and attribute.cross is not None:
        time, ended = attribute.cross
        if time.intervals is not None and ended.intervals is None:
            return time.intervals, attribute.cross
    raise LevelError(
        f"{outcome} is not intervals of time by whether the event came",
        remedy='Propose the study with both crossed: {"name": ..., "cross": [a number with cuts, an attribute with '
        "levels, of which the first is no event]}.",
    )


def event_of(ended: Levelled, event: str | None = None) -> str:
    """One event in words, or all levels but the first, which means no event."""
    return f"{ended.name} = {event or ' or '.join(ended.levels[1:])}"


def cells_of(sums: CrossProducts, outcome: str, by: str | None) -> Cells:
    if by is not None:
        return Cells.of(sums, outcome, by).known()
    return Cells.between(sums, sums.levels(outcome), ((EVERYBODY,), sums.present(outcome)[None])).known()


def _few(groups: tuple[str, ...], reached: list[int], intervals: tuple[str, ...]) -> list[str]:
    found = [f"{name} from {intervals[k]}" for name, k in zip(groups, reached, strict=True) if k < len(intervals) - 1]
    ended = f"Too few people are still at risk ({'; '.join(found)}), so shares end there."
    untested = ", ".join(name for name, k in zip(groups, reached, strict=True) if not k)
    left_out = f" Without any share, and so left out of the test: {untested}." if untested and len(groups) > 1 else ""
    return [ended + left_out] if found else []


def _sentence(event: str, groups: tuple[str, ...], shares: Array, about: tuple[Array, str | None, float]) -> str:
    (ends, unit, p), reached = about, np.isfinite(shares).sum(axis=1)
    if not reached.any():
        return "Noise or few people leave open how many are at risk."
    last = int(reached[reached > 0].min())
    share = [f"{x:.1%} of {name}" for name, x in zip(groups, shares[:, last - 1], strict=True) if np.isfinite(x)]
    if len(share) > _MOST_SAID:
        least, most = np.nanargmin(shares[:, last - 1]), np.nanargmax(shares[:, last - 1])
        share = [f"{shares[least, last - 1]:.1%} of {groups[least]} to {shares[most, last - 1]:.1%} of {groups[most]}"]
    said = f"{', '.join(share)} reach {ends[last - 1]:g}{f' {unit}' if unit else ''} without {event}"
    tested = f"; log-rank p {number_text(p, 'p')}" if len(groups) > 1 and np.isfinite(p) else ""
    without = ", ".join(name for name, k in zip(groups, reached, strict=True) if not k)
    return f"{said}{tested}{f'; too few people have {without}' if without else ''}."
