"""One fit: choose the moments, solve, and give coefficients with their errors in original units."""

from collections.abc import Sequence

import numpy as np

from commingle.services.fit.result import Fit
from commingle.services.fit.subjects import about_subjects, usable
from commingle.services.intervals import require_confidence
from commingle.shared.documents.schema import CategoricalAttribute, as_registered
from commingle.shared.errors import (
    CategoricalTargetError,
    EstimatorKindError,
    FeaturesError,
    InterceptError,
    TargetAmongFeaturesError,
    UnknownEstimatorError,
)
from commingle.shared.estimation.diagnostics import cautions, covariance, cut_rows, diagnose
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import Estimator, IntervalFor, names_of, require_interval, residual
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms import MECHANISMS, mechanism_named, mechanism_of

ESTIMATORS = tuple(dict.fromkeys(e for name in MECHANISMS for e in mechanism_named(name).fit.estimators))
"""The estimators of all mechanisms."""
TO_PREDICT = "shrunken"
"""The estimator for predictions, of every mechanism."""
PURPOSES = (
    f"To understand, take the fit with intervals, which is the default; to predict, take {TO_PREDICT}, which errs "
    "least on new people because it is pulled towards the mean, and so has no intervals."
)


def fit_prepared(
    prepared: PreparedMoments,
    target: str,
    features: str | Sequence[str] | None = None,
    *,
    estimator: str | None = None,
    intercept: bool = True,
    confidence_level: float = 0.95,
    interval_for: IntervalFor = "population",
) -> Fit:
    """Fit one linear model of one attribute, in original units.

    Args:
        prepared: moments of a release; they serve many fits.
        target: a numeric or binary attribute.
        features: attributes; None for all but the target. `constant` uses none.
        estimator: one of `ESTIMATORS`; None for the one with standard errors: `measurement_error`, or `ols` on moments.
        intercept: whether the model in original units has one.
        confidence_level: of the intervals, in (0, 1).
        interval_for: what intervals cover and p-values ask about: the coefficients of the population that the table was
            drawn from, or those of the same fit on the full private table. Intervals of `ols` on noisy rows cover
            neither.

    Raises EstimationError: see `services.errors`.
    """
    name, solver = _estimator(prepared, estimator)
    if not solver.uses_features and not intercept:
        raise InterceptError(f"{name} is nothing but an intercept", remedy="Leave the intercept in.")
    require_confidence(confidence_level)
    require_interval(interval_for)
    features = _features(prepared, target, None if features is None else names_of(features), solver)
    prepared, notes = usable(prepared, target, features)
    method = mechanism_of(prepared).fit
    name, solver = _estimator(prepared, estimator)  # those of pairwise moments, where these are
    chosen = tuple(i for name in features for i in prepared.columns[name])
    system = build_system(prepared, prepared.columns[target][0], chosen, intercept=intercept)
    signal = method.measure(system)
    H, b = solver.solve(system, signal)
    determined = solver.errors == "none" or bool(np.linalg.eigvalsh(H)[0] > 0)
    damped = solver.damping is not None and solver.damping(system, signal) > 0
    errors = solver.errors if determined and not damped else "none"
    diagnostics = diagnose(method, system, signal, H, b, errors=solver.errors)
    drawn = errors == "noisy_regressors" and interval_for == "population" and intercept
    turned = _spread(prepared, target, features, b, explained=diagnostics.r_squared) if drawn else None
    cov, covered = covariance(
        method, system, H, residual(system, b), errors=errors, interval_for=interval_for, spread=turned
    )
    used = (*chosen, prepared.columns[target][0])
    subjects, n = about_subjects(prepared, np.array(used, np.intp) - 1), prepared.shared(used)
    fewest = f"n = {n:,} is the fewest people whom two of these members share and who count."
    return Fit(
        estimator=name,
        target=target,
        features=features,
        intercept=intercept,
        terms=system.terms,
        coefficients=system.to_original @ b + system.shift,
        covariance=system.to_original @ cov @ system.to_original.T,
        degrees_of_freedom=system.degrees_of_freedom,
        confidence_level=confidence_level,
        interval_for=covered,
        counts_spread=turned is not None,
        n=n,
        rows=system.rows,
        mechanism=prepared.mechanism,
        diagnostics=diagnostics,
        warnings=(
            *cautions(method, system, signal, name, diagnostics, determined=determined),
            *(cut_rows(prepared.cut, system.lost) if errors != "none" else ()),
            *subjects.doubts,
        ),
        subjects=(*subjects.notes, *((fewest,) if any(len(c.parties) > 1 for c in subjects.counts) else ())),
        counts=subjects.counts,
        schema=tuple(prepared.attributes[name] for name in features),
        response=prepared.attributes[target],
        imputed=notes,
    )


def _spread(
    prepared: PreparedMoments, target: str, features: Sequence[str], b: Array, *, explained: float | None
) -> Array | None:
    from commingle.services.models.spread import EXPLAINED, knows_spread, spread  # noqa: PLC0415 - models know fits

    known = explained is not None and explained <= EXPLAINED and knows_spread(prepared, target, features)
    return spread(prepared, target, features, b) if known else None


def _estimator(prepared: PreparedMoments, asked: str | None) -> tuple[str, Estimator]:
    mechanism = mechanism_of(prepared)
    method = mechanism.fit
    name = asked or method.inference
    if name in method.estimators:
        return name, method.estimators[name]
    if name not in ESTIMATORS:
        raise UnknownEstimatorError(name, method.estimators)
    raise EstimatorKindError(
        f"{name} does not apply to a release of {mechanism.publishes}",
        remedy=f"Use {method.inference}, which has standard errors here, or {TO_PREDICT} to predict.",
    )


def _features(
    prepared: PreparedMoments, target: str, named: tuple[str, ...] | None, estimator: Estimator
) -> tuple[str, ...]:
    if isinstance(prepared.attribute(target), CategoricalAttribute):
        raise CategoricalTargetError(
            f"{target!r} has more than two levels and cannot be the target of a linear model",
            remedy="Choose a numeric or binary attribute.",
        )
    own = [name for name, a in prepared.attributes.items() if target in {name, *(p.name for p in as_registered(a))}]
    others = tuple(name for name in prepared.attributes if name not in own)
    features = others if named is None else named
    if not estimator.uses_features:
        return ()
    for name in features:
        prepared.attribute(name)
    if made := next((name for name in features if name in own), None):
        said = f"{target!r} is both target and feature" if made == target else f"{made!r} is made of {target!r}"
        raise TargetAmongFeaturesError(said, remedy="Leave it out of the features.")
    twice = sorted({name for name in features if features.count(name) > 1})
    if twice or not features:
        raise FeaturesError(
            f"{twice[0]!r} is named twice" if twice else "no features are named",
            remedy="Name each feature once, or use the estimator 'constant' for none.",
        )
    return features
