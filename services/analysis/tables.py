"""A table of two attributes of any parties, with what it says of the population: shares, a test, odds ratios.

Counts c are unbiased sums of a release with noise of known covariance N. What is said of the population counts people
as drawn from it besides: Cov(c) = N + diag(E c), which for shares and ratios is the multinomial law
(docs/questions.md#what-the-intervals-hold).
"""

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import chdtrc, ndtri

from commingle.services.analysis.errors import LevelError
from commingle.services.analysis.intervals import fieller, mapped
from commingle.services.fit.subjects import about_tables
from commingle.services.plotting import INK, draw_intervals, new_axes, plain_label
from commingle.services.results import Result, ResultColumn, ResultTable, number_text
from commingle.shared.documents.schema import GAP
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.prepared import Array, PreparedMoments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INTERVALS = "Intervals are for the population, and count the privacy noise and the drawing of these people."
ENOUGH = 5.0
"""Standard errors, of noise and sampling, that a count is above none for intervals and tests to hold (measured)."""


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Counts of pairs of levels.

    Attributes:
        rows, columns: labels, a gap last.
        counts: (L1, L2) unbiased, so that some may be negative.
        noise: (L1 L2, L1 L2) the covariance of their noise.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Array
    noise: Array

    @classmethod
    def of(cls, sums: CrossProducts, row: str, column: str) -> Self:
        """Those of a release. Raises NoTablesError, UnknownAttributeError."""
        (rows, left), (columns, right) = sums.levels(row), sums.levels(column)
        counts, noise = sums.sums(products(left, right))
        return cls(rows, columns, counts.reshape(len(rows), len(columns)), noise)

    @property
    def errors(self) -> Array:
        """(L1, L2) standard errors of the noise."""
        return np.sqrt(np.maximum(np.diag(self.noise), 0.0)).reshape(self.counts.shape)

    def known(self) -> "Cells":
        """Those of people both of whose cells are known."""
        rows, columns = ([i for i, label in enumerate(labels) if label != GAP] for labels in (self.rows, self.columns))
        return self.at(rows, columns)

    def at(self, rows: list[int], columns: list[int]) -> "Cells":
        """Some rows and columns."""
        places = np.add.outer(np.array(rows, np.intp) * len(self.columns), np.array(columns, np.intp)).ravel()
        return Cells(
            tuple(self.rows[i] for i in rows),
            tuple(self.columns[j] for j in columns),
            self.counts[rows][:, columns],
            self.noise[np.ix_(places, places)],
        )

    def covariance(self, expected: Array | None = None) -> Array:
        """Of the counts as a sample of the population: noise, and a Poisson law of the expected counts."""
        drawn = np.maximum(self.counts if expected is None else expected, 0.0)
        return np.asarray(self.noise + np.diag(drawn.ravel()))

    def filled(self) -> "Cells":
        """Without levels of which there may be hardly anybody."""
        rows, columns = self._enough(0), self._enough(1)
        return self.at(rows, columns)

    def _enough(self, axis: int) -> list[int]:
        size = self.counts.shape[axis]
        which = np.indices(self.counts.shape)[axis].ravel()
        sums = np.equal.outer(np.arange(size), which) * 1.0
        counts, variances = sums @ self.counts.ravel(), np.diag(mapped(sums, self.covariance()))
        return [i for i in range(size) if counts[i] > ENOUGH * np.sqrt(variances[i])]


