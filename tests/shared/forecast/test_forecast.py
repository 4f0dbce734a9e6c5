"""What a forecast says of a release, the k that it chooses, and what surrounds it in a plan."""

import json
import re
from dataclasses import asdict, replace
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import NumericAttribute, Weighted
from commingle.shared.documents.study import Study
from commingle.shared.documents.terms import Terms
from commingle.shared.dp.calibration import Calibration
from commingle.shared.dp.fixed_point import SCALE
from commingle.shared.dp.two_stages import FirstStage, Kind, MeasuredAttribute, column_sums, scaling
from commingle.shared.errors import CommingleError
from commingle.shared.forecast.forecast import forecast, plan, predicted, weight_words, with_best_k, with_sketch
from commingle.shared.forecast.result import HARDLY_CUT, advice
from commingle.shared.forecast.task import Assumptions, task_of
from commingle.shared.mechanisms import MECHANISMS
from commingle.shared.mechanisms.moments.block import MOMENTS, TRUST_PROVED
from commingle.shared.mechanisms.rows.forecast import MIXED_ROWS
from commingle.shared.release.checks import closed
from tests.shared.forecast.designs import mixed, numeric

ATTRIBUTES = [{"kind": "numeric", "name": name, "lower": 0, "upper": 120} for name in ("age", "stay")]
STUDY: dict[str, Any] = {
    "study": "Age",
    "mechanism": "rmgm",
    "epsilon": 1,
    "delta": 1e-5,
    "n": 10_000,
    "parties": [{"name": "clinic", "dataset": "visits", "attributes": ATTRIBUTES}],
}


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [n for item in value.values() for n in numbers(item)]
    if isinstance(value, list | tuple):
        return [n for item in value for n in numbers(item)]
    return [value] if isinstance(value, float) else []


def test_useless_release_says_how_many_people_it_takes_and_use_begins_there() -> None:
    f = forecast(numeric(11, n=10_000))
    assert not f.useful
    assert f.n_needed is not None
    assert f"Not useful below n = {f.n_needed:,} at epsilon 1" in f.sentences[1]
    assert forecast(numeric(11, n=f.n_needed)).useful
    assert not forecast(numeric(11, n=round(0.85 * f.n_needed))).useful


def test_useful_release_says_how_well_coefficients_are_known() -> None:
    f = forecast(numeric(5, n=1_000_000))
    assert f.useful
    assert f.reliable
    assert f.r_squared_constant < 0 < f.r_squared < f.r_squared_assumed
    assert any("off by about" in sentence for sentence in f.sentences)


def weighed(terms: Terms, weight: int = 2) -> Terms:
    """These terms, of whose attributes the first weighs more."""
    first, *others = terms.parties
    heavy = first.model_copy(update={"weighted": Weighted(attribute="x0", weight=weight)})
    return replace(terms, parties=(heavy, *others))


MANY = "1000000000 people are too many for an exchange: at most 16777216; if n is right, ask fewer, or propose rmgm."
SAID: list[tuple[Terms, str, bool]] = [
    (numeric(11, n=10_000), "Not useful with n = 10,000 at epsilon 1", True),
    (numeric(5, n=1_000_000), "would suit better", False),
    (numeric(5, n=1_000_000, k=10_000), "k = 10,000 is asked for; k = ", True),
    (numeric(11, n=150_000), "prediction only", True),
    (numeric(5, epsilon=1e-6), "No number of people", True),
    (numeric(5, n=1000, k=500, projection="sparse"), "about 2 people: so few", True),
    (numeric(5, mechanism="dgm", projection="sparse"), "sparse", False),
    (mixed(), "Rows of clinic are cut to a row norm", False),
    (mixed(row_norm=1.5), "Rows of clinic are cut to a row norm", True),  # of up to sqrt(3)
    (mixed(row_norm=3.0), "Rows of clinic are cut to a row norm", False),
    (numeric(4, mechanism="moments", n=10**9), f"This would be refused when it is proposed: {MANY}", True),
    (numeric(4), "xchange", False),
    (weighed(numeric(3, 2, mechanism="moments")), "weigh 2 times", True),
]


@pytest.mark.parametrize(
    ("terms", "sentence", "said"), SAID, ids=[f"{text[:30]} {is_said}" for _, text, is_said in SAID]
)
def test_forecast_says_what_a_person_should_know_and_nothing_else(terms: Terms, sentence: str, said: bool) -> None:
    assert any(sentence in each for each in forecast(terms).sentences) is said


