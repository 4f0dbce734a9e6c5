"""The page that explains an HTTP interface, made of its OpenAPI document: it needs no script and no other server."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a request or a field of a document. `schema` names the model it holds, if it does."""

    name: str
    where: str
    kind: str
    schema: str
    required: bool
    said: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `examples` are texts by what each is."""

    method: str
    path: str
    anchor: str
    said: str
    parameters: tuple[Field, ...]
    takes: tuple[Field, ...]
    gives: tuple[Field, ...]
    examples: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A document that is taken or given."""

    name: str
    said: str
    fields: tuple[Field, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """All of it, by tag."""

    title: str
    version: str
    said: str
    operations: Mapping[str, tuple[Operation, ...]]
    models: tuple[Model, ...]


def add_reference(app: Starlette, site: Site, document: Callable[[], Document], *, path: str = "/docs") -> None:
    """The page at `path`, of what `document` describes, and the files it loads."""

    def show(_: Request) -> Response:
        return site.page("reference.html", {"it": read(document())})

    app.router.routes.append(Route(path, show, methods=["GET"], include_in_schema=False))


def read(document: Document) -> Reference:
    """What there is to say of an OpenAPI document, version 3.1."""
    operations: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            tag = next(iter(described.get("tags", ())), "all")
            operations.setdefault(tag, []).append(_operation(method.upper(), path, described))
    models = document.get("components", {}).get("schemas", {})
    return Reference(
        title=document["info"]["title"],
        version=document["info"]["version"],
        said=document["info"].get("description", ""),
        operations={tag: tuple(found) for tag, found in operations.items()},
        models=tuple(
            Model(
                name,
                model.get("description", ""),
                tuple(_fields(model)),
                tuple(map(_as_text, model.get("examples", ()))),
            )
            for name, model in sorted(models.items())
        ),
    )


def _operation(method: str, path: str, described: Document) -> Operation:
    return Operation(
        method=method,
        path=path,
        anchor=described["operationId"],
        said=described.get("description", described.get("summary", "")),
        parameters=tuple(
            _field(one["name"], one["schema"], where=one["in"], required=one["required"], said=one.get("description"))
            for one in described.get("parameters", ())
        ),
        takes=tuple(_contents("", described.get("requestBody", {}))),
        gives=tuple(
            field
            for status, answer in described["responses"].items()
            for field in (*_contents(status, answer), *_nothing(status, answer))
        ),
        examples=(
            *_examples("A body", described.get("requestBody", {})),
            *(
                example
                for status, answer in described["responses"].items()
                for example in _examples(f"An answer, {status}", answer)
            ),
        ),
    )


def _examples(what: str, described: Document) -> Iterator[tuple[str, str]]:
    for content in described.get("content", {}).values():
        shown = {said: each["value"] for said, each in content.get("examples", {}).items()}
        if "example" in content:
            shown[""] = content["example"]
        for said, value in shown.items():
            yield f"{what}: {said}" if said else what, _as_text(value)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def _contents(status: str, described: Document) -> Iterator[Field]:
    for kind, content in described.get("content", {}).items():
        yield _field(status, content.get("schema", {}), where=kind, required=True, said=described.get("description"))


def _nothing(status: str, described: Document) -> Iterator[Field]:
    if "content" not in described:
        yield Field(status, "", "nothing", "", required=True, said=described.get("description", ""))


def _fields(model: Document) -> Iterator[Field]:
    for name, schema in model.get("properties", {}).items():
        yield _field(name, schema, where="", required=name in model.get("required", ()), said=schema.get("description"))


def _field(name: str, schema: Document, *, where: str, required: bool, said: str | None) -> Field:
    default = f"; {schema['default']!r} where left out" if schema.get("default") is not None else ""
    return Field(name, where, _kind(schema) + default, _model(schema), required, said or "")


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


def _model(schema: Document) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    inner = [schema.get("items", {}), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return next((found for one in inner if isinstance(one, Mapping) and one and (found := _model(one))), "")
