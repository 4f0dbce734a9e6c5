"""One fit: cut the moments, solve, say how sure, in original units."""

import numpy as np

from commingle.services.fit.result import Fit
from commingle.services.fit.subjects import about_subjects, usable
from commingle.services.intervals import require_confidence
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import Attribute, CategoricalAttribute
from commingle.shared.estimation.diagnostics import cautions, covariance, cut_rows, diagnose
from commingle.shared.estimation.errors import (
    CategoricalTargetError,
    EstimatorKindError,
    FeaturesError,
    InterceptError,
    TargetAmongFeaturesError,
    UnknownEstimatorError,
)
from commingle.shared.estimation.method import Estimator, FitRequest, require_interval, residual
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms.registry import MECHANISMS, mechanism_named, mechanism_of
from commingle.shared.release.matrix import prepared_moments

ESTIMATORS = tuple(dict.fromkeys(e for name in MECHANISMS for e in mechanism_named(name).fit.estimators))
"""Names of the estimators of all mechanisms."""
TO_PREDICT = "shrunken"
"""The estimator for predictions, of every mechanism."""
PURPOSES = (
    f"To understand, take the fit with intervals, which is the default; to predict, take {TO_PREDICT}, which errs "
    "least on new people because it is pulled towards the mean, and so has no intervals."
)


def fit(moments: SecondMoments, attributes: tuple[Attribute, ...], request: FitRequest) -> Fit:
    """Fit one linear model on the second moments of a release; `attributes` as in its spec, in order.

    Raises EstimationError: see errors.py.
    """
    return fit_prepared(prepared_moments(moments, attributes), request)


def fit_prepared(prepared: PreparedMoments, request: FitRequest) -> Fit:
    """Fit one linear model on moments that serve many fits of one release. Raises EstimationError: see errors.py."""
    name, estimator = _estimator(prepared, request)
    _check(request, name, estimator)
    target, features = _names(prepared, request, estimator)
    prepared, notes = usable(prepared, target, features)
    method = mechanism_of(prepared).fit
    name, estimator = _estimator(prepared, request)  # those of pairwise moments, where these are
    chosen = tuple(i for name in features for i in prepared.columns[name])
    system = build_system(prepared, prepared.columns[target][0], chosen, intercept=request.intercept)
    signal = method.measure(system)
    H, b = estimator.solve(system, signal)
    determined = estimator.errors == "none" or bool(np.linalg.eigvalsh(H)[0] > 0)
    damped = estimator.damping is not None and estimator.damping(system, signal) > 0
    errors = estimator.errors if determined and not damped else "none"
    cov, covered = covariance(method, system, H, residual(system, b), errors=errors, interval_for=request.interval_for)
    diagnostics = diagnose(method, system, signal, H, b, errors=estimator.errors)
    used = (*chosen, prepared.columns[target][0])
    subjects, n = about_subjects(prepared, np.array(used, np.intp) - 1), prepared.shared(used)
    fewest = f"n = {n:,} is the fewest people whom two of these members share and who count."
    return Fit(
        estimator=name,
        target=target,
        features=features,
        intercept=request.intercept,
        terms=system.terms,
        coefficients=system.to_original @ b + system.shift,
        covariance=system.to_original @ cov @ system.to_original.T,
        degrees_of_freedom=system.degrees_of_freedom,
        confidence_level=request.confidence_level,
        interval_for=covered,
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


def _estimator(prepared: PreparedMoments, request: FitRequest) -> tuple[str, Estimator]:
    mechanism = mechanism_of(prepared)
    method = mechanism.fit
    name = request.estimator or method.inference
    if name in method.estimators:
        return name, method.estimators[name]
    if name not in ESTIMATORS:
        raise UnknownEstimatorError(name, method.estimators)
    raise EstimatorKindError(
        f"{name} does not apply to a release of {mechanism.publishes}",
        remedy=f"Use {method.inference}, which has standard errors here, or {TO_PREDICT} to predict.",
    )


def _check(request: FitRequest, name: str, estimator: Estimator) -> None:
    if not estimator.uses_features and not request.intercept:
        raise InterceptError(f"{name} is nothing but an intercept", remedy="Leave the intercept in.")
    require_confidence(request.confidence_level)
    require_interval(request.interval_for)


def _names(prepared: PreparedMoments, request: FitRequest, estimator: Estimator) -> tuple[str, tuple[str, ...]]:
    target = request.target
    if isinstance(prepared.attribute(target), CategoricalAttribute):
        raise CategoricalTargetError(
            f"{target!r} has more than two levels and cannot be the target of a linear model",
            remedy="Choose a numeric or binary attribute.",
        )
    others = tuple(name for name in prepared.attributes if name != target)
    features = others if request.features is None else request.features
    if not estimator.uses_features:
        return target, ()
    for name in features:
        prepared.attribute(name)
    if target in features:
        raise TargetAmongFeaturesError(f"{target!r} is both target and feature", remedy="Leave it out of the features.")
    twice = sorted({name for name in features if features.count(name) > 1})
    if twice or not features:
        raise FeaturesError(
            f"{twice[0]!r} is named twice" if twice else "no features are named",
            remedy="Name each feature once, or use the estimator 'constant' for none.",
        )
    return target, features
