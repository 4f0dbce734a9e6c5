import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.kalaja2020 import best, coefficient_errors, label_errors, main
from benchmarks.kalaja2020_settings import FIGURES, GRID, REFERENCE, Setting, all_folds, fits, prepared
from benchmarks.methods.mapping import Mapping, map_rows
from benchmarks.wang2018_data import made_up
from commingle.party_agent.private.regression.calibration import NoiseCalibration


@pytest.mark.parametrize("into", [Mapping.MAXIMUM, Mapping.PER_ROW_WITH_LABEL])
def test_slopes_without_privacy_are_least_squares_in_the_units_of_the_data(into: Mapping) -> None:
    table = made_up()
    setting = Setting(into, method="ridge")
    error = coefficient_errors(table, setting, all_folds(table, setting, folds=2), runs=1)[1.0]
    assert error < 0.02  # nine tenths of the rows, and other weights where rows are divided by their norms


@pytest.mark.parametrize("into", list(Mapping))
def test_predictions_are_in_the_units_of_the_label_under_every_mapping(into: Mapping) -> None:
    table = made_up()
    share = label_errors(table, REFERENCE, all_folds(table, REFERENCE, folds=2), runs=1)[1.0]
    assert share < 0.1
    # dividing rows but not their labels bends the relation, so that mapping explains less
    setting = Setting(into, method="ridge")
    found = label_errors(table, setting, all_folds(table, setting, folds=2), runs=1)[1.0]
    assert share * 0.9 < found < (0.6 if into is Mapping.PER_ROW else 1.2 * share)


def test_test_rows_are_clipped_only_where_asked() -> None:
    table = made_up()
    ceilings = table.x.mean(axis=0) + 1.0 * table.x.std(axis=0)
    left, cut = (prepared(table, Setting(c=1.0, clip_test=clip), 0) for clip in (False, True))
    assert np.array_equal(left.test_x, table.x[table.fold == 0])
    assert (cut.test_x <= 1.05 * ceilings).all()
    assert not (left.test_x <= 1.05 * ceilings).all()


def test_scales_before_the_split_see_the_test_rows() -> None:
    table = made_up()
    after, before = (prepared(table, Setting(split_first=first), 0).scales.means for first in (True, False))
    assert before == pytest.approx(table.x.mean(axis=0))
    assert after == pytest.approx(table.x[table.fold != 0].mean(axis=0))


def test_figures_up_to_4_4_are_normalised_as_in_wang_and_those_after_by_the_largest_norm() -> None:
    settings = {title[:3]: list(lines.values()) for title, lines in FIGURES.items()}
    for number in ("4.1", "4.2", "4.3", "4.4"):
        assert not any(each.split_first or each.intercept for each in settings[number])
    for number in ("4.5", "4.6", "4.7", "4.8"):
        assert {each.into for each in settings[number]} == {Mapping.MAXIMUM}
    assert {each.clip_test for each in settings["4.8"] if each.c} == {True}


@pytest.mark.parametrize("intercept", [False, True])
def test_label_that_is_not_centred_needs_an_intercept_column(*, intercept: bool) -> None:
    table = made_up()
    setting = Setting(intercept=intercept, centre_label=False, method="ridge")
    share = label_errors(table, setting, all_folds(table, setting, folds=2), runs=1)[1.0]
    # centred features hold nothing of the mean: without the column its square is missed whole
    assert share < 0.1 if intercept else share == pytest.approx(table.y.mean() ** 2 / table.y.var(), rel=0.1)


def test_prepared_rows_keep_the_sums_that_methods_read() -> None:
    table, setting = made_up(), Setting()
    part = prepared(table, setting, 0)
    whole = map_rows(table.x, table.y, mapping=setting.into, scales=part.scales, intercept=True)
    x, y = whole.x[table.fold != 0], whole.y[table.fold != 0]
    assert part.sums.x.T @ part.sums.x == pytest.approx(x.T @ x, rel=1e-9, abs=1e-9)
    assert part.sums.x.T @ part.sums.y == pytest.approx(x.T @ y, rel=1e-9, abs=1e-9)
    assert part.sums.row_bound == whole.row_bound


def test_classical_ssp_is_left_out_above_epsilon_two() -> None:
    table, setting = made_up(), Setting(method="ssp", calibration=NoiseCalibration.CLASSICAL)
    parts = all_folds(table, setting, folds=1)
    assert [epsilon for epsilon, _, _ in fits(parts, setting, 1e-6, epsilons=(2.0, 3.0), runs=1)] == [2.0]


def test_settings_that_differ_in_noise_alone_share_their_rows() -> None:
    assert Setting(c=1.0).rows == Setting(c=1.0, method="ssp", calibration=NoiseCalibration.ZCDP).rows
    assert Setting(c=1.0).rows != Setting(c=1.3).rows


def test_all_combinations_are_two_methods_four_noises_three_mappings_two_intercepts_five_clippings() -> None:
    assert len(set(GRID)) == 2 * 4 * 3 * 2 * 5


def test_best_combination_is_of_the_noise_asked_for_and_a_dash_where_there_is_none() -> None:
    plain = {"method": "ssp", "mapping": "maximum", "intercept": True, "c": None}
    found = [
        {**plain, "calibration": "published", "errors": [[1.0, 0.1], [3.0, 0.1]]},
        {**plain, "calibration": "classical", "errors": [[1.0, 0.5]]},
        {**plain, "calibration": "classical", "c": 1.3, "errors": [[1.0, 0.4]]},
    ]
    sound = frozenset({NoiseCalibration.CLASSICAL})
    assert best(found, 1.0, "ssp", sound) == "0.4 (maximum, intercept, c = 1.3)"
    assert best(found, 3.0, "ssp", sound) == "-"


def test_quick_run_without_the_data_prints_tables_and_writes_json_and_a_picture(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "read from private rows" in result.output
    [table] = json.loads((tmp_path / "out.json").read_text())["tables"]
    titles = list(table["figures"])
    assert [title[:3] for title in titles[:-2]] == [f"4.{number}" for number in range(1, 9)]
    assert titles[-2].startswith("Section 3.3.3")
    assert titles[-1] == "At our defaults"
    assert set(table["figures"]) == set(FIGURES)
    assert len(table["combinations"]) == len(GRID)
    assert (tmp_path / "kalaja2020_made-up.png").read_bytes().startswith(b"\x89PNG")
