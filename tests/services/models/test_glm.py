"""Generalised linear models of a release, against statsmodels on the rows themselves."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.typing import NDArray
from statsmodels.miscmodels.ordinal_model import OrderedModel

from benchmarks.harness import covers
from commingle.services.analysis import cross_table
from commingle.services.errors import FamilyError, FormulaError, SeedError
from commingle.services.fit.predicting import OutsideBoundsWarning
from commingle.services.models import GeneralisedFit, glm
from commingle.services.models.factors import Factor
from commingle.services.models.score import Law
from commingle.services.models.weighted_rows import WeightedRows, weighted_rows
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Intervals,
    NumericAttribute,
)
from commingle.shared.errors import (
    CategoricalTargetError,
    ConfidenceError,
    EstimationError,
    FeaturesError,
    NoTablesError,
    RowsError,
)
from commingle.shared.estimation.cross_products import CrossProducts
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.categorical import release_of

STAGES = ("i", "ii", "iii")
PAIN = ("none", "mild", "strong", "severe")
ATTRIBUTES: tuple[Attribute, ...] = (
    BinaryAttribute(name="sex", levels=("f", "m")),
    CategoricalAttribute(name="stage", levels=STAGES),
    BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator"),
    NumericAttribute(name="visits", lower=0, upper=40),
    BinaryAttribute(name="readmitted", levels=("no", "yes")),
    BinaryAttribute(name="died", levels=("no", "yes"), missing="indicator"),
    CategoricalAttribute(name="pain", levels=PAIN, missing="indicator"),
)
SIZES = (2, 2, 3)
N = 4000
WITHOUT = 1e5
"""An epsilon at which noise is nothing beside a person."""


@cache
def people(n: int = N, seed: int = 3) -> dict[str, list[Any]]:
    """Correlated levels, an event of which some are not known, and a count."""
    draw = np.random.default_rng(seed)
    severity = draw.normal(size=n)
    sex, stage = draw.integers(0, 2, n), np.digitize(severity + draw.normal(size=n), [0, 1.5])
    smoker = np.where(draw.random(n) < 0.1, 2, severity + draw.normal(size=n) > 0.5)
    eta = -1.2 + 0.5 * sex + np.array([0.0, 0.4, 0.9])[stage] + np.array([0.0, 0.6, 0.3])[smoker]
    visits = draw.poisson(np.exp(0.6 + eta / 3))
    chance = draw.random((2, n)) < 1 / (1 + np.exp(-eta))
    died = np.array(["no", "yes", None])[np.where(draw.random(n) < 0.2 + 0.1 * sex, 2, chance[1])]
    pain = np.sum(draw.random(n)[:, None] > 1 / (1 + np.exp(eta[:, None] - [-1.5, -0.4, 1.0])), axis=1)
    return {
        "sex": np.array(["f", "m"])[sex].tolist(),
        "stage": np.array(STAGES)[stage].tolist(),
        "smoker": np.array(["no", "yes", None])[smoker].tolist(),
        "visits": visits.astype(float).tolist(),
        "readmitted": np.where(chance[0], "yes", "no").tolist(),
        "died": died.tolist(),
        "pain": np.array([*PAIN, None])[np.where(draw.random(n) < 0.15, 4, pain)].tolist(),
    }


@cache
def release(epsilon: float = WITHOUT, seed: int | None = None, overlap: float | None = None) -> PreparedMoments:
    return release_of(ATTRIBUTES, SIZES, people(), epsilon=epsilon, overlap=overlap, seed=seed)


def design(cells: dict[str, list[Any]]) -> NDArray[np.float64]:
    levels = (("sex", "m"), ("stage", "ii"), ("stage", "iii"), ("smoker", "yes"), ("smoker", None))
    columns = [[cell == level for cell in cells[name]] for name, level in levels]
    return np.column_stack([np.ones(len(cells["sex"])), *columns]).astype(np.float64)


def on_rows(outcome: str, family: Any) -> Any:
    cells = people()
    known = np.array([cell is not None for cell in cells[outcome]])
    y = np.array([float(cell == "yes" if isinstance(cell, str) else cell or 0) for cell in cells[outcome]])
    scale = "X2" if isinstance(family, sm.families.Poisson) else None
    return sm.GLM(y[known], design(cells)[known], family=family).fit(scale=scale)


def with_prior(model: Any) -> NDArray[np.float64]:
    """The mode with a N(0, 1) prior on all coefficients but the first."""
    penalty = np.append(0.0, np.full(model.exog.shape[1] - 1, 1 / len(model.endog)))
    return np.asarray(model.fit_regularized(alpha=penalty, L1_wt=0).params)


FEATURES = "sex + stage + smoker"


@cache
def noisy() -> tuple[CrossProducts, WeightedRows]:
    sums = CrossProducts.of(release(1.0, 5))
    return sums, weighted_rows(sums, [Factor.of(sums, name) for name in ("sex", "stage", "smoker")])


def test_pair_tables_of_weighted_rows_are_those_of_the_release() -> None:
    sums, cells = CrossProducts.of(release()), people()
    rows = weighted_rows(sums, [Factor.of(sums, name) for name in ("sex", "stage", "smoker")])
    found = np.zeros((3, 3))
    np.add.at(found, (rows.codes[:, 1], rows.codes[:, 2]), rows.weights)
    codes = {"no": 0, "yes": 1, None: 2}
    true = np.zeros((3, 3))
    np.add.at(true, ([STAGES.index(s) for s in cells["stage"]], [codes[s] for s in cells["smoker"]]), 1 / N)
    assert found == pytest.approx(true, abs=2e-3)


@pytest.mark.parametrize("outcome", ["readmitted", "died"])
def test_odds_ratios_without_noise_are_those_of_the_rows_whose_outcome_is_known(outcome: str) -> None:
    found, wanted = glm(release(), f"{outcome} ~ {FEATURES}"), on_rows(outcome, sm.families.Binomial())
    assert found.coefficients == pytest.approx(with_prior(wanted.model), abs=0.015)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.05)
    assert found.expected == pytest.approx(found.observed, abs=0.01)
    assert found.outcome == f"{outcome}[yes]"
    assert found.n == sum(cell is not None for cell in people()[outcome])


def test_rate_ratios_without_noise_are_those_of_the_rows_with_their_dispersion() -> None:
    found = glm(release(), f"visits ~ {FEATURES}", family="poisson")
    wanted = on_rows("visits", sm.families.Poisson())
    assert found.coefficients == pytest.approx(wanted.params, abs=0.01)
    assert found.standard_errors == pytest.approx(wanted.bse, rel=0.1)
    assert found.auc is None


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_errors_of_a_count_are_of_the_people_who_have_it_and_as_wide_as_its_dispersion(missing: float) -> None:
    draw, n = np.random.default_rng(4), 20_000
    old, known = draw.integers(0, 2, n), draw.random(n) >= missing
    visits = np.minimum(draw.poisson(np.exp(0.5 * old) * draw.gamma(0.5, 2, n)), 30).astype(float)
    attributes = (
        NumericAttribute(name="visits", lower=0, upper=30, missing="indicator"),
        BinaryAttribute(name="age", levels=("young", "old")),
    )
    cells = {
        "visits": [visit if so else None for visit, so in zip(visits.tolist(), known.tolist(), strict=True)],
        "age": np.array(["young", "old"])[old].tolist(),
    }
    found = glm(release_of(attributes, (1, 1), cells, epsilon=WITHOUT), "visits ~ age", family="poisson")
    y, X = visits[known], np.column_stack([np.ones(n), old])[known]
    assert found.standard_errors == pytest.approx(
        sm.GLM(y, X, family=sm.families.Poisson()).fit(scale="X2").bse, rel=0.1
    )
    drawn = [y[X[:, 1] == level].std() / np.sqrt(np.sum(X[:, 1] == level)) for level in (0, 1)]
    assert found.observed_errors == pytest.approx(drawn, rel=0.25)  # one dispersion for both


def test_proportional_odds_without_noise_are_near_those_of_maximum_likelihood_on_the_rows() -> None:
    found, cells = glm(release(), f"pain ~ {FEATURES}", family="ordinal"), people()
    known = np.array([cell is not None for cell in cells["pain"]])
    y = np.array([PAIN.index(cell) for cell in cells["pain"] if cell is not None])
    wanted = OrderedModel(y, design(cells)[known, 1:], distr="logit").fit(disp=0, method="bfgs")
    assert found.terms[:3] == tuple(f"pain <= {label}" for label in PAIN[:3])
    assert found.coefficients[3:] == pytest.approx(wanted.params[:5], abs=0.04)
    assert found.standard_errors[3:] == pytest.approx(wanted.bse[:5], rel=0.05)
    rows = {name: cells[name] for name in found.features}
    chances = found.predict(rows)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert chances[known].mean(axis=0) == pytest.approx(np.bincount(y) / len(y), abs=0.01)


def require_slope(law: Law, b: NDArray[np.float64]) -> None:
    """Its slope at b is the derivative of its expectation, of drawn rows of two features."""
    draw = np.random.default_rng(0)
    X, w = np.column_stack([np.ones(30), draw.normal(size=(30, 2))]), draw.dirichlet(np.ones(30))
    steps = 1e-6 * np.eye(len(b))
    found = [w @ (law.expectation(X, b + step) - law.expectation(X, b - step)) / 2e-6 for step in steps]
    assert law.slope(X, w, b) == pytest.approx(np.array(found).T, abs=1e-8)


@pytest.mark.parametrize(
    ("formula", "family"), [("sex ~ stage", "binomial"), ("visits ~ stage", "poisson"), ("pain ~ stage", "ordinal")]
)
def test_slope_is_the_derivative_of_the_expectation(formula: str, family: str) -> None:
    law = glm(release(), formula, family=family).law
    require_slope(law, np.append(np.linspace(-1, 1.5, len(law.intercepts)), [0.3, -0.4]))


def test_levels_that_make_too_many_pairs_are_refused() -> None:
    many = tuple(f"l{i}" for i in range(60))
    attributes = [CategoricalAttribute(name=name, levels=many) for name in ("a", "b", "c")]
    cells = {a.name: [many[i % 60] for i in range(3600)] for a in attributes}  # rare ones would count as one
    with pytest.raises(FeaturesError, match="2,000 can be fitted"):
        glm(release_of(attributes, (2, 1), cells, epsilon=WITHOUT), "a[l1] ~ .")


def test_event_may_be_any_level_and_has_the_odds_of_that_level() -> None:
    found = glm(release(), "stage[iii] ~ sex + smoker")
    y, X = np.array([cell == "iii" for cell in people()["stage"]]) * 1.0, design(people())[:, [0, 1, 4, 5]]
    assert found.coefficients == pytest.approx(with_prior(sm.GLM(y, X, family=sm.families.Binomial())), abs=0.01)


def test_drawn_rows_give_the_same_as_all_combinations_of_levels() -> None:
    sums = CrossProducts.of(release(1.0, 5))
    factors = [Factor.of(sums, name) for name in ("sex", "stage", "smoker", "readmitted")]
    whole = weighted_rows(sums, factors)
    drawn = weighted_rows(sums, factors, entropy=1, size=20)
    for rows in (whole, drawn):
        assert rows.weights.sum() == pytest.approx(1)
    assert (len(whole.weights), len(drawn.weights)) == (36, 20)
    many = weighted_rows(sums, [*factors, Factor.of(sums, "died")], entropy=1, size=107)
    assert many.points.means(many.weights)[:4] == pytest.approx(whole.points.means(whole.weights)[:4], abs=0.03)


def test_means_over_weighted_rows_answer_to_errors_of_the_release_as_is_said() -> None:
    sums, rows = noisy()
    g = np.column_stack(
        [np.prod(rows.points.X[:, [1, 3, 4]], axis=1), np.tanh(rows.points.X @ [0.3, 1, 0.5, 1, 1, 0.2])]
    )
    B = rows.response(g).B
    error = np.random.default_rng(2).normal(size=sums.values.shape) * np.sqrt(N) / 1000
    error[0] = error[:, 0] = 0.0
    moved = weighted_rows(replace(sums, values=sums.values + error + error.T), rows.factors, ridge=rows.ridge)
    expected = B @ np.einsum("fkl,kl->f", rows.means.forms, error + error.T)
    assert moved.weights @ g - rows.weights @ g == pytest.approx(expected, rel=1e-2)


def test_rows_with_the_same_pairs_move_a_mean_as_far_as_is_said_and_some_reach_that() -> None:
    _, rows = noisy()
    g, w = np.tanh(rows.points.X @ [0.3, 1, 0.5, 1, 1, 0.2]), rows.weights
    bound = np.sqrt(rows.response(g[:, None]).beyond[0, 0])
    pairs = np.column_stack([np.ones(len(w)), rows.points.phi.toarray()])
    draw = np.random.default_rng(4)
    for of_three in (g, *draw.normal(size=(5, len(w)))):
        root = np.sqrt(w)
        along = np.linalg.lstsq(pairs * root[:, None], of_three * root, rcond=None)[0]
        moved = of_three - pairs @ along  # w (1 + moved) has the pairs of w
        distance = np.sqrt(w @ moved**2)
        assert abs(w @ (moved * g)) <= bound * distance * (1 + 1e-3)
        if of_three is g:
            assert w @ (moved * g) == pytest.approx(bound * distance, rel=1e-3)


def test_pair_of_levels_that_no_row_has_leaves_errors_bounded() -> None:
    _, rows = noisy()
    g, pair = np.tanh(rows.points.X @ [0.3, 1, 0.5, 1, 1, 0.2])[:, None], rows.points.phi.toarray()[:, -1]
    w = rows.weights * (pair == 0)
    without = replace(rows, weights=w / w.sum(), ridge=0.1)
    variance = without.weights @ (g - without.weights @ g) ** 2
    assert 0 <= without.response(g).bias[0, 0] <= variance[0] / 0.1
    assert np.abs(without.response(g).B).max() < 1


def test_features_covary_as_much_where_there_are_no_compiled_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    _, rows = noisy()
    phi, w = rows.points.phi.toarray(), rows.weights
    expected = (phi.T * w) @ phi - np.outer(w @ phi, w @ phi)
    assert rows.points.covariance(w) == pytest.approx(expected, abs=1e-14)
    monkeypatch.setattr("commingle.shared.loops.available", lambda: False)
    assert rows.points.covariance(w) == pytest.approx(expected, abs=1e-14)


def test_effects_and_predictions_are_chances() -> None:
    found = glm(release(), f"readmitted ~ {FEATURES}")
    rows: dict[str, list[Any]] = {"sex": ["m", "f"], "stage": ["iii", "i"], "smoker": ["yes", None]}
    chances = found.predict(rows)
    b = dict(zip(found.terms, found.coefficients, strict=True))
    assert chances[1] == pytest.approx(1 / (1 + np.exp(-b["(intercept)"] - b["smoker[missing]"])))
    X = design(people())
    low, high = X.copy(), X.copy()
    low[:, 1], high[:, 1] = 0, 1
    change = np.mean([1, -1] @ (1 / (1 + np.exp(-np.stack([high, low]) @ found.coefficients))))
    assert found.marginal_effects[1] == pytest.approx(change, abs=0.002)
    with pytest.raises(RowsError, match="levels"):
        found.predict({**rows, "sex": ["x", "f"]})
    with pytest.raises(RowsError, match="lack 'stage', 'smoker'"):
        found.predict({"sex": ["m"]})
    with pytest.raises(RowsError, match="differ in length"):
        found.predict({**rows, "sex": ["m"]})
    with pytest.raises(RowsError, match="not given by attribute"):
        found.predict([{"sex": "m", "smoker": "no"}])  # type: ignore[arg-type]


def test_auc_is_that_of_the_predictions_on_the_rows() -> None:
    cells, found = people(), glm(release(), f"readmitted ~ {FEATURES}")
    chances = found.predict({name: cells[name] for name in found.features})
    event = np.array([cell == "yes" for cell in cells["readmitted"]])
    pairs = np.sign(chances[event][:, None] - chances[~event])
    assert found.auc == pytest.approx((1 + pairs.mean()) / 2, abs=0.01)
    assert found.auc_interval is not None
    assert found.auc_interval[0] < (1 + pairs.mean()) / 2 < found.auc_interval[1]


def test_intervals_for_the_table_are_those_of_the_noise_alone() -> None:
    prepared, formula = release(1.0, 5), f"readmitted ~ {FEATURES}"
    table, population = (glm(prepared, formula, interval_for=covers) for covers in ("table", "population"))
    assert table.coefficients == pytest.approx(population.coefficients)
    rows = on_rows("readmitted", sm.families.Binomial()).bse
    both = np.hypot(table.standard_errors, rows)
    assert population.standard_errors == pytest.approx(both, rel=0.15)


def test_keyed_subjects_have_intervals_for_the_population_and_a_count_that_is_not_exact() -> None:
    found = glm(release(3.0, 5, 0.8), f"readmitted ~ {FEATURES}", interval_for="table")
    low, high = found.n_interval
    assert (found.interval_for, low < found.n < high) == ("population", True)
    assert 0.4 * N < found.n < 0.7 * N
    assert found.subjects
    rows = on_rows("readmitted", sm.families.Binomial())
    assert (np.abs(found.coefficients - rows.params) < 4 * found.standard_errors).all()


@pytest.mark.parametrize("stage", STAGES[1:])
def test_odds_ratios_of_one_feature_of_keyed_subjects_are_as_sure_as_those_of_its_table(stage: str) -> None:
    prepared = release(1.0, 5, 0.9)
    found, table = glm(prepared, "readmitted ~ stage"), cross_table(prepared, "stage", "readmitted")
    low, high = np.log(table.odds_intervals[table.rows.index(stage)])
    assert found.standard_errors[STAGES.index(stage)] < 1.1 * (high - low) / (2 * 1.96)


@pytest.mark.slow
def test_intervals_of_keyed_subjects_hold_where_noise_is_as_large_as_sampling() -> None:
    """30 releases of four coefficients: a standard error of .02 where they were independent."""
    rows = on_rows("readmitted", sm.families.Binomial()).params
    found = [glm(release(2.0, seed, 0.9), f"readmitted ~ {FEATURES}") for seed in range(30)]
    held = [(fit.intervals[:, 0] < rows) & (rows < fit.intervals[:, 1]) for fit in found]
    assert 0.9 < np.mean(held) <= 1.0
    errors = np.array([fit.coefficients - rows for fit in found])
    assert np.sqrt(np.mean(errors**2)) < 1.1 * np.sqrt(np.mean([fit.standard_errors**2 for fit in found]))


@pytest.mark.slow
def test_auc_is_left_out_and_said_where_noise_explains_all_differences_of_predictions() -> None:
    cells = {**people(), "readmitted": np.random.default_rng(1).choice(["no", "yes"], N).tolist()}
    found = [
        glm(release_of(ATTRIBUTES, SIZES, cells, epsilon=0.3, seed=seed), f"readmitted ~ {FEATURES}")
        for seed in range(8)
    ]
    without = [fit for fit in found if fit.auc is None]
    assert 0 < len(without) < len(found)
    assert all(
        (fit.auc_interval is None) == (fit.auc is None) == ("there is no AUC" in str(fit.warnings)) for fit in found
    )
    assert all("AUC" not in dict(fit.table().facts) for fit in without)


@pytest.mark.parametrize("epsilon", [3.0, 1e6])
def test_auc_is_left_out_where_all_people_whose_levels_the_release_knows_have_one_score(epsilon: float) -> None:
    sex = np.random.default_rng(3).integers(0, 2, 3000)
    attributes = (BinaryAttribute(name="sex", levels=("f", "m")), BinaryAttribute(name="died", levels=("no", "yes")))
    cells = {"sex": np.array(["f", "m"])[sex].tolist(), "died": np.array(["no", "yes"])[sex].tolist()}
    found = glm(release_of(attributes, (1, 1), cells, epsilon=epsilon, seed=2), "died ~ sex")
    assert (found.auc, found.auc_interval) == (None, None)
    assert "so there is no AUC" in str(found.warnings)


def test_auc_is_among_people_whose_levels_the_release_knows_where_one_level_is_noise() -> None:
    cells = people()
    found = glm(
        release_of(ATTRIBUTES, SIZES, {**cells, "smoker": _known(cells)}, epsilon=1.0, seed=2),
        f"readmitted ~ {FEATURES}",
    )
    assert found.standard_errors[found.terms.index("smoker[missing]")] > 1
    assert found.auc is not None
    assert found.auc > 0.55
    assert "The AUC leaves out people at smoker[missing]: noise hides their odds." in found.warnings


def _known(cells: dict[str, list[Any]]) -> list[str]:
    return [cell or "no" for cell in cells["smoker"]]


def test_separation_is_said_and_odds_stay_finite() -> None:
    cells = {**people(), "readmitted": ["yes" if s == "iii" else r for s, r in _of("stage", "readmitted")]}
    found = glm(release_of(ATTRIBUTES, SIZES, cells, epsilon=0.3, seed=1), f"readmitted ~ {FEATURES}")
    said = " ".join(found.warnings)
    assert np.isfinite(found.ratio_intervals).all()
    assert "hardly anybody" in said
    assert "stage[iii]" in said


@pytest.mark.parametrize(("strength", "wrong"), [(1.5, True), (0.3, False)])
def test_strong_effects_are_said_to_rest_on_pairs_where_three_features_make_them_wrong(
    strength: float, *, wrong: bool
) -> None:
    """The third feature is whether the first two differ, mostly: pairs of them tell nothing."""
    draw = np.random.default_rng(5)
    a, b = draw.integers(0, 2, (2, N))
    c = np.where(draw.random(N) < 0.9, a ^ b, draw.integers(0, 2, N))
    y = draw.random(N) < 1 / (1 + np.exp(-strength * (a + b + c - 0.3)))
    asked = [BinaryAttribute(name=name, levels=("no", "yes")) for name in "abcy"]
    cells = {name: np.where(x, "yes", "no").tolist() for name, x in zip("abcy", (a, b, c, y), strict=True)}
    found = glm(release_of(asked, (2, 2), cells, epsilon=3.0, seed=1), "y ~ a + b + c")
    errors = np.abs(found.coefficients[1:] - strength) / found.standard_errors[1:]
    assert (errors.max() > 3) == wrong
    assert ("a[yes], b[yes], c[yes] hold only if features go together as pairs say" in str(found.subjects)) is wrong


def _of(*names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(people()[name] for name in names), strict=True))


def test_result_is_shown_as_text_table_and_json() -> None:
    found = glm(release(), f"readmitted ~ {FEATURES}")
    assert "times as high at" in found.sentence
    for text in (found.summary(), found.table().to_html()):
        assert "odds ratio" in text
        assert "stage[iii]" in text
    assert found.calibration().labels == found.levels
    said = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert said["marginal_effects"][0] is None
    assert not {"schema", "law"} & said.keys()


def test_level_of_an_ordered_outcome_that_hardly_anybody_has_is_named() -> None:
    said = "There may be hardly anybody with pain = "
    cells = {**people(), "pain": ["none" if cell == "none" else "mild" for cell in people()["pain"]]}
    scarce = glm(release_of(ATTRIBUTES, SIZES, cells, seed=1), "pain ~ sex", family="ordinal").warnings
    assert any(each.startswith(f"{said}strong, severe,") for each in scarce)
    assert not any(said in each for each in glm(release(), "pain ~ sex", family="ordinal").warnings)


def test_numbers_are_predicted_as_the_intervals_that_they_are_in() -> None:
    of = Intervals(lower=0, upper=90, cuts=(40, 60))
    age = CategoricalAttribute(name="age", levels=of.levels, intervals=of, missing="indicator")
    draw = np.random.default_rng(2)
    cells: dict[str, list[Any]] = {"age": draw.uniform(0, 90, 500).tolist()}
    cells["ill"] = ["yes" if x < a / 120 else "no" for x, a in zip(draw.random(500), cells["age"], strict=True)]
    cells["age"][:20] = [None] * 20
    made = release_of((age, BinaryAttribute(name="ill", levels=("no", "yes"))), (1, 1), cells, epsilon=WITHOUT)
    found = glm(made, "ill ~ age")
    with pytest.warns(OutsideBoundsWarning, match="1 of 3 values of age lay outside 0 to 90 and count"):
        numbers = found.predict({"age": [39.9, 40, 100.0, float("nan")]})
    assert numbers.tolist() == found.predict({"age": [*of.levels, None]}).tolist()
    assert numbers[0] < numbers[2]


@pytest.mark.parametrize(
    ("formula", "options", "error"),
    [
        ("readmitted ~ visits", {}, NoTablesError),
        (["sex", "stage"], {}, FormulaError),
        ("sex ~ stage", {"entropy": -1}, SeedError),
        ("visits ~ sex", {}, FamilyError),
        ("sex ~ stage", {"family": "poisson"}, FamilyError),
        ("sex ~ stage", {"family": "gamma"}, FamilyError),
        ("stage ~ sex", {}, CategoricalTargetError),
        ("stage[ii] ~ sex", {"family": "ordinal"}, FamilyError),
        ("sex[x] ~ stage", {}, FamilyError),
        ("sex ~ stage", {"confidence_level": 1.0}, ConfidenceError),
        ("sex ~ stage", {"confidence_level": "0.95"}, ConfidenceError),
        ("sex ~ stage", {"interval_for": "sample"}, ConfidenceError),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_a_remedy(
    formula: Any, options: dict[str, Any], error: type[EstimationError]
) -> None:
    with pytest.raises(error) as caught:
        glm(release(), formula, **options)
    assert caught.value.remedy


def test_outcome_whose_missing_cells_count_as_halfway_is_refused() -> None:
    attributes = (*ATTRIBUTES[:5], ATTRIBUTES[5].model_copy(update={"missing": "midpoint"}))
    with pytest.raises(NoTablesError, match="halfway"):
        glm(release_of(attributes, (2, 2, 2), people()), "died ~ sex")


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "overlap"), [(1.0, None), (3.0, 0.8)])
def test_intervals_hold_what_they_are_for(epsilon: float, overlap: float | None) -> None:
    """40 tables and releases of fixed seeds: the mean over five coefficients has a standard error of .02."""
    b = np.array([0.5, 0.4, 0.9, 0.6, 0.3])
    asked = (
        ("readmitted", "binomial", b),
        ("died", "binomial", b),
        ("visits", "poisson", b / 3),
        ("pain", "ordinal", b),
    )

    def held(fit: GeneralisedFit, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
        return covers(fit.intervals[-5:], truth)

    found: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in (*(name for name, _, _ in asked), "table")}
    for seed in range(40):
        cells = people(6000, seed)
        prepared = release_of(ATTRIBUTES, SIZES, cells, epsilon=epsilon, overlap=overlap, seed=seed, pseudonyms=seed)
        for name, family, truth in asked:
            found[name].append(held(glm(prepared, f"{name} ~ {FEATURES}", family=family), truth))
        y = np.array([cell == "yes" for cell in cells["readmitted"]]) * 1.0
        rows = sm.Logit(y, design(cells)).fit(disp=0).params[1:]
        found["table"].append(held(glm(prepared, f"readmitted ~ {FEATURES}", interval_for="table"), rows))
    for name, each in found.items():
        assert 0.9 < np.mean(each) < (1.0 if name == "table" else 0.995), name
