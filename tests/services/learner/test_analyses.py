"""`POST /v1/releases/{id}/analyses/{kind}`, and the examples of a learner's OpenAPI document, as they are answered."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from commingle import Release
from commingle.services.learner.computing import COMPUTATIONS, Computation
from tests.world.released import ServingCoordinator, learner, published, published_survival, published_tables

TARGET = "charges, yearly"
ID, FILES = published()
RELEASE = Release.of(FILES)
TABLES_ID, TABLES_FILES = published_tables()
TABLES = Release.of(TABLES_FILES)
SURVIVAL_ID, SURVIVAL_FILES = published_survival()
ANSWERS: list[tuple[str, dict[str, Any], Any]] = [
    ("ridge-path", {"target": TARGET, "penalties": [0.1, 1]}, RELEASE.ridge_path(TARGET, penalties=[0.1, 1])),
    (
        "lasso-path",
        {"target": TARGET, "features": ["age", "bmi"], "l1_ratio": 0.5},
        RELEASE.lasso_path(TARGET, ["age", "bmi"], l1_ratio=0.5),
    ),
    ("pca", {"standardise": False}, RELEASE.pca(standardise=False)),
    (
        "partial-correlations",
        {"attributes": ["age", "bmi", "smoker"]},
        RELEASE.partial_correlations(["age", "bmi", "smoker"]),
    ),
    (
        "two-stage",
        {"target": TARGET, "endogenous": ["bmi"], "instruments": ["smoker"]},
        RELEASE.two_stage(TARGET, endogenous=["bmi"], instruments=["smoker"]),
    ),
    ("compare", {"target": TARGET, "smaller": []}, RELEASE.compare(TARGET, None, [])),
    (
        "table",
        {"row": "stage", "column": "readmitted", "event": "no", "reference": "iii", "confidence_level": 0.9},
        TABLES.table("stage", "readmitted", event="no", reference="iii", confidence_level=0.9),
    ),
    ("describe", {"attributes": ["age"], "by": "smoker"}, TABLES.describe("age", by="smoker")),
    ("survival", {"outcome": "outcome", "by": "stage"}, Release.of(SURVIVAL_FILES).survival("outcome", by="stage")),
    (
        "hazard-ratios",
        {"outcome": "outcome", "features": ["stage"]},
        Release.of(SURVIVAL_FILES).hazard_ratios("outcome", ["stage"]),
    ),
]
NAMES = [kind for kind, _, _ in ANSWERS]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    fake = ServingCoordinator.serving((ID, FILES), (TABLES_ID, TABLES_FILES), (SURVIVAL_ID, SURVIVAL_FILES))
    with learner(fake) as client:
        yield client


def post(http: httpx.Client, kind: str, body: dict[str, Any], release: str = ID) -> httpx.Response:
    return http.post(f"/v1/releases/{release}/analyses/{kind}", json=body)


@pytest.mark.parametrize(("kind", "body", "expected"), ANSWERS, ids=NAMES)
def test_analysis_is_the_same_as_in_python(http: httpx.Client, kind: str, body: dict[str, Any], expected: Any) -> None:
    release = {"survival": SURVIVAL_ID, "hazard-ratios": SURVIVAL_ID, "table": TABLES_ID, "describe": TABLES_ID}.get(
        kind, ID
    )
    response = post(http, kind, body, release)
    assert response.status_code == 200
    wanted = json.loads(json.dumps(expected.to_dict(), allow_nan=False))
    assert response.json() == {"release": release, "coordinator_pinned": True, "members_pinned": [], **wanted}


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


def test_lasso_where_scikit_learn_is_missing_is_not_implemented(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.linear_model", None)
    response = post(http, "lasso-path", {"target": TARGET})
    assert response.status_code == 501
    assert "commingle[sklearn]" in response.json()["remedy"]
    assert post(http, "ridge-path", {"target": TARGET}).status_code == 200


@pytest.mark.parametrize("asked", COMPUTATIONS, ids=lambda asked: asked.name)
def test_example_is_answered_with_the_fields_of_its_answers_example(asked: Computation) -> None:
    worlds = dict.fromkeys(("survival", "hazard_ratios"), published_survival)
    worlds |= dict.fromkeys(("table", "describe", "glm"), published_tables)
    release, files = worlds.get(asked.name, published)()
    (body,) = asked.takes.model_json_schema()["examples"]
    with learner(ServingCoordinator.serving((release, files))) as http:
        answer = http.post(asked.path.format(release=release), json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.content)
    assert (asked.gives == dict[str, Any]) == (asked.shows is not None)
    assert found.keys() == (asked.shows or found).keys()
