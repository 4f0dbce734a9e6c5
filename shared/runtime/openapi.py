"""What an application does itself, as its OpenAPI document describes it: bodies it parses, and who is let in."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

_PLACE = "#/components/schemas/{model}"


def takes(
    model: type[BaseModel], examples: Mapping[str, Any] = MappingProxyType({}), *, required: bool = True
) -> dict[str, Any]:
    """What a route takes, for `openapi_extra`; `examples` by what each shows."""
    content: dict[str, Any] = {"schema": {"$ref": _PLACE.format(model=model.__name__)}}
    if examples:
        content["examples"] = {said: {"summary": said, "value": value} for said, value in examples.items()}
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


BEARER: Mapping[str, Any] = MappingProxyType({"HTTPBearer": {"type": "http", "scheme": "bearer"}})
"""How a token is shown, in the words of an OpenAPI document."""
_SERVER = {"url": "/", "description": "The service that answers with this document."}
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def describe(
    app: Any,  # noqa: ANN401 - a FastAPI application, at its edge
    models: Iterable[type[BaseModel]],
    *,
    schemes: Mapping[str, Any] = MappingProxyType({}),
    security: Callable[[str, str], list[dict[str, list[str]]]] = lambda _, __: [],
) -> None:
    """Put the schemas of such bodies where `takes` says they are, and say who is let in.

    `security` names `schemes` for an operation, by its method and path; where the framework has said it, it is said.
    """
    own, bodies = app.openapi, tuple(models)

    def openapi() -> dict[str, Any]:
        whole: dict[str, Any] = own()
        whole |= {"servers": [_SERVER]}
        whole["info"] |= {"license": _LICENSE}
        components = whole.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for model in bodies:
            schema = model.model_json_schema(ref_template=_PLACE)
            for name, each in (schema.pop("$defs", {}) | {model.__name__: schema}).items():
                schemas.setdefault(name, each)
        if schemes:
            components["securitySchemes"] = dict(schemes)
        for path, operations in whole["paths"].items():
            for method, operation in operations.items():
                operation.setdefault("security", security(method, path))
        return whole

    app.openapi = openapi
