"""Tables and descriptions: without noise those of the rows; with noise, intervals and tests keep what they promise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import assume, example, given
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2, chi2_contingency

from benchmarks.harness import covers
from commingle.services.analysis import CrossTable, cross_table, describe
from commingle.services.analysis.tables import trend
from commingle.services.client.release import Release
from commingle.services.errors import LevelError
from commingle.services.intervals import NEGATIVE
from commingle.services.results import ResultTable, markdown_row
from commingle.shared.documents.schema import GAP, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import ConfidenceError, NoTablesError, UnknownAttributeError
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.shares import fieller
from tests.world.categorical import release_of
from tests.world.released import published, published_tables

LEVELS = ("i", "ii", "iii")
SHARES = np.array([0.12, 0.2, 0.35])
STAGE = CategoricalAttribute(name="stage", levels=LEVELS)
SMOKER = BinaryAttribute(name="smoker", levels=("no", "yes"), missing="indicator")
BACK = BinaryAttribute(name="back", levels=("no", "yes"))
AGE = NumericAttribute(name="age", lower=20, upper=90, unit="years")
ATTRIBUTES = (AGE, STAGE, SMOKER, BACK)
MEAN = 55.0


def cells_of(n: int, seed: int, shares: NDArray[np.float64] = SHARES) -> dict[str, list[Any]]:
    """`back` goes with `stage`; age and smoker go with nothing, and a tenth of `smoker` is missing."""
    draw = np.random.default_rng(seed)
    stage, smoker = draw.choice(3, n, p=(0.5, 0.3, 0.2)), draw.random(n)
    return {
        "age": draw.uniform(20, 90, n).tolist(),
        "stage": np.array(LEVELS)[stage].tolist(),
        "smoker": [None if x < 0.1 else "yes" if x < 0.4 else "no" for x in smoker.tolist()],
        "back": np.where(draw.random(n) < shares[stage], "yes", "no").tolist(),
    }


def released(n: int, pseudonyms: int, shares: NDArray[np.float64] = SHARES, **choices: Any) -> PreparedMoments:
    return release_of(ATTRIBUTES, (2, 2), cells_of(n, pseudonyms, shares), pseudonyms=pseudonyms, **choices)


def counted(cells: dict[str, list[Any]], row: str, column: str) -> NDArray[np.float64]:
    pairs = zip(cells[row], cells[column], strict=True)
    known = [pair for pair in pairs if None not in pair]
    labels = [sorted({pair[i] for pair in known}) for i in (0, 1)]
    return np.array([[known.count((a, b)) for b in labels[1]] for a in labels[0]], np.float64)


def test_table_without_noise_is_that_of_the_rows_with_the_test_of_pearson() -> None:
    found = cross_table(released(3000, 1, epsilon=1e4), "stage", "back")
    rows = counted(cells_of(3000, 1), "stage", "back")
    assert found.counts == pytest.approx(rows, abs=0.3)
    assert found.shares == pytest.approx(rows[:, 1] / rows.sum(axis=1), abs=1e-3)
    expected = chi2_contingency(rows, correction=False)
    assert found.statistic == pytest.approx(expected.statistic, rel=0.01)
    assert found.degrees_of_freedom == expected.dof
    oracle = sm.stats.Table2x2(rows[[2, 0]][:, ::-1])
    assert found.odds_ratios[2] == pytest.approx(oracle.oddsratio, rel=0.01)
    assert np.log(found.odds_intervals[2]) == pytest.approx(np.log(oracle.oddsratio_confint()), abs=0.03)
    assert np.log(found.ratio_intervals[2]) == pytest.approx(np.log(oracle.riskratio_confint()), abs=0.03)
    assert np.isnan(found.odds_intervals[0]).all()
    assert f"{found.odds_ratios[2]:.3g}" in found.sentence


def test_noise_makes_no_ratio_negative_and_a_test_of_nothing_is_left_out() -> None:
    never = np.array([0.3, 0.0, 0.0])
    tables = [cross_table(released(2000, 1, never, seed=seed), "stage", "back") for seed in range(6)]
    assert min(each.counts[1:, 1].min() for each in tables) < 0
    for each in tables:
        assert (NEGATIVE in each.table().notes) == (each.counts < 0).any()
    assert min(np.nanmin(values) for each in tables for values in (each.ratios, each.odds_ratios)) == 0
    nobody = cross_table(released(2000, 1, np.zeros(3), seed=1), "stage", "back")
    assert np.isnan(nobody.statistic)
    assert [name for name, _ in nobody.table().facts] == ["people", "intervals"]


def test_people_with_a_missing_cell_are_counted_and_left_out_of_what_is_compared() -> None:
    found = cross_table(released(3000, 1, epsilon=1e4), "smoker", "back", event="no", reference="yes")
    rows = counted(cells_of(3000, 1), "smoker", "back")
    assert found.rows == ("no", "yes", GAP)
    assert found.counts[:2] == pytest.approx(rows, abs=0.3)
    assert found.compared == ("no", "yes")
    assert found.shares == pytest.approx(rows[:, 0] / rows.sum(axis=1), abs=1e-3)
    assert (found.event, found.reference) == ("no", "yes")
    shown = {column.heading: column for column in found.table().columns}
    assert np.isnan(shown["odds ratio"].numbers[[1, 2]]).all()


def test_description_without_noise_is_that_of_the_rows() -> None:
    cells = cells_of(3000, 1)
    found = describe(released(3000, 1, epsilon=1e4), by="back")
    back = np.array(cells["back"])
    ages = [np.array(cells["age"])[back == group] for group in ("no", "yes")]
    assert found.groups == ("no", "yes")
    assert found.people == pytest.approx([len(a) for a in ages], abs=0.3)
    assert found.values[0] == pytest.approx([a.mean() for a in ages], abs=0.05)
    assert found.deviations[0] == pytest.approx(np.std(cells["age"]), rel=0.01)
    reach = ndtri(0.975) * np.std(cells["age"]) / np.sqrt([len(a) for a in ages])
    assert found.intervals[0, :, 1] - found.values[0] == pytest.approx(reach, rel=0.02)
    assert found.lines[1:] == (
        *(f"stage = {level}" for level in LEVELS),
        *(f"smoker = {s}" for s in ("no", "yes", GAP)),
    )
    stage = counted(cells, "back", "stage")
    assert pytest.approx(stage / stage.sum(axis=1, keepdims=True), abs=1e-3) == found.values[1:4].T
    assert found.p_values[1] == pytest.approx(chi2_contingency(stage.T, correction=False).pvalue, rel=0.1)


def test_means_of_a_group_of_hardly_anybody_stay_within_bounds_and_a_warning_names_it() -> None:
    cells = {**cells_of(3000, 1), "stage": ["i"] * 1490 + ["ii"] * 1500 + ["iii"] * 10}
    found = [describe(release_of(ATTRIBUTES, (2, 2), cells, epsilon=1.0, seed=s), by="stage") for s in range(8)]
    few = "There are too few people with stage = iii. Do not rely on their figures; the test leaves them out."
    for each in found:
        assert few in each.warnings
        (value, *_), ends = each.values[0, 2:], each.intervals[0, 2]
        assert 20 <= ends[0] <= value <= ends[1] <= 90
        assert ends[0] < ends[1]
    assert not describe(released(3000, 1, epsilon=1e4), by="stage").warnings


def test_groups_have_a_note_that_means_take_one_deviation_for_all() -> None:
    shown = describe(released(3000, 1, epsilon=1e4), ["age", "smoker"], by="back").table()
    assert "sd of everybody" in [column.heading for column in shown.columns]
    assert any("the standard deviation to be the same in every group" in note for note in shown.notes)
    levels = describe(released(500, 1), ["smoker"], by="back").table()
    assert not any("standard deviation to be" in note for note in levels.notes)
    assert not any("standard deviation to be" in note for note in describe(released(500, 1), ["age"]).table().notes)


def test_deviation_that_noise_hides_is_left_out() -> None:
    cells = {**cells_of(300, 1), "age": [55.0] * 300}
    found = [describe(release_of(ATTRIBUTES, (2, 2), cells, epsilon=0.5, seed=s), ["age"]) for s in range(8)]
    hidden = [each for each in found if each.deviations[0] == 0]
    assert hidden
    sd = hidden[0].table().columns[-1]
    assert sd.heading == "sd"
    assert np.isnan(sd.numbers).all()
    assert "%" not in hidden[0].table().to_text().split("age (years)")[1].split("\n")[0]


def test_description_of_everybody_has_one_group_and_no_tests() -> None:
    found = describe(released(500, 1), ["stage", "age"])
    assert (found.groups, found.people.tolist()) == (("everybody",), [pytest.approx(500, abs=0.3)])
    assert found.lines[-1] == "age (years)"
    with pytest.raises(ConfidenceError):
        describe(released(500, 1), confidence_level=1.0)
    assert np.isnan(found.p_values).all()
    assert [column.heading for column in found.table().columns] == ["people", "share or mean", "sd"]


def test_attribute_whose_missing_cells_count_as_something_else_is_left_out_and_named() -> None:
    attributes = (AGE.model_copy(update={"missing": "midpoint"}), STAGE, SMOKER, BACK)
    found = release_of(attributes, (2, 2), cells_of(500, 1))
    assert "age" in describe(found).warnings[0]
    with pytest.raises(NoTablesError):
        describe(found, ["age"])
    with pytest.raises(NoTablesError, match="no attribute is named"):
        describe(found, [])


@pytest.mark.parametrize(
    ("choices", "error"),
    [
        ({"row": "stage", "column": "stage"}, LevelError),
        ({"row": "age", "column": "back"}, NoTablesError),
        ({"row": "stage", "column": "height"}, UnknownAttributeError),
        ({"row": "stage", "column": "back", "event": "perhaps"}, LevelError),
        ({"row": "smoker", "column": "back", "reference": GAP}, LevelError),
        ({"row": "stage", "column": "back", "confidence_level": 95.0}, ConfidenceError),
    ],
)
def test_table_that_there_is_not_is_refused(choices: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        cross_table(released(100, 1), **choices)
    assert refused.value.remedy  # type: ignore[attr-defined] # every one has one


def test_release_of_rows_has_no_tables() -> None:
    with pytest.raises(NoTablesError, match="rmgm"):
        Release.of(published()[1]).describe()


def test_what_noise_hides_is_unbounded_and_said() -> None:
    found = cross_table(released(300, 2, seed=4, epsilon=0.3), "stage", "back")
    assert np.isinf(found.odds_intervals[1:, 1]).any()
    assert "ii, iii" in " ".join(found.warnings)


def with_event(people: tuple[int, ...], events: tuple[int, ...], **choices: Any) -> CrossTable:
    """A table of stages with these people, some of them with the event."""
    stage = np.repeat(LEVELS, people)
    back = np.concatenate([np.arange(n) < some for n, some in zip(people, events, strict=True)])
    cells = {"stage": stage.tolist(), "back": np.where(back, "yes", "no").tolist()}
    return cross_table(release_of((STAGE, BACK), (1, 1), cells, **choices), "stage", "back")


def test_sentence_is_about_the_clearest_row_and_about_none_that_hardly_anybody_has() -> None:
    sharp = with_event((3000, 3000, 60), (900, 1200, 40), epsilon=1e4)
    assert sharp.odds_ratios[2] > 1.5 * sharp.odds_ratios[1] > 1
    assert "40.0% of those with stage = ii have" in sharp.sentence
    rare = with_event((3000, 3000, 8), (900, 1200, 8), epsilon=1e4)
    said = "There are too few people with stage = iii. Do not rely on their figures; the test leaves them out."
    assert said in rare.warnings
    assert "40.0% of those with stage = ii have" in rare.sentence


def test_sentence_of_a_ratio_without_an_upper_end_gives_the_lower_one() -> None:
    found = with_event((2000, 2000, 1000), (600, 620, 1000), epsilon=3.0, seed=2)
    low, high = found.odds_intervals[2]
    assert (low > 1, high) == (True, np.inf)
    assert f"an odds ratio of at least {low:.3g} in the population." in found.sentence
    assert "stage = iii" in found.sentence
    nothing = cross_table(released(300, 2, seed=4, epsilon=0.3), "stage", "back")
    assert nothing.sentence == "Noise or few people leave open how back = yes goes with stage."


POPULATION = {
    "share": SHARES,
    "difference": (SHARES - SHARES[0])[1:],
    "ratio": (SHARES / SHARES[0])[1:],
    "odds": (SHARES / (1 - SHARES) / (SHARES[0] / (1 - SHARES[0])))[1:],
}


@pytest.mark.slow
@pytest.mark.parametrize(("n", "overlap", "epsilon"), [(2000, None, 1.0), (4000, 0.8, 1.0), (2000, 0.9, 3.0)])
def test_intervals_hold_for_the_population_and_tests_have_their_size(
    n: int, overlap: float | None, epsilon: float
) -> None:
    """A coverage of .95 of 300 releases is outside .92 to .98 once in 50 runs, a size of .05 above .085 once in 500."""
    covered: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in (*POPULATION, "mean")}
    false_alarms: list[tuple[bool, bool]] = []
    for seed in range(300):
        release = released(n, seed, overlap=overlap, epsilon=epsilon, seed=seed)
        found: CrossTable = cross_table(release, "stage", "back")
        about = describe(release, ["age", "smoker"], by="back")
        for name, truth in POPULATION.items():
            covered[name].append(covers(getattr(found, f"{name}_intervals")[-len(truth) :], truth))
        covered["mean"].append(covers(about.intervals[0], np.full(2, MEAN)))
        false_alarms.append((about.p_values[0] < 0.05, about.p_values[1] < 0.05))
    assert {name: 0.92 <= np.mean(each) <= 0.98 for name, each in covered.items()} == dict.fromkeys(covered, True)
    assert np.mean(false_alarms, axis=0).max() < 0.085


@given(st.floats(-50, 50), st.floats(-50, 50), st.floats(0.1, 20), st.floats(0.1, 20), st.floats(-0.95, 0.95))
def test_fieller_keeps_every_ratio_that_is_not_rejected(x: float, y: float, a: float, b: float, rho: float) -> None:
    z = 1.96
    covariance = np.array([[a * a, rho * a * b], [rho * a * b, b * b]])
    low, high = fieller(x, y, covariance, z)
    ratios = np.append(np.linspace(0, 20, 400), 1e6)
    variances = a * a - 2 * ratios * rho * a * b + ratios**2 * b * b
    kept = (x - ratios * y) ** 2 <= z * z * variances * (1 - 1e-9)
    assume(y > 0)
    assert ((low <= ratios[kept] * (1 + 1e-6)) & (ratios[kept] <= high * (1 + 1e-6))).all()


@given(st.floats(-1e6, -1), st.floats(0.01, 1), st.floats(10, 1e6))
@example(-1.0, 1.0, 10.0)
def test_interval_of_a_share_below_zero_is_never_of_nobody_alone(count: float, reach: float, people: float) -> None:
    error = -count * reach / 1.96
    low, high = fieller(count, people, np.diag([error**2, 1.0]), 1.96)
    assert low == 0
    assert high >= 1.9 * error / people


def test_release_shows_tables_in_every_form() -> None:
    release = Release.of(published_tables()[1])
    shown = release.table("stage", "readmitted").table()
    assert shown.to_markdown().splitlines()[1].startswith("| --- | ---: |")
    assert markdown_row(("a|b", "c\\|d")) == r"| a\|b | c\\\|d |"
    assert shown.to_latex().count(r"\\") == len(shown.labels) + 1
    assert shown.to_latex().count(r"\%") >= len(shown.labels)
    of_intervals = ResultTable(title="", heading="age", labels=("[18, 38)", "[38, 58]"), columns=shown.columns[:0])
    assert of_intervals.to_latex().count("\n{[}") == len(of_intervals.labels)
    head, *rows = shown.to_csv().splitlines()
    assert head.count(",") == rows[0].count(",") == 2 + 2 + 4 * 3
    assert "odds ratio high" in head
    names = ("age[[18, 38)]", "c[[1, 2], no]", "sex[m]")
    terms = ResultTable(title="", heading="term", labels=names, columns=shown.columns[:1])
    assert [row[0] for row in terms.cells()] == ["term", "age[18, 38)", *names[1:]]
    assert "age[18, 38)" in terms.to_text()
    assert "age[[18, 38)]" in terms.to_csv()  # as programs take it
    formulas = ResultTable(title="", heading="+cmd", labels=("=1+1", "i", "ii"), columns=shown.columns[:1])
    assert [line.split(",")[0] for line in formulas.to_csv().splitlines()] == ["'+cmd", "'=1+1", "i", "ii"]
    assert list(shown.to_frame().columns)[-1] == "odds ratio high"
    assert "<td" in shown.to_html()
    assert len({len(line) for line in shown.to_text().splitlines()[3:7]}) == 1


def test_trend_without_noise_is_that_of_cochran_and_armitage() -> None:
    found = cross_table(released(3000, 1, epsilon=1e4), "stage", "back")
    rows = counted(cells_of(3000, 1), "stage", "back")
    score = np.arange(3) * 1.0
    n, share = rows.sum(axis=1), rows[:, 1].sum() / rows.sum()
    top = score @ (rows[:, 1] - n * share)
    spread = share * (1 - share) * (n @ score**2 - (n @ score) ** 2 / n.sum())
    assert np.log(found.trend_p_value) == pytest.approx(np.log(chi2.sf(top**2 / spread, 1)), rel=0.02)
    about = describe(released(3000, 1, epsilon=1e4), ["back", "age"], by="stage")
    assert about.trend_p_values[0] == pytest.approx(found.trend_p_value, rel=1e-6)
    slope = sm.OLS(
        np.array(cells_of(3000, 1)["age"]), sm.add_constant([LEVELS.index(s) for s in cells_of(3000, 1)["stage"]])
    ).fit()
    assert about.trend_p_values[-1] == pytest.approx(slope.pvalues[1], abs=0.02)
    assert np.isnan(cross_table(released(3000, 1), "smoker", "back").trend_p_value)


@pytest.mark.slow
@pytest.mark.parametrize("overlap", [None, 0.8])
def test_trend_has_its_size_with_the_noise_of_a_release(overlap: float | None) -> None:
    """Of 6,000 a size of .05 is outside .04 to .06 once in 2,000 runs; noise makes most of the error here."""
    found = cross_table(released(1500, 1, overlap=overlap, seed=1), "stage", "back")
    draw, law = np.random.default_rng(5), np.outer([0.5, 0.3, 0.2], [0.7, 0.3])
    noise = np.linalg.cholesky(found.noise + 1e-9 * np.eye(6))
    rejected = 0
    for _ in range(6000):
        counts = draw.poisson(1500 * law) + (noise @ draw.normal(size=6)).reshape(3, 2)
        rejected += trend(replace(found.cells, counts=counts), (found.rows, found.columns)) < 0.05
    assert rejected / 6000 == pytest.approx(0.05, abs=0.01)


def test_levels_of_hardly_anybody_are_one_by_released_counts() -> None:
    site = CategoricalAttribute(name="site", levels=("a", "b", "c", "d"))
    cells = cells_of(2000, 1) | {"site": ["a"] * 1200 + ["b"] * 796 + ["c", "d"] * 2}
    release = release_of((AGE, site, SMOKER, BACK), (2, 2), cells, seed=4)
    found = cross_table(release, "site", "back")
    assert found.rows == ("a", "b", "other (c, d)")
    assert "c, d: these levels count as one" in found.warnings[0]
    assert found.counts.sum() == pytest.approx(2000, abs=30)
    counts, noise = found.counts[2].sum(), found.noise[4:, 4:].sum()
    assert abs(counts - 4) < 4 * np.sqrt(noise)
    assert cross_table(release, "site", "back", reference="c").rows == ("a", "b", "c", "d")


def test_pictures_draw_shares_by_group_and_ratios_with_arrows_where_there_is_no_end() -> None:
    release = released(500, 1)
    ax = cross_table(release, "smoker", "back").plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["no", "yes"]
    ax = describe(release, by="stage").plot()
    assert [text.get_text() for text in ax.get_yticklabels()][:2] == ["smoker = no", "smoker = yes"]
    assert ax.get_legend() is not None
    ax = cross_table(released(300, 1, epsilon=0.5, seed=3), "stage", "back").plot_ratios()
    assert ax.get_xscale() == "log"
    arrows = [c for c in ax.collections if isinstance(c, PathCollection) and len(np.asarray(c.get_offsets()))]
    assert len(arrows) == 3  # ratios, and both sides
    plt.close("all")
