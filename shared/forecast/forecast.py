"""The forecast of one release, the k that suits it, and its value under other terms.

Other terms are other k, epsilon and n, other mechanisms, and a weight of the label: its gain for a fit, and its cost
for other sums (docs/planning.md#weights).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, hypot, isfinite, log10, sqrt
from threading import Lock

import numpy as np

from commingle.shared.documents.schema import Weighted
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.calibration import Calibration
from commingle.shared.errors import PlanningError
from commingle.shared.forecast.result import Forecast, Plan, Point, TermForecast, advice, exchange_words, sentences
from commingle.shared.forecast.tables import cut_forecasts, sentence_of, table_forecasts
from commingle.shared.forecast.task import (
    Assumptions,
    assumptions_of,
    ends,
    expected,
    populations,
    square_words,
    task_of,
)
from commingle.shared.mechanisms import KEYED, MECHANISMS, mechanism_of
from commingle.shared.mechanisms.interface import ExchangeCost
from commingle.shared.mechanisms.prediction import Prediction, RegressionTask
from commingle.shared.release.checks import closed, terms_of

_computing = [Lock() for _ in range(16)]
_LEAST_NEEDED, _MOST_NEEDED = 100, 10**12  # people
_RESOLUTION = 1 / 400  # of a decade
_WEIGHTS = (2, 3, 4)
_WORTH_SAYING, _AS_GOOD = 0.95, 0.02
_POINTS, _POINTS_OF_WIDE, _WIDE = 9, 5, 128  # of a curve; each costs columns^3
_EPSILONS, _SIZES = 30.0, 100.0  # a curve reaches that factor below and above
_LEAST_N, _MOST_N = 10, (1 << 53) - 1
_LEAST_EPSILON, _MOST_EPSILON = 1e-4, 1e4  # well inside the range of calibration
_CLASSICAL_MOST = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One regression and how well it is known."""

    expected: RegressionTask  # the likely population
    # of the populations that public rows may come from the two between which nine of ten lie, by what the release that
    # was asked for explains there; none where nothing is left open
    ends: tuple[RegressionTask, ...]


def forecast_of(spec: ReleaseSpec) -> Forecast | None:
    """The forecast of a proposed release under the default assumptions; None if no attribute can be a label.

    It is about the spec's own target, if it names one. A second caller waits while the first one computes it.
    """
    with _computing[hash(spec) % len(_computing)]:
        return computed_forecast(spec)


@lru_cache(maxsize=256)  # a function of the spec alone, asked for whenever a proposal is shown
def computed_forecast(spec: ReleaseSpec) -> Forecast | None:
    """`forecast_of`, without waiting for others that compute it."""
    try:
        return forecast(spec.terms, assumptions_of(spec))
    except PlanningError:
        return None


def forecast(terms: Terms, assumed: Assumptions | None = None) -> Forecast:
    """The forecast of terms; an open k is chosen."""
    assumed = assumed or Assumptions()
    return forecast_for(question_of(terms, assumed), terms, assumed)


def exchange_of(terms: Terms) -> ExchangeCost | None:
    """The cost of a release of these terms besides budget, if its parties exchange."""
    made = closed(terms)
    return mechanism_of(made).exchange_cost(made.table_rows, made.widths, proved=made.proved)


def outlook_of(spec: ReleaseSpec) -> tuple[str, ...]:
    """The value of a proposed release, and its cost besides budget, in sentences."""
    found = forecast_of(spec)
    tables = sentence_of(table_forecasts(spec.terms, assumptions_of(spec), sizes=False))
    if found is not None:
        return *found.sentences, *tables
    none = "No forecast: no attribute can be the target of a linear model."
    return none, *tables, *exchange_words(exchange_of(spec.terms), closed(spec).taken_by_exchange)


