"""A forecast in figures and in plain words. All values are finite: these classes go over the wire as they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS
from commingle.shared.documents.row_maps import may_cut, radius_squared
from commingle.shared.documents.terms import Terms, settled
from commingle.shared.estimation.pairwise import ENOUGH_SHARED
from commingle.shared.mechanisms import mechanism_named, mechanism_of
from commingle.shared.mechanisms.interface import ExchangeCost
from commingle.shared.release.checks import closed


@dataclass(frozen=True, slots=True, kw_only=True)
class TermForecast:
    """The expected standard error of one coefficient.

    Attributes:
        encoded: in encoded units; None if no fit is possible.
        original: in units of the target per unit of the attribute; None also if it is beyond all floats.
    """

    term: str
    encoded: float | None
    original: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a release is expected to be worth to one regression.

    Attributes:
        target: the target; `target_named` says whether somebody asked for it.
        r_squared_assumed: what a fit without privacy explains.
        r_squared: what the learner's `shrunken` fit is expected to explain on rows of the same population.
        r_squared_constant: the same for the label's mean, which is private too.
        relative_error: expected ||b_hat - b|| / ||b|| over standardised slopes; None if no fit is possible.
        reliable: whether single coefficients are expected to come without a warning.
        useful: whether a fit is expected to explain anything and to be told from the mean.
        n_needed: about the least n that is useful, with k chosen anew; None if no n is.
        best_k: the planner's choice; None if there is no sketch.
        public_table: whether the assumptions come from a public table.
        public_rows: how many rows it has; None if its moments were taken as exact.
        r_squared_range: where `r_squared` lies for nine of ten populations that such a table may come from; None if the
            assumptions leave nothing open.
        terms: standard errors around the same fit on the private table.
        delta_implementation: the part of delta that noise does not use (docs/proofs/delta.md).
        kept: if rows are in buckets, how many of a member's n people count, as they meet nobody there.
        shared_error: for keyed people, the standard error of the number that two members share if they share all, for
            the worst two; None for listed ones.
        exchange: its cost besides budget; None if nothing is exchanged, or so much would be refused.
        sentences: all of this in words.
    """

    mechanism: str
    n: int
    k: int | None
    epsilon: float
    delta: float
    parties: int
    target: str
    target_named: bool
    public_table: bool
    public_rows: int | None
    r_squared_assumed: float
    r_squared: float
    r_squared_range: tuple[float, float] | None
    r_squared_constant: float
    relative_error: float | None
    reliable: bool
    useful: bool
    n_needed: int | None
    best_k: int | None
    terms: tuple[TermForecast, ...]
    delta_implementation: float = 0.0
    kept: int | None = None
    shared_error: float | None = None
    exchange: ExchangeCost | None = None
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve, or one mechanism beside others: `at` is the value of what varies.

    `r_squared_range` belongs to the two populations at the ends of the forecast's; None also in plans of many columns.
    """

    at: float
    mechanism: str
    k: int | None
    r_squared: float
    r_squared_range: tuple[float, float] | None
    r_squared_constant: float
    relative_error: float | None
    useful: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableForecast:
    """The expected contents of a table of two attributes: of the rarest level of the first against the first one.

    Attributes:
        row, level, reference: the attribute, the level, and the one with which it is compared.
        column, event: the target, and the level whose odds are compared.
        share: of everybody, with the event.
        odds_ratio: as assumed, with a 95 % interval for the population from `odds_low` to `odds_high` (None without an
            end): the noise and the drawing of people.
        odds_factor: from the middle of the interval to its ends; None if there is no end.
        share_reach, difference_reach: half the widths of the intervals of that level's share, and of the difference.
        cell_error: the standard error of the noise in a cell, in people.
        n_needed: about the least n at which the interval excludes 1 in four of five releases; None if no n does.
    """

    row: str
    level: str
    reference: str
    column: str
    event: str
    share: float
    odds_ratio: float
    odds_low: float
    odds_high: float | None
    odds_factor: float | None
    share_reach: float
    difference_reach: float
    cell_error: float
    n_needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutForecast:
    """Cuts that a number of the study could have, and their cost.

    Attributes:
        cuts: as a study says them.
        levels: how many intervals.
        with_label: the other attribute of the table with this `cell_error`: the target if it has levels.
        cell_error: the standard error of the noise in a cell, in people.
    """

    attribute: str
    cuts: str
    levels: int
    with_label: str
    cell_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A forecast and what surrounds it.

    Attributes:
        over_k: empty if there is no sketch. `over_epsilon` and `over_n` choose k anew at every point.
        mechanisms: every mechanism with the same members, epsilon and n.
        advice: the mechanism that suits, and the gain from a weight or the square of the target, in words.
        tables: the expected tables of the target, if the mechanism has tables and the target levels.
        cuts: intervals for numbers, if the mechanism has tables.
    """

    forecast: Forecast
    over_k: tuple[Point, ...]
    over_epsilon: tuple[Point, ...]
    over_n: tuple[Point, ...]
    mechanisms: tuple[Point, ...]
    advice: str
    tables: tuple[TableForecast, ...] = ()
    cuts: tuple[CutForecast, ...] = ()


