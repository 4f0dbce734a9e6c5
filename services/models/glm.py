"""Generalised linear models of one release of moments (docs/odds-ratios.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import ndtr, ndtri

from commingle.services.fit.subjects import about_tables
from commingle.services.models.family import outcome_of
from commingle.services.models.formula import Formula, parse
from commingle.services.models.outcome import Outcome, Scalar
from commingle.services.models.performance import Calibration, auc, calibration, marginal_effects
from commingle.services.models.result import GeneralisedFit
from commingle.services.models.score import Design, errors, first_term, solve
from commingle.services.models.tree import Factor
from commingle.services.models.weighted_rows import WeightedRows, weighted_rows
from commingle.shared.documents.schema import GAP, NumericAttribute
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.errors import ConfidenceError
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import IntervalFor, require_interval


def glm(
    prepared: PreparedMoments,
    formula: str | Formula,
    *,
    family: str = "binomial",
    confidence_level: float = 0.95,
    interval_for: IntervalFor = "population",
    entropy: int = 0,
) -> GeneralisedFit:
    """Fit `outcome ~ features`, as `outcome ~ age + sex`, `outcome ~ .` or `outcome[level] ~ age`.

    Args:
        prepared: of a release of moments.
        formula: attributes with levels on the right.
        family: binomial for one level of an outcome, ordinal for all in the order of the study, poisson for a number.
        confidence_level: of the intervals.
        interval_for: the population, or the same fit on the private table. Of keyed subjects always the population.
        entropy: of the drawing of weighted rows: it changes coefficients by less than their errors.

    Raises:
        NoTablesError: a release of rows, a number among the features, or missing cells that count as something else.
        EstimationError: see `errors` here and in shared.estimation.
    """
    require_interval(interval_for)
    if not 0 < confidence_level < 1:
        raise ConfidenceError(f"a confidence level of {confidence_level} is not between 0 and 1", remedy="Use 0.95.")
    sums = CrossProducts.of(prepared)
    asked = parse(formula, tuple(prepared.attributes)) if isinstance(formula, str) else formula
    sums, outcome, factors = _used(sums, outcome_of(sums, asked, family), asked.features)
    columns = [i for name in (asked.outcome, *asked.features) for i in prepared.columns[name]]
    if prepared.pairs is not None:
        prepared.pairs.require(np.array(columns, np.intp) - 1)
    rows = weighted_rows(sums, [*factors, *_observed(outcome)], entropy=entropy)
    design = _design(rows, factors, outcome, prepared.shared(columns))
    b = solve(design, outcome, first_term(sums, design, outcome)[0])
    found = errors(sums, rows, design, outcome, b)
    covers: IntervalFor = "population" if prepared.keyed else interval_for
    covariance = found.table if covers == "table" else found.population
    checked = calibration(sums, design, outcome, b, _levels(rows, factors))
    return _result(
        _Fitted(prepared, sums, asked, outcome, factors, design, b, covariance, found.population, checked),
        confidence_level,
        covers,
    )


def _used(
    sums: CrossProducts, outcome: Outcome, features: tuple[str, ...]
) -> tuple[CrossProducts, Outcome, tuple[Factor, ...]]:
    """All of these in the presences and columns that they use: forms are as large as their square."""
    factors = [Factor.of(sums, name) for name in features]
    fewer, kept = sums.using(np.vstack([outcome.value, outcome.known, *(f.indicators for f in factors)]))
    return fewer, outcome.at(kept), tuple(f.at(kept) for f in factors)


@dataclass(frozen=True, slots=True, eq=False)
class _Fitted:
    prepared: PreparedMoments
    sums: CrossProducts
    asked: Formula
    outcome: Outcome
    factors: Sequence[Factor]
    design: Design
    b: Array
    covariance: Array
    population: Array
    checked: Calibration


def _observed(outcome: Outcome) -> tuple[Factor, ...]:
    """Who has an outcome, as an attribute of the weighted rows, where some lack it."""
    if not outcome.gaps:
        return ()
    return (Factor("", ("known", GAP), np.array([outcome.known, outcome.present - outcome.known]), outcome.present),)


def _design(rows: WeightedRows, factors: Sequence[Factor], outcome: Outcome, n: int) -> Design:
    p = 1 + sum(len(f.labels) - 1 for f in factors)
    weights = rows.weights * (rows.codes[:, -1] == 0) if outcome.gaps else rows.weights
    alone = [outcome.present for _ in outcome.intercepts]
    present = [*alone, *(f.present for f in factors for _ in f.labels[1:])]
    columns = [*alone, *(column for f in factors for column in f.indicators[1:])]
    return Design(rows.points.X[:, :p], weights, np.array(columns), np.array(present), n, len(alone))


def _levels(rows: WeightedRows, factors: Sequence[Factor]) -> tuple[Array, Array]:
    who = [np.eye(len(f.labels))[rows.codes[:, j]] for j, f in enumerate(factors)]
    return np.hstack(who), np.vstack([f.indicators for f in factors])


def _result(fitted: _Fitted, confidence_level: float, covers: IntervalFor) -> GeneralisedFit:
    outcome, factors, b, covariance = fitted.outcome, fitted.factors, fitted.b, fitted.covariance
    z = float(ndtri((1 + confidence_level) / 2))
    se = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * ndtr(-np.abs(b / se))
    intervals = np.column_stack([b - z * se, b + z * se])
    n, n_interval = _people(fitted, z)
    effects = effect_errors = np.full(len(b), np.nan)
    area, area_interval = None, None
    if isinstance(outcome, Scalar):
        ends = np.cumsum([1, *(len(f.labels) - 1 for f in factors)]).tolist()
        blocks = [slice(first, last) for first, last in pairwise(ends)]
        effects, effect_errors = marginal_effects(fitted.design, outcome, b, covariance, blocks)
    if isinstance(outcome, Scalar) and outcome.family == "binomial":
        area, error = auc(fitted.design, outcome, b, fitted.population, max(n, 1))
        area_interval = (max(area - z * error, 0.0), min(area + z * error, 1.0))
    whose = about_tables(fitted.prepared, (*fitted.asked.features, fitted.asked.outcome))
    terms = (*outcome.intercepts, *(f"{f.name}[{label}]" for f in factors for label in f.labels[1:]))
    levels = tuple(f"{f.name}[{label}]" for f in factors for label in f.labels)
    with np.errstate(over="ignore"):
        ratios, ratio_intervals = np.exp(b), np.exp(intervals)
    return GeneralisedFit(
        family=outcome.family,
        outcome=outcome.name,
        features=fitted.asked.features,
        terms=terms,
        coefficients=b,
        standard_errors=se,
        intervals=intervals,
        p_values=p_values,
        ratios=ratios,
        ratio_intervals=ratio_intervals,
        covariance=covariance,
        marginal_effects=effects,
        marginal_errors=effect_errors,
        auc=area,
        auc_interval=area_interval,
        levels=levels,
        expected=fitted.checked.expected,
        observed=fitted.checked.observed,
        observed_errors=fitted.checked.errors,
        n=n,
        n_interval=n_interval,
        confidence_level=confidence_level,
        interval_for=covers,
        sentence=_sentence(fitted, se, terms, (ratios, ratio_intervals), confidence_level),
        about=_about(fitted),
        prior="Coefficients of features have a normal prior of mean 0 and standard deviation 1.",
        subjects=whose.notes,
        warnings=(*_cautions(fitted.checked, levels), *whose.doubts),
        schema=tuple(a for f in factors if not isinstance(a := fitted.prepared.attributes[f.name], NumericAttribute)),
        law=outcome,
    )


def _people(fitted: _Fitted, z: float) -> tuple[int, tuple[int, int]]:
    """Those with an outcome whom the parties share, the fewest of all pairs, and the interval of that count."""
    at = np.unique(fitted.design.present, axis=0)
    counts, covariance = fitted.sums.sums(products(at, fitted.outcome.known[None]))
    least = int(counts.argmin())
    reach = z * float(np.sqrt(max(covariance[least, least], 0.0)))
    low, n, high = (max(round(float(counts[least]) + by), 0) for by in (-reach, 0.0, reach))
    return n, (low, high)


def _about(fitted: _Fitted) -> str:
    name = fitted.asked.outcome
    everybody = "the people whom these members share" if fitted.prepared.keyed else "everybody in the release"
    whom = f"{everybody} whose {name} is known" if fitted.outcome.gaps else everybody
    marked = [f.name for f in fitted.factors if fitted.prepared.attributes[f.name].missing == "indicator"]
    said = f" Missing cells of {', '.join(marked)} are a level." if marked else ""
    return f"The model speaks of {whom}.{said}"


def _sentence(
    fitted: _Fitted, se: Array, terms: tuple[str, ...], ratios: tuple[Array, Array], confidence_level: float
) -> str:
    """What the clearest term says."""
    start = len(fitted.outcome.intercepts)
    term = start + int((np.abs(fitted.b[start:]) / np.maximum(se[start:], 1e-12)).argmax())
    first = {f"{f.name}[{label}]": f"{f.name}[{f.labels[0]}]" for f in fitted.factors for label in f.labels[1:]}
    low, high = ratios[1][term].tolist()
    what = {"binomial": "odds", "ordinal": "odds of a higher level"}.get(fitted.outcome.family, "expected count")
    return (
        f"All other features alike, {what} of {fitted.outcome.name} {'is' if what == 'expected count' else 'are'} "
        f"{ratios[0][term]:.2f} times as high at {terms[term]} as at {first[terms[term]]} "
        f"({100 * confidence_level:g} % interval {low:.2f} to {high:.2f})."
    )


def _cautions(checked: Calibration, levels: tuple[str, ...]) -> tuple[str, ...]:
    few = [level for level, so in zip(levels, checked.few, strict=True) if so]
    if not few:
        return ()
    said = f"At {', '.join(few)} hardly anybody may have the event, or hardly anybody not: the data may leave their "
    return (said + "odds open, and the prior has the say.",)
