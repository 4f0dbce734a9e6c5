"""Pages that a server renders: nothing from elsewhere, nothing inline, and every text as it may be shown."""

from collections.abc import Mapping, Sequence
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
    """The pages of one service.

    Args:
        templates: its own, beside those that all services share.
        name: what is written at the top of every page.
        pages: where the top of every page leads: address and name.
        shown: functions and values for its templates.
    """

    def __init__(
        self,
        templates: Path | None,
        *,
        name: str,
        pages: Sequence[tuple[str, str]],
        shown: Mapping[str, Any] = MappingProxyType({}),
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
        """What pages load, at /static."""
        app.router.routes.append(Route("/static/{name}", self._file, methods=["GET"], include_in_schema=False))

    def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            return self.refused("Nothing to see here", "There is no such file.", status=404, back=False)
        return Response((_SHARED / name).read_bytes(), media_type=_STATIC[name], headers=dict(HEADERS))


async def read_form(request: Request, *, most: int = 0) -> dict[str, str]:
    """The first value of every field, of a few and `most` more; none where it is no form of ours."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > _LARGEST_FORM + most * _LARGEST_FIELD:
            return {}
    try:
        fields = parse_qs(
            received.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=_FEW + most
        )
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}


def _as_text(value: object) -> object:
    return printable(value, keep_lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value
