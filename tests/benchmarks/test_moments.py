import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.moments_noise import clipped, entry_variance
from commingle.services.simulation.dataset import PartyShare
from commingle.shared.documents.schema import NumericAttribute

ROOT = Path(__file__).parents[2]


def shares(*widths: int) -> list[PartyShare]:
    """Parties with that many numeric attributes each."""
    return [
        PartyShare(f"p{j}", tuple(NumericAttribute(name=f"x{j}_{i}", lower=-1, upper=1) for i in range(width)))
        for j, width in enumerate(widths)
    ]


def test_row_norm_bounds_what_a_row_can_move() -> None:
    plain, bounded = (entry_variance(shares(2, 3), row_norm=norm, epsilon=1.0, delta=1e-5) for norm in (None, 0.3))
    assert plain[0, 0] == 0
    np.testing.assert_allclose(plain, plain.T)
    assert (bounded[1:, 1:] < 0.5 * plain[1:, 1:]).all()


def test_clipped_rows_keep_the_norm_of_every_party() -> None:
    rows = np.hstack([np.ones((50, 1)), np.random.default_rng(0).uniform(-1, 1, (50, 5))])
    short = clipped(rows, shares(2, 3), 0.3)
    assert ((short[:, 1:3] ** 2).sum(axis=1) <= 0.6 + 1e-12).all()
    assert ((short[:, 3:] ** 2).sum(axis=1) <= 0.9 + 1e-12).all()
    assert (short[:, 0] == 1).all()


@pytest.mark.slow
def test_quick_run_reaches_the_goal_and_draws_the_picture(tmp_path: Path) -> None:
    if not (ROOT.parent / "shared" / "data").is_dir():
        pytest.skip("the real data sets are not on this machine")
    command = [sys.executable, "-m", "benchmarks.moments", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (result,) = json.loads((tmp_path / "moments.json").read_text())["tables"].values()
    assert result["moments"]["adaptive_ridge"]["mean"] > result["goal"]
    assert 0.9 < result["coverage"]["few"]["covered"] <= 1
    assert (tmp_path / "moments.png").stat().st_size > 0
