import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.noise import SIGMAS, main


@pytest.mark.slow
def test_quick_run_reports_a_ratio_for_every_scale(tmp_path: Path) -> None:
    out = tmp_path / "noise.json"
    done = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    results = json.loads(out.read_text())["results"]
    assert tuple(each["sigma"] for each in results) == SIGMAS
    assert all(each["times_faster"] == each["per_second"] / each["opendp_per_second"] for each in results)
    assert done.output.count("\n") == 2 + len(SIGMAS)
