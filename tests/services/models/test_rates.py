"""Counts by time at risk, against statsmodels' fit with an exposure on the rows themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray

from commingle.services.errors import FamilyError
from commingle.services.models import GeneralisedFit, glm, rates
from commingle.services.models.formula import Formula
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import FeaturesError
from tests.services.models.test_glm import require_slope
from tests.world.categorical import release_of

AGES = ("young", "middle", "old")
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="falls", lower=0, upper=12),
    NumericAttribute(name="years", lower=0, upper=5, unit="years of 365 days"),
    BinaryAttribute(name="sex", levels=("f", "m")),
    CategoricalAttribute(name="age", levels=AGES),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
)
SIZES = (2, 2, 1)
N = 8000
WITHOUT = 1e5
"""An epsilon at which noise is nothing beside a person."""
MODEL = "falls ~ sex + age + smoker"


@cache
def people(seed: int = 3, *, of_threes: bool = False) -> dict[str, list[Any]]:
    """The old and smokers are followed for half as long, and fall more often."""
    draw = np.random.default_rng(seed)
    frail = draw.normal(size=N)
    sex, age = draw.integers(0, 2, N), np.digitize(frail + draw.normal(size=N), [-0.5, 0.8])
    smoker = (frail + draw.normal(size=N) > 0.4).astype(int)
    mean = np.exp(1.0 - 0.35 * age - 0.3 * smoker)
    if of_threes:
        mean = np.where((age == 2) ^ (smoker == 1), 0.5, 2.0)
    years = np.minimum(mean * draw.gamma(3, 1 / 3, N), 5)
    falls = draw.poisson(years * np.exp(-1.2 + 0.2 * sex + 0.4 * age + 0.3 * smoker))
    return {
        "falls": np.minimum(falls, 12).astype(float).tolist(),
        "years": years.tolist(),
        "sex": np.array(["f", "m"])[sex].tolist(),
        "age": np.array(AGES)[age].tolist(),
        "smoker": np.array(["no", "yes"])[smoker].tolist(),
    }


def rates_of(
    cells: Mapping[str, list[Any]], attributes: Sequence[Attribute] = ATTRIBUTES, **asked: Any
) -> GeneralisedFit:
    """The model of these people by years, without noise."""
    released = release_of(attributes, SIZES, cells, epsilon=WITHOUT)
    return glm(released, MODEL, family="poisson", offset="years", **asked)


def design(cells: Mapping[str, list[Any]]) -> NDArray[np.float64]:
    levels = (("sex", "m"), ("age", "middle"), ("age", "old"), ("smoker", "yes"))
    columns = [[cell == level for cell in cells[name]] for name, level in levels]
    return np.column_stack([np.ones(N), *columns]).astype(np.float64)


def on_rows(cells: Mapping[str, list[Any]]) -> Any:
    model = sm.GLM(cells["falls"], design(cells), family=sm.families.Poisson(), exposure=cells["years"])
    return model.fit(scale="X2")


@pytest.mark.parametrize("overlap", [None, 1.0])
def test_rate_ratios_without_noise_are_those_of_the_rows_with_an_exposure(
    overlap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "USUAL", 0.0)  # their time is a product
    released, wanted = release_of(ATTRIBUTES, SIZES, people(), epsilon=WITHOUT, overlap=overlap), on_rows(people())
    found = glm(released, MODEL, family="poisson", offset="years")
    assert any("per unit of years (years of 365 days)" in said for said in found.subjects)
    assert found.coefficients == pytest.approx(wanted.params, abs=0.02)
    fewer = np.sqrt(N / found.n)  # of keyed people some meet others in a bucket, and do not count
    assert found.standard_errors == pytest.approx(wanted.bse * fewer, rel=0.1)
    assert (found.outcome, found.terms[1], len(found.terms)) == ("falls per years", "sex[m]", 5)
    assert found.expected == pytest.approx(found.observed, abs=0.01)
    rows = {"sex": ["m", "f"], "age": ["old", "young"], "smoker": ["yes", "no"]}
    assert found.predict(rows) == pytest.approx(np.exp([wanted.params[[0, 1, 3, 4]].sum(), wanted.params[0]]), rel=0.03)
    at, by_year = design(people()), np.exp(design(people()) @ wanted.params)
    assert found.marginal_effects[1] == pytest.approx(
        np.mean(by_year * np.exp(-at[:, 1] * wanted.params[1])) * np.expm1(wanted.params[1]), abs=0.01
    )
    without = glm(released, MODEL, family="poisson")
    assert np.abs(without.coefficients - wanted.params)[2:].min() > 0.2  # the time hides what age and smoking do


def test_rates_per_day_are_shown_with_four_significant_digits() -> None:
    cells = people()
    days = {**cells, "years": [1000 * years for years in cells["years"]]}
    attributes = (ATTRIBUTES[0], NumericAttribute(name="years", lower=0, upper=5000), *ATTRIBUTES[2:])
    found = rates_of(days, attributes)
    ratios, *_, effects = found.table().columns
    expected, observed, errors = found.calibration().columns
    shown = [ratios.numerals()[0], *(column.numerals()[1] for column in (effects, expected, observed, errors))]
    exact = (found.ratios[0], found.marginal_effects[1], found.expected[1], found.observed[1], found.observed_errors[1])
    assert max(exact) < 0.001
    assert [float(text.replace("\u2212", "-")) for text in shown] == pytest.approx(exact, rel=0.001)
    assert ratios.numerals()[1] == f"{found.ratios[1]:.3f}"


def error_of_rate(falls: NDArray[np.float64], years: NDArray[np.float64]) -> float:
    """That of drawing people, by what each has beside the rate of all."""
    left = falls - years * falls.sum() / years.sum()
    return float(np.sqrt(np.sum(left**2)) / years.sum())


def test_calibration_is_of_rates() -> None:
    cells = people()
    found = rates_of(cells)
    falls, years = np.array(cells["falls"]), np.array(cells["years"])
    for name, level in (("sex", "f"), ("age", "young"), ("age", "old"), ("smoker", "yes")):
        at, here = found.levels.index(f"{name}[{level}]"), np.array(cells[name]) == level
        assert found.observed[at] == pytest.approx(falls[here].sum() / years[here].sum(), rel=0.01)
        assert found.expected[at] == pytest.approx(found.observed[at], rel=0.01)
        assert found.observed_errors[at] == pytest.approx(error_of_rate(falls[here], years[here]), rel=0.05)


def test_calibration_of_rates_that_differ_between_people_is_as_unsure_as_the_rows() -> None:
    draw, cells = np.random.default_rng(6), people()
    years = np.array(cells["years"])
    falls = np.minimum(draw.poisson(years * draw.gamma(0.5, 2, N)), 30)
    wide = (NumericAttribute(name="falls", lower=0, upper=30), *ATTRIBUTES[1:])
    found = rates_of({**cells, "falls": falls.astype(float).tolist()}, wide)
    for name, level in (("sex", "f"), ("age", "young"), ("smoker", "no")):
        at, here = found.levels.index(f"{name}[{level}]"), np.array(cells[name]) == level
        assert found.observed_errors[at] == pytest.approx(error_of_rate(falls[here], years[here]), rel=0.25)


def test_time_that_was_cut_is_warned_of() -> None:
    released = release_of(ATTRIBUTES, SIZES, people(), epsilon=WITHOUT)
    lost = np.zeros(len(released.labels))
    lost[list(released.columns["years"])] = 0.3
    [warning] = glm(replace(released, lost=lost), MODEL, family="poisson", offset="years").warnings
    assert "about 30% of what one of these columns varies" in warning
    assert glm(replace(released, lost=lost), MODEL, family="poisson").warnings == ()


def test_rates_that_are_alike_are_found_so_whatever_the_time() -> None:
    cells = {**people(of_threes=True)}
    cells["falls"] = [0.7 * each for each in cells["years"]]
    found = rates_of(cells)
    assert found.coefficients == pytest.approx([np.log(0.7), 0, 0, 0, 0], abs=0.01)
    assert found.marginal_effects[1:] == pytest.approx(0, abs=0.01)


def test_weighted_count_by_the_weight_is_the_fit_of_weighted_rows() -> None:
    """Both have the score E w x (y - exp(x b)); errors are those of the sandwich."""
    cells, draw = {**people()}, np.random.default_rng(9)
    weight = np.minimum(np.exp(0.5 * design(cells)[:, 3] - 0.4 * design(cells)[:, 4]) * draw.gamma(8, 1 / 8, N), 5)
    model = sm.GLM(cells["falls"], design(cells), family=sm.families.Poisson(), freq_weights=weight)
    wanted = model.fit(cov_type="HC0")
    cells["years"], cells["falls"] = weight.tolist(), (weight * cells["falls"]).tolist()
    attributes = (NumericAttribute(name="falls", lower=0, upper=60), *ATTRIBUTES[1:])
    found = rates_of(cells, attributes)
    assert found.coefficients == pytest.approx(wanted.params, abs=0.03)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.2)


@pytest.mark.slow
def test_errors_of_rates_are_as_large_as_is_said() -> None:
    """Squared errors over their variances, a mean over 40 releases of 5 terms: of standard error 0.14 by chance."""
    whole, squares = on_rows(people()), list[Any]()
    truth = np.array([-1.2, 0.2, 0.4, 0.8, 0.3])
    for seed in range(40):
        fixed = release_of(ATTRIBUTES, SIZES, people(), epsilon=3.0, seed=seed)
        drawn = release_of(ATTRIBUTES, SIZES, people(100 + seed), epsilon=3.0, seed=seed)
        of_table = glm(fixed, MODEL, family="poisson", offset="years", interval_for="table")
        of_all = glm(drawn, MODEL, family="poisson", offset="years")
        squares.append(
            (
                np.mean(((of_table.coefficients - whole.params) / of_table.standard_errors) ** 2),
                np.mean(((of_all.coefficients - truth) / of_all.standard_errors) ** 2),
            )
        )
    assert np.mean(squares, axis=0) == pytest.approx([1, 1], abs=0.4)


def test_errors_count_how_far_two_features_usually_change_the_time_together() -> None:
    """Squared errors over their variances, a mean over 40 tables of 5 terms without noise."""
    cells, draw, squares = {**people()}, np.random.default_rng(4), list[float]()
    levels, alone = (("f", "m"), AGES, ("no", "yes")), ([0, 0.6], [0, -0.35, -0.7], [0, -0.3])
    codes = [np.array([at.index(c) for c in cells[n]]) for n, at in zip(("sex", "age", "smoker"), levels, strict=True)]
    logs = [np.array(each)[code] for each, code in zip(alone, codes, strict=True)]
    for _ in range(40):
        u = np.zeros(N)
        for one, other in combinations(range(3), 2):
            usual = rates.USUAL * np.sqrt(logs[one].std() * logs[other].std())
            u += usual * draw.normal(size=(len(levels[one]), len(levels[other])))[codes[one], codes[other]]
        years = np.minimum(np.exp(sum(logs)) * np.maximum(1 + u, 0.1) * draw.gamma(3, 1 / 3, N), 5)
        cells["years"] = years.tolist()
        cells["falls"] = np.minimum(
            draw.poisson(years * np.exp(design(cells) @ [-1.2, 0.6, 0.6, 1.2, 0.6])), 30
        ).tolist()
        attributes = (NumericAttribute(name="falls", lower=0, upper=30), *ATTRIBUTES[1:])
        found = rates_of(cells, attributes, interval_for="table")
        squares.append(np.mean(((found.coefficients - on_rows(cells).params) / found.standard_errors) ** 2))
    assert np.mean(squares) == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize(("changed", "named"), [((0.6, -0.6), True), ((0.6, 0.0), False)])
def test_terms_are_named_whose_intervals_do_not_hold_where_two_features_change_the_time_as_much_as_alone(
    changed: tuple[float, float], named: bool
) -> None:
    cells, draw = {**people()}, np.random.default_rng(6)
    years = np.minimum(np.exp(design(cells)[:, [1, 4]] @ changed) * draw.gamma(3, 1 / 3, N), 5)
    cells["years"] = years.tolist()
    cells["falls"] = np.minimum(draw.poisson(years * np.exp(design(cells) @ [-1.2, 0.6, 0, 0, 0.6])), 12).tolist()
    found = rates_of(cells)
    said = [each for each in found.subjects if "two features change years together as much as each does alone" in each]
    assert [all(term in each for term in ("(intercept)", "sex[m]", "smoker[yes]")) for each in said] == [True] * named


def test_errors_count_that_an_event_ends_the_time() -> None:
    """Of y - rate t the variance is then E y, that of a Poisson law; were t and y taken as independent, much less."""
    cells, draw = {**people()}, np.random.default_rng(5)
    waited = draw.exponential(1 / np.exp(-1.2 + design(cells)[:, 1:] @ [0.2, 0.2, 0.4, 0.1]))
    cells["years"], cells["falls"] = np.minimum(waited, 5).tolist(), (waited < 5).astype(float).tolist()
    model = sm.GLM(cells["falls"], design(cells), family=sm.families.Poisson(), exposure=cells["years"])
    wanted = model.fit(scale=1.0)
    found = rates_of(cells)
    assert found.coefficients == pytest.approx(wanted.params, abs=0.03)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.1)


def test_slope_is_the_derivative_of_the_expectation() -> None:
    require_slope(rates_of(people()).law, np.array([0.1, -0.6, 0.3, -0.4, 0.2, 0.5]))


def test_strong_effects_are_said_to_rest_on_the_mean_time_too() -> None:
    cells = {**people()}
    draw, risk = np.random.default_rng(1), np.array(["old" in pair for pair in zip(cells["age"], strict=True)])
    cells["falls"] = np.minimum(draw.poisson(np.array(cells["years"]) * np.where(risk, 1.6, 0.1)), 12).tolist()
    found = rates_of(cells)
    assert any("its mean is taken to be a product" in said for said in found.subjects)
    assert any("Intervals count how far two features usually change it together" in said for said in found.subjects)
    assert any("a release tells nothing of three at once" in said for said in found.subjects)


@pytest.mark.parametrize(
    ("formula", "family", "offset", "said"),
    [
        ("smoker ~ sex", "binomial", "years", "counts alone"),
        ("age ~ sex", "ordinal", "years", "counts alone"),
        ("falls ~ sex", "poisson", "age", "not a time"),
        ("falls ~ sex", "poisson", "change", "negative"),
        ("falls ~ sex", "poisson", "days", "not of the same people"),
        ("falls ~ sex", "poisson", "weeks", "not of the same people"),
        ("visits ~ sex", "poisson", "years", "not of the same people"),
        ("years ~ sex", "poisson", "years", "both outcome and offset"),
        (Formula("years", None, ("sex",)), "poisson", "years", "both outcome and offset"),
        ("falls ~ sex + years", "poisson", "years", "'years' is both offset and feature"),
        ("falls ~ . + years", "poisson", "years", "'years' is both offset and feature"),
        (Formula("falls", None, ("sex", "years")), "poisson", "years", "'years' is both offset and feature"),
    ],
)
def test_offset_that_is_no_time_of_the_same_people_is_refused(
    formula: str | Formula, family: str, offset: str, said: str
) -> None:
    attributes = (
        *ATTRIBUTES,
        NumericAttribute(name="change", lower=-1, upper=1),
        NumericAttribute(name="days", lower=0, upper=9, missing="indicator"),
        NumericAttribute(name="visits", lower=0, upper=9, missing="indicator"),
        NumericAttribute(name="weeks", lower=0, upper=9, missing="midpoint"),
    )
    gaps: list[Any] = [None, 1.0] * (N // 2)
    more = {"change": [0.0] * N, "days": gaps, "visits": gaps[::-1], "weeks": gaps}
    released = release_of(attributes, (2, 2, 5), {**people(), **more}, epsilon=WITHOUT)
    with pytest.raises(FamilyError, match=said) as refused:
        glm(released, formula, family=family, offset=offset)
    assert refused.value.remedy


def test_time_at_another_member_is_refused_of_keyed_people_and_taken_of_listed_ones() -> None:
    apart = (ATTRIBUTES[0], *ATTRIBUTES[2:], ATTRIBUTES[1])
    with pytest.raises(FamilyError, match="two members"):
        glm(release_of(apart, SIZES, people(), overlap=0.9), MODEL, family="poisson", offset="years")
    found = rates_of(people(), apart)
    assert found.coefficients == pytest.approx(on_rows(people()).params, abs=0.02)


def test_level_at_which_hardly_any_time_was_spent_is_warned_of() -> None:
    cells = {**people()}
    spent = np.where(np.array(cells["age"]) == "old", 0.001, cells["years"])
    cells["years"] = spent.tolist()
    released = release_of(ATTRIBUTES, SIZES, cells, epsilon=3.0, seed=1)
    [warning] = glm(released, MODEL, family="poisson", offset="years").warnings
    assert "At age[old] hardly anything may be counted" in warning
    assert glm(released, MODEL, family="poisson").warnings == ()


def test_offset_is_no_feature() -> None:
    released = release_of(ATTRIBUTES, SIZES, people(), epsilon=WITHOUT)
    found = glm(released, "falls ~ .", family="poisson", offset="years")
    assert found.features == ("sex", "age", "smoker")
    assert glm(released, "falls ~ . - years - age", family="poisson", offset="years").features == ("sex", "smoker")
    fewer = replace(released, attributes={name: released.attributes[name] for name in ("falls", "years")})
    with pytest.raises(FeaturesError):
        glm(fewer, "falls ~ .", family="poisson", offset="years")
