"""The examples of docs/sdk.md, run in order."""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from commingle import Fit, Release
from tests.world.released import COORDINATOR, ServingCoordinator, published, study
from tests.world.transport import on_a_socket

PAGE = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_examples_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planned = study(mechanism="rmgm", n=2000, epsilon=10, title="charges")
    (tmp_path / "study.json").write_text(planned.model_dump_json(exclude_none=True))
    fake = ServingCoordinator.serving(published())
    with mpl.rc_context({"backend": "agg"}), on_a_socket(fake.answer) as url:
        names: dict[str, Any] = {"url": url, "fingerprint": COORDINATOR.fingerprint}
        for number, block in enumerate(BLOCKS):
            exec(compile(block, f"docs/sdk.md, example {number + 1}", "exec"), names)  # noqa: S102 - our own page
        names["fit"].plot().figure.clear()
    assert isinstance(names["release"], Release)
    assert names["release"].pinned
    assert isinstance(names["fit"], Fit)
    assert names["test"].p_value < 1e-6
    assert names["model"].coef_ == pytest.approx([2.0, 12.0], abs=3)
    assert names["planned"].advice
    assert (tmp_path / "charges.png").read_bytes().startswith(b"\x89PNG")
