"""Problem documents (RFC 9457), and the OpenAPI document of a service.

Only this module turns errors into HTTP answers. The framework does not describe what an application does itself: parse
bodies, and decide who is let in.
"""

from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from commingle.shared import __version__
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.errors import BusyError
from commingle.shared.runtime.remote import PROBLEM_TYPE
from commingle.shared.runtime.telemetry import NO_TELEMETRY, RequestIds
from commingle.shared.text import ascii_json

PROBLEM_JSON = "application/problem+json"
_MEMBERS = {"type": "string", "title": "string", "status": "integer", "detail": "string", "remedy": "string"}
AGAIN: dict[int | str, dict[str, Any]] = {200: {"description": "It was there already; the answer is the same"}}
"""For routes that make something once: the request can be repeated."""
PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem document (RFC 9457)",
        "content": {
            PROBLEM_JSON: {
                "schema": {
                    "type": "object",
                    "required": [*_MEMBERS],
                    "properties": {name: {"type": kind} for name, kind in _MEMBERS.items()},
                }
            }
        },
    }
}
"""How every service's OpenAPI document describes its errors."""
_STATUSES = frozenset(map(int, HTTPStatus))
_HUNG_UP = 499  # nobody sees it but the metrics
_log = structlog.get_logger()


class AsciiJson(JSONResponse):
    def render(self, content: object) -> bytes:
        return ascii_json(content)


def problem(status: int, code: str, detail: str, remedy: str, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document. `type` is stable; `detail` and `remedy` are for people."""
    body = {
        "type": PROBLEM_TYPE + code,
        "title": HTTPStatus(status).phrase if status in _STATUSES else "Error",
        "status": status,
        "detail": detail,
        "remedy": remedy,
    }
    return AsciiJson(body, status_code=status, media_type=PROBLEM_JSON, headers=dict(headers or {}))


COMPARE_REQUEST = "Compare the request with /openapi.json."


def status_of(error: CommingleError, statuses: Mapping[type[CommingleError], int]) -> int:
    """The status of the most derived class in the table, 500 where none is."""
    return next((statuses[c] for c in type(error).__mro__ if c in statuses), 500)


def service_app(title: str, statuses: Mapping[type[CommingleError], int], **options: Any) -> FastAPI:  # noqa: ANN401 - of FastAPI
    """A service without routes: its errors are problem documents, and no page of it runs other people's scripts."""
    app = FastAPI(
        title=title,
        version=__version__,
        telemetry=NO_TELEMETRY,
        docs_url=None,
        redoc_url=None,
        responses=PROBLEM_RESPONSES,
        **options,
    )
    install_problems(app, statuses)
    return app


def install_problems(app: FastAPI, statuses: Mapping[type[CommingleError], int]) -> None:
    """Answer errors with problem documents, and everything in ASCII; name every request. Call it before routes."""

    async def on_ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, CommingleError)  # noqa: S101 - registered for this class only
        status = status_of(error, statuses)
        headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
        if isinstance(error, BusyError):
            headers["Retry-After"] = str(error.retry_seconds)
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            _log.error("request failed", path=request.url.path, error=type(error).__name__, code=error.code)
        return problem(status, error.code, str(error), error.remedy, headers)

    async def on_invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return problem(422, "request", said, COMPARE_REQUEST)

    async def on_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
        return problem(error.status_code, "http", str(error.detail), COMPARE_REQUEST, error.headers)

    async def on_gone(_: Request, __: Exception) -> Response:
        return Response(status_code=_HUNG_UP)

    async def on_fault(request: Request, error: Exception) -> Response:
        # the message could hold anything, so only the class is logged
        _log.error("unexpected fault", path=request.url.path, error=type(error).__name__)
        return problem(500, "fault", "an unexpected fault", "Try again; if it persists, read the service's log.")

    app.router.default_response_class = AsciiJson
    app.add_middleware(RequestIds)
    app.add_exception_handler(CommingleError, on_ours)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(ClientDisconnect, on_gone)
    app.add_exception_handler(Exception, on_fault)


class QueryParameters(BaseModel):
    """A query string; unknown parameters are refused, not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


_PLACE = "#/components/schemas/{model}"


def takes(
    model: type[BaseModel], examples: Mapping[str, Any] = MappingProxyType({}), *, required: bool = True
) -> dict[str, Any]:
    """The body of a route, for `openapi_extra`; `examples` maps names of models to their examples by what they show."""
    content: dict[str, Any] = {"schema": {"$ref": _PLACE.format(model=model.__name__)}}
    if model.__name__ in examples:
        shown = examples[model.__name__].items()
        content["examples"] = {said: {"summary": said, "value": value} for said, value in shown}
    return {"requestBody": {"required": required, "content": {"application/json": content}}}


BEARER: Mapping[str, Any] = MappingProxyType({"HTTPBearer": {"type": "http", "scheme": "bearer"}})
"""How a token is shown, in the words of an OpenAPI document."""
_SERVER = {"url": "/", "description": "The service that answers with this document."}
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def _with_nulls(example: object, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> object:
    known = schemas.get(schema.get("$ref", "").rpartition("/")[2], schema)
    if isinstance(example, list):
        return [_with_nulls(each, known.get("items", {}), schemas) for each in example]
    if not isinstance(example, dict):
        return example
    fields = known.get("properties", {})
    whole = dict.fromkeys(known.get("required", ())) | example
    return {name: _with_nulls(value, fields.get(name, {}), schemas) for name, value in whole.items()}


def describe(
    app: Any,  # noqa: ANN401 - a FastAPI application, at its edge
    models: Iterable[type[BaseModel]],
    *,
    schemes: Mapping[str, Any] = MappingProxyType({}),
    security: Callable[[str, str], list[dict[str, list[str]]]] = lambda _, __: [],
) -> None:
    """Put the schemas of these bodies where `takes` says they are, and say who is let in.

    `security` names `schemes` for an operation, by its method and path; what the framework has said stays.
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
        for schema in schemas.values():
            if "examples" in schema:
                schema["examples"] = [_with_nulls(each, schema, schemas) for each in schema["examples"]]
        if schemes:
            components["securitySchemes"] = dict(schemes)
        for path, operations in whole["paths"].items():
            for method, operation in operations.items():
                operation.setdefault("security", security(method, path))
        return whole

    app.openapi = openapi
