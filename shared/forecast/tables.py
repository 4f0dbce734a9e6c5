"""What tables will be worth: intervals of shares and odds ratios, people needed, and cuts for numbers.

Counts and intervals are read from the release that is expected if people are as assumed, as learners read it: no noise
is drawn, and all is known. The code that reads releases reads it, so there is no second formula of their value. Keyed
parties hold the same people.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, floor, isfinite, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from commingle.shared.documents.row_maps import first_stage_of, row_map
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, Levelled, NumericAttribute
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import CutNumber, Study, StudyParty
from commingle.shared.documents.terms import PartyTerms, Terms
from commingle.shared.dp.two_stages import expected_sums
from commingle.shared.errors import PlanningError, SpecError
from commingle.shared.estimation.cells import Cells
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.prepared import Stage, undoing
from commingle.shared.estimation.shares import against
from commingle.shared.forecast.result import CutForecast, TableForecast
from commingle.shared.forecast.task import Assumptions, table_law, uniform_law
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.release.checks import closed, tried
from commingle.shared.release.matrix import prepared_release, second_moments

_NOBODY = "0" * 64
_STEPS = 60
_ENTRIES = 200_000
"""For `Cells.balanced` at each of many sizes: beyond some 20 levels the forecast noise is a bit too large."""

Share = tuple[str, str, float]  # an attribute, one of its levels, and the share of people who have it
_Z, _POWER = NormalDist().inv_cdf(0.975), NormalDist().inv_cdf(0.8)  # intervals exclude 1 in four of five releases
_SIZES = [round(float(n), -(len(str(int(n))) - 2)) for n in np.geomspace(100, 1e7, 116)]  # two digits, a tenth apart
_LEAST, _MOST = 3, 6  # levels of cuts that are proposed
_ROUND = (1.0, 2.0, 2.5, 5.0)
_MOST_DIGITS = 9  # of a step
_MOST_CUT = 12  # numbers: each is a few releases to be expected


def expected_release(terms: Terms, assumed: Assumptions) -> CrossProducts:
    """The sums of a release of moments of these terms, with the covariance of their noise."""
    spec, given = _spec(terms), assumed.second_moments
    mean, covariance = uniform_law(terms.parties) if given is None else table_law(given, columns=len(terms.columns))
    made = closed(spec)
    widths = np.cumsum([0, *(len(party.columns) for party in terms.parties)])
    squares = np.diag(covariance) + mean**2
    stages = [
        _stage(made, party, mean[first:last], squares[first:last])
        for party, first, last in zip(made.parties, widths, widths[1:], strict=False)
    ]
    law = np.outer(np.append(1.0, mean), np.append(1.0, mean))
    law[1:, 1:] += covariance
    undo = undoing(spec, [stage.applied for stage in stages])
    columns = np.append(np.zeros(len(undo) - len(mean), np.intp), 1 + np.arange(len(mean)))
    back = np.linalg.inv(undo)
    gram = (made.kept or spec.n) * back @ law[np.ix_(columns, columns)] @ back.T
    gram, exact = (gram + gram.T) / 2, len(spec.intercept)
    gram[:exact, :exact] = spec.n
    blank = second_moments(spec, _NOBODY, np.zeros_like(gram, np.int64))
    found = blank.model_copy(update={"gram": tuple(map(tuple, gram.tolist()))})
    said = {party.name: stage.sums for party, stage in zip(terms.parties, stages, strict=True)}
    return CrossProducts.of(prepared_release(found, spec, said))


def _stage(terms: Terms, party: PartyTerms, mean: Array, squares: Array) -> Stage:
    planned = first_stage_of(terms, party)
    sums = None if planned is None else tuple(expected_sums(planned, mean, squares).tolist())
    return Stage(planned, sums, row_map(terms, party, sums))


def _spec(terms: Terms) -> ReleaseSpec:
    parties = tuple(StudyParty(dataset="any", **party.asked) for party in terms.parties)
    asked = Study(
        study="forecast",
        mechanism=terms.mechanism,
        subjects="keyed" if terms.keyed else "listed",
        calibration=terms.calibration,
        epsilon=terms.epsilon,
        delta=terms.delta,
        n=terms.n,
        bounds=terms.bounds,
        buckets=terms.buckets,
        parties=parties,
    )
    return tried(asked, now=datetime(2000, 1, 1, tzinfo=UTC))


def with_shares(sums: CrossProducts, shares: Iterable[Share]) -> CrossProducts:
    """These sums for people among whom so many have these levels, whatever else they are."""
    for name, level, share in shares:
        labels, forms = sums.levels(name)
        before = margin(sums, name)
        place = labels.index(level)
        others = np.delete(before, place).sum()
        changed = before * (1 - share) / (others or 1.0)
        changed[place] = share
        at, values = _level_forms(forms)
        n = sums.values[sums.whose, sums.whose]
        means = sums.values[np.arange(len(n)), sums.whose] / n
        held, found = n[at[0]], sums.values.copy()
        found[at] = held * np.outer(values.T @ changed, means)
        found[:, at] = found[at].T
        found[np.ix_(at, at)] = held * values.T @ np.diag(changed) @ values
        sums = replace(sums, values=found)
    return sums


def margin(sums: CrossProducts, name: str) -> Array:
    """Shares of an attribute's levels, a gap last."""
    counts, _ = sums.people(sums.levels(name)[1])
    found = np.maximum(counts, 0.0)
    return np.asarray(found / found.sum())


