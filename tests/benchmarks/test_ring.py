import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.ring import STEPS, main


def test_quick_run_gives_costs_of_products_that_are_exact(tmp_path: Path) -> None:
    out = tmp_path / "ring.json"
    result = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output  # leaves with 1 where a product is not exact
    report = json.loads(out.read_text())
    assert report["cpu"].keys() == {*STEPS, "load", "numpy"}
    assert report["ratio"] > 1
    assert (report["sent"], report["reply"]) == (2 * 5 * 8192 * 4, 3 * 3 * (8192 + 3) * 4)  # one stripe and the key
