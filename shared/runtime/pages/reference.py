"""The page that explains an HTTP interface, made of its OpenAPI document: it needs no script and no other server."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from commingle.shared.runtime.pages.site import Site

Document = Mapping[str, Any]
_REFERENCE = "#/components/schemas/"
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_SIZES = {"minLength": "at least {} characters", "maxLength": "at most {} characters"}
_COUNTS = {"minItems": "at least {} items", "maxItems": "at most {} items"}


def add_reference(app: Starlette, site: Site, document: Callable[[], Document], *, path: str = "/docs") -> None:
    """The page at `path`, of what `document` describes (OpenAPI 3.1), and the files it loads."""
    words = {"kind_of": kind_of, "model_of": model_of, "examples_of": _examples, "as_text": _as_text}

    def show(_: Request) -> Response:
        said = document()
        return site.page("reference.html", {"it": said, "operations": _by_tag(said["paths"]), **words})

    app.router.routes.append(Route(path, show, methods=["GET"], include_in_schema=False))


def _by_tag(paths: Document) -> list[tuple[str, str, Document]]:
    found = [(method.upper(), path, said) for path, methods in paths.items() for method, said in methods.items()]
    tags = [next(iter(said.get("tags", ())), "all") for _, _, said in found]
    return [one for tag in dict.fromkeys(tags) for one, own in zip(found, tags, strict=True) if own == tag]


def _examples(what: str, described: Document) -> Iterator[tuple[str, str]]:
    for content in described.get("content", {}).values():
        shown = {said: each["value"] for said, each in content.get("examples", {}).items()}
        if "example" in content:
            shown[""] = content["example"]
        for said, value in shown.items():
            yield f"{what}: {said}" if said else what, _as_text(value)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def kind_of(schema: Document) -> str:
    """What a schema takes, in words."""
    default = f"; {schema['default']!r} where left out" if schema.get("default") is not None else ""
    return _kind(schema) + default


def _kind(schema: Document) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    if several := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return " or ".join(_kind(one) for one in several)
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "anything"))
    if kind == "array":
        of = " of " + _kind(schema["items"]) if "items" in schema else ""
        return ", ".join([f"array{of}", *(text.format(schema[key]) for key, text in _COUNTS.items() if key in schema)])
    limits = [f"{sign} {schema[key]}" for key, sign in _LIMITS.items() if key in schema]
    sizes = [text.format(schema[key]) for key, text in _SIZES.items() if key in schema]
    return ", ".join([str(schema.get("format", kind)), *limits, *sizes])


def model_of(schema: Document) -> str:
    """The name of the model that it holds; empty where it holds none."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    inner = [schema.get("items", {}), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return next((found for one in inner if isinstance(one, Mapping) and one and (found := model_of(one))), "")
