import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.sparse import compare, deviations, excess_kurtosis, made_up, main


def test_dominant_rows_have_the_kurtosis_that_sparse_mixing_minds() -> None:
    draw = np.random.default_rng(0)
    found = {kind: excess_kurtosis(made_up(kind, draw, 5000), k=300) for kind in ("binary", "normal", "dominant")}
    assert found["binary"] < found["normal"] < found["dominant"] / 10


def test_sparse_releases_cover_and_predict_like_dense_ones_where_many_people_meet() -> None:
    values = made_up("normal", np.random.default_rng(1), 2000)
    dense, sparse = compare("made up", values, epsilon=10_000.0, k=100, releases=25)
    assert (dense.projection, sparse.projection) == ("dense", "sparse")
    # fixed seeds; 4 slopes of 25 releases: below 0.85 of 0.95 with probability below 1e-3 each
    assert min(dense.coverage, sparse.coverage) > 0.85
    assert sparse.r_squared == pytest.approx(dense.r_squared, abs=0.05)


def test_few_people_that_dominate_lengthen_the_tails_of_sparse_products_only() -> None:
    values = made_up("dominant", np.random.default_rng(1), 4000)
    dense, sparse = (deviations(values, 60, projection, seeds=150) for projection in (None, "sparse"))
    # fixed seeds: both have variance one by the proof; dense ones are nearly normal, sparse ones mostly 0 or large
    assert np.mean(dense**2) == pytest.approx(1, abs=0.5)
    assert np.median(sparse) < np.median(dense) / 2
    assert sparse.max() > 1.3 * dense.max()


def test_table_whose_columns_follow_from_each_other_is_left_out() -> None:
    values = made_up("binary", np.random.default_rng(1), 200)
    assert not list(compare("twice", np.column_stack([values[:, :1], values]), epsilon=10.0, k=None, releases=1))


@pytest.mark.slow
def test_quick_run_prints_a_line_for_each_pair(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    printed = CliRunner().invoke(main, options, catch_exceptions=False).output
    assert len(json.loads((tmp_path / "out.json").read_text())["results"]) == 24
    assert len(printed.splitlines()) == 2 + 12 + 1 + 2 + 6
