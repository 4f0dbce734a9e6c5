import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.proofs import STEPS, main


def test_quick_run_gives_costs_of_an_exchange_whose_openings_are_exact(tmp_path: Path) -> None:
    out = tmp_path / "proofs.json"
    result = CliRunner().invoke(main, ["--quick", "--json", str(out)], catch_exceptions=False)
    assert result.exit_code == 0, result.output  # leaves with 1 where an opening is not exact
    report = json.loads(out.read_text())
    assert report["cpu"].keys() == {*STEPS, "load"}
    assert report["sent"]["ciphertexts"] == 2 * 2 * 5 * 8192 * 4  # of both parties one stripe and the key
    assert report["traffic"] == 2 * sum(report["sent"].values())
