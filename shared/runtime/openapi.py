"""Bodies that an application parses from their bytes itself, as its OpenAPI document describes them."""

from collections.abc import Iterable, Mapping
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


def describe(app: Any, models: Iterable[type[BaseModel]]) -> None:  # noqa: ANN401 - a FastAPI application, at its edge
    """Put the schemas of such bodies where `takes` says they are."""
    own, bodies = app.openapi, tuple(models)

    def openapi() -> dict[str, Any]:
        whole: dict[str, Any] = own()
        schemas = whole.setdefault("components", {}).setdefault("schemas", {})
        for model in bodies:
            schema = model.model_json_schema(ref_template=_PLACE)
            for name, each in (schema.pop("$defs", {}) | {model.__name__: schema}).items():
                schemas.setdefault(name, each)
        return whole

    app.openapi = openapi
