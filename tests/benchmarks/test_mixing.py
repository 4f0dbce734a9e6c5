import json
from pathlib import Path

import pytest

from benchmarks.mixing import main


def test_quick_run_prints_a_table_and_writes_well_formed_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "mixing.json"
    main(["--quick", "--json", str(target)])  # leaves with SystemExit where the two products differ
    report = json.loads(target.read_text())
    assert [(r["n"], r["k"], r["d"]) for r in report["results"]] == [(4000, 100, 10), (1000, 220, 3)]
    assert all(r[f"{kind}_seconds"] > 0 for r in report["results"] for kind in ("gemm", "numpy", "compiled", "sparse"))
    assert all(r["ratio"] > 0 for r in report["results"])
    assert len(capsys.readouterr().out.splitlines()) == 3
