"""`commingle simulate` as a user runs it: real processes, HTTP, files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commingle.__main__ import main

pytestmark = pytest.mark.slow

ROWS = 2_500
RELEASE_KEYS = {
    *("mechanism", "subjects", "subject_counts", "projection", "epsilon", "delta", "adjacency"),
    *("rho_subject", "epsilon_subject", "rho_subject_outsiders", "epsilon_subject_outsiders"),
    *("first_stage_share", "row_norm", "k", "rows", "id", "folder"),
    *("estimators", "left_out", "verdict", "beats_mean", "seconds"),
}


def _write_table(path: Path) -> None:
    draw = np.random.default_rng(0)
    a, b = draw.uniform(-1, 1, ROWS), draw.uniform(0, 10, ROWS)
    group = np.array(["low", "middle", "high"])[draw.integers(0, 3, ROWS)]
    y = 2 * a - 0.3 * b + (group == "high") + 0.5 * draw.normal(size=ROWS)
    columns = zip(a, b, group, y, strict=True)
    lines = ["a,b,group,y", *(",".join(str(value) for value in row) for row in columns)]
    path.write_text("\n".join(lines) + "\n")


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "commingle", *map(str, arguments)]


def test_simulation_with_little_noise_comes_close_to_the_fit_without_privacy(tmp_path: Path) -> None:
    """One run, looked at from all sides: starting a consortium takes most of the time."""
    _write_table(tmp_path / "table.csv")
    out = tmp_path / "out"
    kinds = [option for name in ("rmgm", "dgm", "moments") for option in ("--mechanism", name)]
    options = ("--target", "y", "--parties", "2", *kinds, "--subjects", "listed", "--epsilon", "100")
    command = _command("simulate", "--table", tmp_path / "table.csv", *options, "--k", "400", "--out", out, "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert json.loads(done.stdout) == report
    _check_keys(report)
    expected = (("measurement_error", 0.35), ("measurement_error", 0.25), ("ols", 0.05))
    for release, (estimator, bound) in zip(report["releases"], expected, strict=True):
        fits = {fit["name"]: fit for fit in release["estimators"]}
        assert fits[estimator]["relative_error"] < bound
        assert fits["shrunken"]["test_r2"] > report["reference"]["ols_test_r2"] - 0.1
        assert fits["constant"]["relative_error"] == 1
        assert (out / f"study-{release['folder']}.json").is_file()
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(out / release["folder"])])
        assert ended.value.code == 0
    assert (out / "coefficients.png").read_bytes().startswith(b"\x89PNG")
    assert not list(out.glob("work-*"))


def test_parties_hold_different_people_whose_ids_they_write_in_several_ways(tmp_path: Path) -> None:
    """As agents do: nobody is refused, and counts are about what they are."""
    draw = np.random.default_rng(1)
    a, y = draw.uniform(-1, 1, ROWS), draw.normal(size=ROWS)
    people = {"clinic": (range(ROWS * 9 // 10), "{:08}", a), "ward": (range(ROWS // 10, ROWS), "{}", 2 * a + 0.5 * y)}
    for name, (held, written, values) in people.items():
        lines = [f"subject_id,{name}", *(f"{written.format(i)},{values[i]}" for i in held)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    parties = [{"name": name, "table": f"{name}.csv"} for name in people]
    (tmp_path / "parties.json").write_text(json.dumps({"parties": parties}))
    options = ("--parties", tmp_path / "parties.json", "--target", "ward", "--epsilon", "100", "--id-rule", "digits/1")
    command = _command("simulate", *options, "--mechanism", "rmgm", "--k", "400", "--out", tmp_path / "out", "--json")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [release] = json.loads(done.stdout)["releases"]
    assert (release["mechanism"], release["subjects"]) == ("rmgm", "keyed")
    joint = ROWS * 8 // 10
    truth = [joint * 4 // 5 + ROWS // 10] * 2 + [joint * 4 // 5]  # a fifth of those whom both hold is nobody's
    assert [count["truth"] for count in release["subject_counts"]] == truth
    for count in release["subject_counts"]:
        assert abs(count["subjects"] - count["truth"]) < 5 * count["error"]
    fits = {fit["name"]: fit for fit in release["estimators"]}
    assert fits["ols"]["interval_for"] == "population"
    assert fits["shrunken"]["test_r2"] > 0.3


def _check_keys(report: dict[str, Any]) -> None:
    assert {"n", "k", "parties", "releases", "reference", "seconds"} <= report.keys()
    assert (report["n"], report["k"], len(report["parties"])) == (ROWS * 4 // 5, 400, 2)
    assert {"ols_test_mse", "ols_test_r2", "constant_test_mse"} <= report["reference"].keys()
    assert {"split", "start", "enrol", "register", "release", "fit"} <= report["seconds"].keys()
    made = [(release["mechanism"], release["epsilon"], release["delta"]) for release in report["releases"]]
    assert made == [(mechanism, 100, 1e-5) for mechanism in ("rmgm", "dgm", "moments")]
    for release in report["releases"]:
        assert release.keys() == RELEASE_KEYS
        for fit in release["estimators"]:
            wanted = {"name", "coefficients", "standard_errors", "relative_error", "test_mse", "test_r2"}
            assert wanted <= fit.keys()


def _children(pid: int) -> list[int]:
    try:
        own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return own + [later for child in own for later in _children(child)]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks for children in /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_in_the_middle_leaves_neither_processes_nor_work(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    _write_table(tmp_path / "table.csv")
    out = tmp_path / "out"
    command = _command("simulate", "--table", tmp_path / "table.csv", "--target", "y", "--parties", "2", "--out", out)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        seen = set[int]()
        while len(seen) < 3 and running.poll() is None:
            seen |= set(_children(running.pid))
            time.sleep(0.02)
        os.kill(running.pid, number)
        assert running.wait(timeout=120) == code
        assert running.stderr is not None
        assert "Traceback" not in running.stderr.read()
    assert len(seen) >= 3
    assert not [pid for pid in seen if _alive(pid)]
    assert not list(out.glob("work-*"))


GOOD = "a,b,y\n" + "".join(f"{i},{i * i % 17},{i % 5}\n" for i in range(60))
BAD: list[tuple[str, list[str], str]] = [
    (GOOD, ["--target", "absent"], "no column 'absent'"),
    (GOOD.replace("7,", "seven,", 1), ["--target", "y"], "text among numbers"),
    ("a,b,y\n1,2,3\n", ["--target", "y"], "does not vary"),
    ("", ["--target", "y"], "not a table"),
    ("a,b,y\n", ["--target", "y"], "no rows"),
    (GOOD, ["--target", "y", "--subject-id", "b"], "duplicate subject ids"),
    (GOOD, ["--target", "y", "--parties", "7"], "7 members cannot share"),
    (GOOD, ["--target", "y", "--parties", "0"], "at least one member"),
    (GOOD, ["--target", "y", "--parties", "absent.json"], "cannot read absent.json"),
    (GOOD, ["--target", "y", "--epsilon", "0"], "epsilon is 0.0"),
    (GOOD, ["--target", "y", "--epsilon", "-1"], "epsilon is -1.0"),
    (GOOD, ["--target", "y", "--epsilon", "nan"], "epsilon is nan"),
    (GOOD, ["--target", "y", "--epsilon", "1e309"], "epsilon is inf"),
    (GOOD, ["--target", "y", "--epsilon", "much"], "not a valid float"),
    (GOOD, ["--target", "y", "--delta", "1"], "delta is 1.0"),
    (GOOD, ["--target", "y", "--mechanism", "rmgm", "--k", "4"], "k is 4"),
    (GOOD, ["--target", "y", "--mechanism", "rmgm", "--k", "49"], "k is 49"),
    (GOOD, ["--target", "y", "--mechanism", "dgm", "--k", "9"], "the others have none"),
    (GOOD, ["--target", "y", "--row-norm", "-1"], "row_norm"),
    (GOOD, ["--target", "y", "--mechanism", "dgm", "--overlap", "0.5"], "those of dgm are listed"),
    (GOOD, ["--target", "y", "--subjects", "listed", "--overlap", "0.5"], "those of moments are listed"),
    (GOOD, ["--target", "y", "--subjects", "keyed", "--common-subjects"], "is for listed data sets"),
    (GOOD, ["--target", "y", "--subjects", "keyed", "--mechanism", "dgm"], "its data sets are listed"),
    (GOOD, [], "--target"),
]


@pytest.mark.parametrize(("text", "options", "said"), BAD)
def test_bad_table_or_option_gives_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, options: list[str], said: str
) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    arguments: list[Any] = ["simulate", "--table", table, "--parties", "2", *options, "--out", tmp_path / "out"]
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code in {1, 2}
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed
    assert not list(tmp_path.glob("out/work-*"))
