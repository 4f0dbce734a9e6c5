"""What a forecast would be elsewhere: over k, epsilon and n, by mechanism, and with a weight of the label.

What a weight would bring to a fit, and what it would cost other sums: docs/planning.md#weights.
"""

from dataclasses import replace
from math import sqrt

import numpy as np

from commingle.shared.documents.schema import Weighted
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.calibration import Calibration
from commingle.shared.forecast.forecast import (
    Question,
    forecast_for,
    is_useful,
    predicted,
    question_of,
    range_of,
    relative_error,
    with_best_k,
)
from commingle.shared.forecast.result import Plan, Point
from commingle.shared.forecast.tables import cut_forecasts, table_forecasts
from commingle.shared.forecast.task import Assumptions, assumptions_of
from commingle.shared.forecast.words import advice
from commingle.shared.mechanisms.prediction import RegressionTask
from commingle.shared.mechanisms.registry import KEYED, MECHANISMS, mechanism_of
from commingle.shared.release.resolve import closed, terms_of

_WEIGHTS = (2, 3, 4)
_WORTH_SAYING, _AS_GOOD = 0.95, 0.02
_POINTS, _POINTS_OF_WIDE, _WIDE = 17, 9, 128  # a point costs columns^3; every other one is the same
_EPSILONS, _SIZES = 30.0, 100.0  # a curve reaches that factor below and above
_LEAST_N, _MOST_N = 10, (1 << 53) - 1
_LEAST_EPSILON, _MOST_EPSILON = 1e-4, 1e4  # well inside what can be calibrated
_CLASSICAL_MOST = 1.0


def plan(study: Study | Terms, assumed: Assumptions | None = None) -> Plan:
    """The forecast with its curves, and the other mechanisms beside it; about a study's own target, if it has one.

    Raises:
        PlanningError: there is nothing to forecast.
        PrivacyError: epsilon, delta or a row norm outside its domain.
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
        advice=" ".join(filter(None, (advice(mechanisms), heavier))),
        tables=table_forecasts(terms, assumed),
        cuts=cut_forecasts(terms, assumed),
    )


def with_mechanism(terms: Terms, name: str) -> Terms:
    """These terms with another mechanism, without a k; with listed subjects where that one has no others."""
    other = terms if name == terms.mechanism else terms.reopened(mechanism=name, bounds=None)
    if not mechanism_of(other).interactive:
        other = replace(other, parties=tuple(p.model_copy(update={"weighted": None}) for p in other.parties))
    return replace(other, k=None).with_subjects(keyed=terms.keyed and name in KEYED)


def _over_k(terms: Terms, asked: Question) -> tuple[Point, ...]:
    bounds = mechanism_of(terms).planner.sketch_bounds(terms)
    if bounds is None:
        return ()
    least, most = bounds
    values = _whole(least, max(most, terms.k or 0), points=_points(terms))
    return tuple(_point(replace(terms, k=k), asked, at=k) for k in values)


def _over_epsilon(terms: Terms, asked: Question) -> tuple[Point, ...]:
    given = terms.epsilon
    most = _CLASSICAL_MOST if terms.calibration is Calibration.CLASSICAL else _MOST_EPSILON
    low, high = max(given / _EPSILONS, min(given, _LEAST_EPSILON)), min(given * _EPSILONS, max(given, most))
    values = _spaced(low, high, points=_points(terms))
    return tuple(_chosen(terms.reopened(epsilon=e), asked, at=e) for e in values)


def _over_n(terms: Terms, asked: Question) -> tuple[Point, ...]:
    values = _whole(max(_LEAST_N, terms.n / _SIZES), min(_MOST_N, terms.n * _SIZES), points=_points(terms))
    return tuple(_chosen(terms.reopened(n=n), asked, at=n) for n in values)


def _points(terms: Terms) -> int:
    return _POINTS_OF_WIDE if len(terms.columns) > _WIDE else _POINTS


def _whole(low: float, high: float, *, points: int) -> list[int]:
    return sorted({round(value) for value in _spaced(low, high, points=points)})


def _spaced(low: float, high: float, *, points: int) -> list[float]:
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
    """The weight that this task's label should have, in words; None where none is of use, or one is given already."""
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
    mine = (heavy if name in {a.name for a in p.attributes} else None for p in terms.parties)
    parties = (p.model_copy(update={"weighted": own}) for p, own in zip(terms.parties, mine, strict=True))
    return replace(terms, parties=tuple(parties))


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
