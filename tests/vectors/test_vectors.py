"""The files are what their generator writes."""

import json
from pathlib import Path
from typing import Any

from tests.vectors.make import calibration_row, sign_stream, sparse_mixing


def load(name: str) -> Any:
    return json.loads(Path(__file__).with_name(f"{name}.json").read_text())


def test_sign_stream_is_that_of_the_generator() -> None:
    assert load("sign_stream") == sign_stream()


def test_sparse_mixing_is_that_of_the_generator() -> None:
    assert load("sparse_mixing") == sparse_mixing()


def test_calibration_is_that_of_the_generator() -> None:
    for row in load("calibration")["rows"][::7]:
        assert row == calibration_row(row["epsilon"], row["delta"])