def independence(cells: Cells) -> tuple[float, int]:
    """The chi-squared statistic of independence that knows the noise, and its degrees of freedom.

    With r, s and T the sums of rows, of columns and of all, D_ab = c_ab - r_a s_b / T is 0 on average where nothing is
    associated. D^T Cov(D)^-1 D, Cov(D) by what is then expected, without the last row and column; a score test.
    """
    c = cells.counts
    rows, columns, total = c.sum(axis=1), c.sum(axis=0), c.sum()
    expected = np.outer(rows, columns) / total
    a, b = np.indices(c.shape).reshape(2, -1)
    same_row, same_column = np.equal.outer(a, a), np.equal.outer(b, b)
    # dD_ab / dc_kl = [ab = kl] - [a = k] s_b / T - [b = l] r_a / T + r_a s_b / T^2
    J = (same_row & same_column) - same_row * (columns[b] / total)[:, None] - same_column * (rows[a] / total)[:, None]
    J = J + (expected.ravel() / total)[:, None]
    kept = (a < c.shape[0] - 1) & (b < c.shape[1] - 1)
    D, degrees = (c - expected).ravel()[kept], int(kept.sum())
    if degrees == 0:
        return float("nan"), 0
    return float(D @ np.linalg.solve(mapped(J[kept], cells.covariance(expected)), D)), degrees


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CrossTable(Result):
    """Counts of two attributes, and how one level of the second goes with levels of the first.

    Attributes:
        row, column: names of the attributes.
        rows, columns: their levels, a gap last.
        counts: (L1, L2), negative where noise is larger than a count.
        count_errors: (L1, L2) standard errors of the noise in them.
        event: the level of `column` whose shares are compared.
        reference: the level of `row` with which others are compared.
        compared: levels of `row` that are known, (R,).
        shares: (R,) of those with the event among all with each level whose `column` is known.
        share_intervals, difference_intervals, ratio_intervals, odds_intervals: (R, 2).
        differences, ratios, odds_ratios: (R,) of shares against the reference, NaN at the reference itself.
        statistic, degrees_of_freedom, p_value: of the test of independence that knows the noise.
        confidence_level: of all intervals, which are for the population that these people are drawn from.
        sentence: what the table says, in one.
        warnings: sentences for people.
        subjects: where they are keyed, how many parties hold and share.
        noise: (L1 L2, L1 L2) the covariance of the noise in the counts.
    """

    row: str
    column: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    counts: Array
    count_errors: Array
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
    confidence_level: float
    sentence: str
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]
    noise: Array = field(repr=False)

    def table(self) -> ResultTable:
        """One row for each level of `row`: counts by level of `column`, then shares and ratios."""
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
        return ResultTable(
            title=f"{self.row} by {self.column}",
            facts=(
                ("people who count" if self.subjects else "people", f"{self.counts.sum():,.0f}"),
                *facts_of_test("chi-squared", self.statistic, self.degrees_of_freedom, self.p_value),
                ("intervals", f"{100 * self.confidence_level:g} %"),
            ),
            heading=self.row,
            labels=self.rows,
            columns=(*counted, *measured),
            notes=(
                self.sentence,
                f"Rows are compared with {self.row} = {self.reference}.",
                f"Privacy noise in counts has a standard error of {_span(self.count_errors)}. {INTERVALS}",
                *self.subjects,
            ),
            warnings=self.warnings,
        )

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the share with the event at each level of `row`, with its interval; on `ax` or a new figure."""
        if ax is None:
            ax = new_axes(rows=len(self.compared))
        draw_intervals(ax, tuple(map(plain_label, self.compared)), 100 * self.shares, 100 * self.share_intervals)
        event, row = plain_label(f"{self.column} = {self.event}"), plain_label(self.row)
        ax.set_title(f"{event} by {row}", fontsize=11, color=INK)
        ax.set_xlabel(f"% with {event} ({100 * self.confidence_level:g} % intervals)", fontsize=9)
        ax.set_xlim(left=0)
        return ax


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
        event: a level of `column`; the last where left out.
        reference: a level of `row`; the first where left out.
        confidence_level: between 0 and 1.

    Raises:
        NoTablesError: no moments, or an attribute without levels.
        UnknownAttributeError, LevelError: a name that there is not.
    """
    sums = CrossProducts.of(prepared)
    cells = Cells.of(sums, row, column)
    if row == column:
        raise LevelError(f"{row!r} is named twice", remedy="Name two attributes.")
    known = cells.known()
    place = _place(known.columns, event, column, -1)
    base = _place(known.rows, reference, row, 0)
    z = float(ndtri((1 + confidence_level) / 2))
    whose = about_tables(prepared, (row, column))
    filled = known.filled()
    statistic, degrees = independence(filled) if min(filled.counts.shape) > 1 else (float("nan"), 0)
    made = _compared(known, place, base, z)
    few = tuple(f"{row} = {label}" for label in known.rows if label not in filled.rows)
    few += tuple(f"{column} = {label}" for label in known.columns if label not in filled.columns)
    return CrossTable(
        row=row,
        column=column,
        rows=cells.rows,
        columns=cells.columns,
        counts=cells.counts,
        count_errors=cells.errors,
        event=known.columns[place],
        reference=known.rows[base],
        compared=known.rows,
        **made,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=float(chdtrc(degrees, statistic)) if degrees else float("nan"),
        confidence_level=confidence_level,
        sentence=_sentence(row, f"{column} = {known.columns[place]}", known.rows, base, made),
        warnings=(
            *_few(few),
            *whose.doubts,
        ),
        subjects=whose.notes,
        noise=cells.noise,
    )