def test_sparse_mixing_has_the_forecast_of_dense_mixing() -> None:
    dense, sparse = (forecast(numeric(5, n=1_000_000, projection=which)) for which in (None, "sparse"))
    assert dense.terms == sparse.terms
    assert (dense.r_squared, dense.best_k) == (sparse.r_squared, sparse.best_k)
    (said,) = set(sparse.sentences) - set(dense.sentences)
    assert said.endswith("Expected figures are those of dense mixing.")


def test_release_that_serves_prediction_only_or_nobody_is_told_apart() -> None:
    f = forecast(numeric(11, n=150_000))
    assert (f.useful, f.reliable) == (True, False)
    assert forecast(numeric(5, epsilon=1e-6)).n_needed is None


def test_standard_errors_in_original_units_follow_the_bounds() -> None:
    """Other bounds of a feature scale its own error, other bounds of the label all of them."""

    def errors(age: float, charges: float) -> dict[str, float]:
        base = mixed(n=10**6)
        wide = NumericAttribute(name="age", lower=-age, upper=age)
        paid = NumericAttribute(name="charges", lower=-charges, upper=charges)
        asked = ((wide, *base.parties[0].attributes[1:]), (paid,))
        shares = tuple(p.model_copy(update={"attributes": a}) for p, a in zip(base.parties, asked, strict=True))
        found = forecast(replace(base, parties=shares), Assumptions(target="charges"))
        return {t.term: t.original or 0 for t in found.terms}

    plain, wider, dearer = errors(1, 1), errors(10, 1), errors(1, 7)
    assert wider["age"] == pytest.approx(plain["age"] / 10)
    assert wider["smoker[yes]"] == pytest.approx(plain["smoker[yes]"])
    assert {t: e / plain[t] for t, e in dearer.items()} == pytest.approx(dict.fromkeys(plain, 7))


def test_public_table_takes_the_place_of_the_assumption() -> None:
    moments = np.diag([1.0, 0.1, 0.1, 0.1])
    moments[1, 3] = moments[3, 1] = 0.09
    f = forecast(numeric(3, 1), Assumptions(target="x2", second_moments=moments))
    assert f.public_table
    assert f.r_squared_assumed == pytest.approx(0.81)
    assert "like the public table" in f.sentences[-1]


