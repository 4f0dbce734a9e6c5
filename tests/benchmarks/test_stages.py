"""The benchmark of stages runs from end to end, and its releases without noise are the rows' moments."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.second_moments import EPSILONS
from benchmarks.stages import _QUICK, Comparison, main
from tests.benchmarks.test_second_moments import tables

__all__ = ["tables"]


def test_quick_run_prints_both_halves_and_two_stages_come_near_least_squares(tables: Path) -> None:
    result = CliRunner().invoke(main, ["--quick", "--data", str(tables), "--out", str(tables / "found.json")])
    assert result.exit_code == 0, result.output
    found = [Comparison(**each) for each in json.loads((tables / "found.json").read_text())]
    assert len(found) == 2 * len(_QUICK) * len(EPSILONS)
    assert "| mechanism | table (n) |" in result.output
    clear = [c for c in found if (c.mechanism, c.epsilon) == ("moments", 10.0)]
    assert all(0.8 * c.exact < c.two < c.exact + 0.05 for c in clear)
    weak = [c for c in found if (c.mechanism, c.epsilon) == ("rmgm", 0.1)]
    assert all(c.one == c.two for c in weak), "320 subjects are too few for a first stage at epsilon 0.1"
