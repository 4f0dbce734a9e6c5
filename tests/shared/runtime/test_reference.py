"""The page of an HTTP interface says what its OpenAPI document says, and needs nothing from elsewhere."""

import json
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from commingle.shared.runtime.pages.site import Site, add_reference, kind_of, model_of
from tests.world.pages import Tags
from tests.world.transport import InProcess

OPENAPI = Path(__file__).parents[3] / "docs" / "openapi"


@pytest.mark.parametrize("service", ["coordinator", "learner", "party-agent"])
def test_every_operation_and_every_field_is_on_the_page_and_every_link_leads_somewhere(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads((OPENAPI / f"{service}.json").read_text())
    app = FastAPI(docs_url=None)
    monkeypatch.setattr(app, "openapi", lambda: document)
    add_reference(app, Site(None, name="x", pages=(("/docs", "Interface"),)))
    answer = httpx.Client(transport=InProcess(app), base_url="http://x").get("/docs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
    page = unescape(answer.text)
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in page
    for model in document.get("components", {}).get("schemas", {}).values():
        for name in model.get("properties", {}):
            optional = "" if name in model.get("required", ()) else " <small>optional</small>"
            assert f"<code>{name}</code>{optional}</td>" in page
    tags = Tags(answer.text)
    assert all(address.startswith(("#", "/")) for address in tags.addresses)
    assert all(f'id="{address[1:]}"' in page for address in tags.addresses if address.startswith("#"))


@pytest.mark.parametrize(
    ("schema", "kind", "model"),
    [
        (
            {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}]},
            "integer, ≥ 1, ≤ 9 or null",
            "",
        ),
        (
            {"type": "array", "items": {"$ref": "#/components/schemas/M"}, "maxItems": 3},
            "array of M, at most 3 items",
            "M",
        ),
        ({"enum": ["x", "y"], "default": "x", "description": "which"}, "one of x, y; 'x' where left out", ""),
        ({"const": "only"}, "'only'", ""),
        ({}, "anything", ""),
    ],
)
def test_types_are_said_in_words(schema: dict[str, Any], kind: str, model: str) -> None:
    assert (kind_of(schema), model_of(schema)) == (kind, model)
