"""A console: pages on this machine for one person, who opened the link that its command printed.

The link works once, in one browser. Whatever a page shows or sends is somebody else's to check. What is checked here is
who may ask from a browser: one session, forms of its own, this address and no other.
"""

import hmac
import secrets
from collections.abc import Awaitable, Callable
from threading import Lock
from time import monotonic

from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from commingle.shared.runtime.cli import say
from commingle.shared.runtime.pages.site import HEADERS, Site, read_form
from commingle.shared.runtime.server import Served, listen, run
from commingle.shared.runtime.tracing import NO_TELEMETRY

COOKIE = "commingle_console"
_SECONDS = 8 * 3600.0


class Session:
    """The only session of one console.

    Attributes:
        csrf: what every form has to send back.
        person: whom the link was made for; empty where that is for who opens it to say.
        name: under which somebody last decided, to be offered again.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.csrf = secrets.token_urlsafe(32)
        self.person = self.name = ""
        self._link: str | None = secrets.token_urlsafe(32)
        self._cookie: str | None = None
        self._clock, self._ends, self._guard = clock, 0.0, Lock()

    @property
    def link(self) -> str:
        """The secret of the link while nobody has used it; empty afterwards."""
        return self._link or ""

    def enter(self, link: str) -> str | None:
        """The cookie of the browser that comes first with the link; None for everybody else."""
        with self._guard:
            if self._link is None or not _same(link, self._link):
                return None
            self._link, self._cookie = None, secrets.token_urlsafe(32)
            self._ends = self._clock() + _SECONDS
            return self._cookie

    def knows(self, cookie: str | None) -> bool:
        """Whether that is the session's, and it is not over."""
        return bool(cookie and self._cookie and _same(cookie, self._cookie) and self._clock() < self._ends)

    def leave(self) -> None:
        self._cookie = None

    def confirms(self, csrf: str) -> bool:
        """Whether a form is one of this session's own."""
        return _same(csrf, self.csrf)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


_HOST = "127.0.0.1"


class LocalConsole:
    """Who gets in, at `address` as host:port. `command` is what prints the link."""

    def __init__(self, site: Site, session: Session, *, address: str, command: str) -> None:
        self._site, self._session, self._address, self._command = site, session, address, command

    def application(self) -> FastAPI:
        """An application without pages yet: the way in and out, and nothing to anybody who has no session."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, telemetry=NO_TELEMETRY)
        app.add_middleware(BaseHTTPMiddleware, dispatch=self._guard)
        app.add_exception_handler(404, self._nowhere)
        self._site.add_files(app)
        app.router.routes += [
            Route("/enter/{link}", self._enter, methods=["GET"]),
            Route("/leave", self._leave, methods=["POST"]),
        ]
        return app

    def refused(self) -> Response:
        """For who has no session, and for what no page of ours sends."""
        said = f"This page needs the link that `{self._command}` prints. It works once: run the command again."
        return self._site.refused("Nothing to see here", said, status=403, back=False)

    def unanswered(self, said: str) -> Response:
        """For a page whose contents could not be asked for."""
        return self._site.refused("This could not be asked", said, status=502, back=True)

    async def _nowhere(self, _: Request, __: Exception) -> Response:
        return self._site.refused("Nothing to see here", "There is no such page.", status=404, back=True)

    async def _guard(self, request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        open_to_all = request.url.path.startswith(("/enter/", "/static/"))
        known = open_to_all or self._session.knows(request.cookies.get(COOKIE))
        answer = await go_on(request) if known and self._is_ours(request) else self.refused()
        answer.headers.update(HEADERS)
        return answer

    def _is_ours(self, request: Request) -> bool:
        """Whether a request is for this address (no other name was made to lead here), and a form is from it."""
        given = request.headers.get("host") == self._address
        return given and (
            request.method in {"GET", "HEAD"} or request.headers.get("origin") == f"http://{self._address}"
        )

    def _enter(self, request: Request) -> Response:
        cookie = self._session.enter(request.path_params["link"])
        if cookie is None:
            return self.refused()
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
        return answer

    async def _leave(self, request: Request) -> Response:
        form = await read_form(request)
        if self._session.confirms(form.get("csrf", "")):
            self._session.leave()
        return self.refused()


def run_console(make: Callable[[Session, str], FastAPI], *, port: int) -> None:
    """Print a link that works once, and serve until Ctrl-C what is made for a session and an address."""
    session, listener = Session(), listen(host=_HOST, port=port)
    # cookies know no ports: under a name of its own, no other server on this machine is sent this one's
    address = f"{secrets.token_hex(8)}.localhost:{listener.getsockname()[1]}"
    app = make(session, address)
    say(f"Open this in a browser on this machine. It works once:\n\n  http://{address}/enter/{session.link}\n")
    run([Served(app, listener)], announcement=None)
