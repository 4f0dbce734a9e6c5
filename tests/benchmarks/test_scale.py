import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.scale import Result, main, slopes
from benchmarks.whole_agent import COLUMNS, K, measure


def test_slope_is_that_of_logarithms_within_one_work() -> None:
    results = [Result("a", n, seconds, 0, 0) for n, seconds in ((10, 1.0), (100, 10.0), (1000, 1000.0))]
    assert slopes([*results, Result("b", 10, 5.0, 0, 0)]) == pytest.approx({("a", 100): 1.0, ("a", 1000): 2.0})


@pytest.mark.slow
def test_quick_run_prints_a_line_for_each_process(tmp_path: Path) -> None:
    asked = ["--quick", "--no-agents", "--json", str(tmp_path / "out.json"), "--picture", str(tmp_path / "out.png")]
    printed = CliRunner().invoke(main, asked, catch_exceptions=False).output
    results = json.loads((tmp_path / "out.json").read_text())["results"]
    assert len(printed.splitlines()) == 2 + len(results) == 16
    assert all(r["peak_megabytes"] >= r["before_megabytes"] > 10 for r in results)
    assert sum(r["cpu_seconds"] for r in results) > 0  # of so few rows a clock's tick may be more than one work
    again = ["--measured", str(tmp_path / "out.json"), "--picture", str(tmp_path / "again.png")]
    assert CliRunner().invoke(main, again, catch_exceptions=False).output == ""
    assert (tmp_path / "again.png").read_bytes() == (tmp_path / "out.png").read_bytes()


@pytest.mark.slow
def test_whole_agent_is_measured_from_registration_to_publication() -> None:
    found = measure("sparse", 12_000)  # k is no more than n
    assert 20 < found.idle_megabytes <= found.release_megabytes
    assert 10 < found.anonymous_megabytes < found.release_megabytes
    assert found.cpu_seconds > 0
    assert found.sent_megabytes == pytest.approx(K * COLUMNS * 8 / 1e6, rel=0.01)
