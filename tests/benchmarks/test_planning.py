import json
from pathlib import Path

import pytest

from benchmarks.planning import main


def test_quick_run_meets_its_own_claim_and_writes_json_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds are fixed; the rms over ten releases has a relative standard error of about 15 %."""
    out, picture = tmp_path / "planning.json", tmp_path / "planning.png"
    arguments = ["--quick", "--repeats", "10", "--json", str(out), "--picture", str(picture)]
    main(arguments, standalone_mode=False)
    rows = {(r["mechanism"], r["assumed"]): r for r in json.loads(out.read_text())["results"]}
    for mechanism in ("rmgm", "moments"):
        given = rows[mechanism, "table"]
        assert given["warned"] == 0
        assert 1 / 1.5 < given["ratio"] < 1.5
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "table: 3 of 3 within 1.5" in capsys.readouterr().out