def question_of(terms: Terms, assumed: Assumptions) -> Question:
    """The assumptions; for public rows the likely population, and the others that the rows leave possible."""
    task, rows = task_of(terms, assumed), assumed.public_rows
    if assumed.second_moments is None or rows is None:
        return Question(task, ())
    likely = expected(task, rows)
    chosen = terms if terms.k is not None else with_best_k(terms, likely)
    possible = populations(task, rows)
    return Question(likely, tuple(possible[i] for i in ends([_explained(chosen, each) for each in possible])))


def forecast_for(question: Question, terms: Terms, assumed: Assumptions) -> Forecast:
    task = question.expected
    best = with_best_k(terms, task)
    chosen = closed(best if terms.k is None else terms)
    found = predicted(chosen, task)
    result = Forecast(
        mechanism=chosen.mechanism,
        n=chosen.n,
        k=chosen.k,
        epsilon=chosen.epsilon,
        delta=chosen.delta,
        parties=len(chosen.parties),
        target=task.target,
        target_named=assumed.target is not None,
        public_table=assumed.second_moments is not None,
        public_rows=assumed.public_rows if question.ends else None,
        r_squared_assumed=task.r_squared,
        r_squared=found.r_squared,
        r_squared_range=range_of(chosen, question, found.r_squared),
        r_squared_constant=found.r_squared_constant,
        relative_error=relative_error(task, found),
        reliable=found.reliable,
        useful=is_useful(found),
        n_needed=_n_needed(terms, task),
        best_k=best.k,
        terms=_terms(task, found),
        delta_implementation=chosen.taken_by_exchange,
        kept=chosen.kept,
        shared_error=mechanism_of(chosen).planner.shared_error(chosen),
        exchange=exchange_of(chosen),
    )
    return replace(result, sentences=sentences(result, chosen))


def range_of(terms: Terms, question: Question, likely: float) -> tuple[float, float] | None:
    """Least and most of `likely` and what this release explains at the question's ends."""
    found = [likely, *(_explained(terms, task) for task in question.ends)]
    return (min(found), max(found)) if question.ends else None


def _explained(terms: Terms, task: RegressionTask) -> float:
    return predicted(terms, task).r_squared


def with_sketch(study: Study) -> Study:
    """The study with its k: as written, or the best one for its target under the default assumptions."""
    terms = terms_of(study)
    if study.k is not None or not mechanism_of(terms).sketched:
        return study
    planner = mechanism_of(terms).planner
    try:
        k = planner.best_k(closed(terms), task_of(terms, assumptions_of(study)))
    except PlanningError:  # nothing to fit: what the paper takes
        _, k = planner.sketch_bounds(terms) or (None, None)
    return study.model_copy(update={"k": k})


def with_best_k(terms: Terms, task: RegressionTask) -> Terms:
    """The terms with their k, chosen anew if the mechanism has one."""
    best = mechanism_of(terms).planner.best_k(closed(terms), task)
    return terms if best is None else replace(terms, k=best)


def predicted(terms: Terms, task: RegressionTask) -> Prediction:
    """Expected figures of a regression; a sketch must have its k (`with_best_k`)."""
    return mechanism_of(terms).planner.predict(closed(terms), task)


def is_useful(found: Prediction) -> bool:
    """Whether a fit beats the mean, and is expected to be told from it."""
    return found.told_apart and found.r_squared > 0


def relative_error(task: RegressionTask, found: Prediction) -> float | None:
    """sqrt(sum_j xx_jj Cov_jj / sum_j xx_jj b_j^2)."""
    length = float(np.diag(task.xx) @ task.b**2)
    if found.covariance is None or length <= 0:
        return None
    return sqrt(float(np.diag(task.xx) @ np.diag(found.covariance)) / length)


def _n_needed(terms: Terms, task: RegressionTask) -> int | None:
    def of(exponent: float) -> Terms:
        return with_best_k(terms.reopened(n=round(10**exponent)), task)

    def tells_apart(exponent: float) -> bool:
        chosen = closed(of(exponent))
        return mechanism_of(chosen).planner.tells_apart(chosen, task)

    def serves(exponent: float) -> bool:
        return is_useful(predicted(of(exponent), task))

    found = _least(tells_apart, low=log10(_LEAST_NEEDED))
    if found is not None and not serves(log10(_said(found))):  # it costs more, and implies the other
        found = _least(serves, low=found)
    return None if found is None else _said(found)


