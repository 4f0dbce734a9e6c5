"""Every example of a learner's OpenAPI document is asked, and answered as its own example says."""

import json
from typing import Any

import httpx
import pytest

from commingle import ReleaseClient
from commingle.services.learner.app import create_app
from commingle.services.learner.computing import COMPUTATIONS, Computation
from commingle.services.learner.source import ReleaseSource
from tests.world.released import ServingCoordinator, published, published_survival, published_tables
from tests.world.transport import InProcess
from tests.world.work import pool_of_threads


@pytest.mark.parametrize("asked", COMPUTATIONS, ids=lambda asked: asked.name)
def test_example_is_answered_with_the_fields_of_its_answers_example(asked: Computation) -> None:
    worlds = dict.fromkeys(("survival", "hazard_ratios"), published_survival)
    worlds |= dict.fromkeys(("table", "describe", "glm"), published_tables)
    release, files = worlds.get(asked.name, published)()
    client = ReleaseClient("http://hub", transport=ServingCoordinator.serving((release, files)).transport)
    app = create_app(ReleaseSource(client), pool=pool_of_threads())
    (body,) = asked.takes.model_json_schema()["examples"]
    with httpx.Client(transport=InProcess(app), base_url="http://learner", timeout=60) as http:
        answer = http.post(asked.path.format(release=release), json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.content)
    assert (asked.gives == dict[str, Any]) == (asked.shows is not None)
    assert found.keys() == (asked.shows or found).keys()