def with_odds_ratio(sums: CrossProducts, table: tuple[str, str], at: tuple[int, int, int], ratio: float) -> Cells:
    """Counts of two attributes, if one level has so many times the odds of an event as another.

    Margins stay as they were. All other levels have the share of everybody. `at` are places of the level, of the other
    one, and of the event among levels of the table's second attribute.
    """
    level, base, event = at
    rows, columns = (margin(sums, name) for name in table)
    known = np.arange(len(columns)) < len(Cells.of(sums, *table).known().columns)
    whole = float(columns[known].sum())
    of_all = columns[event] / whole
    shares = np.full(len(rows), of_all)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):  # (r_i p_i + r_0 p_0) / (r_i + r_0) grows with p_0
        shares[base] = (low + high) / 2
        shares[level] = ratio * shares[base] / (1 - shares[base] + ratio * shares[base])
        enough = rows[level] * shares[level] + rows[base] * shares[base] > (rows[level] + rows[base]) * of_all
        low, high = (low, shares[base]) if enough else (shares[base], high)
    others = np.where(known, columns, 0.0)
    others[event] = 0.0
    law = np.outer(1 - shares, whole * others / others.sum()) + np.outer(np.ones(len(rows)), columns * ~known)
    law[:, event] = whole * shares
    law *= rows[:, None]
    (_, left), (_, right) = sums.levels(table[0]), sums.levels(table[1])
    (first, one), (second, other) = _level_forms(left), _level_forms(right)
    n, found = sums.values[first[0], second[0]], sums.values.copy()
    found[np.ix_(first, second)] = n * one.T @ law @ other
    found[np.ix_(second, first)] = found[np.ix_(first, second)].T
    return Cells.balanced(replace(sums, values=found), *table, entries=_ENTRIES)


def _level_forms(forms: Array) -> tuple[NDArray[np.intp], Array]:
    at = np.flatnonzero(forms.any(axis=0))
    return at.astype(np.intp), np.asarray(np.linalg.inv(forms[:, at]).T, np.float64)


def table_forecasts(terms: Terms, assumed: Assumptions, *, sizes: bool = True) -> tuple[TableForecast, ...]:
    """Tables of the label with each other attribute that has levels, by its least certain level; none without tables.

    The label is the assumed target, or else the last attribute with levels; `sizes` asks for the people that each
    needs. Raises PlanningError: an impossible odds ratio or share.
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

    Noise is of a table with the label, or with the last attribute with levels if the label is a number. Without levels
    there are none, as nothing asks for tables; of many numbers the first twelve.
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
            noise = Cells.balanced(sums, cut.name, label, entries=_ENTRIES).errors
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
    if not _has_tables(terms):
        return None
    held = _levelled(terms)
    if assumed.target is not None:
        return next((a for a in held if a.name == assumed.target), None)
    two = [a for a in held if isinstance(a, BinaryAttribute)]
    return (two or held or [None])[-1]


def _cuts(number: NumericAttribute) -> list[CutNumber]:
    found: dict[str, int] = {}
    for exponent in range(_MOST_DIGITS, -_MOST_DIGITS - 1, -1):
        for step in (round(base * 10.0**exponent, _MOST_DIGITS) for base in reversed(_ROUND)):
            levels = ceil(round(number.upper / step, 6)) - floor(round(number.lower / step, 6)) if step else 0
            if _LEAST <= levels <= _MOST and step < 10.0**_MOST_DIGITS:
                found[f"every {step:.9f}".rstrip("0").rstrip(".")] = levels
    said = number.model_dump() | {"kind": "numeric"}
    return [CutNumber.model_validate(said | {"cuts": cuts}) for cuts in sorted(found, key=found.__getitem__)]


def _with(terms: Terms, cut: CutNumber) -> Terms:
    levels = cut.as_levels
    return terms.reopened().with_parties(
        lambda p: {"attributes": tuple(levels if a.name == cut.name else a for a in p.attributes)}
    )


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
    plain = Cells.balanced(sums, *table, entries=_ENTRIES)
    known = plain.known()
    shares = margin(sums, row)[: len(known.rows)]
    level = 1 + int(len(shares) - 2 - shares[:0:-1].argmin())  # the rarest but the first, the last one of equals
    at = (level, 0, len(known.columns) - 1)
    cells = with_odds_ratio(sums, table, at, assumed.odds_ratio).known()
    found = against(cells, at[:2], at[2], _Z)
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
            found = against(cells, at[:2], at[2], _Z + _POWER)
            low, high = found["odds_intervals"]
            return bool(not low <= 1 <= high)

        place = bisect_left(_SIZES, 1, key=told)
        return None if place == len(_SIZES) or of_size(_SIZES[place]) is None else round(_SIZES[place])

    return needed
