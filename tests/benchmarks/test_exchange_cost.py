import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.exchange_cost import STEPS, Case, main, require_exact
from commingle.shared.proving.lengths import column_proofs, reply_proofs
from commingle.shared.ring.layout import Layout


@pytest.mark.slow
def test_quick_run_gives_costs_of_blocks_that_are_exact(tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    result = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output  # leaves with 1 where a block is not exact
    cases = json.loads(out.read_text())["exchange"]
    assert [case["bounds"] for case in cases] == ["trusted", "proved"]
    for case in cases:
        assert (case["n"], case["columns"], case["parties"]) == (500, 2, 3)
        assert case["cpu"].keys() == {*STEPS}
        assert 0 < case["total"] == pytest.approx(sum(case["cpu"].values()))
        assert case["megabytes"] > 50
    key, words = 5 * 8192 * 4, (8192 + 2) * 4 * 2
    trusted, proved = (case["bytes"] for case in cases)
    # one stripe and the key, two or three times each; of replies, which every owner gets whole, two parts and six
    assert trusted == (3 + 2) * 2 * key + (2 + 6) * 3 * words
    column_proof, layouts = sum(column_proofs(Layout(b"", 500, 2))), [Layout(b"", 500, 2)] * 3
    replies = [
        len(layouts[:k]) * 5 * words + sum(reply_proofs(layouts[k], layouts[:k], encrypted=k < 2)) for k in (1, 2)
    ]
    assert proved == 2 * 3 * (2 * key + column_proof) + 2 * replies[0] + 3 * replies[1]


def test_block_that_is_off_by_one_is_no_result() -> None:
    case = Case(10, 2)
    with pytest.raises(SystemExit, match="not exact"):
        require_exact(case, case.exchange(), [np.ones((7, 2), np.int64)])
