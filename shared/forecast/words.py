"""A forecast in plain words."""

from collections.abc import Sequence

from commingle.shared.documents.manifest import TRUST_WITH_NO_ROWS
from commingle.shared.documents.row_maps import may_cut
from commingle.shared.documents.terms import Terms, settled
from commingle.shared.estimation.pairwise import ENOUGH_SHARED
from commingle.shared.forecast.result import Forecast, Point
from commingle.shared.mechanisms.interface import ExchangeCost
from commingle.shared.mechanisms.registry import mechanism_named, mechanism_of

_FAR = 1.5  # from the best k
_PEOPLE = 10  # to a row of a sparse sketch, with which its entries are nearly normal (docs/coverage.md)
_MANY_SECONDS = 180.0


def sentences(f: Forecast, terms: Terms) -> tuple[str, ...]:
    """What a person should know of closed terms, the verdict first."""
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


def bent_words(terms: Terms) -> tuple[str, ...]:
    """That rows are cut, where a release has tables, whose intervals do not count it."""
    has_tables = mechanism_of(terms).interactive or terms.keyed
    if not has_tables or all(settled(party.first_stage_share) is None for party in terms.parties):
        return ()
    said = (
        "Cutting rows bends counts, means, tables and odds ratios, and their intervals do not count that. For those, "
        'give every number "cuts", or say "first_stage_share": null for each member: then no row is cut.'
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
    """What parties compute and send besides, what of it proofs are, and which part of delta it takes."""
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
    best = _most(points)
    if not best.useful:
        said = "No mechanism is useful here: predicting the mean is as good."
    else:
        said = f"{best.mechanism} suits best: expected {_r_squared(best)}."
    trust = mechanism_named(best.mechanism).trust(proved=True)
    return said if trust == TRUST_WITH_NO_ROWS or not best.useful else f"{said} {trust}"


def _most(points: Sequence[Point]) -> Point:
    return max(points, key=lambda point: (point.useful, point.r_squared))


def _r_squared(point: Point) -> str:
    return f"R\N{SUPERSCRIPT TWO} {_two(point.r_squared)}{_between(point)}"


def _between(of: Forecast | Point) -> str:
    least, most = map(_two, of.r_squared_range or (of.r_squared, of.r_squared))
    return "" if least == most else f" ({least} to {most})"


def _verdict(f: Forecast) -> str:
    compared = f"without privacy {_two(f.r_squared_assumed)}, predicting the private mean {_two(f.r_squared_constant)}"
    reached = f"R\N{SUPERSCRIPT TWO} {_two(f.r_squared)}{_between(f)}"
    expected = f"a linear fit is expected to reach {reached} on new people ({compared})"
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