def facts_of_test(name: str, statistic: float, degrees: int, p_value: float) -> tuple[tuple[str, str], ...]:
    """A test as facts of a table."""
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


def _few(levels: tuple[str, ...]) -> list[str]:
    if not levels:
        return []
    who = f"Noise leaves open whether there is anybody with {', '.join(levels)}."
    return [f"{who} Do not rely on what is said of them; the test leaves them out."]


def _compared(cells: Cells, event: int, base: int, z: float) -> dict[str, Array]:
    """Shares, and their differences and ratios, by levels of rows."""
    size, covariance = len(cells.rows), cells.covariance()
    found: dict[str, list[Any]] = {name: [] for name in _MEASURES}
    for i in range(size):
        for name, value in _against(cells.counts, covariance, (i, base), event, z).items():
            found[name].append(value)
    return {name: np.array(values, np.float64) for name, values in found.items()}


_MEASURES = (
    "shares",
    "share_intervals",
    "differences",
    "difference_intervals",
    "ratios",
    "ratio_intervals",
    "odds_ratios",
    "odds_intervals",
)


def _against(counts: Array, covariance: Array, rows: tuple[int, int], event: int, z: float) -> dict[str, Any]:
    """Of row i against row j: everything follows from (e_i, n_i, e_j, n_j), those with the event and all."""
    i, j = rows
    which = np.zeros((4, *counts.shape))
    which[0, i, event] = which[2, j, event] = 1.0
    which[1, i] = which[3, j] = 1.0
    which = which.reshape(4, -1)
    e1, n1, e0, n0 = (which @ counts.ravel()).tolist()
    C = mapped(which, covariance)
    share = (e1 / n1, fieller(e1, n1, C[:2, :2], z)) if n1 > 0 else (np.nan, (0.0, 1.0))
    found = {"shares": share[0], "share_intervals": np.minimum(share[1], 1.0)}
    unknown = {"differences": (np.nan, -1.0, 1.0), "ratios": (np.nan, 0.0, inf), "odds_ratios": (np.nan, 0.0, inf)}
    if i == j:
        unknown = dict.fromkeys(unknown, (np.nan, np.nan, np.nan))
    elif min(n1, n0) > 0:
        p1, p0 = e1 / n1, e0 / n0
        # d p = (d e - p d n) / n
        J = np.array([[1 / n1, -p1 / n1, 0, 0], [0, 0, 1 / n0, -p0 / n0]])
        V = mapped(J, C)
        reach = z * float(np.sqrt(V[0, 0] - 2 * V[0, 1] + V[1, 1]))
        unknown["differences"] = (p1 - p0, max(p1 - p0 - reach, -1.0), min(p1 - p0 + reach, 1.0))
        unknown["ratios"] = (p1 / p0 if p0 > 0 else np.nan, *fieller(p1, p0, V, z))
        # odds ratio u / v, u = p1 (1 - p0), v = p0 (1 - p1)
        u, v = p1 * (1 - p0), p0 * (1 - p1)
        K = np.array([[1 - p0, -p1], [-p0, 1 - p1]])
        unknown["odds_ratios"] = (u / v if v > 0 else np.nan, *fieller(u, v, mapped(K, V), z))
    singular = {"differences": "difference", "ratios": "ratio", "odds_ratios": "odds"}
    for name, (value, low, high) in unknown.items():
        found[name] = value
        found[f"{singular[name]}_intervals"] = np.array([low, high])
    return found


def _sentence(of: str, said: str, rows: tuple[str, ...], base: int, made: dict[str, Array]) -> str:
    """The comparison that stands out most, in words: levels of an attribute, and the event."""
    bounded = np.isfinite(made["odds_intervals"]).all(axis=1) & (made["odds_ratios"] > 0)
    if not bounded.any():
        return f"Noise leaves open how {said} goes with {of}."
    strength = np.abs(np.log(np.where(bounded, made["odds_ratios"], 1.0)))
    i = int(np.argmax(np.where(bounded, strength, -1.0)))
    (first, second), (low, high) = made["shares"][[i, base]], made["odds_intervals"][i]
    shares = f"{first:.1%} of those with {of} = {rows[i]} have {said}, and {second:.1%} with {of} = {rows[base]}"
    return f"About {shares}: an odds ratio of {made['odds_ratios'][i]:.3g}, {low:.3g} to {high:.3g} in the population."
