"""The console's pages and the two decisions, over HTTP on loopback.

It has no way of its own to anything: every page and every decision is a request to the local API, with all its checks.
What it adds is who may send them from a browser: one session, forms of its own, this address and no other.
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from commingle.party_agent.console.pages import (
    WIDTH,
    budget_of,
    by_turn,
    in_words,
    may_approve,
    may_reject,
    who_asks,
)
from commingle.party_agent.console.session import COOKIE, Session
from commingle.party_agent.decision_cli import CHARGE_STATES
from commingle.party_agent.home import Home
from commingle.party_agent.proposals import DecisionNote
from commingle.shared.documents.model import encode
from commingle.shared.errors import CommingleError
from commingle.shared.text import printable

_FILES = Path(__file__).parent / "templates"
_LARGEST_FORM = 64 << 10
_STATIC = {"console.css": "text/css", "console.js": "text/javascript"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_DECISIONS = {"approve": "approval", "reject": "rejection"}


class Ask(Protocol):
    """A request to the local API. Raises CommingleError where it is refused."""

    def __call__(self, method: str, path: str, *, body: bytes | None = None) -> Any: ...  # noqa: ANN401 - JSON


def create_console(home: Home, session: Session, ask: Ask, *, address: str) -> FastAPI:
    """The console at `address`, as host:port."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    pages = _Pages(home, session, ask)

    @app.middleware("http")
    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        known = _is_open(request.url.path) or session.knows(request.cookies.get(COOKIE))
        answer = await go_on(request) if known and _is_for(request, address) else pages.refused()
        answer.headers.update(_HEADERS)
        return answer

    app.include_router(_open_routes(session, pages))
    app.include_router(_page_routes(pages))
    app.include_router(_form_routes(session, pages))
    return app


def _open_routes(session: Session, pages: "_Pages") -> APIRouter:
    """What needs no session: the way in, and what pages look like."""
    router = APIRouter()

    @router.get("/enter/{link}")
    def enter(link: str) -> Response:
        cookie = session.enter(link)
        if cookie is None:
            return pages.refused()
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
        return answer

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            return pages.refused()
        return Response((_FILES / name).read_bytes(), media_type=_STATIC[name])

    return router


def _page_routes(pages: "_Pages") -> APIRouter:
    router = APIRouter()

    @router.get("/")
    def proposals() -> Response:
        return pages.show("proposals.html", pages.proposals)

    @router.get("/proposals/{release}")
    def proposal(release: str) -> Response:
        return pages.show("proposal.html", lambda: pages.proposal(release))

    @router.get("/ledger")
    def ledger() -> Response:
        return pages.show("ledger.html", pages.ledger)

    @router.get("/members")
    def members() -> Response:
        return pages.show("members.html", pages.members)

    return router


def _form_routes(session: Session, pages: "_Pages") -> APIRouter:
    """What changes something: by a form that a page of this session has shown."""
    router = APIRouter()

    @router.post("/proposals/{release}")
    async def decide(request: Request, release: str) -> Response:
        form = await _form(request)
        if not session.confirms(form.get("csrf", "")):
            return pages.refused()
        return await run_in_threadpool(pages.decide, release, form)

    @router.post("/leave")
    async def leave(request: Request) -> Response:
        form = await _form(request)
        if session.confirms(form.get("csrf", "")):
            session.leave()
        return pages.refused()

    return router


