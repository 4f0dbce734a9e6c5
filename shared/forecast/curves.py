"""What a forecast would be elsewhere: over k, epsilon and n, and by mechanism."""

from dataclasses import replace

import numpy as np

from commingle.shared.documents.study import Study
from commingle.shared.dp.calibration import Calibration
from commingle.shared.forecast.forecast import (
    Question,
    forecast_for,
    is_useful,
    question_of,
    range_of,
    relative_error,
    with_best_k,
)
from commingle.shared.forecast.result import Plan, Point
from commingle.shared.forecast.words import advice
from commingle.shared.planning.design import ReleaseDesign, design_of
from commingle.shared.planning.task import Assumptions, assumptions_of
from commingle.shared.registry import MECHANISMS, mechanism_of

_POINTS, _POINTS_OF_WIDE, _WIDE = 17, 9, 128  # a point costs columns^3; every other one is the same
_EPSILONS, _SIZES = 30.0, 100.0  # a curve reaches that factor below and above
_LEAST_N, _MOST_N = 10, (1 << 53) - 1
_LEAST_EPSILON, _MOST_EPSILON = 1e-4, 1e4  # well inside what can be calibrated
_CLASSICAL_MOST = 1.0


def plan(study: Study | ReleaseDesign, assumed: Assumptions | None = None) -> Plan:
    """The forecast with its curves, and the other mechanisms beside it; about a study's own target, if it has one.

    Raises:
        PlanningError: there is nothing to forecast.
        PrivacyError: epsilon, delta or a row norm outside its domain.
    """
    if isinstance(study, ReleaseDesign):
        design, assumed = study, assumed or Assumptions()
    else:
        design, assumed = design_of(study), assumptions_of(study, assumed)
    asked = question_of(design, assumed)
    drawn = Question(asked.expected, ()) if len(design.columns) > _WIDE else asked  # two more would cost twice as much
    others = [with_best_k(design.with_mechanism(name), asked.expected) for name in MECHANISMS]
    mechanisms = tuple(_point(other, drawn, at=other.epsilon) for other in others)
    return Plan(
        forecast=forecast_for(asked, design, assumed),
        over_k=_over_k(design, drawn),
        over_epsilon=_over_epsilon(design, drawn),
        over_n=_over_n(design, drawn),
        mechanisms=mechanisms,
        advice=advice(mechanisms),
    )


def _over_k(design: ReleaseDesign, asked: Question) -> tuple[Point, ...]:
    bounds = mechanism_of(design).planner.sketch_bounds(design)
    if bounds is None:
        return ()
    least, most = bounds
    values = _whole(least, max(most, design.k or 0), points=_points(design))
    return tuple(_point(replace(design, k=k), asked, at=k) for k in values)


def _over_epsilon(design: ReleaseDesign, asked: Question) -> tuple[Point, ...]:
    given = design.epsilon
    most = _CLASSICAL_MOST if design.calibration is Calibration.CLASSICAL else _MOST_EPSILON
    low, high = max(given / _EPSILONS, min(given, _LEAST_EPSILON)), min(given * _EPSILONS, max(given, most))
    values = _spaced(low, high, points=_points(design))
    return tuple(_chosen(replace(design, epsilon=e, k=None, buckets=None), asked, at=e) for e in values)


def _over_n(design: ReleaseDesign, asked: Question) -> tuple[Point, ...]:
    values = _whole(max(_LEAST_N, design.n / _SIZES), min(_MOST_N, design.n * _SIZES), points=_points(design))
    return tuple(_chosen(replace(design, n=n, k=None, buckets=None), asked, at=n) for n in values)


def _points(design: ReleaseDesign) -> int:
    return _POINTS_OF_WIDE if len(design.columns) > _WIDE else _POINTS


def _whole(low: float, high: float, *, points: int) -> list[int]:
    """Each number once, however close the ends are."""
    return sorted({round(value) for value in _spaced(low, high, points=points)})


def _spaced(low: float, high: float, *, points: int) -> list[float]:
    values: list[float] = np.geomspace(low, high, points).tolist()
    return values


def _chosen(design: ReleaseDesign, asked: Question, *, at: float) -> Point:
    return _point(with_best_k(design, asked.expected), asked, at=at)


def _point(design: ReleaseDesign, asked: Question, *, at: float) -> Point:
    task = asked.expected
    found = mechanism_of(design).planner.predict(design, task)
    return Point(
        at=at,
        mechanism=design.mechanism,
        k=design.k,
        r_squared=found.r_squared,
        r_squared_range=range_of(design, asked, found.r_squared),
        r_squared_constant=found.r_squared_constant,
        relative_error=relative_error(task, found),
        useful=is_useful(found),
    )
