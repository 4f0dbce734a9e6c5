"""Ways to an application: without a socket, on a socket, ways that fail; and workers that are no processes."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
from fastapi import FastAPI

from commingle.shared.runtime.pool import WorkPool

Fault = Callable[[httpx.Request], httpx.Response | None]
"""Looks at a request: returns an answer of its own, raises an httpx error, or leaves it to whoever is asked."""


class InProcess(httpx.BaseTransport):
    """Calls an application without a socket; safe to use from several threads."""

    def __init__(self, app: FastAPI) -> None:
        self._asgi = httpx.ASGITransport(app=app, raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return asyncio.run_coroutine_threadsafe(self._answer(request), _loop()).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        forwarded = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        response = await self._asgi.handle_async_request(forwarded)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all applications of this process.

    A task that never ends keeps its threads warm: without one anyio ends a thread with the request that started it.
    """
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_until_complete, args=(asyncio.Event().wait(),), name="applications", daemon=True).start()
    return loop


@contextmanager
def on_a_socket(answer: Callable[[httpx.Request], httpx.Response], *, cut_bytes: int = 0) -> Iterator[str]:
    """The answers behind a real HTTP server; `cut_bytes` are left out at the end of every body. Gives its URL."""

    class Answerer(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            url = f"http://{self.headers['Host']}{self.path}"
            response = answer(httpx.Request(self.command, url, headers=dict(self.headers), content=body))
            with suppress(BrokenPipeError):  # whoever asked has been stopped meanwhile
                self.send_response(response.status_code)
                self.send_header("Content-Type", response.headers.get("Content-Type", "application/octet-stream"))
                self.send_header("Content-Length", str(len(response.content)))
                self.end_headers()
                self.wfile.write(response.content[: len(response.content) - cut_bytes])

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - what http.server calls

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answerer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    """A port of this machine at which nobody listens yet."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def no_fault(_: httpx.Request) -> None:
    return None


def unreachable(method: str, part: str) -> Fault:
    """Nobody answers requests of that method whose path contains `part`."""

    def fault(request: httpx.Request) -> None:
        if request.method == method and part in request.url.path:
            raise httpx.ConnectError("refused", request=request)

    return fault


def answering(status: int, body: bytes, *, part: str, content_type: str = "application/json") -> Fault:
    """That very answer to every request whose path contains `part`."""

    def fault(request: httpx.Request) -> httpx.Response | None:
        if part not in request.url.path:
            return None
        return httpx.Response(status, content=body, headers={"Content-Type": content_type})

    return fault


class InThread:
    """A worker that cannot be stopped."""

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        return function(*arguments)

    def stop(self) -> None:
        """It ends by itself."""


def pool_of_threads() -> WorkPool:
    return WorkPool(InThread)