def test_plan_shows_curves_around_the_release_and_every_mechanism() -> None:
    made = plan(numeric(5, epsilon=2.0))
    assert [p.mechanism for p in made.mechanisms] == list(MECHANISMS)
    for curve, here in ((made.over_epsilon, 2.0), (made.over_n, 100_000)):
        at = [p.at for p in curve]
        assert at == sorted(at)
        (same,) = [p for p in curve if p.at == pytest.approx(here)]
        assert same.r_squared == pytest.approx(made.forecast.r_squared)
        r_squared = [p.r_squared for p in curve]
        assert r_squared[-1] > r_squared[len(curve) // 2] > r_squared[0]
    best = max(made.over_k, key=lambda p: p.r_squared)
    assert made.over_k[0].at < best.at < made.over_k[-1].at


def test_forecast_of_moments_says_what_the_exchange_costs_and_what_of_it_proofs_are() -> None:
    proved, trusted = (forecast(numeric(30, 3, mechanism="moments", bounds=bounds)) for bounds in ("proved", "trusted"))
    assert proved.exchange == MOMENTS.exchange_cost(100_000, {"p0": 10, "p1": 10, "p2": 10}, proved=True)
    (said,) = [sentence for sentence in proved.sentences if sentence.startswith("The exchange moves 190 MB over all")]
    assert "Proofs that members keep their bounds and follow it are 80 MB and 10 s of that." in said
    (said,) = [sentence for sentence in trusted.sentences if sentence.startswith("The exchange moves 110 MB over all")]
    assert "Proofs" not in said
    for made in (proved, trusted):
        assert any(sentence.startswith("What is debited stays spent") for sentence in made.sentences)


@pytest.mark.parametrize(
    ("mechanism", "share", "n", "bends"),
    [
        ("moments", "auto", 10_000, 1),
        ("moments", "auto", 100_000, 0),
        ("moments", None, 10_000, 0),
        ("rmgm", 0.1, 10_000, 0),
    ],
)
def test_cut_rows_are_said_to_bend_tables_where_a_release_has_them_and_its_rows_are_cut(
    mechanism: Any, share: Any, n: int, bends: int
) -> None:
    parties = tuple(party.model_copy(update={"first_stage_share": share}) for party in numeric(4).parties)
    terms = replace(numeric(4, 1, mechanism=mechanism, n=n), parties=parties)
    made = forecast(terms)
    said = [sentence for sentence in made.sentences if sentence.startswith("Cutting rows bends")]
    assert len(said) == bends


@pytest.mark.parametrize("wide", [1, 3, 10])
@pytest.mark.parametrize("tail", [0.5, 1.0, 1.5])
def test_cutting_bends_shares_by_less_than_a_tenth_of_a_point_where_nothing_is_said_of_it(
    tail: float, wide: int
) -> None:
    """Numbers with long tails beside a level that the largest of them have, twice in 100 people; and wide bounds."""
    draw = np.random.default_rng(int(10 * tail))
    numbers = np.exp(tail * draw.normal(size=(20_000, 3)))
    bounds = wide * np.quantile(numbers, 0.99, axis=0)
    rare = numbers[:, 0] > np.quantile(numbers[:, 0], 0.98)
    rows = np.column_stack([2 * np.minimum(numbers / bounds, 1) - 1, np.where(rare, 1.0, -1.0)])
    kinds = [Kind.NUMERIC] * 3 + [Kind.BINARY]
    stage = FirstStage(tuple(MeasuredAttribute(kind, 1, Fraction(1)) for kind in kinds), len(rows), 1, 1)
    sums = column_sums(np.rint(rows * SCALE).astype(np.int64), stage.attributes)

    def moved(radius_squared: int) -> float:
        applied = scaling(stage, sums, radius_squared=Fraction(radius_squared))
        undone, centre = applied.undo()
        mapped = (rows - centre) / np.diag(undone)
        cut = mapped / np.maximum(1, np.linalg.norm(mapped, axis=1))[:, None]
        return float(abs(np.diag(undone) * cut.mean(axis=0) + centre - rows.mean(axis=0))[3] / 2)

    assert moved(HARDLY_CUT) < 0.001 < moved(HARDLY_CUT // 24)


@pytest.mark.parametrize(
    ("n", "begins", "ends"),
    [
        (10_000, "moments suits best: expected", f". {TRUST_PROVED}"),
        (100_000, "moments suits best: expected", f". {TRUST_PROVED}"),
        (100, "No mechanism is useful here: ", "predicting the mean is as good."),
    ],
)
def test_advice_says_which_mechanism_suits_and_what_its_protection_rests_on(n: int, begins: str, ends: str) -> None:
    said = plan(numeric(5, n=n)).advice
    assert said.startswith(begins)
    assert said.endswith(ends)


@pytest.mark.parametrize("keyed", [False, True])
def test_weight_of_a_label_is_proposed_with_what_the_forecast_of_it_gains(keyed: bool) -> None:
    terms, asked = numeric(11, 3, mechanism="moments").with_subjects(keyed=keyed), Assumptions(target="x0")
    said = weight_words(terms, task_of(terms, asked)) or ""
    found = re.search(r'"weight": 2} at p0, standard errors of this fit are expected to be (0\.\d\d) times', said)
    assert found
    task = task_of(terms, asked)
    before, after = (predicted(each, task).covariance for each in (terms, weighed(terms)))
    assert before is not None
    assert after is not None
    assert np.mean(np.sqrt(np.diag(after) / np.diag(before))) == pytest.approx(float(found[1]), abs=0.01)


def test_no_weight_is_proposed_where_few_explain_nearly_all_or_one_is_given() -> None:
    asked, few = Assumptions(target="x0", r_squared=0.9), numeric(3, 2, mechanism="moments")
    assert weight_words(few, task_of(few, asked)) is None
    given = weighed(few)
    assert weight_words(given, task_of(given, Assumptions(target="x0"))) is None


@pytest.mark.parametrize("best", ["rmgm", "dgm"])
def test_advice_for_a_mechanism_that_trusts_nobody_says_nothing_of_trust(best: str) -> None:
    mechanisms = plan(numeric(5)).mechanisms
    points = [replace(p, useful=True, r_squared=0.5 if p.mechanism == best else 0.1) for p in mechanisms]
    assert advice(points) == f"{best} suits best: expected R\N{SUPERSCRIPT TWO} 0.50."


@pytest.mark.parametrize("n", [16, 250])
def test_curves_hold_every_number_once_where_there_are_few(n: int) -> None:
    made = plan(numeric(11, n=n))
    for curve in (made.over_k, made.over_n):
        at = [p.at for p in curve]
        assert at == sorted(set(at))


def test_curves_stop_where_the_theorem_does_and_dgm_has_none_over_k() -> None:
    made = plan(numeric(5, mechanism="dgm"))
    assert (made.over_k, made.forecast.best_k) == ((), None)
    assert max(p.at for p in plan(numeric(5, calibration=Calibration.CLASSICAL)).over_epsilon) == pytest.approx(1.0)


def test_bounds_at_the_ends_of_all_numbers_leave_no_number_that_json_cannot_hold() -> None:
    base = mixed(n=10**6)
    extreme = NumericAttribute(name="charges", lower=-8e307, upper=8e307)
    paid = base.parties[1].model_copy(update={"attributes": (extreme,)})
    f = forecast(replace(base, parties=(base.parties[0], paid)))
    assert f.terms[0].original is None  # the intercept's lies beyond them
    json.dumps(asdict(f), allow_nan=False)


@pytest.mark.slow
@settings(max_examples=12)
@given(
    st.integers(2, 2**53 - 1),
    st.floats(1e-6, 1e6),
    st.sampled_from([None, 1e-5, 0.3, 1e3]),
    st.sampled_from(list(MECHANISMS)),
    st.sampled_from([None, 2, 20]),
)
def test_any_design_gives_finite_figures(n: int, epsilon: float, norm: Any, mechanism: str, columns: Any) -> None:
    asked: dict[str, Any] = {"n": n, "epsilon": epsilon, "mechanism": mechanism}
    design = mixed(**asked) if columns is None else numeric(columns, **asked)
    design = replace(design, parties=(design.parties[0].model_copy(update={"row_norm": norm}), *design.parties[1:]))
    assert all(isfinite(number) for number in numbers(asdict(plan(design))))


def study(**changes: Any) -> Study:
    return decode(Study, json.dumps({**STUDY, **changes}).encode())


@pytest.mark.parametrize("design", [numeric(5), numeric(11, n=10**6), mixed(epsilon=3.0)], ids=["5", "11", "mixed"])
def test_chosen_sketch_has_the_least_predicted_trace_of_all(design: Any) -> None:
    task = task_of(design, Assumptions())

    def trace(k: int) -> float:
        covariance = MIXED_ROWS.predict(closed(replace(design, k=k)), task).covariance
        assert covariance is not None
        return float(np.diag(task.xx) @ np.diag(covariance))

    least, most = MIXED_ROWS.sketch_bounds(closed(design)) or (0, 0)
    every = [trace(k) for k in np.unique(np.geomspace(least, most, 300).astype(int)).tolist()]
    # best_k leaves out the fit's own finite-sample shrinkage, which moves the valley's floor hardly at all
    assert trace(MIXED_ROWS.best_k(closed(design), task) or 0) < 1.02 * min(every)


def test_sketch_grows_with_epsilon_and_with_subjects_up_to_the_papers() -> None:
    def best(**changes: Any) -> int:
        return with_best_k(numeric(5, **changes), task_of(numeric(5), Assumptions())).k or 0

    by_epsilon, by_subjects = [best(epsilon=e) for e in (0.1, 1, 10, 100)], [best(n=n) for n in (10**3, 10**5, 10**7)]
    assert by_epsilon == sorted(by_epsilon)
    assert by_epsilon[-1] == round(100_000 ** (2 / 3))
    assert by_subjects == sorted(by_subjects)
    assert by_subjects[0] < by_subjects[-1]


def test_study_that_names_its_sketch_or_has_none_is_left_alone() -> None:
    for written in (study(k=77), study(mechanism="dgm")):
        assert with_sketch(written) is written


def test_study_with_nothing_to_fit_gets_the_papers_sketch() -> None:
    assert with_sketch(study(parties=[{**STUDY["parties"][0], "attributes": ATTRIBUTES[:1]}])).k == 464


@given(
    st.integers(9, 10**8),
    st.floats(0.01, 20),
    st.sampled_from(["listed", "keyed"]),
    st.sampled_from([None, 1e-6, 0.3, 5]),
)
def test_sketch_always_makes_a_valid_spec(n: int, epsilon: float, subjects: str, norm: float | None) -> None:
    parties = [{**STUDY["parties"][0], "row_norm": norm}]
    k = with_sketch(study(n=n, epsilon=epsilon, subjects=subjects, parties=parties)).k
    assert k is not None
    assert 9 <= k <= max(9, round(n ** (2 / 3)))


@pytest.mark.parametrize("changes", [{"epsilon": 0}, {"delta": 2}, {"epsilon": 2, "calibration": "classical"}])
def test_study_outside_the_domain_raises_our_error(changes: dict[str, Any]) -> None:
    with pytest.raises(CommingleError) as raised:
        with_sketch(study(**changes))
    assert raised.value.remedy
