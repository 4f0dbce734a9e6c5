"""A console: pages for people. A door lets them in: by a link on this machine, or by single sign-on.

The link works once, in one browser. With single sign-on, each session belongs to one person and one browser. Others
check what a page shows or sends. The console checks who may ask from a browser: it requires a session, this address and
no other, and forms of its own.
"""

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from threading import Event, Lock, Thread
from time import monotonic, time
from typing import TypeAlias, TypeVar

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.shared.documents.model import text_digest
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import say
from commingle.shared.runtime.errors import SignInError, UnreachableError
from commingle.shared.runtime.oidc import Ended, Principal, Provider, begin, resume
from commingle.shared.runtime.pages.site import HEADERS, Site, read_form
from commingle.shared.runtime.problem import problem
from commingle.shared.runtime.server import Application, Served, listen, run
from commingle.shared.runtime.sso import Place, SsoSettings
from commingle.shared.runtime.telemetry import NO_TELEMETRY

Answer = TypeVar("Answer")
COOKIE = "commingle_console"
_SECONDS = 8 * 3600.0
_HOST = "127.0.0.1"
_ENDED = "/enter/ended"
_AT_ONCE = 4  # threads that wait for a provider; people who are signed on use others
_SIGN_IN_SECONDS = 600
_LOOK_SECONDS = 30.0
_AWAY = (
    "The provider of single sign-on does not answer, so nobody new can sign in. A member can still stop a release with "
    "a token, or at its agent's machine: commingle party reject."
)
_log = structlog.get_logger()


@dataclass(slots=True)
class Session:
    """The session of one browser."""

    person: str = ""  # the person whose decisions it makes; empty if the person who decides gives a name
    token: str | None = field(default=None, repr=False)  # its pages ask the local API with this; None for the operator
    name: str = ""  # the name under which somebody last decided, to be offered again
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)  # every form has to send this back

    def confirms(self, csrf: str) -> bool:
        return _same(csrf, self.csrf)


class LinkDoor:
    """Lets in, for some hours, the browser that first comes with a link. The command `command` prints the link."""

    unguarded: frozenset[str] = frozenset()

    def __init__(self, only: Session, *, address: str, command: str, clock: Callable[[], float] = monotonic) -> None:
        self.only, self.origin = only, f"http://{address}"
        self.said = f"This page needs the link that `{command}` prints. It works once: run the command again."
        self.link = secrets.token_urlsafe(32)  # until somebody has used it
        self._cookie: str | None = None
        self._clock, self._ends, self._guard = clock, 0.0, Lock()

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
        """The cookie for the browser that first comes with the link; None for all others."""
        with self._guard:
            if not (self.link and _same(link, self.link)):
                return None
            self.link, self._cookie = "", secrets.token_urlsafe(32)
            self._ends = self._clock() + _SECONDS
            return self._cookie

    def knows(self, cookie: str | None) -> bool:
        """Whether that is the cookie of the session, and the session is not over."""
        return bool(cookie and self._cookie and _same(cookie, self._cookie) and self._clock() < self._ends)

    def session(self, request: Request) -> Session | None:
        return self.only if self.knows(request.cookies.get(COOKIE)) else None

    async def refuse(self, _: Request, site: Site) -> Response:
        return site.refused("Nothing to see here", self.said, status=403, back=False)

    async def leave(self, request: Request, site: Site) -> Response:
        self.forget(self.only)
        return await self.refuse(request, site)

    def forget(self, _: Session) -> None:
        self._cookie = None


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


@dataclass(slots=True)
class _Open:
    principal: Principal
    session: Session
    ends: float
    seen: float


