"""The door for people who sign on by a provider: many sessions, each of one person and of one browser."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from time import monotonic, time
from typing import TypeVar

import structlog
from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from commingle.shared.documents.model import text_digest
from commingle.shared.errors import CommingleError
from commingle.shared.runtime.cli import say
from commingle.shared.runtime.errors import SignInError, UnreachableError
from commingle.shared.runtime.oidc import Principal, Provider, begin, resume
from commingle.shared.runtime.pages.local import Door, Session
from commingle.shared.runtime.pages.site import HEADERS, Site, read_form
from commingle.shared.runtime.problem import problem
from commingle.shared.runtime.server import Application, Served, listen, run
from commingle.shared.runtime.sso import Place, SsoSettings

Answer = TypeVar("Answer")
_ENDED = "/enter/ended"
_AT_ONCE = 4  # threads that wait for a provider; those of people who are signed on are others
_SIGN_IN_SECONDS = 600
_AWAY = (
    "The provider of single sign-on does not answer, so nobody new can sign in. Who has a token of their own, or is at "
    "the machine, can still stop a release there: commingle party reject."
)
_log = structlog.get_logger()


@dataclass(slots=True)
class _Open:
    principal: Principal
    session: Session
    ends: float
    seen: float


class SsoDoor:
    """Lets in who is in a group that may read.

    Args:
        provider: who says who it is.
        opened: makes the token with which a session asks the local API, where there is one.
        closed: revokes the token of a session that somebody has ended.
    """

    unguarded: frozenset[str] = frozenset({_ENDED})

    def __init__(
        self,
        provider: Provider,
        *,
        opened: Callable[[Principal], str] = lambda _: "",
        closed: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        settings = provider.settings
        self.origin, self._settings = settings.url, settings
        self.said = "Sign in at the first page of this address."
        self._provider, self._opened, self._closed, self._clock = provider, opened, closed, clock
        self._secure = settings.url.startswith("https:")
        prefix = "__Host-" if self._secure else ""  # which no other name of the domain can set
        of_address = text_digest(settings.url)[:8]  # cookies know no ports
        self.cookie, self._attempt = (f"{prefix}commingle-{use}-{of_address}" for use in ("session", "sign-in"))
        self._key, self._guard, self._limiter = secrets.token_bytes(32), Lock(), CapacityLimiter(_AT_ONCE)
        self._one_at_a_time = CapacityLimiter(1)  # anybody can send logout tokens: who signs in does not wait for them
        self._sessions: dict[str, _Open] = {}

    def routes(self, site: Site) -> Sequence[BaseRoute]:
        async def callback(request: Request) -> Response:
            return await self._callback(request, site)

        def left(_: Request) -> Response:
            return site.refused("You have left", "Sign in again to come back.", status=200, back=True)

        async def ended(request: Request) -> Response:
            return await self._ended((await read_form(request)).get("logout_token", ""))

        return [
            Route(_ENDED, ended, methods=["POST"], include_in_schema=False),
            Route("/enter/callback", callback, methods=["GET"], include_in_schema=False),
            Route("/enter/left", left, methods=["GET"], include_in_schema=False),
        ]

    def session(self, request: Request) -> Session | None:
        """Whose request it is. What a page fetches by itself keeps no session open."""
        cookie, now = request.cookies.get(self.cookie, ""), self._clock()
        with self._guard:
            found = self._sessions.get(cookie)
            if found is None:
                return None
            if now >= min(found.ends, found.seen + 60 * self._settings.idle_minutes):
                del self._sessions[cookie]
                return None
            if request.headers.get("sec-fetch-mode", "navigate") == "navigate":
                found.seen = now
            return found.session

    async def refuse(self, request: Request, site: Site) -> Response:
        """Send who wants to see a page to the provider, with the way back."""
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
        answer = site.refused("You have left", "Sign in again to come back.", status=200, back=True)
        answer.delete_cookie(self.cookie, path="/", secure=self._secure, httponly=True, samesite="lax")
        if found is not None:
            await self._close(found, "signed out")
            try:
                if (address := await self._wait(self._provider.goodbye, found.principal.id_token)) is not None:
                    answer.headers["Refresh"] = f"0; url={address}"  # no redirect: a form may lead to no other site
            except UnreachableError:
                pass
        return answer

    async def _ended(self, token: str) -> Response:
        """The provider itself ends sessions: in no browser, so its signature is what counts, and no origin."""
        try:
            ended = await to_thread.run_sync(self._provider.ended, token, limiter=self._one_at_a_time)
        except CommingleError as error:
            _log.warning("logout refused", reason=str(error))
            return Response(status_code=400, headers=dict(HEADERS))
        with self._guard:
            over = {at: one for at, one in self._sessions.items() if ended.ends(one.principal)}
            for at in over:
                del self._sessions[at]
        for one in over.values():
            await self._close(one, "signed out by the provider")
        return Response(headers=dict(HEADERS))

    async def _close(self, over: _Open, event: str) -> None:
        _log.info(event, subject=over.principal.subject, issuer=over.principal.issuer)
        with suppress(OSError, CommingleError):  # it ends by itself, and nobody else knows it
            await self._wait(self._closed, over.session.token or "")

    async def _callback(self, request: Request, site: Site) -> Response:
        attempt, about = resume(self._key, request.cookies.get(self._attempt, ""), now=time()), dict[str, str]()
        try:
            if attempt is None:
                raise SignInError("this sign-in did not begin in this browser, or long ago", remedy=self.said)
            principal = await self._wait(self._provider.principal, attempt, dict(request.query_params))
            about = {"subject": principal.subject, "issuer": principal.issuer}
            if "read" not in principal.scopes:
                raise SignInError("none of your groups may use this", remedy="Ask its operator.")
            cookie = await self._wait(self._open, principal, request.cookies.get(self.cookie, ""))
        except UnreachableError as error:
            return self._away(site, error)
        except CommingleError as error:
            _log.warning("sign-in refused", reason=str(error), **about)
            return self._refused(site, error.diagnostics(), status=403)
        answer = RedirectResponse(f"{self.origin}{attempt.path}", status_code=303)
        self._set(answer, self.cookie, cookie)
        answer.delete_cookie(self._attempt, path="/", secure=self._secure, httponly=True, samesite="lax")
        return answer

    def _open(self, principal: Principal, former: str) -> str:
        """A session under a new cookie. The browser's former one ends, and the person's in another browser."""
        session = Session(principal.person, self._opened(principal), principal.name)
        cookie, now = secrets.token_urlsafe(32), self._clock()
        with self._guard:
            self._sessions = {
                at: one
                for at, one in self._sessions.items()
                if at != former and one.session.person != session.person and now < one.ends
            }
            self._sessions[cookie] = _Open(principal, session, now + 60 * self._settings.session_minutes, now)
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
        _log.warning("provider unreachable", reason=str(error))
        return self._refused(site, _AWAY, status=503)


def run_sso_console(
    make: Callable[[Door], Application],
    settings: SsoSettings,
    place: Place,
    *,
    opened: Callable[[Principal], str] = lambda _: "",
    closed: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until Ctrl-C what is made for people who sign on. Raises MissingExtraError, PortInUseError."""
    door = SsoDoor(Provider(settings), opened=opened, closed=closed)
    served = Served(make(door), listen(host=place.host, port=place.port), place.tls)
    say(f"People sign in at {door.origin}; this listens at {served.url}.")
    run([served], announcement=None)
