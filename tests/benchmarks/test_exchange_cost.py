import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.exchange_cost import STEPS, Case, main, require_exact


@pytest.mark.slow
def test_quick_run_gives_costs_of_blocks_that_are_exact(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    result = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output  # leaves with 1 where a block is not exact
    (case,) = json.loads(out.read_text())["exchange"]
    assert (case["n"], case["columns"], case["parties"]) == (500, 2, 3)
    assert case["cpu"].keys() == {*STEPS}
    assert 0 < case["total"] == pytest.approx(sum(case["cpu"].values()))
    key, part = 5 * 8192 * 4, 3 * (8192 + 2) * 4 * 2
    assert case["bytes"] == (3 + 2) * 2 * key + 2 * 3 * part  # one stripe and the key, and three parts
    assert case["megabytes"] > 50


def test_block_that_is_off_by_one_is_no_result() -> None:
    case = Case(10, 2)
    with pytest.raises(SystemExit, match="not exact"):
        require_exact(case, case.exchange(), [np.ones((7, 2), np.int64)])
