"""A table of two attributes of any members, with what it says of the population: shares, a test, odds ratios.

Counts c are unbiased sums of a release with noise of known covariance N. Intervals for the population also count that
people are drawn from it: Cov(c) = N + diag(E c), which for shares and ratios is the multinomial law
(docs/design/inference.md#tables-and-curves).

Joint shares have less error than counts on average. They are never negative, and an attribute has the same margin in
every table. By empirical Bayes (Efron and Morris, 1973), what a table has beyond independence shrinks by how much of it
is noise. The price is a bias towards no association, so intervals and tests are of the unbiased counts
(docs/questions.md).
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from commingle.services.errors import LevelError
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, NEGATIVE, normal_reach, percent
from commingle.services.plotting import Axes, Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable, number_text
from commingle.shared.estimation.cells import Cells, level_shares
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array, inverse_form
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import compared

JOINT = (
    "Shares of all people are estimates with less error than counts where noise is large. None is negative, and an "
    "attribute has the same ones in every table. They lean towards no association. Intervals are of the counts, which "
    "are unbiased."
)


def independence(cells: Cells) -> tuple[float, int]:
    """The chi-squared statistic of independence that knows the noise, and its degrees of freedom; NaN for one level.

    It is the score test D^T Cov(D)^-1 D of `_Departures` without the last row and column, which follow from the others.
    """
    if min(cells.counts.shape) <= 1:
        return float("nan"), 0
    found = _Departures(cells)
    scale = np.maximum(found.expected, 0.0) + cells.noise.variances  # noise makes counts below zero

    def covaried(w: Array) -> Array:
        return found.covaried(np.pad(w, ((0, 1), (0, 1))))[:-1, :-1]

    D = found.values[:-1, :-1]
    return inverse_form(covaried, scale[:-1, :-1], D), D.size


def trend(cells: Cells, order: tuple[tuple[str, ...], tuple[str, ...]]) -> float:
    """The p value of a test, which knows the noise, for a trend across ordered levels; NaN for two levels by two.

    With s_a and t_b the places of levels in their order, U = sum_ab s_a t_b D_ab of `_Departures`; U^2 / Var(U) has one
    degree of freedom (Mantel, 1963; for an event or none, Cochran, 1954, and Armitage, 1955).
    """
    if min(cells.counts.shape) < 2 or max(cells.counts.shape) <= 2:  # noqa: PLR2004 - as above
        return float("nan")
    s, t = ([said.index(label) for label in of] for said, of in zip(order, (cells.rows, cells.columns), strict=True))
    found, weights = _Departures(cells), np.outer(s, t).astype(np.float64)
    return float(chdtrc(1, np.sum(weights * found.values) ** 2 / np.sum(weights * found.covaried(weights))))


class _Departures:
    """D_ab = c_ab - r_a s_b / T with r, s and T the sums of rows, of columns and of all, and Cov(D).

    D is 0 on average where nothing is associated. Cov(D) uses the counts that are then expected.
    """

    def __init__(self, cells: Cells) -> None:
        c, self._noise = cells.counts, cells.noise
        self._rows, self._columns, self._total = c.sum(axis=1), c.sum(axis=0), c.sum()
        self.expected = np.outer(self._rows, self._columns) / self._total
        self.values = c - self.expected

    def covaried(self, w: Array) -> Array:
        """Cov(D) w for w (L1, L2), as J (N + diag(expected)) J^T w."""
        # dD_ab / dc_kl = [ab = kl] - [a = k] s_b / T - [b = l] r_a / T + r_a s_b / T^2
        r, s = self._rows / self._total, self._columns / self._total
        v = w - (w @ s)[:, None] - r @ w + r @ w @ s
        v = self._noise.along(v) + np.maximum(self.expected, 0.0) * v
        return np.asarray(v - np.outer(v.sum(axis=1), s) - np.outer(r, v.sum(axis=0)) + v.sum() * np.outer(r, s))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CrossTable(Drawn):
    """Counts of two attributes, and how one level of the second goes with levels of the first.

    Attributes:
        rows, columns: levels of `row` and of `column`, with missing cells last.
        counts: (L1, L2), negative where noise is larger than a count.
        count_errors: (L1, L2) standard errors of the noise in them.
        joint_shares: (L1, L2) shares of all people, with sum 1. On average over tables they are nearer to the truth
            than counts, and biased towards no association.
        event: the level of `column` whose shares are compared.
        reference: the level of `row` with which others are compared.
        compared: the R known levels of `row`.
        shares: (R,) the share with the event among people of each level whose `column` is known.
        share_intervals, difference_intervals, ratio_intervals, odds_intervals: (R, 2) for the population.
        differences, ratios, odds_ratios: (R,) of shares against the reference, NaN at the reference itself.
        statistic, degrees_of_freedom, p_value: of the test of independence, which knows the noise.
        trend_p_value: of the test for a trend across levels in the study's order; NaN for two levels by two.
        cells: the counts with the law of their noise.
    """

    row: str
    column: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Array
    count_errors: Array
    joint_shares: Array
    event: str
    reference: str
    compared: tuple[str, ...]
    shares: Array
    share_intervals: Array
    differences: Array
    difference_intervals: Array
    ratios: Array
    ratio_intervals: Array
    odds_ratios: Array
    odds_intervals: Array
    statistic: float
    degrees_of_freedom: int
    p_value: float
    trend_p_value: float
    confidence_level: float
    sentence: str
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]
    cells: Cells = field(repr=False)

    @property
    def noise(self) -> Array:
        """(L1 L2, L1 L2) the covariance of the noise in the counts."""
        return self.cells.noise.covariance

    def table(self) -> ResultTable:
        places = [self.compared.index(label) if label in self.compared else None for label in self.rows]

        def at(values: Array) -> Array:
            nothing = np.full_like(values[0], np.nan)
            return np.array([nothing if place is None else values[place] for place in places])

        measured = [
            ResultColumn(name, at(values), form, interval=at(intervals))
            for name, form, values, intervals in (
                (f"share with {self.event}", ".1%", self.shares, self.share_intervals),
                ("risk difference", ".1%", self.differences, self.difference_intervals),
                ("risk ratio", ".3g", self.ratios, self.ratio_intervals),
                ("odds ratio", ".3g", self.odds_ratios, self.odds_intervals),
            )
        ]
        counted = [ResultColumn(name, self.counts[:, j], ",.0f") for j, name in enumerate(self.columns)]
        joint = [ResultColumn(f"{name} of all", self.joint_shares[:, j], ".1%") for j, name in enumerate(self.columns)]
        return ResultTable(
            title=f"{self.row} by {self.column}",
            facts=(
                ("people who count" if self.subjects else "people", f"{self.counts.sum():,.0f}"),
                *facts_of_test("chi-squared", self.statistic, self.degrees_of_freedom, self.p_value),
                *(() if np.isnan(self.trend_p_value) else (("p of a trend", number_text(self.trend_p_value, "p")),)),
                ("intervals", percent(self.confidence_level)),
            ),
            heading=self.row,
            labels=self.rows,
            columns=(*counted, *joint, *measured),
            notes=(
                self.sentence,
                f"Rows are compared with {self.row} = {self.reference}.",
                f"Privacy noise in counts has a standard error of {_span(self.count_errors)}. {INTERVALS}",
                *((NEGATIVE,) if (self.counts < 0).any() else ()),
                JOINT,
                *self.subjects,
            ),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Intervals, ...]:
        """Shares with the event by level of `row`, and odds ratios of all levels but the reference."""
        event, sure = f"{self.column} = {self.event}", f"({percent(self.confidence_level)} intervals)"
        title = f"{event} by {self.row}"
        others = [i for i, label in enumerate(self.compared) if label != self.reference]
        shares = Intervals(
            title=title,
            axis=f"% with {event} {sure}",
            labels=self.compared,
            values=self.shares,
            intervals=self.share_intervals,
            of="shares",
        )
        ratios = Intervals(
            title=title,
            axis=f"odds ratio against {self.row} = {self.reference} {sure}",
            labels=[self.compared[i] for i in others],
            values=self.odds_ratios[others],
            intervals=self.odds_intervals[others],
            of="ratios",
        )
        return shares, ratios

    def plot_ratios(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the odds ratio of each level of `row` but the reference; on `ax` or a new figure."""
        return self.pictures()[1].draw(ax)


