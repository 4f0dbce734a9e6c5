import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.moments import Case, releases, spec_of
from commingle.services.simulation.dataset import cohort
from commingle.services.simulation.evaluate import reference
from commingle.shared.encoding import encode_rows

ROOT = Path(__file__).parents[2]


def case(n: int) -> Case:
    """The built-in cohort, judged on its own rows."""
    dataset = cohort(seed=0, subjects=n)
    rows = encode_rows(dataset.attributes, dataset.table.columns)
    return Case("cohort", dataset, rows, reference(dataset, dataset.table, dataset.table))


def test_row_norm_is_written_in_the_spec_of_one_stage_and_cuts_rows() -> None:
    made = case(300)
    plain, bounded = (spec_of(made, "moments", row_norm=norm) for norm in (1, 0.5))
    assert [party.row_norm for party in plain.parties] == [None] * 3
    longest = [sum(a.geometry.radius_squared for a in party.attributes) for party in bounded.parties]
    assert [2 * (party.row_norm or 0) ** 2 for party in bounded.parties] == pytest.approx(longest)
    assert {party.first_stage_share for party in (*plain.parties, *bounded.parties)} == {None}
    nearly_exact = (spec.model_copy(update={"epsilon": 1e4}) for spec in (plain, bounded))
    whole, cut = (releases(made, spec, 1, seed=0)[0].gram for spec in nearly_exact)
    assert np.trace(cut) < np.trace(whole)


def test_releases_are_those_of_a_study_that_says_nothing_else() -> None:
    spec = spec_of(case(10_000), "moments")
    assert {party.first_stage_share for party in spec.parties} == {0.15}
    assert spec.calibration == "analytic"


@pytest.mark.slow
def test_quick_run_reaches_the_goal_and_draws_the_picture(tmp_path: Path) -> None:
    if not (ROOT.parent / "shared" / "data").is_dir():
        pytest.skip("the real data sets are not on this machine")
    command = [sys.executable, "-m", "benchmarks.moments", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    (result,) = json.loads((tmp_path / "moments.json").read_text())["tables"].values()
    assert result["moments"]["adaptive_ridge"]["mean"] > result["goal"]
    assert 0.9 < result["coverage"]["few, one stage"]["covered"] <= 1
    assert (tmp_path / "moments.png").stat().st_size > 0
