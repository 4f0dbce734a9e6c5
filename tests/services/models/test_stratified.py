"""Odds ratios within strata: without noise those of Mantel and Haenszel on the rows, with it they hold."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from benchmarks.harness import covers
from commingle.services.analysis import cross_table
from commingle.services.errors import LevelError
from commingle.services.models import StratifiedTable, stratified
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import NoTablesError, UnknownAttributeError
from commingle.shared.estimation.prepared import PreparedMoments
from tests.world.categorical import release_of

STAGES = ("i", "ii", "iii")
DRUGS = ("none", "old", "new")
ATTRIBUTES: tuple[Attribute, ...] = (
    CategoricalAttribute(name="drug", levels=DRUGS),
    CategoricalAttribute(name="stage", levels=STAGES, missing="indicator"),
    BinaryAttribute(name="died", levels=("no", "yes"), missing="indicator"),
    NumericAttribute(name="age", lower=0, upper=90),
)
LOG_ODDS = np.array([-0.5, -0.9])
WITHOUT = 1e5


def people(
    n: int, seed: int, gaps: float = 0.05, *, new: float = 1.0, fewer_deaths: float = 0.0
) -> dict[str, list[Any]]:
    """Those in a late stage are given drugs more often and die more often: without strata drugs look bad.

    A share `new` is given the new drug of those who would be; `fewer_deaths` lowers the log odds of everybody.
    """
    draw = np.random.default_rng(seed)
    stage = draw.choice(3, n, p=(0.5, 0.3, 0.2))
    edges = np.array([[0.7, 0.9], [0.4, 0.7], [0.2, 0.5]])
    edges[:, 1] = 1 - new * (1 - edges[:, 1])
    drug = np.sum(draw.random((n, 1)) > edges[stage], axis=1)
    eta = np.array([-2.0, -0.8, 0.6])[stage] + np.append(0.0, LOG_ODDS)[drug] - fewer_deaths
    died = draw.random(n) < 1 / (1 + np.exp(-eta))
    return {
        "drug": np.array(DRUGS)[drug].tolist(),
        "stage": np.array([*STAGES, None])[np.where(draw.random(n) < gaps, 3, stage)].tolist(),
        "died": np.array(["no", "yes", None])[np.where(draw.random(n) < gaps, 2, died)].tolist(),
        "age": draw.uniform(0, 90, n).tolist(),
    }


@cache
def release(epsilon: float = WITHOUT, seed: int | None = None) -> PreparedMoments:
    return release_of(ATTRIBUTES, (2, 2), people(6000, 1), epsilon=epsilon, seed=seed)


@cache
def found() -> StratifiedTable:
    return stratified(release(), "drug", "died", "stage")


def on_rows(cells: dict[str, list[Any]], level: str) -> Any:
    rows = list(zip(cells["drug"], cells["died"], cells["stage"], strict=True))
    tables = [[[rows.count((d, e, s)) for e in ("yes", "no")] for d in (level, "none")] for s in STAGES]
    return sm.stats.StratifiedTable(np.moveaxis(np.array(tables, np.float64), 0, 2))


def test_pooled_odds_ratios_without_noise_are_near_those_of_the_rows() -> None:
    cells = people(6000, 2, gaps=0.0)
    alone = stratified(release_of(ATTRIBUTES, (2, 2), cells, epsilon=WITHOUT), "drug", "died", "stage")
    wanted = [on_rows(cells, level) for level in DRUGS[1:]]
    assert alone.compared == DRUGS[1:]
    assert np.log(alone.odds_ratios) == pytest.approx([w.logodds_pooled for w in wanted], abs=0.05)
    assert alone.log_errors == pytest.approx([w.logodds_pooled_se for w in wanted], rel=0.06)


def test_missing_cells_are_no_stratum_and_widen_intervals_by_their_share() -> None:
    wanted = [on_rows(people(6000, 1), level) for level in DRUGS[1:]]
    assert np.log(found().odds_ratios) == pytest.approx([w.logodds_pooled for w in wanted], abs=0.12)
    assert found().log_errors == pytest.approx([w.logodds_pooled_se for w in wanted], rel=0.06)


def test_odds_ratio_without_strata_stands_beside_it() -> None:
    crude = cross_table(release(), "drug", "died")
    assert found().crude.tolist() == crude.odds_ratios[1:].tolist()
    assert found().odds_ratios[1] < 0.6
    assert found().crude[1] > 1
    assert found().strata == STAGES


def test_sentence_says_that_one_ratio_is_supposed_in_all_strata() -> None:
    assert "Among people with the same stage" in found().sentence
    assert "if this ratio is the same at every level of stage" in found().sentence
    assert "It cannot tell whether strata differ." in found().table().to_text()
    assert found().to_dict()["odds_ratios"] == found().odds_ratios.tolist()


def test_sentence_within_strata_is_about_the_clearest_row() -> None:
    """The new drug, which few have, has the larger ratio."""
    cells = people(6000, 3, gaps=0.0, new=0.06)
    sparse = stratified(release_of(ATTRIBUTES, (2, 2), cells, epsilon=WITHOUT), "drug", "died", "stage")
    logs = np.abs(np.log(sparse.odds_ratios))
    assert logs[1] > logs[0]
    assert (logs / sparse.log_errors).argmax() == 0
    assert "with drug = old as with drug = none" in sparse.sentence


def test_other_event_and_reference_turn_the_ratio_around() -> None:
    turned = stratified(release(), "drug", "died", "stage", event="no", reference="new")
    assert turned.compared == DRUGS[:2]
    assert turned.odds_ratios[0] == pytest.approx(found().odds_ratios[1])
    assert turned.odds_intervals[0] == pytest.approx(found().odds_intervals[1])


def test_noise_widens_intervals_and_few_people_are_said() -> None:
    noisy = stratified(release(0.3, 2), "drug", "died", "stage")
    assert (noisy.log_errors > 1.5 * found().log_errors).all()
    assert "1/40" in " ".join(noisy.warnings)
    assert found().warnings == ()


def test_four_times_the_people_halve_the_errors() -> None:
    more = release_of(ATTRIBUTES, (2, 2), people(24_000, 1), epsilon=WITHOUT)
    assert stratified(more, "drug", "died", "stage").log_errors == pytest.approx(found().log_errors / 2, rel=0.1)


@pytest.mark.parametrize(
    ("asked", "refused"),
    [
        (("drug", "died", "drug"), LevelError),
        (("drug", "drug", "stage"), LevelError),
        (("drug", "died", "nowhere"), UnknownAttributeError),
        (("drug", "died", "age"), NoTablesError),
    ],
)
def test_what_has_no_strata_is_refused(asked: tuple[str, str, str], refused: type[Exception]) -> None:
    with pytest.raises(refused):
        stratified(release(), *asked)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "overlap"), [(0.5, None), (3.0, 0.8)])
def test_intervals_hold_the_ratio_of_the_population(epsilon: float, overlap: float | None) -> None:
    """60 tables and releases of fixed seeds, two ratios each: the standard error of the mean is .02."""
    held = []
    for seed in range(60):
        prepared = release_of(
            ATTRIBUTES, (2, 2), people(5000, seed), epsilon=epsilon, overlap=overlap, seed=seed, pseudonyms=seed
        )
        held.append(covers(stratified(prepared, "drug", "died", "stage").odds_intervals, np.exp(LOG_ODDS)))
    assert 0.89 < np.mean(held) < 0.995


@pytest.mark.slow
def test_intervals_of_a_rare_level_with_hardly_an_event_hold() -> None:
    """3 % have the new drug, and one or two of them die. 60 releases of fixed seeds, a standard error of .03.

    With ends at r exp(+- z s) intervals would hold .83 of the 42 that have a ratio.
    """
    held, by_log = [], []
    for seed in range(60):
        cells = people(5000, seed, gaps=0.0, new=0.12, fewer_deaths=3.0)
        found = stratified(release_of(ATTRIBUTES, (2, 2), cells, epsilon=3.0, seed=seed), "drug", "died", "stage")
        low, high = found.odds_intervals[1]
        held.append(low <= np.exp(LOG_ODDS[1]) <= high)
        if np.isnan(found.odds_ratios[1]):
            assert (low, high) == (0, np.inf)
            assert "Noise leaves open how died = yes goes with drug = new: no ratio is given." in found.warnings
        else:
            by_log.append(abs(np.log(found.odds_ratios[1]) - LOG_ODDS[1]) <= 1.96 * found.log_errors[1])
    assert np.mean(held) > 0.9 > np.mean(by_log)


def test_levels_that_a_table_counts_as_one_are_not_compared_within_strata() -> None:
    """One such level alone is not compared either."""
    cells, rare = people(4000, 2), ("old", "new", "newest", "newer")
    few = np.random.default_rng(3).random(4000) < 0.002
    cells["drug"] = [
        rare[2 + i % 2] if one else drug for i, (one, drug) in enumerate(zip(few, cells["drug"], strict=True))
    ]
    drugs = CategoricalAttribute(name="drug", levels=("none", *rare))
    made = stratified(release_of((drugs, *ATTRIBUTES[1:]), (2, 2), cells, epsilon=1.0, seed=4), "drug", "died", "stage")
    assert made.compared == ("old", "new")
    assert "Not compared within strata, as hardly anybody has them: other (newest, newer)." in made.warnings
    cells["drug"] = ["newest" if drug == "newer" else drug for drug in cells["drug"]]
    alone = CategoricalAttribute(name="drug", levels=("none", *rare[:3]))
    single = stratified(
        release_of((alone, *ATTRIBUTES[1:]), (2, 2), cells, epsilon=1.0, seed=4), "drug", "died", "stage"
    )
    assert single.compared == ("old", "new")
    assert "Not compared within strata, as hardly anybody has them: newest." in single.warnings