def cross_table(
    prepared: PreparedMoments,
    row: str,
    column: str,
    *,
    event: str | None = None,
    reference: str | None = None,
    confidence_level: float = 0.95,
) -> CrossTable:
    """Count two attributes, and compare the shares of one level of the second between levels of the first.

    Args:
        prepared: a release of moments.
        row: an attribute with levels.
        column: another.
        event: a level of `column`; the last where left out. Other levels that hardly anybody has count as one.
        reference: a level of `row`; the first where left out.
        confidence_level: between 0 and 1.

    Raises:
        NoTablesError: the release has no moments, or an attribute has no levels.
        UnknownAttributeError, LevelError: an attribute or a level does not exist.
    """
    sums = CrossProducts.of(prepared)
    whole = Cells.balanced(sums, row, column)
    if row == column:
        raise LevelError(f"{row!r} is named twice", remedy="Name two attributes.")
    plain = whole.known()
    event = plain.columns[_place(plain.columns, event, column, -1)]
    reference = plain.rows[_place(plain.rows, reference, row, 0)]
    cells = whole.merged(reference, event)
    (_, one), (_, other) = whole.together(0, reference), whole.together(1, event)
    known = cells.known()
    place, base = known.columns.index(event), known.rows.index(reference)
    z = normal_reach(confidence_level)
    whose = about_tables(prepared, (row, column))
    filled = known.filled()
    statistic, degrees = independence(filled)
    made = compared(known, place, base, z)
    few = tuple(f"{row} = {label}" for label in known.rows if label not in filled.rows)
    few += tuple(f"{column} = {label}" for label in known.columns if label not in filled.columns)
    return CrossTable(
        row=row,
        column=column,
        rows=cells.rows,
        columns=cells.columns,
        counts=cells.counts,
        count_errors=cells.errors,
        joint_shares=one @ joint_shares(sums, row, column, whole) @ other.T,
        event=event,
        reference=reference,
        compared=known.rows,
        **made,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        trend_p_value=trend(plain.filled(), (plain.rows, plain.columns)),
        confidence_level=confidence_level,
        sentence=_sentence(
            row, f"{column} = {event}", known.rows, base, filled=np.isin(known.rows, filled.rows), made=made
        ),
        warnings=(
            *counted_as_one((row, column), plain, known),
            *too_few(few),
            *whose.doubts,
        ),
        subjects=whose.notes,
        cells=cells,
    )