class _Pages:
    """What each page shows, asked anew every time."""

    def __init__(self, home: Home, session: Session, ask: Ask) -> None:
        self._home, self._session, self._ask = home, session, ask
        self._templates = Environment(
            loader=FileSystemLoader(_FILES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_as_text,
        )
        self._templates.globals |= {"in_words": in_words, "charge_states": CHARGE_STATES, "width": WIDTH}

    def show(self, page: str, context: Callable[[], Mapping[str, Any]], *, error: str = "") -> Response:
        """A page; where the agent cannot be asked, what it says to that."""
        try:
            told = context()
        except CommingleError as fault:
            return self._render("refused.html", 502, {"said": fault.diagnostics(), "inside": True})
        return self._render(page, 409 if error else 200, {**told, "error": error})

    def refused(self) -> Response:
        """For whoever has no session, and for what no page of ours sends."""
        said = "This page needs the link that `commingle party console` prints. It works once: run the command again."
        return self._render("refused.html", 403, {"said": said, "inside": False})

    def proposals(self) -> Mapping[str, Any]:
        """What waits, and what is past."""
        waiting, past = by_turn(self._ask("GET", "/v1/proposals")["items"])
        return {"waiting": waiting, "past": past}

    def proposal(self, release: str) -> Mapping[str, Any]:
        """One proposal, with everything that a decision stands on."""
        item, ledger, status = (
            self._ask("GET", path) for path in (f"/v1/proposals/{_id(release)}", "/v1/ledger", "/v1/status")
        )
        charged = any(charge["release"] == item["id"] for charge in ledger["charges"])
        return {
            "item": item,
            "asks": who_asks(item, self._home, status),
            "budget": budget_of(ledger, None if charged else item["cost"]),
            "ledger": ledger,
            "may_approve": may_approve(item),
            "may_reject": may_reject(item),
            "name": self._session.name,
        }

    def ledger(self) -> Mapping[str, Any]:
        """All charges."""
        ledger = self._ask("GET", "/v1/ledger")
        return {"ledger": ledger, "budget": budget_of(ledger)}

    def members(self) -> Mapping[str, Any]:
        """Whose keys this party goes by."""
        status = self._ask("GET", "/v1/status")
        pins = {one["name"]: self._home.consortium(one["name"]).pins() for one in status["consortia"]}
        return {"status": status, "pins": pins}

    def decide(self, release: str, form: Mapping[str, str]) -> Response:
        """Send a decision to the agent, and go back to its page; or say there why it was not sent, or not taken."""
        decision = _DECISIONS.get(form.get("decision", ""))
        name, why = form.get("by", "").strip(), form.get("why", "").strip()
        error = ""
        if decision is None:
            return self.refused()
        if not name:
            error = "Say who decides: the name is kept in this party's ledger."
        elif decision == "rejection" and not why:
            error = "Say why: the reason is kept in this party's ledger and sent to nobody."
        elif decision == "approval" and form.get("read") != "yes":
            error = "Confirm that you have read the proposal."
        if not error:
            try:
                body = encode(DecisionNote(by=name, why=why))
                self._ask("PUT", f"/v1/proposals/{_id(release)}/{decision}", body=body)
                self._session.name = name
                return RedirectResponse(f"/proposals/{_id(release)}", status_code=303)
            except ValueError:
                error = "Name and reason have to be written in characters that can be seen, the name in less than 200."
            except CommingleError as fault:
                error = fault.diagnostics()
        return self.show("proposal.html", lambda: self.proposal(release), error=error)

    def _render(self, page: str, status: int, context: Mapping[str, Any]) -> Response:
        shown = {"csrf": self._session.csrf, **context}
        return HTMLResponse(self._templates.get_template(page).render(shown), status_code=status)


def _as_text(value: object) -> object:
    """Texts from elsewhere as they may be shown; what a template has made itself stays."""
    return printable(value, keep_lines=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _is_for(request: Request, address: str) -> bool:
    """Whether a request is for this address (no other name was made to lead here), and a form is from it."""
    given = request.headers.get("host") == address
    return given and (request.method in {"GET", "HEAD"} or request.headers.get("origin") == f"http://{address}")


def _is_open(path: str) -> bool:
    return path.startswith(("/enter/", "/static/"))


def _id(release: str) -> str:
    """An id is letters and digits: nothing in it leads to another path."""
    return release if release.isalnum() and release.isascii() else "none"


async def _form(request: Request) -> dict[str, str]:
    """The first value of every field; none where it is no form of ours."""
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > _LARGEST_FORM:
            return {}
    try:
        fields = parse_qs(received.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
