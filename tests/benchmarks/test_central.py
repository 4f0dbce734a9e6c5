import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from benchmarks import central_methods
from benchmarks.central import main, markdown, run, told
from benchmarks.central_methods import PRODUCT, asked, fitted, one_column, ratios, split
from benchmarks.central_peers import Absent, Fit
from benchmarks.wang2018_data import Table, made_up
from commingle.party_agent.private.regression.calibration import Privacy
from commingle.party_agent.private.regression.methods import METHODS
from commingle.shared.dp.calibration import epsilon_of_rho


def test_only_proved_calibrations_are_compared() -> None:
    for method, calibration in PRODUCT.values():
        assert calibration in METHODS[method].calibrations


def test_scales_do_not_change_with_private_rows() -> None:
    table = made_up()
    private = (table.fold != central_methods.PUBLIC_FOLD)[:, None]
    moved = Table("moved", np.where(private, 2 * table.x, table.x), table.y, table.fold)
    one, other = split(table, 1), split(moved, 1)
    assert np.array_equal(one.public_x, other.public_x)
    assert not np.allclose(one.x, other.x)


def test_every_method_learns_at_a_large_epsilon() -> None:
    found = ratios(made_up(20_000), 3.0, folds=[1], runs=1)
    assert found["not private"][0] < 0.2
    for name, values in found.items():
        assert values[0] < 1, name


def test_peers_are_asked_for_the_same_rows_bounds_and_budgets() -> None:
    table = made_up()
    wanted, data = asked(table, epsilons=(0.3, 1.0), runs=2), split(table, 4)
    private = ~np.isin(table.fold, [wanted.public, 4])
    assert np.array_equal(wanted.x[private], data.x)
    assert np.array_equal(wanted.y[private], data.y)
    assert (wanted.sizes >= np.abs(data.public_x).max(axis=0)).all()
    assert wanted.row_bound == np.sqrt(5)
    for epsilon, rho in zip(wanted.epsilons, wanted.rhos, strict=True):
        assert 0.999 * epsilon < epsilon_of_rho(rho, table.delta) <= epsilon


def test_one_column_is_chosen_by_public_rows() -> None:
    table = made_up()
    public = table.fold == central_methods.PUBLIC_FOLD
    x = np.where(public[:, None], table.x, 0.0)
    x[:, 2] = np.where(public, x[:, 2], table.y)  # what private rows say must not matter
    chosen = one_column(Table("changed", x, table.y, table.fold))
    correlations = [abs(np.corrcoef(column[public], table.y[public])[0, 1]) for column in x.T]
    assert np.array_equal(chosen.x[:, 0], x[:, int(np.argmax(correlations))])


def test_fit_of_a_peer_is_judged_on_its_fold_with_its_intercept() -> None:
    table = made_up()
    data = split(table, 2)
    fit = Fit("peer", 1.0, 2, 0, np.zeros(5), 0.25)
    elsewhere = Fit("peer", 3.0, 2, 0, np.ones(5), 9.0)
    [found] = ratios(table, 1.0, folds=[2], runs=1, others=[fit, elsewhere])["peer"]
    assert np.isclose(found, np.mean((data.test_y - 0.25) ** 2) / np.mean(data.test_y**2))


def test_fits_have_a_slope_for_every_column() -> None:
    for theta in fitted(split(made_up(), 1), Privacy(1.0, 1e-6), np.random.default_rng(0)).values():
        assert theta.shape == (5,)


def test_absent_peers_are_named_in_the_output_and_in_the_json(tmp_path: Path) -> None:
    report = run(quick=True, data=tmp_path / "absent", peers=Absent("no network"))
    assert report["peers"] == {"absent": "no network"}
    assert "NO OUTSIDE PEERS" in told(Absent("no network"))
    assert "no network" in told(Absent("no network"))
    assert "diffprivlib" not in markdown(report["tables"])


def test_quick_run_without_the_data_prints_a_table_and_writes_json_and_a_picture(tmp_path: Path) -> None:
    options = ["--quick", "--no-peers", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "left out as asked" in result.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["adjacency"] == "replace_one"
    assert {table["d"] for table in report["one_column"]} == {1}
    for name in ("central", "central_one_column"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