def facts_of_test(name: str, statistic: float, degrees: int, p_value: float) -> tuple[tuple[str, str], ...]:
    if np.isnan(statistic):
        return ()
    return (name, f"{statistic:.1f}"), ("degrees of freedom", f"{degrees}"), ("p", number_text(p_value, "p"))


def _place(labels: tuple[str, ...], named: str | None, attribute: str, default: int) -> int:
    if named is None:
        return default % len(labels)
    if named not in labels:
        raise LevelError(f"{attribute} has no level {named!r}", remedy=f"Its levels are: {', '.join(labels)}.")
    return labels.index(named)


def _span(errors: Array) -> str:
    least, most = f"{errors.min():,.3g}", f"{errors.max():,.3g}"
    return least if least == most else f"{least} to {most} people"


def counted_as_one(names: tuple[str, str], before: Cells, after: Cells) -> list[str]:
    """Warnings on the levels of two attributes that `Cells.merged` has put together, with how many people have them."""
    said, sizes = [], after.counts.shape
    for axis, (old, new) in enumerate(((before.rows, after.rows), (before.columns, after.columns))):
        gone = [label for label in old if label not in new]
        for place in (i for i, label in enumerate(new) if label not in old):
            weights = [np.eye(size)[[place]] if a == axis else np.ones((1, size)) for a, size in enumerate(sizes)]
            people, reach = (
                (weights[0] @ after.counts @ weights[1].T).item(),
                2 * after.noise.of(*weights).errors.item(),
            )
            low, high = (max(round(people + by), 0) for by in (-reach, reach))
            who = f"There are too few people with {names[axis]} = {', '.join(gone)}"
            said.append(f"{who}: these levels count as one, other, of {low:,} to {high:,} people.")
    return said


