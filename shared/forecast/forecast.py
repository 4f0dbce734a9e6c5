"""The forecast of one release, and the k that it should have."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, floor, hypot, isfinite, log10, sqrt
from threading import Lock

import numpy as np

from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import Terms
from commingle.shared.forecast.errors import PlanningError
from commingle.shared.forecast.result import Forecast, TermForecast
from commingle.shared.forecast.tables import sentence_of, table_forecasts
from commingle.shared.forecast.task import Assumptions, assumptions_of, ends, expected, populations, task_of
from commingle.shared.forecast.words import exchange_words, sentences
from commingle.shared.mechanisms.interface import ExchangeCost
from commingle.shared.mechanisms.prediction import Prediction, RegressionTask
from commingle.shared.mechanisms.registry import mechanism_of
from commingle.shared.release.resolve import closed, terms_of

_computing = [Lock() for _ in range(16)]
_LEAST_N, _MOST_N = 100, 10**12
_HALVINGS = 12  # of ten decades: to half a per cent of a decade


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One regression and how well it is known.

    Attributes:
        expected: what is likely of the population.
        ends: of the populations that public rows may come from the two between which nine of ten lie, by what the
            release that was asked for explains there; none where nothing is left open.
    """

    expected: RegressionTask
    ends: tuple[RegressionTask, ...]


def forecast_of(spec: ReleaseSpec) -> Forecast | None:
    """The forecast of a proposed release under the default assumptions; None where no attribute can be a label.

    It is about the spec's own target, where it names one. Who asks while it is computed waits for that.
    """
    with _computing[hash(spec) % len(_computing)]:
        return computed_forecast(spec)


@lru_cache(maxsize=256)  # a function of the spec alone, asked for whenever a proposal is shown
def computed_forecast(spec: ReleaseSpec) -> Forecast | None:
    """`forecast_of`, unless somebody else computes it just now."""
    try:
        return forecast(spec.terms, assumptions_of(spec))
    except PlanningError:
        return None


def forecast(terms: Terms, assumed: Assumptions | None = None) -> Forecast:
    """The forecast of terms; a k that is left open is chosen."""
    assumed = assumed or Assumptions()
    return forecast_for(question_of(terms, assumed), terms, assumed)


def exchange_of(terms: Terms) -> ExchangeCost | None:
    """What a release of these terms costs its parties besides budget, where they exchange."""
    made = closed(terms)
    return mechanism_of(made).exchange_cost(made.table_rows, made.widths, proved=made.proved)


def outlook_of(spec: ReleaseSpec) -> tuple[str, ...]:
    """What a proposed release will be worth and cost besides budget, in sentences."""
    found = forecast_of(spec)
    tables = sentence_of(table_forecasts(spec.terms, assumptions_of(spec), sizes=False))
    if found is not None:
        return *found.sentences, *tables
    none = "No forecast: no attribute can be the target of a linear model."
    return none, *tables, *exchange_words(exchange_of(spec.terms), closed(spec).taken_by_exchange)


def question_of(terms: Terms, assumed: Assumptions) -> Question:
    """What is assumed; of public rows what they make likely of everybody else, and what else they leave possible."""
    task, rows = task_of(terms, assumed), assumed.public_rows
    if assumed.second_moments is None or rows is None:
        return Question(task, ())
    likely = expected(task, rows)
    chosen = terms if terms.k is not None else with_best_k(terms, likely)
    possible = populations(task, rows)
    return Question(likely, tuple(possible[i] for i in ends([_explained(chosen, each) for each in possible])))


def forecast_for(question: Question, terms: Terms, assumed: Assumptions) -> Forecast:
    """The forecast where the question is known already."""
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
    """Least and most of what is likely and what this release explains at the question's ends."""
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
    """The terms with their k, chosen anew where the mechanism has one."""
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

    found = _least(tells_apart)
    if found is None:
        return None
    if not serves(found) and (found := _least(serves)) is None:
        return None
    n: float = 10**found
    unit: int = 10 ** (floor(log10(n)) - 1)
    return ceil(n / unit) * unit


def _least(holds: Callable[[float], bool]) -> float | None:
    low, high = log10(_LEAST_N), log10(_MOST_N)
    if not holds(high):
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _terms(task: RegressionTask, found: Prediction) -> tuple[TermForecast, ...]:
    """Original intercept = level - sum_j slope_j mean_j; the level's own error is independent of the slopes'."""
    names = ("(intercept)", *task.labels)
    cov = found.covariance
    if cov is None:
        return tuple(TermForecast(term=name, encoded=None, original=None) for name in names)
    with np.errstate(all="ignore"):  # bounds may lie at the ends of what a number can be
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
