import json
import subprocess
import sys
from pathlib import Path


def test_quick_run_reports_a_ratio_for_every_estimator(tmp_path: Path) -> None:
    out = tmp_path / "learner.json"
    command = [sys.executable, "-m", "benchmarks.learner", "--quick", "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    report = json.loads(out.read_text())
    (result,) = report["results"]
    assert {"ols", "debiased", "measurement_error"} <= result.keys()
    assert all(result[name]["times_faster"] > 0 for name in ("ols", "debiased", "measurement_error"))
    of_moments = report["milliseconds_of_moments"]
    assert 0 < of_moments["the same again"] < of_moments["another label"] < of_moments["first fit"]
