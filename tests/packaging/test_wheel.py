import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from itertools import chain
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.packaging.published import publish
from tests.world.wheel import ROOT, build, built_once, hatchling

pytestmark = pytest.mark.slow

FOLDERS = ("shared", "party_agent", "coordinator", "services")


LIBRARY = "commingle/shared/libloops.so.1"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory)


def contents(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_wheel_holds_one_package_with_every_module_and_its_type_marker(wheel: Path) -> None:
    names = contents(wheel)
    tops = {name.split("/")[0] for name in names}
    assert tops - {"commingle"} == {top for top in tops if top.endswith(".dist-info")}
    tracked = {f"commingle/{p.relative_to(ROOT)}" for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == tracked | {
        "commingle/__init__.py",
        "commingle/__main__.py",
        "commingle/testing.py",
    }
    assert "commingle/py.typed" in names


def test_wheel_holds_the_loops_and_is_for_this_platform_and_every_python(wheel: Path) -> None:
    assert LIBRARY in contents(wheel)
    assert not [name for name in contents(wheel) if name.endswith(".c")]
    _, _, tag = wheel.stem.partition("-py3-none-")
    assert tag == sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert tag != "any"


@pytest.mark.parametrize(
    "missing", [{"PATH": ""}, {"CC": "no-such-compiler"}, {"CC": "false"}], ids=["none", "not there", "refuses"]
)
def test_without_a_compiler_the_wheel_lacks_loops_alone_and_the_build_says_so(
    wheel: Path, tmp_path: Path, missing: dict[str, str]
) -> None:
    assert "without compiled loops, for want of a C compiler" in hatchling(ROOT, "wheel", tmp_path, **missing)
    (made,) = tmp_path.glob("*-py3-none-any.whl")
    assert contents(made) == contents(wheel) - {LIBRARY}


def test_wheel_carries_the_migrations_and_the_tables_that_modules_read(wheel: Path) -> None:
    assert any("store/migrations/versions/" in name for name in contents(wheel))
    assert {"commingle/shared/documents/words.txt", "commingle/party_agent/home/ranges.csv"} <= contents(wheel)


def test_wheel_of_the_sdist_is_the_wheel_of_the_tree(wheel: Path, tmp_path: Path) -> None:
    sdist = build(ROOT, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    assert contents(build(source, "wheel", tmp_path / "again")) == contents(wheel)


def test_dry_run_of_a_release_makes_artefacts_whose_checksums_and_materials_hold(tmp_path: Path) -> None:
    made = publish("dist", "DIST", tmp_path)
    assert sorted(file.suffix for file in made.iterdir()) == ["", ".gz", ".json", ".json", ".sig", ".whl"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    locked = {one["name"]: one["version"] for one in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    listed = {one["name"]: one["version"] for one in json.loads((made / "sbom.cdx.json").read_text())["components"]}
    assert {re.split(r"[\[>=<~]", each)[0] for each in asked} <= listed.keys()
    assert listed.items() <= locked.items()


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an empty environment, outside the checkout, into which only the wheel and what it needs went."""
    folder = tmp_path_factory.mktemp("installed")
    locked = folder / "locked.txt"
    run("export", "--locked", "--no-dev", "--no-emit-project", "--no-hashes", "--quiet", "--output-file", str(locked))
    run("venv", "--quiet", "--python", sys.executable, str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    run("pip", "install", "--quiet", "--python", str(python), "--constraint", str(locked), str(wheel))
    return python.parent


def run(*arguments: str) -> None:
    subprocess.run([find_uv_bin(), *arguments], cwd=ROOT, check=True)


def said(*command: str | Path, cwd: Path) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=clean, check=True, capture_output=True, text=True).stdout


def test_installed_wheel_brings_no_other_top_level_name(installed: Path, tmp_path: Path) -> None:
    script = f"import commingle, importlib.util as u; print([n for n in {FOLDERS!r} if u.find_spec(n)])"
    assert said(installed / "python", "-c", script, cwd=tmp_path).strip() == "[]"


def test_installed_wheel_needs_nothing_else_to_run_a_whole_consortium(installed: Path, tmp_path: Path) -> None:
    assert "commingle demo" in said(installed / "commingle", "--help", cwd=tmp_path)
    rows = [f"{20 + i % 60},{i % 7},{(20 + i % 60) * 2 + i % 7}" for i in range(400)]
    (tmp_path / "stays.csv").write_text("\n".join(["age,beds,charges", *rows]))
    told = said(
        *(installed / "commingle", "simulate", "--table", "stays.csv", "--target", "charges", "--parties", "2"),
        *("--mechanism", "rmgm", "--epsilon", "10", "--out", "out", "--json"),
        cwd=tmp_path,
    )
    assert [release["mechanism"] for release in json.loads(told)["releases"]] == ["rmgm"]
