"""Who is in the data: levels and means of every attribute, by group, as in the first table of a clinical paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from commingle.services.analysis.tables import independence, too_few, trend
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import INTERVALS, NEGATIVE, around, normal_reach, percent
from commingle.services.plotting import Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import GAP, NumericAttribute
from commingle.shared.errors import NoTablesError
from commingle.shared.estimation.cells import ENOUGH, Cells
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import names_of
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import mapped, share_of

_ONE_DEVIATION = (
    "Intervals and tests of means take the standard deviation to be the same in every group: the interval of a small "
    "group that spreads more is too short."
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Description(Drawn):
    """The people of a release: a line for each level and for each number, a column for each of G groups.

    Attributes:
        by: the attribute whose levels are the groups; None if everybody is one group.
        people: (G,) how many people each group has.
        counts: (lines, G) how many people each line counts.
        values: (lines, G) shares of levels, or means of numbers in original units.
        intervals: (lines, G, 2) for the population.
        deviations: (lines,) standard deviations of numbers, 0 where noise hides how much they vary; NaN for levels.
        p_values: (lines,) of tests that know the noise, at an attribute's first line.
        trend_p_values: (lines,) of tests for a trend across groups and levels in the study's order.
    """

    by: str | None
    groups: tuple[str, ...]
    people: Array
    lines: tuple[str, ...]
    counts: Array
    values: Array
    intervals: Array
    deviations: Array
    p_values: Array
    trend_p_values: Array
    confidence_level: float
    warnings: tuple[str, ...]
    subjects: tuple[str, ...]

    def table(self) -> ResultTable:
        columns: list[ResultColumn] = []
        forms = tuple(".1%" if np.isnan(deviation) else ".4g" for deviation in self.deviations)
        for g, name in enumerate(self.groups):
            of = f"{name}: " if self.by else ""
            columns += [
                ResultColumn(f"{of}people", self.counts[:, g], ",.0f"),
                ResultColumn(f"{of}share or mean", self.values[:, g], forms, interval=self.intervals[:, g]),
            ]
        columns.append(
            ResultColumn(
                "sd of everybody" if self.by else "sd", np.where(self.deviations > 0, self.deviations, np.nan), ".3g"
            )
        )
        if self.by:
            columns.append(ResultColumn("p", self.p_values, "p"))
        if not np.isnan(self.trend_p_values).all():
            columns.append(ResultColumn("p of a trend", self.trend_p_values, "p"))
        everybody = "the people of a group" if self.by else "the people"
        whose = f"{everybody} whom the attribute's member holds" if self.subjects else everybody
        whose += ", missing cells among them: the sum of the attribute's lines"
        groups = zip(self.groups, self.people.tolist(), strict=True)
        counted = " · ".join(f"{name} {n:,.0f}" if self.by else f"{n:,.0f}" for name, n in groups)
        return ResultTable(
            title=self._title,
            facts=(
                ("people who count" if self.subjects else "people", counted),
                ("intervals", percent(self.confidence_level)),
            ),
            heading="attribute",
            labels=self.lines,
            columns=tuple(columns),
            notes=(
                f"Shares are of {whose}; means are of those who have the number.",
                *((_ONE_DEVIATION,) if self.by and (self.deviations > 0).any() else ()),
                *((NEGATIVE,) if (self.counts < 0).any() else ()),
                INTERVALS,
                *self.subjects,
            ),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Intervals, ...]:
        shares = np.flatnonzero(np.isnan(self.deviations))
        whose = "of the people of a group" if self.by else "of everybody"
        picture = Intervals(
            title=self._title,
            axis=f"% {whose} ({percent(self.confidence_level)} intervals)",
            labels=[self.lines[i] for i in shares],
            groups=[f"{self.by} = {group}" for group in self.groups],
            values=self.values[shares],
            intervals=self.intervals[shares],
            of="shares",
        )
        return (picture,)

    @property
    def _title(self) -> str:
        return "Who is in the data" + (f", by {self.by}" if self.by else "")


class _Line(NamedTuple):
    label: str
    counts: Array
    values: Array
    intervals: Array
    deviation: float = float("nan")
    p_value: float = float("nan")
    trend_p_value: float = float("nan")


def describe(
    prepared: PreparedMoments,
    attributes: str | Sequence[str] | None = None,
    *,
    by: str | None = None,
    confidence_level: float = 0.95,
) -> Description:
    """Describe the people of a release of moments.

    Args:
        prepared: the release.
        attributes: which attributes to describe; all but `by` where left out.
        by: an attribute with levels, whose groups are compared.
        confidence_level: between 0 and 1.

    Raises:
        NoTablesError: the release has no moments, or an attribute that you named has neither levels nor a mean.
        UnknownAttributeError: the release has no attribute of that name.
    """
    sums = CrossProducts.of(prepared)
    chosen = names_of([n for n in prepared.attributes if n != by] if attributes is None else attributes)
    if not chosen:
        raise NoTablesError("no attribute is named", remedy="Name one, or leave attributes out to describe all.")
    z = normal_reach(confidence_level)
    lines: list[_Line] = []
    left_out: list[str] = []
    for name in chosen:
        try:
            lines += _lines(sums, name, by, z)
        except NoTablesError:
            if attributes is not None:
                raise
            left_out.append(name)
    groups, forms = (("everybody",), None) if by is None else sums.levels(by)
    people, rare = sums.values.diagonal()[sums.whose].max(keepdims=True), list[str]()
    if forms is not None:
        people, errors = sums.people(forms)
        sure = people > ENOUGH * np.sqrt(errors**2 + np.maximum(people, 0.0))
        few = (f"{by} = {label}" for label, so in zip(groups, sure, strict=True) if not so and label != GAP)
        rare = too_few(tuple(few))
    whose = about_tables(prepared, (*chosen, *((by,) if by else ())))
    gone = [f"Left out, as their missing cells count as something else: {', '.join(left_out)}."] if left_out else []
    return Description(
        by=by,
        groups=groups,
        people=people,
        lines=tuple(line.label for line in lines),
        counts=np.array([line.counts for line in lines]),
        values=np.array([line.values for line in lines]),
        intervals=np.array([line.intervals for line in lines]),
        deviations=np.array([line.deviation for line in lines]),
        p_values=np.array([line.p_value for line in lines]),
        trend_p_values=np.array([line.trend_p_value for line in lines]),
        confidence_level=confidence_level,
        warnings=(*gone, *rare, *whose.doubts),
        subjects=whose.notes,
    )


def _lines(sums: CrossProducts, name: str, by: str | None, z: float) -> list[_Line]:
    labels, groups = (("everybody",), sums.present(name)[None]) if by is None else sums.levels(by)
    if isinstance(sums.prepared.attributes[name], NumericAttribute):
        return [_mean(sums, name, (labels, groups), z)]
    levels, indicators = sums.levels(name)
    cells = (
        Cells.between(sums, (levels, indicators), (labels, groups)) if by is None else Cells.balanced(sums, name, by)
    )
    found = []
    for place, label in enumerate(levels):
        shares = [_share(cells, (place, g), z) for g in range(len(labels))]
        values, intervals = (np.array(each) for each in zip(*shares, strict=True))
        p, p_trend = _tests(cells) if place == 0 else (np.nan, np.nan)
        line = _Line(f"{name} = {label}", cells.counts[place], values, intervals, p_value=p, trend_p_value=p_trend)
        found.append(line)
    return found


def _tests(cells: Cells) -> tuple[float, float]:
    known = cells.known()
    filled = known.filled()
    statistic, degrees = independence(filled)
    return float(chdtrc(degrees, statistic)), trend(filled, (known.rows, known.columns))


def _share(cells: Cells, at: tuple[int, int], z: float) -> tuple[float, tuple[float, float]]:
    levels, groups = (np.eye(size)[place] for size, place in zip(cells.counts.shape, at, strict=True))
    weights = np.array([levels, np.ones_like(levels)]), groups[None]
    some, everybody = (weights[0] @ cells.counts @ weights[1].T).ravel().tolist()
    return share_of(some, everybody, cells.noise.of(*weights).covariance, z)


def _mean(sums: CrossProducts, name: str, by: tuple[tuple[str, ...], Array], z: float) -> _Line:
    """The mean m = <v g> / <h g> of a number v in every group g; h marks who has one.

    d m = (d<v g> - m d<h g>) / <h g>, plus sd^2 / <h g> for the drawing, with the deviation sd of all people.
    """
    (labels, groups), (value, has) = by, sums.number(name)
    size = len(groups)
    pairs = ((value, groups), (has, groups), (value, has[None]), (has, has[None]), (value, value[None]))
    found, noise = sums.sums(np.concatenate([products(left[None], right) for left, right in pairs]))
    totals, counts, (total, people, squares) = found[:size], found[size : 2 * size], found[2 * size :]
    n, people = np.maximum(counts, 1.0), max(people, 1.0)
    means, variance = totals / n, max(squares / people - (total / people) ** 2, 0.0)
    J = np.hstack([np.diag(1 / n), np.diag(-means / n)])
    covariance = mapped(J, noise[: 2 * size, : 2 * size]) + np.diag(variance / n)
    reach = z * np.sqrt(np.diag(covariance))
    counted = np.sqrt(np.diag(noise)[size : 2 * size] + n)
    sure = [g for g, label in enumerate(labels) if label != GAP and counts[g] > ENOUGH * counted[g]]
    attribute: Any = sums.prepared.attributes[name]
    label = f"{name} ({attribute.unit})" if attribute.unit else name
    deviation, p = float(np.sqrt(variance)), _differ(means, covariance, sure)
    within, ends = _bounded(means, reach, (attribute.lower, attribute.upper))
    return _Line(label, counts, within, ends, deviation, p, _rise(means, covariance, counts, sure))


def _bounded(means: Array, reach: Array, bounds: tuple[float, float]) -> tuple[Array, Array]:
    """Means (G,) and their intervals (G, 2) within public bounds.

    Where noise puts a whole interval outside, it is the one around the bound.
    """
    within, ends = np.clip(means, *bounds), around(means, reach)
    outside = (ends[:, 1] < bounds[0]) | (ends[:, 0] > bounds[1])
    ends[outside] = around(within, reach)[outside]
    return within, np.clip(ends, *bounds)


def _differ(means: Array, covariance: Array, groups: list[int]) -> float:
    if len(groups) <= 1:
        return float("nan")
    contrasts = np.eye(len(means))[groups[1:]] - np.eye(len(means))[groups[0]]
    differences = contrasts @ means
    statistic = differences @ np.linalg.solve(mapped(contrasts, covariance), differences)
    return float(chdtrc(len(contrasts), statistic))


def _rise(means: Array, covariance: Array, counts: Array, groups: list[int]) -> float:
    if len(groups) <= 2:  # noqa: PLR2004 - as above
        return float("nan")
    contrast = np.zeros(len(means))
    contrast[groups] = counts[groups] * (np.array(groups) - np.average(groups, weights=counts[groups]))
    return float(chdtrc(1, (contrast @ means) ** 2 / (contrast @ covariance @ contrast)))
