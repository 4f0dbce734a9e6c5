"""`POST /v1/releases/{id}/analyses/{kind}`, and the examples of a learner's OpenAPI document, as they are answered."""

import json
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from commingle import Release
from commingle.services.learner.computing import COMPUTATIONS, Computation
from commingle.shared import loops
from tests.world.released import ServingCoordinator, learner, published, published_survival, published_tables

TARGET = "charges, yearly"
ID = published()[0]


def post(http: httpx.Client, kind: str, body: dict[str, Any]) -> httpx.Response:
    return http.post(f"/v1/releases/{ID}/analyses/{kind}", json=body)


@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        ("ridge-path", {"target": TARGET, "penalties": [0]}, "request"),
        ("ridge-path", {"target": TARGET, "penalties": [1.0] * 201}, "request"),
        ("lasso-path", {"target": TARGET, "l1_ratio": 0}, "request"),
        ("lasso-path", {"target": "height"}, "unknown-attribute"),
        ("pca", {"attributes": []}, "features"),
        ("pca", {"scale": True}, "request"),
        ("two-stage", {"target": TARGET, "endogenous": ["bmi"], "instruments": []}, "instruments"),
        ("compare", {"target": TARGET, "larger": ["age"], "smaller": ["bmi"]}, "not-nested"),
        ("table", {"row": "smoker", "column": "age"}, "no-tables"),
        ("describe", {"confidence_level": 1}, "request"),
    ],
)
def test_what_cannot_be_asked_is_refused(http: httpx.Client, kind: str, body: dict[str, Any], code: str) -> None:
    response = post(http, kind, body)
    assert response.status_code == 422
    assert response.json()["type"] == f"urn:commingle:problem:{code}"
    assert response.json()["remedy"]


def test_lasso_without_compiled_loops_is_not_implemented(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "available", lambda: False)
    response = post(http, "lasso-path", {"target": TARGET})
    assert response.status_code == 501
    assert "C compiler" in response.json()["remedy"]
    assert post(http, "ridge-path", {"target": TARGET}).status_code == 200


@pytest.mark.parametrize("asked", COMPUTATIONS, ids=lambda asked: asked.name)
def test_example_is_answered_with_the_fields_of_its_answers_example_and_as_in_python(asked: Computation) -> None:
    worlds = dict.fromkeys(("survival", "hazard_ratios"), published_survival)
    worlds |= dict.fromkeys(("table", "describe", "glm"), published_tables)
    release, files = worlds.get(asked.name, published)()
    (body,) = asked.takes.model_json_schema()["examples"]
    with learner(ServingCoordinator.serving((release, files))) as http:
        answer = http.post(asked.path.format(release=release), json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.content)
    TypeAdapter(asked.gives).validate_json(answer.content)
    assert found.keys() == (asked.shows or found).keys()
    if asked.tag == "analyses":
        given = {"larger": None} if asked.name == "compare" else {}
        expected = getattr(Release.of(files), asked.name)(**given, **body)
        about = {"release": release, "coordinator_pinned": True, "members_pinned": []}
        assert found == about | json.loads(json.dumps(expected.to_dict(), allow_nan=False))
