"""The files are what their generator writes."""

import json
from pathlib import Path

import pytest

from tests.vectors import make


@pytest.mark.parametrize("name", ["sign_stream", "sparse_mixing"])
def test_file_is_that_of_the_generator(name: str) -> None:
    assert json.loads(Path(__file__).with_name(f"{name}.json").read_text()) == getattr(make, name)()
