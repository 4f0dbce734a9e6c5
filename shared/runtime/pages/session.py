"""Who may use the console: the person who opened the link that the command printed, once, in one browser."""

import hmac
import secrets
from collections.abc import Callable
from threading import Lock
from time import monotonic

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
        """Nobody is in any more."""
        self._cookie = None

    def confirms(self, csrf: str) -> bool:
        """Whether a form is one of this session's own."""
        return _same(csrf, self.csrf)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
