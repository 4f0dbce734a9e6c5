import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import central_peer_fits
from benchmarks.central import run
from benchmarks.central_methods import asked, one_column, ratios
from benchmarks.central_peers import SCRIPT, Absent, Fit, Peers, built, started
from benchmarks.wang2018_data import made_up

# answers as the real script does, without its libraries
_FAKE = """
import json, sys
import numpy as np
if sys.argv[1] == "versions":
    print(json.dumps({"fake": "1.0"}))
else:
    asked = np.load(sys.argv[2])
    fits = [
        {"peer": "fake", "epsilon": e, "fold": f, "run": r, "slopes": [0.0] * asked["x"].shape[1], "intercept": 0.0}
        for f in asked["tests"].tolist() for e in asked["epsilons"].tolist() for r in range(int(asked["runs"]))
    ]
    json.dump(fits, open(sys.argv[3], "w"))
"""


def _fake(folder: Path, text: str = _FAKE) -> tuple[str, ...]:
    script = folder / "fake.py"
    script.write_text(text, encoding="utf-8")
    return (sys.executable, "-I", str(script))


def test_report_has_the_peer_in_both_comparisons_and_its_version(tmp_path: Path) -> None:
    peers = started(_fake(tmp_path))
    report = run(quick=True, data=tmp_path / "absent", peers=peers)
    assert report["peers"] == {"versions": {"fake": "1.0"}}
    for table in (*report["tables"], *report["one_column"]):
        for cell in table["cells"]:
            assert cell["methods"]["fake"]["median"] == pytest.approx(1.0)  # slopes of zero predict the public mean


def test_peer_that_starts_and_then_fails_ends_the_benchmark(tmp_path: Path) -> None:
    peers = Peers(_fake(tmp_path, "raise SystemExit('out of order')"), {})
    with pytest.raises(SystemExit, match="out of order"):
        peers.fits(asked(made_up(), epsilons=(1.0,), runs=1))


def test_environment_that_cannot_be_built_is_absent_with_the_words_of_uv(tmp_path: Path) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho 'error: no such host' >&2\nexit 2\n", encoding="utf-8")
    uv.chmod(0o700)
    with built(uv=str(uv)) as found:
        assert found == Absent("error: no such host")


def test_absent_where_uv_is_not_installed(tmp_path: Path) -> None:
    with built(uv=str(tmp_path / "nowhere")) as found:
        assert isinstance(found, Absent)
        assert "nowhere" in found.reason


def test_every_peer_is_pinned_to_one_version_that_is_locked_with_hashes() -> None:
    root = SCRIPT.parents[1]
    pins = tomllib.loads((root / "pyproject.toml").read_text())["dependency-groups"]["peers"]
    assert {"diffprivlib==0.6.6", "opendp==0.16.0"} <= set(pins)
    locked = {f"{p['name']}=={p['version']}": p for p in tomllib.loads((root / "uv.lock").read_text())["package"]}
    assert all(wheel["hash"].startswith("sha256:") for pin in pins for wheel in locked[pin]["wheels"])


def test_diffprivlib_gets_public_bounds_and_rows_within_them() -> None:
    seen: dict[str, Any] = {}

    class Fake:
        def __init__(self, **settings: Any) -> None:
            seen.update(settings)

        def fit(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> "Fake":
            assert (np.abs(x) <= seen["bounds_X"][1]).all()
            assert np.abs(y).max() <= 1
            self.coef_ = np.zeros(x.shape[1])
            return self

    wanted = asked(made_up(), epsilons=(0.5,), runs=1)
    central_peer_fits.diffprivlib_fit(Fake, 3 * wanted.x, 3 * wanted.y, sizes=wanted.sizes, epsilon=0.5, random_state=0)
    assert seen["epsilon"] == 0.5
    assert np.array_equal(seen["bounds_X"][1], wanted.sizes)
    assert not seen["fit_intercept"]


def test_rows_are_shortened_to_the_bound_and_no_further() -> None:
    x = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert central_peer_fits.bounded(x, 1.0) == pytest.approx(np.array([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


@pytest.mark.parametrize(("power", "budget"), [(1, 0.5), (2, 0.02)])
def test_theil_sen_spends_the_budget_on_a_replaced_row(power: int, budget: float) -> None:
    class Measurement:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def map(self, rows: int) -> float:
            return float((2 * rows / self.scale) ** power)

        def check(self, rows: int, limit: float) -> bool:
            return self.map(rows) <= limit

    class Fake:
        def __init__(self, _measure: object, *, scale: float, **_bounds: object) -> None:
            self.measurement = Measurement(scale)

    found = central_peer_fits.theil_sen(Fake, None, budget=budget, power=power, bound=2.0)
    assert 0.999 * budget < found.measurement.map(2) <= budget


def test_script_tells_versions_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(central_peer_fits, "PACKAGES", ("numpy",))
    central_peer_fits.main(["versions"])
    assert json.loads(capsys.readouterr().out) == {"numpy": np.__version__}


def test_opendp_learns_one_column_under_both_measures_and_is_not_asked_for_more() -> None:
    table = made_up(20_000)
    wanted = asked(one_column(table), epsilons=(3.0,), runs=1)
    found = list(central_peer_fits._opendp({name: np.asarray(getattr(wanted, name)) for name in wanted.__slots__}))
    assert {each["peer"] for each in found} == {"OpenDP, pure", "OpenDP, zCDP"}
    ratio = ratios(one_column(table), 3.0, folds=[1], runs=1, others=[Fit(**each) for each in found])
    assert ratio["OpenDP, pure"][0] < 1.1 * ratio["not private"][0]
    assert not list(central_peer_fits._opendp({"x": table.x}))