def _least(holds: Callable[[float], bool], *, low: float) -> float | None:
    most, high = log10(_MOST_NEEDED), low + 1 / 2
    while not holds(high := min(high, most)):
        if high == most:
            return None
        low, high = high, high + 2
    while high - low > _RESOLUTION:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _said(exponent: float) -> int:
    n: float = 10**exponent
    unit: int = 10 ** (floor(log10(n)) - 1)
    return ceil(n / unit) * unit


def _terms(task: RegressionTask, found: Prediction) -> tuple[TermForecast, ...]:
    """Original intercept = level - sum_j slope_j mean_j; the level's own error is independent of the slopes'."""
    names = ("(intercept)", *task.labels)
    cov = found.covariance
    if cov is None:
        return tuple(TermForecast(term=name, encoded=None, original=None) for name in names)
    with np.errstate(all="ignore"):  # bounds may lie at the ends of the range of floats
        ratio = task.unit / task.scale
        mean = ratio * (task.offset + task.scale * task.mean)
        slopes = np.sqrt(np.diag(cov))
        level = sqrt(found.level_variance)
        encoded = [hypot(level, sqrt(max(0.0, float(task.mean @ cov @ task.mean)))), *slopes.tolist()]
        shift = float(np.sqrt(np.maximum(0.0, mean @ cov @ mean)))
        original = [hypot(task.unit * level, shift), *(ratio * slopes).tolist()]
    return tuple(
        TermForecast(term=name, encoded=e, original=o if isfinite(o) else None)
        for name, e, o in zip(names, encoded, original, strict=True)
    )


def plan(study: Study | Terms, assumed: Assumptions | None = None) -> Plan:
    """The forecast with its curves, and the other mechanisms beside it; about a study's own target, if it has one.

    Raises PlanningError: there is nothing to forecast; PrivacyError: epsilon, delta or a row norm outside its domain.
    """
    if isinstance(study, Terms):
        terms, assumed = study, assumed or Assumptions()
    else:
        terms, assumed = terms_of(study), assumptions_of(study, assumed)
    asked = question_of(terms, assumed)
    drawn = Question(asked.expected, ()) if len(terms.columns) > _WIDE else asked  # two more would cost twice as much
    others = [with_best_k(with_mechanism(terms, name), asked.expected) for name in MECHANISMS]
    mechanisms = tuple(_point(other, drawn, at=other.epsilon) for other in others)
    heavier = None if assumed.target is None or drawn is not asked else weight_words(terms, asked.expected)
    return Plan(
        forecast=forecast_for(asked, terms, assumed),
        over_k=_over_k(terms, drawn),
        over_epsilon=_over_epsilon(terms, drawn),
        over_n=_over_n(terms, drawn),
        mechanisms=mechanisms,
        advice=" ".join(filter(None, (advice(mechanisms), heavier, square_words(terms, assumed)))),
        tables=table_forecasts(terms, assumed),
        cuts=cut_forecasts(terms, assumed),
    )


def with_mechanism(terms: Terms, name: str) -> Terms:
    """These terms with another mechanism, without a k; with listed subjects if it has no keyed ones."""
    other = terms if name == terms.mechanism else terms.reopened(mechanism=name, bounds=None)
    if not mechanism_of(other).interactive:
        other = other.with_parties(lambda _: {"weighted": None})
    return replace(other, k=None).with_subjects(keyed=terms.keyed and name in KEYED)


def _over_k(terms: Terms, asked: Question) -> tuple[Point, ...]:
    bounds = mechanism_of(terms).planner.sketch_bounds(terms)
    if bounds is None:
        return ()
    least, most = bounds
    values = _whole(terms, least, max(most, terms.k or 0))
    return tuple(_point(replace(terms, k=k), asked, at=k) for k in values)


