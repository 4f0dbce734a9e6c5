import json
import subprocess
import sys
from pathlib import Path


def test_quick_run_shows_that_whitening_raises_the_signal(tmp_path: Path) -> None:
    out = tmp_path / "whitening.json"
    command = [sys.executable, "-m", "benchmarks.whitening", "--quick", "--data", str(tmp_path), "--json", str(out)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]).stdout
    assert "winequality_white left out" in said
    found = {r["variant"]: r for r in json.loads(out.read_text()) if r["mechanism"] == "rmgm"}
    assert found["whitened, radius 1"]["feature_root"] > found["plain"]["feature_root"]
    assert found["whitened, radius 1"]["shrunken"]["r2"] > found["plain"]["shrunken"]["r2"]
    moments = {r["variant"]: r for r in json.loads(out.read_text()) if r["mechanism"] == "moments"}
    assert moments["whitened, radius 1"]["ols"]["error"] < moments["plain"]["ols"]["error"] / 2
