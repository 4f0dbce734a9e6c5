import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.public_moment import (
    main,
    over_public_rows,
    over_rows,
    privacy_of,
    synthetic_conditions,
    wine_conditions,
)
from benchmarks.public_moment_designs import WINE_PUBLIC, condition, synthetic, wine, wine_table
from benchmarks.tables import DATA
from commingle.party_agent.private.regression.sums import sums_loss


def test_synthetic_rows_have_the_condition_number_of_the_paper() -> None:
    rows = synthetic(np.random.default_rng(0), n=200_000, public=20)
    moment = rows.x.T @ rows.x / len(rows.x)
    assert condition(moment) == pytest.approx(15.32, rel=0.03)
    assert np.linalg.eigvalsh(moment)[0] == pytest.approx(0.17, rel=0.03)


def test_transform_by_public_rows_lowers_the_condition_number_as_the_paper_says() -> None:
    few, many = synthetic_conditions(trials=5)
    assert few["condition_before"] > 15
    assert 3.5 > few["condition_after"] > many["condition_after"]
    assert many["condition_after"] == pytest.approx(1.6, abs=0.3)


def test_transformed_fit_errs_less_than_the_baseline_with_the_same_noise_budget() -> None:
    # over 300 trials the medians at n = 10,000, rho = 10 were 0.199 and 0.035
    make = partial(synthetic, n=10_000, public=20)
    cells = {c["method"]: c["median"] for c in over_rows(make, rhos=(10,), sizes=(10_000,), trials=5)}
    assert cells["OLS"] < cells["DP-PMTOLSE, published"] < cells["DP-OLSE, private radii"] / 2


@pytest.mark.parametrize("rho", [0.5, 4.0, 1000.0])
def test_product_is_asked_for_what_the_papers_fit_costs(rho: float) -> None:
    assert float(sums_loss(privacy_of(rho)).rho) == pytest.approx(rho, rel=1e-6)


def test_error_falls_once_public_rows_outnumber_columns() -> None:
    make = partial(synthetic, n=10_000, public=40)
    cells = over_public_rows(make, rhos=(10,), sizes=(10_000,), publics=(11, 40), trials=5)
    found = {(c["public"], c["method"]): c["median"] for c in cells}
    assert found[40, "DP-PMTOLSE, published"] < found[11, "DP-PMTOLSE, published"] / 1.5


@pytest.mark.skipif(wine_table(DATA) is None, reason="the real data sets are not on this machine")
def test_white_wine_is_split_as_in_the_paper() -> None:
    table = wine_table(DATA)
    assert table is not None
    rows = wine(table, np.random.default_rng(0), row_norm=True)
    assert (len(rows.public_y), len(rows.y)) == (WINE_PUBLIC, 4_649)
    assert np.linalg.norm(rows.x, axis=1) == pytest.approx(np.ones(4_649))
    by_name = {c["normalisation"]: c for c in wine_conditions(table, trials=2)}
    assert by_name["z-score, then row norm"]["condition_before"] == pytest.approx(54.6, abs=1)


def test_quick_run_without_the_data_prints_tables_and_writes_json_and_pictures(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "White wine is not at hand" in result.output
    assert set(json.loads((tmp_path / "out.json").read_text())["figures"]) == {"1", "2", "3"}
    for name in ("public_moment_rows.png", "public_moment_public.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
