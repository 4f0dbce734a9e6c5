import json
import subprocess
import sys
from pathlib import Path


def test_quick_run_reports_ratios_for_every_work_alone_and_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "threads.json"
    command = [sys.executable, "-m", "benchmarks.threads", "--quick", "--processors", "1", "--json", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    report = json.loads(out.read_text())
    assert {(each["work"], each["processes"]) for each in report["results"]} == {
        (work, processes) for work in ("mixing", "moments", "fitting") for processes in (1, 2)
    }
    assert all(each["seconds"] > 0 and each["cpu"] > 0 for each in report["results"])
    assert len(done.stdout.splitlines()) == 2 + len(report["results"])
