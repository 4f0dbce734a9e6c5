import pytest

from tests.packaging.openapi import FOLDER, descriptions


@pytest.mark.parametrize("name", ["coordinator.json", "party-agent.json", "learner.json"])
def test_kept_description_is_what_the_service_serves(name: str) -> None:
    assert (FOLDER / name).read_text() == descriptions()[name], "run: python -m tests.packaging.openapi"
