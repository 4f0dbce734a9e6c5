"""`plan --encodings`: which encoding of numbers a public table speaks for."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import Study
from commingle.shared.runtime.settings import load_settings
from tests.services.planning.test_cli import STUDY
from tests.world.command import Command

Shape = Callable[[np.ndarray], np.ndarray]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "plan")


def asked(folder: Path, shape: Shape, *, mechanism: str = "moments") -> tuple[Path, Path]:
    draw = np.random.default_rng(0)
    age = draw.uniform(0, 100, 600)
    charges = (shape(age / 50 - 1) + draw.normal(0, 30, 600)).clip(0, 1000)
    lines = [f"{a:.3f},{draw.choice(['no', 'yes'])},{c:.3f}" for a, c in zip(age, charges, strict=True)]
    study, table = folder / "study.json", folder / "public.csv"
    study.write_text(json.dumps(STUDY | {"mechanism": mechanism, "epsilon": 1, "n": 20_000}))
    table.write_text("\n".join(["age,smoker,charges", *lines]))
    return study, table


@pytest.mark.slow  # four forecasts of half a second each
def test_bent_line_takes_squares_and_the_study_that_is_written_has_them(command: Command, tmp_path: Path) -> None:
    study, table = asked(tmp_path, lambda x: 200 + 600 * x**2)
    words = (study, "--table", table, "--target", "charges", "--encodings")
    code, out, _ = command(*words, "--out", tmp_path / "plan")
    assert code == 0
    assert "Take the numbers with squares." in out
    written = load_settings(Study, tmp_path / "plan" / "study.json")
    (clinic, insurer) = written.parties
    assert [a.name for a in clinic.attributes] == ["age", "age squared", "smoker"]
    assert [a.name for a in insurer.attributes] == ["charges"]
    squared = clinic.attributes[1]
    assert isinstance(squared, NumericAttribute)
    assert squared.product == (clinic.attributes[0],) * 2


@pytest.mark.parametrize("left_out", ["table", "target"])
def test_what_is_needed_is_asked_for(command: Command, tmp_path: Path, left_out: str) -> None:
    study, table = asked(tmp_path, lambda x: 500 + x)
    options = {"table": ("--table", table), "target": ("--target", "charges")}
    words = [word for name, pair in options.items() if name != left_out for word in pair]
    code, _, err = command(study, *words, "--encodings")
    assert code == 2
    assert "--encodings needs a STUDY, a public --table and a --target." in err
