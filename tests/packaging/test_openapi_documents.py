import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from commingle.party_agent.wire import answers as agents
from commingle.services.learner import requests, views
from commingle.services.learner.computing import COMPUTATIONS, Computation
from commingle.shared import wire as coordinators
from tests.golden.make import INTERFACES, KEPT
from tests.packaging.openapi import FOLDER, Promise, Promises, all_promises, breaks, descriptions, promises

SERVICES = ["coordinator.json", "party-agent.json", "learner.json"]
OF_OTHERS = {"Health", "Envelope", "SignedDocument", "SealedLinkageKey", "Forecast", "Plan"}
OF_OTHERS |= {"RegressionView", "ReleaseDetails", "ReleaseDetail"}
"""One field, what is signed, what a forecast is, and what adds that to a document that has an example."""


@pytest.mark.parametrize("name", SERVICES)
def test_kept_description_is_what_the_service_serves(name: str) -> None:
    assert (FOLDER / name).read_text() == descriptions()[name], "run: python -m tests.packaging.openapi"


@pytest.mark.parametrize("name", SERVICES)
def test_every_reference_leads_somewhere_and_every_operation_may_answer_with_a_problem(name: str) -> None:
    text = (FOLDER / name).read_text()
    document = json.loads(text)
    references = set(re.findall(r'"\$ref": ?"([^"]*)"', text))
    assert references
    assert references <= {f"#/components/schemas/{model}" for model in document["components"]["schemas"]}
    for operations in document["paths"].values():
        for operation in operations.values():
            assert "application/problem+json" in operation["responses"]["default"]["content"]
            assert "422" not in operation["responses"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_document_that_is_answered_has_an_example(name: str) -> None:
    document = json.loads((FOLDER / name).read_text())
    schemas = document["components"]["schemas"]

    def lacking(schema: dict[str, Any]) -> bool:
        model = schema.get("$ref", "").rpartition("/")[2]
        found = schemas.get(model, {"examples": "what has no model of its own"})
        items = found.get("properties", {}).get("items", {}).get("items")
        return model not in OF_OTHERS and not found.get("examples") and (items is None or lacking(items))

    answers = {
        f"{method.upper()} {path} {status}": answer["content"]["application/json"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        if status.startswith("2") and "application/json" in answer.get("content", {})
    }
    assert [said for said, given in answers.items() if "example" not in given and lacking(given["schema"])] == []


@pytest.mark.parametrize("module", [agents, coordinators, views, requests])
def test_every_example_is_a_document_of_its_model_with_all_its_fields(module: ModuleType) -> None:
    kinds = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    models = [each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)]
    shown = [(model, one) for model in models for one in model.model_json_schema().get("examples", ())]
    assert shown
    for model, example in shown:
        found = model.model_validate_json(json.dumps(example))
        if module is not requests:
            assert found.model_dump(mode="json").keys() == example.keys(), model.__name__


@pytest.mark.parametrize("asked", [one for one in COMPUTATIONS if one.shows], ids=lambda asked: asked.name)
def test_every_example_of_a_result_is_one_of_its_model(asked: Computation) -> None:
    TypeAdapter(asked.gives).validate_python(asked.shows)


def test_change_that_breaks_a_client_of_the_kept_interfaces_is_in_the_changelog() -> None:
    kept, changelog = dict[str, Promises](), (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    for service, name, kinds, *others in json.loads((KEPT / INTERFACES).read_text()):
        kept.setdefault(service, {})[name] = Promise(tuple(kinds), *others)
    now = all_promises()
    assert kept.keys() == now.keys()
    broken = [(service, *found) for service in kept for found in breaks(kept[service], now[service])]
    unsaid = [one for one in broken if f"`{one[1]}`" not in changelog]
    assert unsaid == [], (
        "name each in backticks in CHANGELOG.md (ADR 32: an interface may break in a new major version)"
    )


INTERFACE: dict[str, Any] = {
    "paths": {
        "/v1/rounds/{id}": {
            "put": {
                "parameters": [{"name": "wait", "in": "query", "schema": {"type": "integer"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Asked"}}}},
                "responses": {
                    "200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Round"}}}}
                },
            }
        }
    },
    "components": {
        "schemas": {
            "Asked": {
                "type": "object",
                "properties": {
                    "k": {"type": "integer"},
                    "how": {"enum": ["a", "b"]},
                    "of": {"$ref": "#/components/schemas/Both"},
                },
                "required": ["k"],
            },
            "Round": {
                "type": "object",
                "properties": {
                    "state": {"enum": ["open", "over"]},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Both"}},
                    "at": {"type": "string", "format": "date-time"},
                },
                "required": ["state", "parts"],
            },
            "Both": {
                "type": "object",
                "properties": {"x": {"type": "number"}, "next": {"$ref": "#/components/schemas/Both"}},
            },
        }
    },
}
PUT = "PUT /v1/rounds/{id}"


def field(schema: str, name: str, *, required: bool = False, **kind: Any) -> Callable[[dict[str, Any]], None]:
    """A field of this kind; with none it is taken away."""

    def change(document: dict[str, Any]) -> None:
        found = document["components"]["schemas"][schema]
        found["properties"].pop(name, None)
        found["required"] = [one for one in found.get("required", ()) if one != name] + [name] * required
        if kind:
            found["properties"][name] = kind

    return change


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], set[tuple[str, str]]]] = {
    "words": (lambda one: one["paths"]["/v1/rounds/{id}"]["put"].update(summary="Another"), set()),
    "a path more": (lambda one: one["paths"].update({"/v1/more": {"get": {"responses": {}}}}), set()),
    "a path less": (lambda one: one["paths"].clear(), {(PUT, "is gone")}),
    "another parameter": (
        lambda one: one["paths"]["/v1/rounds/{id}"]["put"]["parameters"][0].update(name="for", required=True),
        {(f"{PUT} ?wait", "is gone"), (f"{PUT} ?for", "is new and has to be sent")},
    ),
    "another status": (
        lambda one: one["paths"]["/v1/rounds/{id}"]["put"].update(responses={}),
        {(f"{PUT} 200:application/json", "is gone"), ("Round", "is gone")},
    ),
    "a sent field less": (field("Asked", "how"), {("Asked how", "is gone")}),
    "a sent field more": (field("Asked", "l", type="integer"), set()),
    "a sent field more, required": (
        field("Asked", "l", required=True, type="integer"),
        {("Asked l", "is new and has to be sent")},
    ),
    "a sent field required": (
        field("Asked", "how", required=True, enum=["a", "b"]),
        {("Asked how", "has to be sent now")},
    ),
    "a sent field of fewer kinds": (field("Asked", "how", enum=["a"]), {("Asked how", 'may no longer be "b"')}),
    "a sent field of more kinds": (field("Asked", "how", enum=["a", "b", "c"]), set()),
    "a sent field of other limits": (
        field("Asked", "k", required=True, type="integer", maximum=9),
        {("Asked k", "may no longer be beyond its maximum")},
    ),
    "a sent list with other items": (
        field("Asked", "k", required=True, anyOf=[{"type": "integer", "pattern": "^a$"}]),
        {("Asked k", "may no longer be beyond its pattern")},
    ),
    "an answered field of other limits": (
        field("Round", "state", required=True, enum=["open", "over"], maxLength=4),
        set(),
    ),
    "a path for fewer people": (
        lambda one: one["paths"]["/v1/rounds/{id}"]["put"].update(security=[{"bearer": []}]),
        {(PUT, 'may no longer be "anybody"')},
    ),
    "a sent field of another kind": (
        field("Asked", "k", required=True, type="string"),
        {("Asked k", "may no longer be integer")},
    ),
    "an answered field less": (field("Round", "at"), {("Round at", "is gone")}),
    "an answered field more": (field("Round", "to", required=True, type="string"), set()),
    "an answered field that may be missing": (
        field("Round", "state", enum=["open", "over"]),
        {("Round state", "may be missing now")},
    ),
    "an answered field of more kinds": (
        field("Round", "state", required=True, enum=["open", "over", "lost"]),
        {("Round state", 'may be "lost" now')},
    ),
    "an answered field of fewer kinds": (field("Round", "state", required=True, enum=["open"]), set()),
    "an answered time that is none": (field("Round", "at", type="string"), {("Round at", "may be string now")}),
    "a field of both that may be null": (
        field("Both", "x", anyOf=[{"type": "number"}, {"type": "null"}]),
        {("Both x", "may be null now")},
    ),
    "a field of both, required": (
        field("Both", "y", required=True, type="string"),
        {("Both y", "is new and has to be sent")},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_client_can_stumble_over_is_found_and_nothing_else(change: str) -> None:
    apply, expected = CHANGES[change]
    apply(changed := deepcopy(INTERFACE))
    found = set(breaks(promises(INTERFACE), promises(changed)))
    gone = {one for one in found if one[1] == "is gone"}
    assert found - gone == {one for one in expected if one[1] != "is gone"}
    assert gone >= {one for one in expected if one[1] == "is gone"}
    assert bool(gone) == any(one[1] == "is gone" for one in expected)
