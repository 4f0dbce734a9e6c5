"""Forecasts of tables are what releases of such people give: the same intervals, and as many people as it takes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.release_law import proposed, study_of
from commingle.services.analysis import cross_table
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute, NumericAttribute, Weighted
from commingle.shared.documents.study import Product
from commingle.shared.documents.terms import Terms
from commingle.shared.errors import PlanningError
from commingle.shared.estimation.cells import Cells
from commingle.shared.forecast.forecast import outlook_of
from commingle.shared.forecast.tables import (
    cut_forecasts,
    expected_release,
    margin,
    sentence_of,
    table_forecasts,
    with_odds_ratio,
    with_shares,
)
from commingle.shared.forecast.task import Assumptions
from commingle.shared.release.checks import terms_of
from tests.world.categorical import release_of

STAGE = CategoricalAttribute(name="stage", levels=("i", "ii", "iii"))
SITE = CategoricalAttribute(name="site", levels=("a", "b", "c", "d"))
SMOKER = BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator")
BACK = BinaryAttribute(name="back", levels=("no", "yes"))
AGE = NumericAttribute(name="age", lower=20, upper=90)
ASSUMED = Assumptions(target="back", shares=(("back", "yes", 0.2), ("stage", "iii", 0.1)))


def terms(n: int = 4000, attributes: Any = (STAGE, SITE, SMOKER, BACK), **changes: Any) -> Terms:
    asked = {"mechanism": "moments", "subjects": "listed", "epsilon": 1.0, **changes}
    return terms_of(study_of(attributes, (2, len(attributes) - 2), n, asked.pop("epsilon"), **asked))


@pytest.mark.parametrize("subjects", ["listed", "keyed"])
def test_expected_release_holds_the_people_that_are_assumed(subjects: str) -> None:
    sums = with_shares(expected_release(terms(subjects=subjects), ASSUMED), ASSUMED.shares)
    assert margin(sums, "stage") == pytest.approx([0.45, 0.45, 0.1])
    assert margin(sums, "back") == pytest.approx([0.8, 0.2])
    cells = with_odds_ratio(sums, ("stage", "back"), (2, 0, 1), 3.0).counts
    assert cells[2, 1] * cells[0, 0] / (cells[2, 0] * cells[0, 1]) == pytest.approx(3)
    assert cells.sum(axis=1) / cells.sum() == pytest.approx([0.45, 0.45, 0.1])
    assert cells.sum(axis=0) / cells.sum() == pytest.approx([0.8, 0.2])
    assert cells[1, 1] / cells[1].sum() == pytest.approx(0.2)
    apart = Cells.of(sums, "smoker", "back").counts
    assert apart == pytest.approx(np.outer(apart.sum(axis=1), apart.sum(axis=0)) / apart.sum())


def test_table_of_the_rarest_level_is_forecast_with_the_noise_that_a_release_states() -> None:
    stage, _, smoker = table_forecasts(terms(), ASSUMED)
    assert (stage.row, stage.level, stage.reference, stage.event) == ("stage", "iii", "i", "yes")
    assert (smoker.level, smoker.reference) == ("yes", "no")
    cells: dict[str, list[Any]] = {
        "stage": ["i", "ii"],
        "site": ["a", "b"],
        "smoker": ["no", None],
        "back": ["no", "yes"],
    }
    errors = cross_table(
        release_of((STAGE, SITE, SMOKER, BACK), (2, 2), {k: v * 2000 for k, v in cells.items()}), "stage", "back"
    ).count_errors
    assert stage.cell_error == pytest.approx(errors.max())
    assert stage.odds_low < 1.5 < (stage.odds_high or 0)
    assert "an odds ratio of 1.5 (back = yes, stage = iii against i)" in sentence_of((stage,))[0]
    assert table_forecasts(terms(epsilon=0.01), ASSUMED, sizes=False)[0].odds_high is None


def test_weight_that_a_study_gives_the_label_is_in_the_forecast_noise() -> None:
    plain, heavy = terms(), Weighted(attribute="back", weight=2)
    weighted = replace(plain, parties=(plain.parties[0], plain.parties[1].model_copy(update={"weighted": heavy})))
    [(before, after)] = {
        (one.cell_error, other.cell_error)
        for one, other in zip(table_forecasts(plain, ASSUMED), table_forecasts(weighted, ASSUMED), strict=True)
        if one.row == "stage"
    }
    assert after < 0.9 * before


@pytest.mark.parametrize(
    "changes", [{"odds_ratio": 1.0}, {"shares": (("back", "maybe", 0.5),)}, {"shares": (("back", "yes", 1.5),)}]
)
def test_impossible_assumptions_about_tables_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanningError):
        table_forecasts(terms(), Assumptions(**changes))


def test_mechanisms_without_tables_and_numeric_labels_have_no_forecast_of_tables() -> None:
    assert table_forecasts(terms(mechanism="rmgm"), ASSUMED) == ()
    assert cut_forecasts(terms(mechanism="rmgm"), ASSUMED) == ()
    assert table_forecasts(terms(attributes=(STAGE, AGE, BACK)), Assumptions(target="age")) == ()


def test_numbers_are_offered_three_to_six_round_intervals_with_the_noise_of_their_cells() -> None:
    attributes = (STAGE, AGE, SMOKER, BACK)
    found = cut_forecasts(terms(attributes=attributes), ASSUMED)
    assert [(cut.cuts, cut.levels) for cut in found] == [("every 25", 4), ("every 20", 4)]
    noise = [cut.cell_error for cut in found]
    assert noise[0] == noise[1]  # as many levels
    tens = cut_forecasts(terms(attributes=(STAGE, NumericAttribute(name="age", lower=0, upper=30), BACK)), ASSUMED)
    assert len({(cut.levels, cut.cell_error) for cut in tens}) == len({cut.cell_error for cut in tens}) > 1
    small = NumericAttribute(name="age", lower=0, upper=0.03)
    assert [c.cuts for c in cut_forecasts(terms(attributes=(STAGE, small, BACK)), ASSUMED)] == [
        "every 0.01",
        "every 0.005",
    ]
    squared = Product(name="age squared", product=(AGE, AGE)).as_number
    assert {cut.attribute for cut in cut_forecasts(terms(attributes=(AGE, squared, STAGE, BACK)), ASSUMED)} == {"age"}


def test_outlook_of_a_proposal_says_what_its_least_certain_table_is_worth() -> None:
    asked = study_of((STAGE, SITE), (1, 1), 4000, 1.0, mechanism="moments", subjects="listed")
    said = outlook_of(proposed(asked))
    assert [sentence for sentence in said if "site = d, stage = iii against i) would read" in sentence]


@pytest.mark.slow
def test_drawn_releases_have_the_intervals_that_are_forecast() -> None:
    """Sixty releases of as many people as are said to be needed: errors as forecast, and four of five tell 1."""
    assumed = replace(ASSUMED, odds_ratio=2.5)
    n = table_forecasts(terms(), assumed)[0].n_needed or 0
    forecast = table_forecasts(terms(n), assumed, sizes=False)[0]
    sums = with_shares(expected_release(terms(n), ASSUMED), ASSUMED.shares)
    law = with_odds_ratio(sums, ("stage", "back"), (2, 0, 1), 2.5).counts
    draw = np.random.default_rng(8)
    ratios, ends, told = [], [], 0
    for seed in range(60):
        pairs = draw.choice(6, n, p=law.ravel() / law.sum())
        cells = {
            "stage": np.array(STAGE.levels)[pairs // 2].tolist(),
            "site": np.array(SITE.levels)[draw.choice(4, n)].tolist(),
            "smoker": draw.choice(["no", "yes"], n).tolist(),
            "back": np.array(BACK.levels)[pairs % 2].tolist(),
        }
        found = cross_table(release_of((STAGE, SITE, SMOKER, BACK), (2, 2), cells, seed=seed), "stage", "back")
        low, high = found.odds_intervals[2]
        ratios.append(found.odds_ratios[2])
        ends.append((low, high))
        told += not low <= 1 <= high
    assert np.log(ratios).std() == pytest.approx(np.log(forecast.odds_factor or 0) / 1.96, rel=0.25)
    assert np.median(ends, axis=0) == pytest.approx([forecast.odds_low, forecast.odds_high], rel=0.07)
    assert told / 60 == pytest.approx(0.8, abs=0.15)
