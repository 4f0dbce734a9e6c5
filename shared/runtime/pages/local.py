"""A console: pages for people whom a door lets in. Here is the door for one person on this machine, who opened a link.

The link works once, in one browser. Whatever a page shows or sends is somebody else's to check. What is checked here is
who may ask from a browser: a session, this address and no other, and forms of its own.
"""

import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import Protocol

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.shared.runtime.cli import say
from commingle.shared.runtime.pages.site import HEADERS, Site
from commingle.shared.runtime.server import Application, Served, listen, run
from commingle.shared.runtime.tracing import NO_TELEMETRY

COOKIE = "commingle_console"
_SECONDS = 8 * 3600.0
_HOST = "127.0.0.1"


@dataclass(slots=True)
class Session:
    """One browser's.

    Attributes:
        person: whose decisions it makes; empty where that is for who decides to say.
        token: with which its pages ask the local API; None for the operator.
        name: under which somebody last decided, to be offered again.
        csrf: what every form has to send back.
    """

    person: str = ""
    token: str | None = field(default=None, repr=False)
    name: str = ""
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    def confirms(self, csrf: str) -> bool:
        """Whether a form is one of this session's own."""
        return _same(csrf, self.csrf)


class Door(Protocol):
    """Who gets in, under which address."""

    @property
    def origin(self) -> str:
        """The address as browsers know it: scheme, name and port."""

    @property
    def said(self) -> str:
        """How to get in."""

    @property
    def unguarded(self) -> frozenset[str]:
        """Paths at which no browser asks, and which examine for themselves who does."""

    def routes(self, site: Site) -> Sequence[BaseRoute]:
        """The ways in, at addresses below /enter/, which are open to all."""

    def session(self, request: Request) -> Session | None:
        """Whose request it is."""

    async def refuse(self, request: Request, site: Site) -> Response:
        """For who has no session."""

    async def leave(self, request: Request, site: Site) -> Response:
        """End the request's session."""


class Guard:
    """Asks a door before an application is asked.

    Args:
        unguarded: paths that are open to all under any name, for who watches the service.
    """

    def __init__(self, app: ASGIApp, *, door: Door, site: Site, unguarded: frozenset[str] = frozenset()) -> None:
        self._app, self._door, self._site, self._unguarded = app, door, site, unguarded | door.unguarded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._unguarded:
            await self._app(scope, receive, send)
            return

        async def closed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        answer = await self._refusal(request)
        await (self._app if answer is None else answer)(scope, receive, closed)

    async def _refusal(self, request: Request) -> Response | None:
        if not self._is_ours(request):
            return self._site.refused("Nothing to see here", self._door.said, status=403, back=False)
        session = self._door.session(request)
        request.state.session = session
        is_open = request.scope["path"].startswith(("/enter/", "/static/"))
        return None if is_open or session is not None else await self._door.refuse(request, self._site)

    def _is_ours(self, request: Request) -> bool:
        """Whether a request is for this address (no other name was made to lead here), and a form is from it."""
        origin = self._door.origin
        return request.headers.get("host") == origin.partition("://")[2] and (
            request.method in {"GET", "HEAD"} or request.headers.get("origin") == origin
        )


def entrance(door: Door, site: Site) -> list[BaseRoute]:
    """The ways in and out."""

    async def leave(request: Request) -> Response:
        return await door.leave(request, site)

    return [*door.routes(site), Route("/leave", leave, methods=["POST"], include_in_schema=False)]


class ConsolePages:
    """Pages behind a door."""

    def __init__(self, site: Site, door: Door) -> None:
        self._site, self._door = site, door

    def application(self) -> FastAPI:
        """An application without pages yet: the way in and out, and nothing to anybody who has no session."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, telemetry=NO_TELEMETRY)
        app.add_middleware(Guard, door=self._door, site=self._site)
        app.add_exception_handler(404, self._nowhere)
        self._site.add_files(app)
        app.router.routes += entrance(self._door, self._site)
        return app

    def session(self, request: Request) -> Session:
        """Whose page it is: the guard has let nobody else in."""
        found: Session = request.state.session
        return found

    def refused(self) -> Response:
        """For what no page of ours sends."""
        return self._site.refused("Nothing to see here", self._door.said, status=403, back=False)

    def unanswered(self, said: str) -> Response:
        """For a page whose contents could not be asked for."""
        return self._site.refused("This could not be asked", said, status=502, back=True)

    async def _nowhere(self, _: Request, __: Exception) -> Response:
        return self._site.refused("Nothing to see here", "There is no such page.", status=404, back=True)


class LinkDoor:
    """Lets in the browser that comes first with a link, for some hours. `command` is what prints the link."""

    unguarded: frozenset[str] = frozenset()

    def __init__(self, only: Session, *, address: str, command: str, clock: Callable[[], float] = monotonic) -> None:
        self.only, self.origin = only, f"http://{address}"
        self.said = f"This page needs the link that `{command}` prints. It works once: run the command again."
        self._link: str | None = secrets.token_urlsafe(32)
        self._cookie: str | None = None
        self._clock, self._ends, self._guard = clock, 0.0, Lock()

    @property
    def link(self) -> str:
        """The secret of the link while nobody has used it; empty afterwards."""
        return self._link or ""

    def routes(self, site: Site) -> Sequence[BaseRoute]:
        def enter(request: Request) -> Response:
            cookie = self.enter(request.path_params["link"])
            if cookie is None:
                return site.refused("Nothing to see here", self.said, status=403, back=False)
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/")
            return answer

        return [Route("/enter/{link}", enter, methods=["GET"])]

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

    def session(self, request: Request) -> Session | None:
        return self.only if self.knows(request.cookies.get(COOKIE)) else None

    async def refuse(self, _: Request, site: Site) -> Response:
        return site.refused("Nothing to see here", self.said, status=403, back=False)

    async def leave(self, request: Request, site: Site) -> Response:
        self._cookie = None
        return await self.refuse(request, site)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def run_console(make: Callable[[Door], Application], only: Session, *, port: int, command: str) -> None:
    """Print a link that works once, and serve until Ctrl-C what is made for its door."""
    listener = listen(host=_HOST, port=port)
    # cookies know no ports: under a name of its own, no other server on this machine is sent this one's
    address = f"{secrets.token_hex(8)}.localhost:{listener.getsockname()[1]}"
    door = LinkDoor(only, address=address, command=command)
    say(f"Open this in a browser on this machine. It works once:\n\n  {door.origin}/enter/{door.link}\n")
    run([Served(make(door), listener)], announcement=None)
