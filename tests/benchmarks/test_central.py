import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from benchmarks import central_methods
from benchmarks.central import main
from benchmarks.central_methods import PRODUCT, fitted, ratios, split
from benchmarks.wang2018_data import Table, made_up
from party_agent.private.regression.calibration import Privacy
from party_agent.private.regression.methods import METHODS


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


def test_peer_gets_the_public_bounds_and_rows_within_them() -> None:
    seen: dict[str, Any] = {}

    class Fake:
        def __init__(self, **settings: Any) -> None:
            seen.update(settings)

        def fit(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> "Fake":
            assert (np.abs(x) <= seen["bounds_X"][1]).all()
            assert np.abs(y).max() <= 1
            self.coef_ = np.zeros(x.shape[1])
            return self

    data = split(made_up(), 1)
    central_methods._peer_fit(Fake, data, 0.5, np.random.default_rng(0))
    assert seen["epsilon"] == 0.5
    assert (seen["bounds_X"][1] >= np.abs(data.public_x).max(axis=0)).all()


def test_fits_have_a_slope_for_every_column() -> None:
    for theta in fitted(split(made_up(), 1), Privacy(1.0, 1e-6), np.random.default_rng(0)).values():
        assert theta.shape == (5,)


def test_quick_run_without_the_data_prints_a_table_and_writes_json_and_a_picture(tmp_path: Path) -> None:
    options = ["--quick", "--data", str(tmp_path / "absent"), "--json", str(tmp_path / "out.json")]
    result = CliRunner().invoke(main, [*options, "--pictures", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "takes one feature only" in result.output
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["adjacency"] == "replace_one"
    assert (tmp_path / "central.png").read_bytes().startswith(b"\x89PNG")