_FAR = 1.5  # from the best k
_PEOPLE = 10  # to a row of a sparse sketch, with which its entries are nearly normal (docs/coverage.md)
_MANY_SECONDS = 180.0


def sentences(f: Forecast, terms: Terms) -> tuple[str, ...]:
    """The facts that a person should know about closed terms, the verdict first."""
    said = [_verdict(f), _threshold(f)]
    if f.useful:
        said.append(_coefficients(f))
    if f.k is not None and f.best_k is not None and not 1 / _FAR < f.k / f.best_k < _FAR:
        said.append(f"k = {f.k:,} is asked for; k = {f.best_k:,} would suit better.")
    if terms.projection == "sparse" and f.k is not None:
        said.append(_sparse(people=f.n / f.k))
    whitened = [party.name for party in terms.parties if party.whitening is not None]
    if whitened:
        said.append(
            f"Columns of {', '.join(whitened)} are forecast as published: whitened mixtures of the attributes, "
            "each named after the attribute in its place."
        )
    if terms.keyed:
        said.append(
            "Subjects are keyed: the forecast is for members that all hold the same people. Where they share fewer, "
            "expect what a release of so many fewer is worth, or somewhat less."
        )
    said += terms.kept_words
    if f.shared_error is not None:
        said.append(_shared(f.n, f.shared_error))
    said += _weighed(terms)
    said += _two_stages(terms)
    if cut := [party.name for party in terms.parties if may_cut(party, None)]:
        said.append(
            f"Rows of {', '.join(cut)} are cut to a row norm. The forecast is about the cut rows and does not "
            "count what cutting loses. It helps only where public knowledge says that nearly all rows are well below "
            "the square root of the number of columns. Rows of binary attributes always have that length."
        )
    said += exchange_words(f.exchange, f.delta_implementation)
    why_not = mechanism_of(terms).exchange_problems(terms.table_rows, terms.widths, proved=terms.proved)
    for why in why_not:
        said.append(f"This would be refused when it is proposed: {why}.")
    return (*said, _assumed(f, whitened=bool(whitened)))


def _two_stages(terms: Terms) -> list[str]:
    shares = {settled(party.first_stage_share) for party in terms.parties} - {None}
    if not shares:
        return []
    part = " or ".join(f"{share:.0%}" for share in sorted(share for share in shares if share is not None))
    scaled = (
        f"Two stages: {part} of a member's budget buys noisy sums of its own columns, and its rows are scaled and cut "
        "as these suggest. The forecast counts what scaling brings, and about what cutting takes."
    )
    return [scaled, *bent_words(terms)]


HARDLY_CUT = 48
"""r^2 from which on cutting moves no share by 0.1 points; measured (docs/coverage.md#rows-that-were-cut).

Numbers that fill a small part of their bounds need the most: rare levels beside them are then most of a row's length.
"""


def bent_words(terms: Terms) -> tuple[str, ...]:
    """A warning for releases with tables whose rows are cut: that bends tables, and intervals do not allow for it."""
    has_tables = mechanism_of(terms).interactive or terms.keyed
    if not has_tables or all(settled(party.first_stage_share) is None for party in terms.parties):
        return ()
    if radius_squared(closed(terms), n=terms.n) >= HARDLY_CUT:
        return ()
    said = (
        "Cutting rows bends counts, means, tables and odds ratios, and their intervals do not count that. For those, "
        'give every number "cuts" (study new --cut), or say "first_stage_share": null for each member (--one-stage): '
        "then no row is cut."
    )
    return (said,)


def _weighed(terms: Terms) -> list[str]:
    heavy = [party.weighted for party in terms.parties if party.weighted is not None]
    if heavy and not mechanism_of(terms).interactive:
        return ["This would be refused when it is proposed: attributes have weights in moments alone."]
    return [
        f"Columns of {each.attribute} weigh {each.weight} times as much as others: their sums get less noise, and all "
        "others more."
        for each in heavy
    ]


