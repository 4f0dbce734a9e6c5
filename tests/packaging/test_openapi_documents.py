import json
import re
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel

from commingle.party_agent.wire import answers as agents
from commingle.services.learner import requests, views
from commingle.shared import wire as coordinators
from tests.packaging.openapi import FOLDER, descriptions

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
