"""Pages that a server renders: nothing from elsewhere, nothing inline, and every text printable.

The reference of an HTTP interface is made from its OpenAPI document: it needs no script and no other server.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from commingle.shared.runtime.bodies import read_body
from commingle.shared.runtime.errors import TooLargeError, TruncatedError
from commingle.shared.text import printable

_SHARED = Path(__file__).parent / "templates"
_STATIC = {"pages.css": "text/css", "pages.js": "text/javascript"}
_FEW, _LARGEST_FORM, _LARGEST_FIELD = 16, 64 << 10, 256  # fields, and bytes
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)


class Site:
    """The pages of one service."""

    def __init__(
        self,
        templates: Path | None,  # its own, besides those that all services share
        *,
        name: str,
        pages: Sequence[tuple[str, str]],  # links at the top of every page: address and name
        shown: Mapping[str, Any] = MappingProxyType({}),  # functions and values for its templates
    ) -> None:
        self._templates = Environment(
            loader=FileSystemLoader([_SHARED] if templates is None else [templates, _SHARED]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_as_text,
        )
        self._templates.globals |= {"site": name, "pages": tuple(pages), **shown}

    def page(self, template: str, context: Mapping[str, Any], *, status: int = 200) -> Response:
        text = self._templates.get_template(template).render(context)
        return HTMLResponse(text, status_code=status, headers=dict(HEADERS))

    def refused(self, title: str, said: str, *, status: int, back: bool) -> Response:
        """The page that says why there is none."""
        return self.page("refused.html", {"title": title, "said": said, "back": back}, status=status)

    def add_files(self, app: Starlette) -> None:
        app.router.routes.append(Route("/static/{name}", self._file, methods=["GET"], include_in_schema=False))

    def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return self.refused("Nothing to see here", "There is no such file.", status=404, back=False)
        return Response((_SHARED / name).read_bytes(), media_type=_STATIC[name], headers=dict(HEADERS))


async def read_form(request: Request, *, most: int = 0) -> dict[str, str]:
    """The first value of every field, of a few and `most` more; empty if this is no form of ours."""
    try:
        received = await read_body(request, _LARGEST_FORM + most * _LARGEST_FIELD)
        fields = parse_qs(
            received.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=_FEW + most
        )
    except (TooLargeError, TruncatedError, ValueError):
        return {}
    return {name: values[0] for name, values in fields.items()}


def _as_text(value: object) -> object:
    return printable(value, keep_lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


Document = Mapping[str, Any]
_REFERENCE = "#/components/schemas/"
_LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
_SIZES = {"minLength": "at least {} characters", "maxLength": "at most {} characters"}
_COUNTS = {"minItems": "at least {} items", "maxItems": "at most {} items"}


def add_reference(app: Starlette, site: Site) -> None:
    """The page `/docs` of the application's OpenAPI document, and the files it loads."""
    words = {"kind_of": kind_of, "model_of": model_of, "examples_of": _examples, "as_text": _in_full}

    def show(request: Request) -> Response:
        said = request.app.openapi()
        return site.page("reference.html", {"it": said, "operations": _by_tag(said["paths"]), **words})

    site.add_files(app)
    app.router.routes.append(Route("/docs", show, methods=["GET"], include_in_schema=False))


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
            yield f"{what}: {said}" if said else what, _in_full(value)


def _in_full(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def kind_of(schema: Document) -> str:
    """The values that a schema takes, in words."""
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
    """The name of the model in a schema; empty if there is none."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REFERENCE)
    inner = [schema.get("items", {}), *schema.get("anyOf", ()), *schema.get("oneOf", ())]
    return next((found for one in inner if isinstance(one, Mapping) and one and (found := model_of(one))), "")
