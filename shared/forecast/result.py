"""What a forecast says. Plain finite values: these classes go over the wire as they are."""

from dataclasses import dataclass

from commingle.shared.mechanisms.interface import ExchangeCost


@dataclass(frozen=True, slots=True, kw_only=True)
class TermForecast:
    """The expected standard error of one coefficient.

    Attributes:
        encoded: in encoded units; None where no fit is possible.
        original: in units of the target per unit of the attribute; None also where it is beyond all numbers.
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
        r_squared_constant: the same of the label's mean, which is private too.
        relative_error: expected ||b_hat - b|| / ||b|| over standardised slopes; None where no fit is possible.
        reliable: whether single coefficients are expected to come without a warning.
        useful: whether a fit is expected to explain anything and to be told from the mean.
        n_needed: about the least n that is useful, k chosen anew; None if no n is.
        best_k: what the planner would choose; None where there is no sketch.
        public_table: whether the assumptions come from a public table.
        public_rows: how many rows it has; None where its moments were taken as exact.
        r_squared_range: where `r_squared` lies for nine of ten populations that such a table may come from; None where
            the assumptions leave nothing open.
        terms: standard errors around the same fit on the private table.
        delta_implementation: the part of delta that is no noise's (docs/proofs/delta.md).
        kept: where rows are in buckets, how many of a member's n people count, as they meet nobody there.
        shared_error: where people are keyed, the standard error of the number that two members share if they share
            all, of the worst two; None of listed ones.
        exchange: what it costs besides budget; None where nothing is exchanged, or so much would be refused.
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
    """What a table of two attributes is expected to say: of the rarest level of the first against the first one.

    Attributes:
        row, level, reference: the attribute, the level, and the one with which it is compared.
        column, event: the target, and the level whose odds are compared.
        share: of everybody, with the event.
        odds_ratio: as assumed, with a 95 % interval for the population from `odds_low` to `odds_high` (None without
            an end): the noise and the drawing of people.
        odds_factor: from the middle of the interval to its ends; None where there is no end.
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
    """Cuts that a number of the study could have, and what they cost.

    Attributes:
        cuts: as a study says them.
        levels: how many intervals.
        with_label: the other attribute of the table that `cell_error` is of: the target where it has levels.
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
        over_k: empty where there is no sketch. `over_epsilon` and `over_n` choose k anew at every point.
        mechanisms: every mechanism with the same members, epsilon and n.
        advice: which of them suits, and what a weight of the target would bring, in words.
        tables: what tables of the target will be worth, where the mechanism has tables and the target levels.
        cuts: what numbers may be cut into, where the mechanism has tables.
    """

    forecast: Forecast
    over_k: tuple[Point, ...]
    over_epsilon: tuple[Point, ...]
    over_n: tuple[Point, ...]
    mechanisms: tuple[Point, ...]
    advice: str
    tables: tuple[TableForecast, ...] = ()
    cuts: tuple[CutForecast, ...] = ()
