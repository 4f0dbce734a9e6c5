"""One fit: cut the moments, solve, say how sure, in original units; and whom it is of.

Where cells are missing it is of those who have a target, which is made up for nobody. Of keyed subjects it says how
many are shared, and whether those differ from the others.

Attributes whose missing cells are nobody's: no value stands in for one that is not there.

Where missing cells are marked, h = 1_i - (the mark) is the presence of those at party i who have a value, published as
other columns are. Products with that attribute's columns sum over them alone, since a missing cell is 0 in these. So
they are a part of i's subjects, and pairwise moments (`pairwise`) say what they and everybody else share: means and
covariances of that attribute over those who have it, of all others over whom they were over. This holds for everybody
if who has a value does not depend on values; that is tested as it is for keyed subjects.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from commingle.services.fit.result import Fit
from commingle.services.intervals import require_confidence
from commingle.shared.documents.schema import CategoricalAttribute, words_for_missing
from commingle.shared.estimation.diagnostics import cautions, covariance, cut_rows, diagnose
from commingle.shared.estimation.entry_noise import Array, PairLaw
from commingle.shared.estimation.errors import (
    CategoricalTargetError,
    EstimatorKindError,
    FeaturesError,
    ImputedTargetError,
    InterceptError,
    TargetAmongFeaturesError,
    UnknownEstimatorError,
)
from commingle.shared.estimation.method import Estimator, IntervalFor, names_of, require_interval, residual
from commingle.shared.estimation.pair_noise import Held, Selection, held, selections, suspicious
from commingle.shared.estimation.pairwise import ENOUGH_SHARED, Counts, Pairs
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import build_system
from commingle.shared.mechanisms.registry import KEYED, MECHANISMS, mechanism_named, mechanism_of

LISTED = "the list"
_CLEAR = 4.0
"""How many times sqrt(q) s a mark varies that is clear of noise: twice the norm of q columns of noise s apiece."""


def without_gaps(prepared: PreparedMoments, names: Sequence[str]) -> PreparedMoments:
    """These moments, in which cells of these attributes that are missing count for nobody; they lose their marks."""
    marked = [name for name in names if prepared.attribute(name).missing == "indicator"]
    if not marked:
        return prepared
    pairs = _parted(pairs_of(prepared), {name: tuple(i - 1 for i in prepared.columns[name]) for name in marked})
    plain = {name: prepared.attributes[name].model_copy(update={"missing": "error"}) for name in marked}
    return replace(
        prepared.with_pairs(pairs),
        attributes={**prepared.attributes, **plain},
        columns={**prepared.columns, **{name: prepared.columns[name][:-1] for name in marked}},
    )


def faint_marks(prepared: PreparedMoments, names: Sequence[str]) -> tuple[str, ...]:
    """Attributes among these whose marks vary too little for terms of their own, beside the noise in them.

    A mark of few cells is nearly nothing and noise: solved for, it carries its noise into every coefficient.
    """
    marked = [name for name in names if prepared.attribute(name).missing == "indicator"]
    if not marked:
        return ()
    pairs = pairs_of(prepared)
    reach = _CLEAR * sqrt(sum(len(prepared.columns[name]) for name in names))
    return tuple(name for name in marked if _faint(pairs, prepared.columns[name][-1] - 1, reach))


def pairs_of(prepared: PreparedMoments) -> Pairs:
    """Its pairs; of listed subjects, all of whom a release knows, those of one party that holds the list."""
    if prepared.pairs is not None:
        return prepared.pairs
    n, width = float(prepared.n), len(prepared.gram)
    scale = n / float(prepared.gram[0, 0])  # 1 of moments; a sketch of rows mixes the ones of n subjects too
    sums, undo = scale * (prepared.gram - prepared.rows * prepared.V), np.eye(width)
    noise = PairLaw.of_rows(scale * prepared.gram, prepared.rows)
    if prepared.entry_variance is not None:
        undo, noise = prepared.mixing, PairLaw.of_entries(prepared.entry_variance)
    whole = np.full((1, 1), n)
    counts = Counts(whole, whole, np.zeros((1, 1)), np.zeros((1, 1)))
    party = np.zeros(width - 1, np.intp)
    return Pairs.of(sums, undo, names=(LISTED,), party=party, counts=counts, noise=noise, asked=prepared.n)


def _faint(pairs: Pairs, mark: int, reach: float) -> bool:
    whose, before = pairs.party[mark], len(pairs.names)
    own = float(pairs.counts.summed[whose, whose])
    rows = pairs.centring[before + mark], pairs.undo[whose] - pairs.undo[before + mark]
    varies, counted = (sqrt(float(pairs.noise.variances(row[None], row[None])[0, 0])) for row in rows)
    return own * float(pairs.covariance[mark, mark]) < reach * varies and own > 2 * ENOUGH_SHARED * counted


def _parted(pairs: Pairs, parts: dict[str, tuple[int, ...]]) -> Pairs:
    before, columns = len(pairs.names), len(pairs.party)
    seen = np.eye(before + columns)
    owner, party = pairs.owner, pairs.party.copy()
    present = list(seen[:before])
    for place, (*values, mark) in enumerate(parts.values(), start=before):
        whose = pairs.party[mark]
        present.append(seen[whose] - seen[before + mark])
        party[values], owner = place, np.append(owner, whose)
    R = np.array([*present, *seen[before:]])
    undo = R @ pairs.undo
    return Pairs.of(
        R @ pairs.sums @ R.T,
        undo,
        names=(*pairs.names, *(f"those with {name}" for name in parts)),
        party=party,
        counts=_counts(pairs, R[: len(owner)], undo[: len(owner)], owner),
        noise=pairs.noise,
        asked=pairs.asked,
        owner=owner,
    )


def _counts(pairs: Pairs, R: Array, undo: Array, owner: NDArray[np.intp]) -> Counts:
    whole, before = np.ix_(owner, owner), pairs.counts
    summed = np.maximum(R @ pairs.sums @ R.T, 0.0)
    summed[: len(before.summed), : len(before.summed)] = before.summed
    kept = np.maximum(before.summed[whole], 1.0)
    share, errors = summed / kept, before.errors[whole].copy()
    for i in range(len(before.summed), len(owner)):
        for j in range(i + 1):
            noise = _share_error(pairs, undo[[i, j]], undo[owner[[i, j]]], share[i, j]) / kept[i, j]
            both = np.hypot(share[i, j] * errors[i, j], before.held[owner[i], owner[j]] * noise)
            errors[i, j] = errors[j, i] = both
    strangers = before.strangers[whole] * np.outer(np.diag(share), np.diag(share))
    return Counts(summed, share * before.held[whole], errors, strangers, before.below)


def _share_error(pairs: Pairs, part: Array, whole: Array, share: float) -> float:
    """The noise of part_1 S part_2 - share whole_1 S whole_2, to first order that of the share times what is whole."""
    form = np.outer(*part) - share * np.outer(*whole)
    used = np.flatnonzero((form + form.T).any(axis=0))
    form = (form + form.T)[used[:, None], used] / 2
    return sqrt(max(0.0, float(pairs.noise.on(used).covariances(form[None])[0, 0])))


def usable(prepared: PreparedMoments, target: str, features: Sequence[str]) -> tuple[PreparedMoments, tuple[str, ...]]:
    """Moments for fits of a target by these features, and a sentence on the missing cells of each attribute in use.

    Missing cells of the target, and of features with few of them, count for nobody in these moments.

    Raises:
        ImputedTargetError: missing cells of the target count as a value, or its release does not tell them apart.
        UnknownAttributeError: a name that the release does not have.
    """
    attribute, pairwise = prepared.attribute(target), prepared.mechanism in KEYED
    if attribute.missing == "midpoint":
        raise ImputedTargetError(
            f"missing cells of {target} count as {attribute.stand_in}: a fit would take that for what people have",
            remedy='Propose the study with "missing": "indicator" for it: its fits then use those who have one.',
        )
    if attribute.missing == "indicator" and not pairwise:
        raise ImputedTargetError(
            f"cells of {target} may be missing, and a release of {prepared.mechanism} cannot be fitted without these",
            remedy='Propose the study with another mechanism, such as "moments".',
        )
    faint = faint_marks(prepared, features) if pairwise else ()
    found = without_gaps(prepared, (target, *faint))
    marked = filter(None, (words_for_missing(found.attributes[name]) for name in features))
    return found, (*_of_target(found, target), *(_of_feature(found, name) for name in faint), *marked)


def _of_target(found: PreparedMoments, target: str) -> tuple[str, ...]:
    place = -1 if found.pairs is None else int(found.pairs.party[found.columns[target][0] - 1])
    if found.pairs is None or found.pairs.owner[place] == place:
        return ()
    said = _share(found.pairs, place, target)
    return (f"{said}. Sums with it are of those; the fit holds for all if who lacks one does not depend on values.",)


def _of_feature(found: PreparedMoments, name: str) -> str:
    if found.pairs is None:
        raise TypeError("an attribute without gaps is of pairs")
    said = _share(found.pairs, int(found.pairs.party[found.columns[name][0] - 1]), name)
    return f"{said}: too few lack one for a term of their own, so sums with it are of those who have one."


def _share(pairs: Pairs, place: int, name: str) -> str:
    whole = int(pairs.owner[place])
    held, everybody, error = pairs.counts.held[place, place], pairs.counts.held[whole, whole], pairs.counts.errors
    subjects = f"about {min(max(held, 0), everybody):,.0f} of {everybody:,.0f} people have one"
    return f"{name}: {subjects}, give or take {2 * error[place, place]:,.0f}"


def words_for_counts(found: Held) -> str:
    """One count in words, with the half width of its 95 % interval, and how many of them met nobody in a bucket."""
    said = f"about {max(found.subjects, 0):,.0f} people, give or take {2 * found.error:,.0f}"
    if found.kept != found.subjects:
        said += f", of whom about {max(found.kept, 0):,.0f} count"
    if len(found.parties) == 1:
        return f"{found.parties[0]} holds {said}."
    return f"{found.parties[0]} and {found.parties[1]} share {said}."


@dataclass(frozen=True, slots=True)
class Subjects:
    """Whom a fit rests on.

    Attributes:
        counts: how many each party of its columns holds, each two of them share, and have the target; or all of a list.
        notes: the same in sentences, where it is not known exactly, and whether these people differ from the others.
        doubts: warnings, where they do.
    """

    counts: tuple[Held, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def about_subjects(prepared: PreparedMoments, columns: NDArray[np.intp]) -> Subjects:
    """Whom moments of these columns are of, the target's last."""
    pairs = prepared.pairs
    if pairs is None:
        return Subjects((Held((LISTED,), float(prepared.n), 0.0, float(prepared.n)),))
    whose = pairs.party[columns]
    kept = (pairs.owner[whose] == whose) | (whose == whose[-1])  # few lack what is a part of its own besides the target
    used = np.union1d(whose[kept], pairs.owner[whose])
    names = {pairs.names[i] for i in used}
    parts = {pairs.names[i]: {pairs.names[i], pairs.names[pairs.owner[i]]} for i in used if pairs.owner[i] != i}
    counts = tuple(found for found in held(pairs) if names.issuperset(found.parties))
    told = [found for found in counts if found.parties != (LISTED,)]
    told = [found for found in told if not any(whole.issuperset(found.parties) for whole in parts.values())]
    asked = dict.fromkeys(pairs.names[place] for place in pairs.owner[whose])
    notes = [prepared.subsets[name] for name in asked if name in prepared.subsets]
    notes += [words_for_counts(found) for found in told]
    if pairs.counts.below is not None:
        notes.append(f"This is so if no member holds more than {pairs.counts.below:,}: more would look like fewer.")
    tests = selections(pairs, columns[kept])
    doubts = suspicious(tests)
    if tests and not doubts:
        least = min(test.p_value for test in tests)
        made = "one test" if len(tests) == 1 else f"{len(tests)} tests"
        who = "shared people" if told else "those who have it"
        notes.append(f"Nothing shows that {who} differ from the others ({made}, the least p {least:.2g}).")
    warnings = [
        f"{_differ(test, parts)} (chi-squared {test.statistic:.0f} on {test.degrees}, p = {test.p_value:.1g}; most in "
        f"{prepared.labels[1 + test.column]}): who is missing depends on values, so coefficients may not hold for "
        "everybody and intervals do not count that."
        for test in doubts
    ]
    return Subjects(counts, tuple(notes), (*warnings, *prepared.misjudged((1 + columns).tolist())))


