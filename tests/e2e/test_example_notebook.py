"""The example notebook, from its first cell to its last, on a release that is made for it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "fit_a_release.ipynb"


def _code() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
def test_example_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    made = ("simulate", "--mechanism", "moments", "--out", str(out))
    subprocess.run([sys.executable, "-m", "commingle", *made], check=True, capture_output=True)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    plt.close("all")  # what other tests left open
    with mpl.rc_context({"backend": "agg"}):
        for number, cell in enumerate(_code()):
            exec(compile(cell, f"cell {number}", "exec"), names)  # noqa: S102 - our own page
        drawn = len(plt.get_fignums())
        plt.close("all")
    printed = capsys.readouterr().out
    assert drawn == sum("plot()" in cell for cell in _code())
    assert "epsilon per member 1 " in printed
    assert "<td" in names["release"]._repr_html_() + names["fit"]._repr_html_()


def test_example_notebook_is_kept_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code")
