import json
import subprocess
import sys
from pathlib import Path


def test_quick_run_prices_every_open_route_that_computes(tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    command = [sys.executable, "-m", "tests.tools.costs", "--quick", "--json", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    costs = json.loads(out.read_text())["costs"]
    described = json.loads((Path(__file__).parents[2] / "docs" / "openapi" / "learner.json").read_text())["paths"]
    assert {f"POST {path}" for path, methods in described.items() if "post" in methods} <= {c["route"] for c in costs}
    assert all(cost["status"] in {200, 413, 422} for cost in costs)
