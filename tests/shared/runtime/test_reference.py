"""The page of an HTTP interface says what its OpenAPI document says, and needs nothing from elsewhere."""

import json
from html import unescape
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from commingle.shared.runtime.pages.reference import add_reference, read
from commingle.shared.runtime.pages.site import Site
from tests.world.pages import Tags
from tests.world.transport import InProcess

OPENAPI = Path(__file__).parents[3] / "docs" / "openapi"


@pytest.mark.parametrize("service", ["coordinator", "learner", "party-agent"])
def test_every_operation_and_every_field_is_on_the_page_and_every_link_leads_somewhere(service: str) -> None:
    document = json.loads((OPENAPI / f"{service}.json").read_text())
    site, app = Site(None, name="x", pages=(("/docs", "Interface"),)), FastAPI(docs_url=None)
    site.add_files(app)
    add_reference(app, site, lambda: document)
    answer = httpx.Client(transport=InProcess(app), base_url="http://x").get("/docs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
    page = unescape(answer.text)
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}" in page
    for model in document.get("components", {}).get("schemas", {}).values():
        for name in model.get("properties", {}):
            assert f"<code>{name}</code>" in page
    tags = Tags(answer.text)
    assert all(address.startswith(("#", "/")) for address in tags.addresses)
    assert all(f'id="{address[1:]}"' in page for address in tags.addresses if address.startswith("#"))


def test_types_are_said_in_words() -> None:
    schema = {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 9}, {"type": "null"}]},
            "b": {"type": "array", "items": {"$ref": "#/components/schemas/M"}, "maxItems": 3},
            "c": {"enum": ["x", "y"], "default": "x", "description": "which"},
            "d": {"const": "only"},
            "e": {},
        },
    }
    document = {"info": {"title": "T", "version": "1"}, "paths": {}, "components": {"schemas": {"M": schema}}}
    [model] = read(document).models
    assert [(one.name, one.kind, one.schema, one.required, one.said) for one in model.fields] == [
        ("a", "integer, ≥ 1, ≤ 9 or null", "", True, ""),
        ("b", "array of M, at most 3 items", "M", False, ""),
        ("c", "one of x, y; 'x' where left out", "", False, "which"),
        ("d", "'only'", "", False, ""),
        ("e", "anything", "", False, ""),
    ]
