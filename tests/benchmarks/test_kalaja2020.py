import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.kalaja2020 import coefficient_errors, label_errors, main
from benchmarks.kalaja2020_settings import FIGURES, REFERENCE, Setting, prepared
from benchmarks.wang2018_data import made_up
from party_agent.private.regression.mapping import Mapping


@pytest.mark.parametrize("into", [Mapping.MAXIMUM, Mapping.PER_ROW_WITH_LABEL])
def test_slopes_without_privacy_are_least_squares_in_the_units_of_the_data(into: Mapping) -> None:
    table = made_up()
    error = coefficient_errors(table, Setting(into, method="ridge"), runs=1, folds=2)[1.0]
    assert error < 0.02  # nine tenths of the rows, and other weights where rows are divided by their norms


@pytest.mark.parametrize("into", list(Mapping))
def test_predictions_are_in_the_units_of_the_label_under_every_mapping(into: Mapping) -> None:
    table = made_up()
    share = label_errors(table, REFERENCE, runs=1, folds=2)[1.0]
    assert share < 0.1
    # dividing rows but not their labels bends the relation, so that mapping explains less
    found = label_errors(table, Setting(into, method="ridge"), runs=1, folds=2)[1.0]
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


def test_quick_run_without_the_data_prints_tables_and_writes_json_and_a_picture(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "read from private rows" in result.output
    [table] = json.loads((tmp_path / "out.json").read_text())["tables"]
    assert set(table["figures"]) == set(FIGURES)
    assert (tmp_path / "kalaja2020_made-up.png").read_bytes().startswith(b"\x89PNG")
