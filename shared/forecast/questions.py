"""What tables of a release will be worth: intervals of shares and odds ratios, people needed, and cuts for numbers."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil, isfinite, sqrt
from statistics import NormalDist

import numpy as np

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, Levelled, NumericAttribute
from commingle.shared.documents.study import CutNumber
from commingle.shared.documents.terms import Terms
from commingle.shared.estimation.cells import Cells, against
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.forecast.errors import PlanningError
from commingle.shared.forecast.expected import expected_release, margin, with_odds_ratio, with_shares
from commingle.shared.forecast.result import CutForecast, TableForecast
from commingle.shared.forecast.task import Assumptions
from commingle.shared.mechanisms.registry import mechanism_of

_Z, _POWER = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.8)  # intervals exclude 1 in four of five releases
_SIZES = [round(float(n), -(len(str(int(n))) - 2)) for n in np.geomspace(100, 1e7, 116)]  # two digits, a tenth apart
_LEAST, _MOST = 3, 6  # levels of cuts that are proposed
_ROUND = (1.0, 2.0, 2.5, 5.0)
_MOST_DIGITS = 9  # of a step
_MOST_CUT = 12  # numbers: each is a few releases to be expected


def table_forecasts(terms: Terms, assumed: Assumptions, *, sizes: bool = True) -> tuple[TableForecast, ...]:
    """Of the label with every other attribute that has levels, the least certain level of each; none without tables.

    Args:
        terms: of a release.
        assumed: of whom it is; the label, or else the last attribute with levels.
        sizes: whether to find out how many people each needs.

    Raises:
        PlanningError: an odds ratio or a share that is none.
    """
    _require(terms, assumed)
    label = _label(terms, assumed)
    if label is None:
        return ()
    try:
        sums = _assumed(terms, assumed)
    except SpecError:
        return ()
    chosen = assumed.features or tuple(a.name for a in terms.attributes)
    rows = [a.name for a in _levelled(terms) if a.name != label.name and a.name in chosen]
    needed = _needed(terms, assumed) if sizes else lambda *_: None
    return tuple(_forecast(sums, (row, label.name), assumed, needed) for row in rows)


def sentence_of(tables: Sequence[TableForecast]) -> tuple[str, ...]:
    """The table that says least, in words."""
    if not tables:
        return ()
    worst = max(tables, key=lambda t: t.odds_factor or np.inf)
    high = "no upper end" if worst.odds_high is None else f"{worst.odds_high:.2g}"
    said = (
        f"Tables: an odds ratio of {worst.odds_ratio:g} ({worst.column} = {worst.event}, {worst.row} = {worst.level} "
        f"against {worst.reference}) would read {worst.odds_low:.2g} to {high}, if {worst.share:.0%} have the event "
        "and people are as assumed."
    )
    return (said,)


def cut_forecasts(terms: Terms, assumed: Assumptions) -> tuple[CutForecast, ...]:
    """For each number of the terms equal intervals of public bounds, three to six, and the noise that cells then have.

    Noise is of a table with the label, or with the last attribute with levels where the label is a number. None where
    nothing has levels, so that nothing asks for tables; of many numbers the first twelve.
    """
    if not _has_tables(terms) or not _levelled(terms):
        return ()
    label = (_label(terms, assumed) or _levelled(terms)[-1]).name
    plain = replace(assumed, second_moments=None, public_rows=None)  # of other columns
    found = []
    for number in [a for a in terms.attributes if isinstance(a, NumericAttribute) and a.product is None][:_MOST_CUT]:
        for cut in _cuts(number):
            try:
                sums = _assumed(_with(terms, cut), plain)
            except SpecError:
                continue
            levels, _ = sums.levels(cut.name)
            noise = Cells.of(sums, cut.name, label).errors
            found.append(
                CutForecast(
                    attribute=cut.name,
                    cuts=str(cut.cuts),
                    levels=len(levels) - (cut.missing == "indicator"),
                    with_label=label,
                    cell_error=float(np.sqrt(np.mean(noise**2))),
                )
            )
    return tuple(found)


def _has_tables(terms: Terms) -> bool:
    mapped = any(party.whitening is not None or party.clipped_at is not None for party in terms.parties)
    return mechanism_of(terms).interactive and not mapped


def _levelled(terms: Terms) -> list[Levelled]:
    kinds = (BinaryAttribute, CategoricalAttribute)
    return [a for a in terms.attributes if isinstance(a, kinds) and a.missing != "midpoint"]


def _label(terms: Terms, assumed: Assumptions) -> Levelled | None:
    """The target where it has levels; without one the last attribute with two, or else the last with any."""
    if not _has_tables(terms):
        return None
    held = _levelled(terms)
    if assumed.target is not None:
        return next((a for a in held if a.name == assumed.target), None)
    two = [a for a in held if isinstance(a, BinaryAttribute)]
    return (two or held or [None])[-1]


def _cuts(number: NumericAttribute) -> list[CutNumber]:
    """Round steps by how many intervals they make."""
    width = number.upper - number.lower
    found: dict[int, str] = {}
    for exponent in range(_MOST_DIGITS, -_MOST_DIGITS - 1, -1):
        for step in (round(base * 10.0**exponent, _MOST_DIGITS) for base in reversed(_ROUND)):
            levels = ceil(round(width / step, 6)) if step else 0
            if _LEAST <= levels <= _MOST and step < 10.0**_MOST_DIGITS:
                found.setdefault(levels, f"every {step:.9f}".rstrip("0").rstrip("."))
    said = number.model_dump() | {"kind": "numeric"}
    return [CutNumber.model_validate(said | {"cuts": cuts}) for _, cuts in sorted(found.items())]


def _with(terms: Terms, cut: CutNumber) -> Terms:
    """The terms with a number cut."""
    made = terms.reopened()
    parties = (
        replace(p, attributes=tuple(cut.as_levels if a.name == cut.name else a for a in p.attributes))
        for p in made.parties
    )
    return replace(made, parties=tuple(parties))


def _require(terms: Terms, assumed: Assumptions) -> None:
    if not (0 < assumed.odds_ratio < np.inf and assumed.odds_ratio != 1):
        raise PlanningError(f"no table has an odds ratio of {assumed.odds_ratio:g}", remedy="Ask for 1.5, for example.")
    by_name = {a.name: a for a in _levelled(terms)}
    for name, level, share in assumed.shares:
        if name not in by_name or level not in by_name[name].levels:
            raise PlanningError(
                f"no attribute with levels has {name}[{level}]", remedy="Name a level as in the study: NAME[LEVEL]."
            )
        if not 0 < share < 1:
            raise PlanningError(f"a share of {share:g} is not between 0 and 1", remedy="Give 0.1, for example.")


def _assumed(terms: Terms, assumed: Assumptions) -> CrossProducts:
    return with_shares(expected_release(terms, assumed), assumed.shares)


def _forecast(
    sums: CrossProducts,
    table: tuple[str, str],
    assumed: Assumptions,
    needed: Callable[[tuple[str, str], tuple[int, int, int]], int | None],
) -> TableForecast:
    row, column = table
    plain = Cells.of(sums, *table)
    known = plain.known()
    shares = margin(sums, row)[: len(known.rows)]
    level = 1 + int(len(shares) - 2 - shares[:0:-1].argmin())  # the rarest but the first, the last one of equals
    at = (level, 0, len(known.columns) - 1)
    cells = with_odds_ratio(sums, table, at, assumed.odds_ratio).known()
    found = against(cells.counts, cells.covariance(), at[:2], at[2], _Z)
    low, high = found["odds_intervals"]
    share_low, share_high = found["share_intervals"]
    apart_low, apart_high = found["difference_intervals"]
    events = margin(sums, column)[: len(known.columns)]
    return TableForecast(
        row=row,
        level=known.rows[level],
        reference=known.rows[0],
        column=column,
        event=known.columns[at[2]],
        share=float(events[at[2]] / events.sum()),
        odds_ratio=assumed.odds_ratio,
        odds_low=float(low),
        odds_high=float(high) if isfinite(high) else None,
        odds_factor=sqrt(high / low) if isfinite(high) and low > 0 else None,
        share_reach=float(share_high - share_low) / 2,
        difference_reach=float(apart_high - apart_low) / 2,
        cell_error=float(plain.errors.max()),
        n_needed=needed(table, at),
    )


def _needed(terms: Terms, assumed: Assumptions) -> Callable[[tuple[str, str], tuple[int, int, int]], int | None]:
    """The least n, to two digits, at which an interval is expected to exclude 1 in four of five releases."""
    known: dict[float, CrossProducts | None] = {}

    def of_size(n: float) -> CrossProducts | None:
        if n not in known:
            try:
                known[n] = _assumed(terms.reopened(n=round(n)), assumed)
            except SpecError:
                known[n] = None
        return known[n]

    def needed(table: tuple[str, str], at: tuple[int, int, int]) -> int | None:
        def told(n: float) -> bool:
            sums = of_size(n)
            if sums is None:
                return n > terms.n  # too many for an exchange
            cells = with_odds_ratio(sums, table, at, assumed.odds_ratio).known()
            found = against(cells.counts, cells.covariance(), at[:2], at[2], _Z + _POWER)
            low, high = found["odds_intervals"]
            return bool(not low <= 1 <= high)

        place = bisect_left(_SIZES, 1, key=told)
        return None if place == len(_SIZES) or of_size(_SIZES[place]) is None else round(_SIZES[place])

    return needed
