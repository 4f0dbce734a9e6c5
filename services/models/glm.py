"""Generalised linear models of one release of moments, and how well they predict (docs/odds-ratios.md)."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from commingle.services.fit.predicting import OutsideBoundsWarning, Values, length_of, level_places, outside_intervals
from commingle.services.fit.subjects import about_tables
from commingle.services.intervals import LogRatios, normal_reach, percent, require_confidence, standard_errors
from commingle.services.models.factors import Factor, terms_of
from commingle.services.models.formula import Formula, parse
from commingle.services.models.outcome import Ordered, Outcome, Scalar, outcome_of
from commingle.services.models.predictions import auc, marginal_effects, unknown
from commingle.services.models.rates import Rates
from commingle.services.models.score import Design, Equation, Solved
from commingle.services.plotting import Intervals
from commingle.services.results import Drawn, ResultColumn, ResultTable
from commingle.shared.documents.schema import Levelled, NumericAttribute
from commingle.shared.estimation.cells import ratios
from commingle.shared.estimation.cross_products import CrossProducts, products
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import IntervalFor, require_interval
from commingle.shared.estimation.prepared import PreparedMoments

_SURE = 3.0  # errors of a count, above none
_OPEN = 8.0  # errors, for each unit of the distance of `Solved.beyond`
_NO_AREA = "Noise or few people leave open how well predictions tell who has the event, so there is no AUC."
COVERED = {
    "table": "Intervals are for the same fit on the full private table, and count the privacy noise: p asks whether a "
    "coefficient in these very rows is 0, not in the population.",
    "population": "Intervals are for the population, and count the privacy noise and the drawing of these people.",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GeneralisedFit(Drawn):
    """A generalised linear model with the family's own link: logit of an event's chance, log of an expected count.

    Attributes:
        outcome: the attribute, with the event in brackets where it has levels.
        terms: p labels, the intercept first; each level is compared with the first of its attribute.
        coefficients: (p,), log odds or rate ratios.
        standard_errors: (p,).
        intervals: (p, 2) of the coefficients.
        p_values: (p,) two-sided.
        ratios: (p,) odds or rate ratios; for the intercept, the odds or the rate where all levels are the first.
        ratio_intervals: (p, 2).
        covariance: (p, p).
        marginal_effects: (p,) mean change of the expected outcome if all had this level and not the first; NaN for the
            intercept.
        marginal_errors: (p,).
        auc: expected if the model is right, with `auc_interval` (2,); None for counts, and where noise leaves it open.
        levels: labels of all levels of all features, for `expected`.
        expected: (t,) mean outcome by level, by the model.
        observed: (t,) mean outcome by level as released, with `observed_errors` of noise and drawing.
        n: people with an outcome, with `n_interval` (2,).
        about: the people that the model is about.
        prior: what the model assumes of coefficients.
        subjects: sentences on the people of the sums, and on intervals that rest on pairs alone.
        schema: the attributes of the features; `places` are those of their levels in the model, where rare levels
            count as one.
        law: the law of the outcome.
    """

    family: str
    outcome: str
    features: tuple[str, ...]
    terms: tuple[str, ...]
    coefficients: Array
    standard_errors: Array
    intervals: Array
    p_values: Array
    ratios: Array
    ratio_intervals: Array
    covariance: Array
    marginal_effects: Array
    marginal_errors: Array
    auc: float | None
    auc_interval: tuple[float, float] | None
    levels: tuple[str, ...]
    expected: Array
    observed: Array
    observed_errors: Array
    n: int
    n_interval: tuple[int, int]
    confidence_level: float
    interval_for: IntervalFor
    sentence: str
    about: str
    prior: str
    subjects: tuple[str, ...]
    warnings: tuple[str, ...]
    schema: tuple[Levelled, ...] = field(repr=False)
    places: tuple[NDArray[np.intp], ...] = field(repr=False)
    law: Outcome = field(repr=False)

    def predict(self, rows: Mapping[str, Values]) -> Array:
        """Expected outcomes, (m,): chances within 0 and 1, or rates.

        A value is a level, a number where levels are its intervals, or None for a missing cell. Numbers beyond all
        intervals count in an outermost one, with an OutsideBoundsWarning.

        Raises RowsError: a feature is missing, has another length, or holds something that is not one of its levels.
        """
        size = length_of(rows, self.features)
        levels = [level_places(attribute, rows[attribute.name]) for attribute in self.schema]  # a marked gap is last
        for said in (each for attribute in self.schema for each in outside_intervals(attribute, rows[attribute.name])):
            warnings.warn(said, OutsideBoundsWarning, stacklevel=2)
        blocks = [np.eye(at.max() + 1)[at[each], 1:] for at, each in zip(self.places, levels, strict=True)]
        X = np.hstack([np.ones((size, 1)), *blocks])
        return self.law.prediction(X, self.coefficients)

    @property
    def _form(self) -> str:
        return ".4g" if self.family == "poisson" else ".4f"  # rates may be far below 1

    def table(self) -> ResultTable:
        low, high = self.n_interval
        forms = [".3f"] * len(self.terms)
        if self.family == "poisson":
            forms[0] = self._form  # no ratio: the rate itself
        facts = [("people", f"{self.n:,}" if low == high else f"about {self.n:,} ({low:,} to {high:,})")]
        if self.auc_interval is not None:
            least, most = self.auc_interval
            facts.append(("AUC", f"{self.auc:.3f} ({least:.3f} to {most:.3f})"))
        return ResultTable(
            title=f"{self.family.capitalize()} model of {self.outcome}",
            facts=(*facts, ("intervals", percent(self.confidence_level))),
            heading="term",
            labels=self.terms,
            columns=(
                ResultColumn(self.law.ratio, self.ratios, tuple(forms), interval=self.ratio_intervals),
                ResultColumn("coefficient", self.coefficients, ".3f"),
                ResultColumn("standard error", self.standard_errors, ".3f"),
                ResultColumn("p", self.p_values, "p"),
                ResultColumn("marginal effect", self.marginal_effects, self._form),
            ),
            notes=(
                *((self.sentence,) if self.sentence else ()),
                *(COVERED[self.interval_for], self.about, self.prior, *self.subjects),
            ),
            warnings=self.warnings,
        )

    def pictures(self) -> tuple[Intervals, ...]:
        """Ratios of all levels against the first."""
        start = len(self.law.intercepts)
        picture = Intervals(
            title=self.outcome,
            axis=f"{self.law.ratio} against the first level ({percent(self.confidence_level)} intervals)",
            labels=self.terms[start:],
            values=self.ratios[start:],
            intervals=self.ratio_intervals[start:],
            of="ratios",
        )
        return (picture,)

    def calibration(self) -> ResultTable:
        """Mean outcomes by level: expected by the model, and as released."""
        return ResultTable(
            title=f"Calibration of {self.outcome}",
            heading="level",
            labels=self.levels,
            columns=(
                ResultColumn("expected", self.expected, self._form),
                ResultColumn("observed", self.observed, self._form),
                ResultColumn("standard error", self.observed_errors, self._form),
            ),
        )


def glm(
    prepared: PreparedMoments,
    formula: str | Formula,
    *,
    family: str = "binomial",
    offset: str | None = None,
    confidence_level: float = 0.95,
    interval_for: IntervalFor = "population",
    entropy: int = 0,
) -> GeneralisedFit:
    """Fit `outcome ~ features`, as `outcome ~ age + sex`, `outcome ~ .` or `outcome[level] ~ age`.

    Args:
        prepared: moments of a release.
        formula: an outcome and attributes with levels.
        family: binomial for one level of an outcome, ordinal for all in the order of the study, poisson for a number.
        offset: a number such as years at risk, for counts: rates are per unit of it, and it is no feature.
        confidence_level: of the intervals.
        interval_for: the population, or the same fit on the private table; always the population for keyed data sets.
        entropy: seeds the drawing of weighted rows; it changes coefficients by less than their errors.

    Raises:
        NoTablesError: the release has rows, a feature is a number, or missing cells count as something else.
        EstimationError: see `services.errors` and `shared.errors`.
    """
    require_interval(interval_for)
    require_confidence(confidence_level)
    sums = CrossProducts.of(prepared)
    asked = formula if isinstance(formula, Formula) else parse(formula, tuple(prepared.attributes), offset)
    law = outcome_of(sums, asked, family)
    law = law if offset is None else Rates.of(sums, law, offset, asked.features)
    equation = Equation.of(sums, asked.outcome, law, asked.features, entropy)
    covers: IntervalFor = "population" if prepared.keyed else interval_for
    return _result(asked, equation, equation.solved(equation.law), confidence_level, covers)


def _result(
    asked: Formula, equation: Equation[Outcome], solved: Solved, confidence_level: float, covers: IntervalFor
) -> GeneralisedFit:
    prepared, outcome, factors = equation.sums.prepared, equation.law, equation.factors
    z, (expected, observed, observed_errors, rare) = normal_reach(confidence_level), _calibration(equation, solved)
    solved, start = outcome.reported(solved), len(outcome.intercepts)
    b, covariance = solved.b, solved.table if covers == "table" else solved.population
    estimates = LogRatios(b, standard_errors(covariance), confidence_level, of_rates=outcome.family == "poisson")
    n, n_interval = _people(equation, solved.design, z)
    effects = effect_errors = np.full(len(b), np.nan)
    area, area_interval = None, None
    if isinstance(outcome, Scalar):
        effects, effect_errors = marginal_effects(solved.design, outcome, b, covariance)
    if isinstance(outcome, Scalar) and outcome.family == "binomial":
        known = auc(solved.design, outcome, b, solved.population, max(n, 1))
        if known is not None:
            area, error = known
            area_interval = (max(area - z * error, 0.0), min(area + z * error, 1.0))
    terms = (*outcome.intercepts, *terms_of(factors)[0])
    on_area = _on_area(terms, solved.population, area) if outcome.family == "binomial" else ()
    whose = about_tables(prepared, (*asked.features, *outcome.also, asked.outcome))
    levels = tuple(label for f in factors for label in f.names)
    few = [level for level, so in zip(levels, rare, strict=True) if so]
    return GeneralisedFit(
        family=outcome.family,
        outcome=outcome.name,
        features=asked.features,
        terms=terms,
        coefficients=b,
        standard_errors=estimates.errors,
        intervals=estimates.intervals,
        p_values=estimates.p_values,
        ratios=estimates.ratios,
        ratio_intervals=estimates.ratio_intervals,
        covariance=covariance,
        marginal_effects=effects,
        marginal_errors=effect_errors,
        auc=area,
        auc_interval=area_interval,
        levels=levels,
        expected=expected,
        observed=observed,
        observed_errors=observed_errors,
        n=n,
        n_interval=n_interval,
        confidence_level=confidence_level,
        interval_for=covers,
        sentence=_sentence(outcome, factors, estimates, few),
        about=_about(asked.outcome, equation),
        prior="Coefficients of features have a normal prior of mean 0 and standard deviation 1.",
        subjects=(
            *outcome.assumed(terms, solved.bent / estimates.errors),
            *whose.notes,
            *_on_threes(terms[start:], (solved.beyond / estimates.errors)[start:]),
        ),
        warnings=(
            *equation.merged,
            *_cautions(few, [f.names[0] for f in factors], outcome.family),
            *on_area,
            *_on_levels(equation),
            *whose.doubts,
        ),
        schema=tuple(a for f in factors if not isinstance(a := prepared.attributes[f.name], NumericAttribute)),
        places=tuple(equation.places),
        law=outcome,
    )


def _people(equation: Equation[Outcome], design: Design, z: float) -> tuple[int, tuple[int, int]]:
    at = np.unique(design.present, axis=0)
    counts, noise = equation.sums.crossed(at, equation.law.known[None])
    least = int(counts.argmin())
    reach = z * noise.errors[least].item()
    low, n, high = (max(round(counts[least].item() + by), 0) for by in (-reach, 0.0, reach))
    return n, (low, high)


def _about(name: str, equation: Equation[Outcome]) -> str:
    prepared = equation.sums.prepared
    everybody = "the people whom these members share" if prepared.keyed else "everybody in the release"
    whom = f"{everybody} whose {name} is known" if equation.law.gaps else everybody
    marked = [f.name for f in equation.factors if prepared.attributes[f.name].missing == "indicator"]
    said = f" Missing cells of {', '.join(marked)} are a level." if marked else ""
    return f"The model speaks of {whom}.{said}"


def _sentence(outcome: Outcome, factors: list[Factor], estimates: LogRatios, few: list[str]) -> str:
    said = {"binomial": f"odds of {outcome.name} are", "ordinal": f"odds of a higher level of {outcome.name} are"}
    what, start = said.get(outcome.family, f"expected count of {outcome.name} is"), len(outcome.intercepts)
    of_features = replace(estimates, logs=estimates.logs[start:], errors=estimates.errors[start:])
    return of_features.clearest(what, *terms_of(factors), doubtful=few) or ""


def _cautions(few: list[str], firsts: list[str], family: str) -> tuple[str, ...]:
    if not few:
        return ()
    if family == "poisson":
        said, what = "hardly anything may be counted", "rates"
    else:
        said, what = "hardly anybody, or nearly everybody, may have the event", "odds"
    against = [level for level in few if level in firsts]
    more = f", also of all ratios against {', '.join(against)}" if against else ""
    return (f"At {', '.join(few)} {said}: the data may leave their {what} open, and the prior has the say{more}.",)


def _on_levels(equation: Equation[Outcome]) -> tuple[str, ...]:
    law = equation.law
    if not isinstance(law, Ordered):
        return ()
    counts, noise = equation.sums.crossed(law.indicators, law.present[None])
    few = counts < _SURE * np.sqrt(noise.variances + np.maximum(counts, 1.0))
    scarce = ", ".join(label for label, so in zip(law.labels, few.ravel(), strict=True) if so)
    said = f"There may be hardly anybody with {law.name} = {scarce}, which counts as one in a thousand people at least"
    return (f"{said}: thresholds beside it are rough.",) if scarce else ()


def _on_threes(terms: tuple[str, ...], by_errors: Array) -> tuple[str, ...]:
    open_ = [term for term, by in zip(terms, by_errors.tolist(), strict=True) if by > _OPEN]
    if not open_:
        return ()
    names = ", ".join(open_)
    said = f"Effects are strong, so intervals of {names} hold only if features go together as pairs say"
    return (f"{said}: a release tells nothing of three at once.",)


def _on_area(terms: tuple[str, ...], covariance: Array, area: float | None) -> tuple[str, ...]:
    if area is None:
        return (_NO_AREA,)
    left_out = [term for term, so in zip(terms, unknown(covariance), strict=True) if so]
    return (f"The AUC leaves out people at {', '.join(left_out)}: noise hides their odds.",) if left_out else ()


def _calibration(equation: Equation[Outcome], solved: Solved) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """Mean outcomes by level, (t,) each: by the model, as released, errors of noise and drawing, and rare levels.

    A level is rare if hardly anybody there may have the event, or lack it; for counts, if hardly any are counted.
    """
    sums, design, outcome, factors = equation.sums, solved.design, equation.law, equation.factors
    who = np.hstack([np.eye(len(f.labels))[equation.rows.codes[:, j]] for j, f in enumerate(factors)])
    columns, mu = np.vstack([f.indicators for f in factors]), outcome.mean(design.X, solved.b)
    weights = np.maximum(design.weights @ who, 1e-12)
    per = np.maximum((design.weights * outcome.expected_per(design.X, solved.b)) @ who, 1e-12)
    expected = (design.weights * mu) @ who / per
    with_event, with_outcome = products(columns, outcome.value[None]), products(columns, outcome.per[None])
    observed, forms = ratios(sums, with_event, with_outcome)
    people, _ = sums.crossed(columns, outcome.per[None])
    drawn = outcome.drawn(expected, per / weights, weights) / np.maximum(people.ravel(), 1.0)
    variance = np.diag(sums.covariance(forms)) + drawn
    few = np.zeros(len(columns), np.bool_)
    if outcome.counted:
        counts, noise = sums.crossed(columns, np.array(outcome.counted))
        few |= np.any(counts < _SURE * np.sqrt(noise.variances + np.maximum(counts, 1.0)), axis=1)
    return expected, observed, np.sqrt(np.maximum(variance, 0.0)), few
