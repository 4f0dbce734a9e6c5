import json
from pathlib import Path

import pytest

from tests.packaging.answers import KEPT, record, shape
from tests.packaging.openapi import FOLDER, descriptions


@pytest.mark.parametrize("name", ["coordinator.json", "party-agent.json", "learner.json"])
def test_kept_description_is_what_the_service_serves(name: str) -> None:
    assert (FOLDER / name).read_text() == descriptions()[name], "run: python -m tests.packaging.openapi"


@pytest.mark.parametrize("name", KEPT)
def test_every_answer_has_an_example(name: str) -> None:
    paths = json.loads((FOLDER / f"{name}.json").read_text())["paths"]
    answers = {
        f"{method.upper()} {path} {status}": answer["content"]["application/json"]
        for path, methods in paths.items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }
    assert [said for said, content in answers.items() if "example" not in content] == []
    assert set(json.loads(KEPT[name].read_text())) <= set(answers)


@pytest.mark.slow
def test_examples_are_what_a_real_run_is_answered(tmp_path: Path) -> None:
    for name, told in record(tmp_path).items():
        kept = json.loads(KEPT[name].read_text())
        assert {said: shape(one) for said, one in told.items()} == {said: shape(one) for said, one in kept.items()}