def _over_epsilon(terms: Terms, asked: Question) -> tuple[Point, ...]:
    given = terms.epsilon
    most = _CLASSICAL_MOST if terms.calibration is Calibration.CLASSICAL else _MOST_EPSILON
    low, high = max(given / _EPSILONS, min(given, _LEAST_EPSILON)), min(given * _EPSILONS, max(given, most))
    values = _spaced(terms, low, high)
    return tuple(_chosen(terms.reopened(epsilon=e), asked, at=e) for e in values)


def _over_n(terms: Terms, asked: Question) -> tuple[Point, ...]:
    values = _whole(terms, max(_LEAST_N, terms.n / _SIZES), min(_MOST_N, terms.n * _SIZES))
    return tuple(_chosen(terms.reopened(n=n), asked, at=n) for n in values)


def _whole(terms: Terms, low: float, high: float) -> list[int]:
    return sorted({round(value) for value in _spaced(terms, low, high)})


def _spaced(terms: Terms, low: float, high: float) -> list[float]:
    points = _POINTS_OF_WIDE if len(terms.columns) > _WIDE else _POINTS
    values: list[float] = np.geomspace(low, high, points).tolist()
    return values


def _chosen(terms: Terms, asked: Question, *, at: float) -> Point:
    return _point(with_best_k(terms, asked.expected), asked, at=at)


def _point(terms: Terms, asked: Question, *, at: float) -> Point:
    task = asked.expected
    found = predicted(terms, task)
    return Point(
        at=at,
        mechanism=terms.mechanism,
        k=terms.k,
        r_squared=found.r_squared,
        r_squared_range=range_of(terms, asked, found.r_squared),
        r_squared_constant=found.r_squared_constant,
        relative_error=relative_error(task, found),
        useful=is_useful(found),
    )


def weight_words(terms: Terms, task: RegressionTask) -> str | None:
    """The weight that this task's label should have, in words; None if none helps, or the terms have one."""
    if not mechanism_of(terms).interactive or any(p.weighted or p.whitening for p in terms.parties):
        return None
    plain, found = _standard_errors(terms, task), dict[int, float]()
    for weight in _WEIGHTS:
        errors = _standard_errors(_weighted(terms, task.target, weight), task)
        if plain is None or errors is None:
            return None
        found[weight] = float(np.mean(errors / plain))
    least = min(found.values())
    if least > _WORTH_SAYING:
        return None
    weight = next(w for w, ratio in found.items() if ratio <= least + _AS_GOOD)
    holder = next(p.name for p in terms.parties if task.target in {a.name for a in p.attributes})
    return (
        f'With "weighted": {{"attribute": "{task.target}", "weight": {weight}}} at {holder}, standard errors of this '
        f"fit are expected to be {found[weight]:.2f} times these; {_others(terms, task.target, weight)}."
    )


def _weighted(terms: Terms, name: str, weight: int) -> Terms:
    heavy = Weighted(attribute=name, weight=weight)
    return terms.with_parties(lambda p: {"weighted": heavy if name in {a.name for a in p.attributes} else None})


def _standard_errors(terms: Terms, task: RegressionTask) -> np.ndarray | None:
    covariance = predicted(terms, task).covariance
    return None if covariance is None else np.sqrt(np.diag(covariance))


def _others(terms: Terms, name: str, weight: int) -> str:
    before, after = closed(terms), closed(_weighted(terms, name, weight))
    if any(p.first_stage_share is not None for p in before.parties):
        return "the columns beside it are cut shorter, and sums of other attributes get more noise"
    grown = [_moved(after, i) / _moved(before, i) for i in range(len(before.parties))]
    return f"the noise in sums of other attributes grows by {sqrt(min(grown)) - 1:.0%} to {sqrt(max(grown)) - 1:.0%}"


def _moved(terms: Terms, place: int) -> float:
    moved = mechanism_of(terms).squared_sensitivity(terms, terms.parties[place], terms.adjacency)
    return float(moved) / float(16**terms.fraction_bits)