def about_tables(prepared: PreparedMoments, names: Iterable[str]) -> Subjects:
    """Whom counts of these attributes are of; `doubts` say too that rows were cut, which no interval of counts holds.

    Raises UnknownAttributeError.
    """
    used = np.array([i for name in names for i in prepared.columns[name]], np.intp)
    found = about_subjects(prepared, used - 1)
    cut = cut_rows(prepared.cut, None if prepared.lost is None else prepared.lost[used], counted=False)
    return replace(found, doubts=(*cut, *found.doubts))


def _differ(test: Selection, parts: Collection[str]) -> str:
    if test.other in parts:
        return f"T{test.other[1:]} differ from all people of {test.party}"
    if test.party in parts:
        return f"T{test.party[1:]} whom {test.other} holds differ from all {test.party}"
    return f"People whom {test.party} shares with {test.other} differ from all its own"


ESTIMATORS = tuple(dict.fromkeys(e for name in MECHANISMS for e in mechanism_named(name).fit.estimators))
"""Names of the estimators of all mechanisms."""
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
    interval_for: IntervalFor = "table",
) -> Fit:
    """Fit one linear model of one attribute, in original units.

    Args:
        prepared: moments of a release, which serve many fits.
        target: name of a numeric or binary attribute.
        features: names of attributes; None for all but the target. `constant` uses none.
        estimator: one of `ESTIMATORS`; None for the one with standard errors: `measurement_error`, or `ols` on moments.
        intercept: whether the model in original units has one.
        confidence_level: of the intervals, in (0, 1).
        interval_for: what intervals (but those of `ols` on noisy rows) are to cover: the coefficients of the same fit
            on the full private table, or those of the population it was drawn from.

    Raises:
        EstimationError: see errors.py.
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
    cov, covered = covariance(method, system, H, residual(system, b), errors=errors, interval_for=interval_for)
    diagnostics = diagnose(method, system, signal, H, b, errors=solver.errors)
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
    others = tuple(name for name in prepared.attributes if name != target)
    features = others if named is None else named
    if not estimator.uses_features:
        return ()
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
    return features
