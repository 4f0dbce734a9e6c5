"""A name for every request, in its answer and in every log line about it."""

import re
import secrets

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADER = b"x-request-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9_.-]{1,64}")


class RequestIds:
    """Takes over a caller's X-Request-Id where it is harmless, else makes one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(_HEADER, b"")
        name = given if _ACCEPTED.fullmatch(given) else secrets.token_hex(8).encode()

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_HEADER, name)]
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=name.decode()):
            await self._app(scope, receive, answer)