def exchange_words(cost: ExchangeCost | None, delta: float) -> tuple[str, ...]:
    """The work and bytes of an exchange, the part of proofs in them, and the part of delta that it takes."""
    if cost is None:
        return ()
    sent, received = (max(each) for each in zip(*((p.bytes_sent, p.bytes_received) for p in cost.parties), strict=True))
    busiest = max(party.seconds for party in cost.parties)
    said = (
        f"The exchange moves {_amount(cost.bytes)} over all members (one sends at most {_amount(sent)} and receives "
        f"{_amount(received)}) and takes an estimated {_seconds(cost.seconds)} of processor time, {_seconds(busiest)} "
        "at the busiest member."
    )
    if cost.bounds == "proved":
        proofs = f"{_amount(cost.proof_bytes)} and {_seconds(cost.proof_seconds)}"
        said += f" Proofs that members keep their bounds and follow it are {proofs} of that."
    return (
        said,
        f"Of delta the exchange takes {delta:.2g}: the chance that it does not hide what it should.",
        "What is debited stays spent also where another member never sends its part, or a proof of it.",
    )


def _shared(n: int, error: float) -> str:
    counted = f"How many two members share will be known to about {2 * error:,.0f} more or less"
    if (least := ENOUGH_SHARED * error) > n:
        return f"{counted}, which is too little for any fit across members: such fits would be refused."
    return f"{counted}; fits across two that share fewer than about {least:,.0f} are refused."


def _sparse(*, people: float) -> str:
    mixed = f"Mixing is sparse: each row of the sketch mixes about {people:,.3g} people"
    if people >= _PEOPLE:
        return f"{mixed}. Expected figures are those of dense mixing."
    return f"{mixed}: so few that large errors are likelier than forecast where a few people dominate a column."


def advice(points: Sequence[Point]) -> str:
    """Which of several mechanisms suits: the one that explains most, and what it asks for in return."""
    best = max(points, key=lambda point: (point.useful, point.r_squared))
    if not best.useful:
        said = "No mechanism is useful here: predicting the mean is as good."
    else:
        said = f"{best.mechanism} suits best: expected {_r_squared(best)}."
    trust = mechanism_named(best.mechanism).trust(proved=True)
    return said if trust == TRUST_WITH_NO_ROWS or not best.useful else f"{said} {trust}"


def _r_squared(of: Forecast | Point) -> str:
    least, most = map(_two, of.r_squared_range or (of.r_squared, of.r_squared))
    return f"R\N{SUPERSCRIPT TWO} {_two(of.r_squared)}" + ("" if least == most else f" ({least} to {most})")


def _verdict(f: Forecast) -> str:
    compared = f"without privacy {_two(f.r_squared_assumed)}, predicting the private mean {_two(f.r_squared_constant)}"
    expected = f"a linear fit is expected to reach {_r_squared(f)} on new people ({compared})"
    if f.useful:
        return f"Useful with n = {f.n:,} at epsilon {f.epsilon:g}: {expected}."
    return f"Not useful with n = {f.n:,} at epsilon {f.epsilon:g}: {expected}, so predicting the mean is as good."


def _threshold(f: Forecast) -> str:
    if f.n_needed is None:
        return f"No number of people makes this useful at epsilon {f.epsilon:g}."
    chosen = ", with k chosen for that n" if f.best_k is not None else ""
    return f"Not useful below n = {f.n_needed:,} at epsilon {f.epsilon:g}{chosen}."


def _coefficients(f: Forecast) -> str:
    if not f.reliable or f.relative_error is None:
        return "It serves prediction only: single coefficients will not be reliable."
    return f"Coefficients are expected to be off by about {f.relative_error:.0%} of their size, all taken together."


def _assumed(f: Forecast, *, whitened: bool) -> str:
    label = f"{f.target!r}" if f.target_named else f"{f.target!r} (the middle one of all possible targets)"
    if f.public_table:
        explained = f"features explain {f.r_squared_assumed:.0%} of {label}"
        if f.r_squared_range is None:
            return f"Assumed: the private rows are like the public table, where {explained}."
        unsure = (
            " These are too few to be sure that a fit explains anything."
            if f.useful and f.r_squared_range[0] <= 0
            else ""
        )
        return (
            f"Assumed: the private rows are like the {f.public_rows:,} public ones, from which one expects that beyond "
            f"them {explained}. Brackets hold nine of ten populations that so few rows may come from.{unsure}"
        )
    mixtures = ", whitened columns uncorrelated and as wide as their row norm allows" if whitened else ""
    return (
        f"Assumed: attributes are independent and uniform on their bounds or levels{mixtures}, and together explain "
        f"{f.r_squared_assumed:.0%} of {label}. Rows that spread less than that give less."
    )


def _amount(count: int) -> str:
    unit, name = (10**9, "GB") if count >= 10**9 else (10**6, "MB")
    return f"{float(f'{count / unit:.2g}'):g} {name}"


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return "less than 1 s"
    return f"{float(f'{seconds:.2g}'):g} s" if seconds < _MANY_SECONDS else f"{float(f'{seconds / 60:.2g}'):g} minutes"


def _two(value: float) -> str:
    return "below -1" if value < -1 else f"{round(value, 2) + 0.0:.2f}"  # no -0.00