class SsoDoor:
    """Lets in people who are in a group that may read."""

    unguarded: frozenset[str] = frozenset({_ENDED})

    def __init__(
        self,
        provider: Provider,
        *,
        opened: Callable[[Principal], str] = lambda _: "",  # makes the token for the local API, if there is one
        closed: Callable[[str], None] = lambda _: None,  # revokes the token of a session that somebody has ended
        clock: Callable[[], float] = monotonic,
    ) -> None:
        settings = provider.settings
        self.origin, self._settings = settings.url, settings
        self.said = f"Sign in at {settings.url}."
        self._provider, self._opened, self._closed, self._clock = provider, opened, closed, clock
        self._secure = settings.url.startswith("https:")
        prefix = "__Host-" if self._secure else ""  # which no other name of the domain can set
        of_address = text_digest(settings.url)[:8]  # cookies know no ports
        self.cookie, self._attempt = (f"{prefix}commingle-{use}-{of_address}" for use in ("session", "sign-in"))
        self._key, self._guard, self._limiter = secrets.token_bytes(32), Lock(), CapacityLimiter(_AT_ONCE)
        self._opening = CapacityLimiter(1)  # of two sessions of one person the later's token is the one that lives
        self._one_at_a_time = CapacityLimiter(1)  # everybody can send logout tokens: signing in does not wait for them
        self._sessions: dict[str, _Open] = {}
        self._ends: dict[str, tuple[int, Ended]] = {}  # by the token's name, numbered as they came
        self._came = 0

    def routes(self, site: Site) -> Sequence[BaseRoute]:
        async def callback(request: Request) -> Response:
            return await self._callback(request, site)

        def left(_: Request) -> Response:
            return _left(site)

        async def ended(request: Request) -> Response:
            return await self._ended((await read_form(request)).get("logout_token", ""))

        return [
            Route(_ENDED, ended, methods=["POST"], include_in_schema=False),
            Route("/enter/callback", callback, methods=["GET"], include_in_schema=False),
            Route("/enter/left", left, methods=["GET"], include_in_schema=False),
        ]

    def session(self, request: Request) -> Session | None:
        """The session of a request. What a page fetches by itself keeps no session open."""
        cookie, now = request.cookies.get(self.cookie, ""), self._clock()
        with self._guard:
            found = self._sessions.get(cookie)
            if found is None:
                return None
            if self._is_over(found, now):
                return None
            if request.headers.get("sec-fetch-mode", "navigate") == "navigate":
                found.seen = now
            return found.session

    def end_over(self, now: float) -> None:
        """End the sessions that are over, and their tokens. A timer calls it: a person who idles does not come back."""
        self._close(self._take(lambda one: self._is_over(one, now)), "session ended")

    def forget(self, session: Session) -> None:
        """End a session whose token has ended."""
        self._close(self._take(lambda one: one.session is session), "session ended")

    def _take(self, ends: Callable[[_Open], bool]) -> Sequence[_Open]:
        """The sessions that end: nobody finds them any more."""
        with self._guard:
            over = {at: one for at, one in self._sessions.items() if ends(one)}
            for at in over:
                del self._sessions[at]
        return tuple(over.values())

    def _close(self, over: Sequence[_Open], event: str) -> None:
        for one in over:
            _log.info(event, subject=one.principal.subject, issuer=one.principal.issuer)
            try:
                self._closed(one.session.token or "")
            except (OSError, CommingleError):  # it ends by itself, and nobody else knows it
                continue
            except Exception as error:  # noqa: BLE001 - it must keep no other session open; its text may hold anything
                _log.error("token not revoked", error=type(error).__name__)

    def _is_over(self, one: _Open, now: float) -> bool:
        return now >= min(one.ends, one.seen + 60 * self._settings.idle_minutes)

    async def refuse(self, request: Request, site: Site) -> Response:
        """Send a person who wants to see a page to the provider, with the way back."""
        if "text/html" not in request.headers.get("accept", ""):
            return problem(401, SignInError.code, "nobody has signed in", self.said)
        if request.method != "GET":
            return self._refused(site, "Your session has ended, and nothing was done.", status=403)
        path = f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
        attempt = begin(self._key, path, secret=secrets.token_urlsafe(32), now=time())
        try:
            address = await self._wait(self._provider.address, attempt)
        except UnreachableError as error:
            return self._away(site, error)
        answer = RedirectResponse(address, status_code=303)
        self._set(answer, self._attempt, attempt.kept, seconds=_SIGN_IN_SECONDS)
        return answer

    async def leave(self, request: Request, site: Site) -> Response:
        with self._guard:
            found = self._sessions.pop(request.cookies.get(self.cookie, ""), None)
        answer = _left(site)
        answer.delete_cookie(self.cookie, path="/", secure=self._secure, httponly=True, samesite="lax")
        if found is not None:
            await to_thread.run_sync(self._close, (found,), "signed out")
            with suppress(UnreachableError):
                if (address := await self._wait(self._provider.goodbye, found.principal.id_token)) is not None:
                    answer.headers["Refresh"] = f"0; url={address}"  # no redirect: a form may lead to no other site
        return answer

    async def _ended(self, token: str) -> Response:
        """The provider itself ends sessions, without a browser: so its signature counts, and no origin."""
        try:
            over = self._end(await to_thread.run_sync(self._provider.ended, token, limiter=self._one_at_a_time))
        except CommingleError as error:
            _log.warning("logout refused", reason=str(error))
            return Response(status_code=400, headers=dict(HEADERS))
        await to_thread.run_sync(self._close, over, "signed out by the provider")
        return Response(headers=dict(HEADERS))

    def _end(self, ended: Ended) -> Sequence[_Open]:
        """The sessions that end. Ends are kept: for people who are about to get a session, and against replays."""
        now = time()
        with self._guard:
            self._ends = {jti: one for jti, one in self._ends.items() if now < one[1].until + _SIGN_IN_SECONDS}
            if ended.jti in self._ends:
                raise SignInError("this logout token was used before", remedy=self.said)
            self._came += 1
            self._ends[ended.jti] = self._came, ended
        return self._take(lambda one: ended.ends(one.principal))

    async def _callback(self, request: Request, site: Site) -> Response:
        attempt, about = resume(self._key, request.cookies.get(self._attempt, ""), now=time()), dict[str, str]()
        try:
            if attempt is None:
                raise SignInError("this sign-in did not begin in this browser, or long ago", remedy=self.said)
            came = self._came
            principal = await self._wait(self._provider.principal, attempt, dict(request.query_params))
            about = {"subject": principal.subject, "issuer": principal.issuer}
            if "read" not in principal.scopes:
                raise SignInError("none of your groups may use this", remedy="Ask its operator.")
            former = request.cookies.get(self.cookie, "")
            cookie = await to_thread.run_sync(self._open, principal, former, came, limiter=self._opening)
        except UnreachableError as error:
            return self._away(site, error)
        except CommingleError as error:
            _log.warning("sign-in refused", reason=str(error), **about)
            return self._refused(site, error.diagnostics(), status=403)
        answer = RedirectResponse(f"{self.origin}{attempt.path}", status_code=303)
        self._set(answer, self.cookie, cookie)
        answer.delete_cookie(self._attempt, path="/", secure=self._secure, httponly=True, samesite="lax")
        return answer

    def _open(self, principal: Principal, former: str, came: int) -> str:
        """A session under a new cookie. The browser's former session ends, and the person's in another browser.

        Raises SignInError if the provider has ended this session since `came` ends had come.
        """
        session = Session(principal.person, self._opened(principal), principal.name)
        cookie, now, before = secrets.token_urlsafe(32), self._clock(), self._sessions.get(former)
        made = _Open(principal, session, now + 60 * self._settings.session_minutes, now)
        self._close(
            self._take(lambda one: one is before or one.session.person == session.person or self._is_over(one, now)),
            "session ended",
        )
        with self._guard:
            over = any(number > came and ended.ends(principal) for number, ended in self._ends.values())
            if not over:
                self._sessions[cookie] = made
        if over:
            self._close((made,), "signed out by the provider")
            raise SignInError("the provider has ended this session", remedy=self.said)
        _log.info(
            "signed in", subject=principal.subject, issuer=principal.issuer, scopes=",".join(sorted(principal.scopes))
        )
        return cookie

    async def _wait(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        return await to_thread.run_sync(lambda: function(*arguments), limiter=self._limiter)

    def _set(self, answer: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        answer.set_cookie(
            name, value, max_age=seconds, path="/", secure=self._secure, httponly=True, samesite="lax"
        )  # lax: the provider's page leads back here

    def _refused(self, site: Site, said: str, *, status: int) -> Response:
        return site.refused("You are not signed in", said, status=status, back=True)

    def _away(self, site: Site, error: UnreachableError) -> Response:
        _log.warning("provider unreachable", reason=str(error), remedy=error.remedy)
        return self._refused(site, _AWAY, status=503)


def _left(site: Site) -> Response:
    return site.refused("You have left", "Sign in again to come back.", status=200, back=True)


Door: TypeAlias = LinkDoor | SsoDoor
"""Decides who gets in, under the address `origin`; its ways in are below /enter/, which is open to all."""


class Guard:
    """Asks a door before an application; paths in `unguarded` are open to all under any host name, for monitoring."""

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
        """Whether a request is for this address, not a name that somebody made lead here; and a form comes from it."""
        origin = self._door.origin
        return request.headers.get("host") == origin.partition("://")[2] and (
            request.method in {"GET", "HEAD"} or request.headers.get("origin") == origin
        )


def entrance(door: Door, site: Site) -> list[BaseRoute]:

    async def leave(request: Request) -> Response:
        return await door.leave(request, site)

    return [*door.routes(site), Route("/leave", leave, methods=["POST"], include_in_schema=False)]


class ConsolePages:
    def __init__(self, site: Site, door: Door) -> None:
        self._site, self._door = site, door

    def application(self) -> FastAPI:
        """An application without pages yet: the way in and out, and nothing for anybody without a session."""
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, telemetry=NO_TELEMETRY)
        app.add_middleware(Guard, door=self._door, site=self._site)
        app.add_exception_handler(404, self._nowhere)
        app.add_exception_handler(Exception, self._failed)
        self._site.add_files(app)
        app.router.routes += entrance(self._door, self._site)
        return app

    def session(self, request: Request) -> Session:
        """The session of this page: the guard has let in nobody without one."""
        found: Session = request.state.session
        return found

    async def refusal(self, request: Request, form: Mapping[str, str]) -> Response | None:
        """The answer to a form of no page of this session, or of a session that ended while the form came in."""
        session = self.session(request)
        if self._door.session(request) is not session:
            return await self._door.refuse(request, self._site)
        return None if session.confirms(form.get("csrf", "")) else self.refused()

    def refused(self) -> Response:
        """The answer to what no page of ours sends."""
        return self._site.refused("Nothing to see here", self._door.said, status=403, back=False)

    def unanswered(self, said: str) -> Response:
        """The answer for a page whose contents could not be asked for."""
        return self._site.refused("This could not be asked", said, status=502, back=True)

    def unknown(self, said: str) -> Response:
        """The answer for a page about something that is not there."""
        return self._site.refused("Nothing to see here", said, status=404, back=True)

    def ended(self, session: Session) -> Response:
        """The answer where the token of a session has ended, and so has the session."""
        self._door.forget(session)
        return self._site.refused("Your session has ended", self._door.said, status=403, back=True)

    async def _failed(self, request: Request, error: Exception) -> Response:
        # the message could hold anything, so only the class is logged
        _log.error("unexpected fault", path=request.url.path, error=type(error).__name__)
        said = "Try again; if it persists, read the console's log."
        if isinstance(error, OSError):
            said = f"The console's machine says: {error.strerror}. Free space or mend the disk there, and try again."
        return self._site.refused("This failed", said, status=500, back=True)

    async def _nowhere(self, _: Request, __: Exception) -> Response:
        return self._site.refused("Nothing to see here", "There is no such page.", status=404, back=True)


def run_console(make: Callable[[Door], Application], only: Session, *, port: int, command: str) -> None:
    """Print a link that works once, and serve the application for its door until Ctrl-C."""
    listener = listen(host=_HOST, port=port)
    # cookies know no ports: under a name of its own, no other server on this machine is sent this one's
    address = f"{secrets.token_hex(8)}.localhost:{listener.getsockname()[1]}"
    door = LinkDoor(only, address=address, command=command)
    say(f"Open this in a browser on this machine. It works once:\n\n  {door.origin}/enter/{door.link}\n")
    run([Served(make(door), listener)], announcement=None)


def run_sso_console(
    make: Callable[[Door], Application],
    settings: SsoSettings,
    place: Place,
    *,
    opened: Callable[[Principal], str] = lambda _: "",
    closed: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve the application for people who sign on, until Ctrl-C. Raises MissingExtraError, PortInUseError."""
    door = SsoDoor(Provider(settings), opened=opened, closed=closed)
    served = Served(make(door), listen(host=place.host, port=place.port), place.tls)
    say(f"People sign in at {door.origin}; this listens at {served.url}.")
    stop = Event()

    def look() -> None:
        while not stop.wait(_LOOK_SECONDS):
            door.end_over(monotonic())

    Thread(target=look, daemon=True).start()
    try:
        run([served], announcement=None)
    finally:
        stop.set()
        door.end_over(inf)