def too_few(levels: tuple[str, ...]) -> list[str]:
    who = f"There are too few people with {', '.join(levels)}."
    return [f"{who} Do not rely on their figures; the test leaves them out."] if levels else []


def _sentence(
    of: str, said: str, rows: tuple[str, ...], base: int, *, filled: NDArray[np.bool_], made: dict[str, Array]
) -> str:
    bounded = tells(made["odds_intervals"]) & filled & filled[base]
    if not bounded.any():
        return f"Noise or few people leave open how {said} goes with {of}."
    # the difference of shares in widths of its interval to the side of 0
    d, ends = made["differences"], made["difference_intervals"]
    reach = np.where(d > 0, d - ends[:, 0], ends[:, 1] - d)
    i = int(np.argmax(np.where(bounded, np.abs(d) / np.maximum(reach, _TINY), -1.0)))
    first, second = made["shares"][[i, base]]
    shares = f"{first:.1%} of those with {of} = {rows[i]} have {said}, and {second:.1%} with {of} = {rows[base]}"
    low, high = made["odds_intervals"][i]
    if np.isinf(high):
        return f"About {shares}: an odds ratio of at least {low:.3g} in the population."
    return f"About {shares}: an odds ratio of {made['odds_ratios'][i]:.3g}, {low:.3g} to {high:.3g} in the population."


def tells(intervals: Array) -> NDArray[np.bool_]:
    """Which intervals (L, 2) of ratios have an upper end, or lie above 1."""
    return np.asarray(np.isfinite(intervals[:, 1]) | (intervals[:, 0] > 1))


_LEAST, _STEPS = 1e-5, 121
_ROUNDS = 50
_TINY = np.finfo(np.float64).tiny


def joint_shares(sums: CrossProducts, row: str, column: str, cells: Cells) -> Array:
    """(L1, L2) shares of everybody with each pair of levels of two attributes, with sum 1.

    Its margins are the shares r and s of each attribute among all people of its member, whatever it is crossed with.
    """
    r, s = (_law(level_shares(sums, name)) for name in (row, column))
    return _with_margins(np.outer(r, s) + _beyond_independence(cells, r, s), r, s)


def _law(shares: Array) -> Array:
    found = np.maximum(shares, 0.0) if (shares > 0).any() else np.ones_like(shares)
    return np.asarray(found / found.sum())


def _beyond_independence(cells: Cells, r: Array, s: Array) -> Array:
    """E[k | D] D with k = t q / (t q + v), for D of N(0, t q + v) in each cell and the root of t uniform up to 1.

    Cells are not independent: together they count as (L1 - 1)(L2 - 1), their degrees of freedom.
    D = (I - r' 1') c (I - 1 s'') / T with the counts' own margins r' and s'', v its noise, q = r s (1 - r)(1 - s).
    """
    total = max(float(cells.counts.sum()), 1.0)
    A, B = (
        np.eye(len(sums)) - np.outer(sums / total, np.ones(len(sums)))
        for sums in (cells.counts.sum(axis=1), cells.counts.sum(axis=0))
    )
    D, v = A @ cells.counts @ B.T / total, cells.noise.of(A, B).variances / total**2
    q = np.outer(r * (1 - r), s * (1 - s))
    free = (len(r) - 1) * (len(s) - 1) / D.size
    steps = np.geomspace(_LEAST, 1.0, _STEPS).tolist()

    def surprise(t: float) -> float:
        variance = np.maximum(t * q + v, _TINY)
        return float(free * np.sum(np.log(variance) + D**2 / variance) - np.log(t))

    found = np.array([surprise(t) for t in steps])
    chances = np.exp((found.min() - found) / 2)
    kept = sum(chance * t * q / np.maximum(t * q + v, _TINY) for chance, t in zip(chances, steps, strict=True))
    return np.asarray(kept / chances.sum() * D)


def _with_margins(shares: Array, r: Array, s: Array) -> Array:
    """Shares above 0 with these margins, by scaling rows and columns in turn (Deming and Stephan, 1940)."""
    found = np.maximum(shares, 0.0)
    for _ in range(_ROUNDS):
        found *= (r / np.maximum(found.sum(axis=1), _TINY))[:, None]
        found *= s / np.maximum(found.sum(axis=0), _TINY)
    return np.asarray(found / found.sum())
