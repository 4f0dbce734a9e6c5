"""Running applications on sockets of their own, so that their starter learns the addresses."""

import asyncio
import errno
import gc
import json
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from types import FrameType
from typing import Any

import structlog
import uvicorn

from commingle.shared.runtime.errors import PortInUseError
from commingle.shared.runtime.files import read_given
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import ServerTls, ends_soon

_log = structlog.get_logger()
_GRACE_SECONDS = 10
_TICK_SECONDS = 1.0  # how old the date in an answer's head can be
_HEADER_BYTES = 1 << 19  # a block's signed statement with 256 long column names travels in one header


Application = Callable[..., Awaitable[Any]]  # an ASGI application


@dataclass(frozen=True, slots=True)
class Served:
    """An application, the listening socket it is served on, its certificate and the proxies it trusts, if any."""

    app: Application
    listener: socket.socket
    tls: ServerTls | None = None
    trusted_proxies: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        host, port = self.listener.getsockname()[:2]
        address = f"[{host}]" if self.listener.family == socket.AF_INET6 else host
        return f"{'https' if self.tls else 'http'}://{address}:{port}"


class _Server(uvicorn.Server):
    """Leaves signals to `run`, as one signal is for all servers of the process, and sleeps where uvicorn polls."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.handle_exit(number, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._told.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._told.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _nothing() -> None: ...


def listen(*, host: str, port: int) -> socket.socket:
    """Listen on an address of this machine. Port 0 takes any free port."""
    if not 0 <= port < 1 << 16:
        raise PortInUseError(f"there is no port {port}", remedy="Choose one from 0 to 65535 with --port.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        why = (error.strerror or "").partition(" (while")[0]
        raise PortInUseError(
            f"cannot listen on {host}:{port} ({why})",
            remedy="Stop the process that uses it or choose another with --port (0 takes any free one)."
            if error.errno in {errno.EADDRINUSE, errno.EACCES}
            else "Give an address of this machine with --host, such as 127.0.0.1, or 0.0.0.0 for all that it has.",
        ) from None
    # asyncio sets this only on sockets it made itself; without it every keep-alive answer waits 40 ms
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def serve(
    app: Application,
    *,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    trusted_proxies: Sequence[str] = (),
    on_stopping: Callable[[], None] = _nothing,
) -> None:
    """Serve on an address, as `run` does; only `trusted_proxies` may say X-Forwarded-For. Raises PortInUseError."""
    served = Served(app, listen(host=host, port=port), tls, tuple(trusted_proxies))
    run([served], announcement={"url": served.url}, on_stopping=on_stopping)


def run(
    services: Sequence[Served],
    *,
    announcement: Mapping[str, str] | None,
    on_listening: Callable[[], None] = _nothing,
    on_stopping: Callable[[], None] = _nothing,
) -> None:
    """Print the addresses as one line of JSON, unless `announcement` is None, and serve until a signal comes.

    `on_listening` is called before that; `on_stopping` when the signal has come, before the wait for open requests.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        on_stopping()
        for server in servers:
            server.stop(number, frame)

    servers = [_Server(_configure(service)) for service in services]
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    on_listening()
    if announcement is not None:
        print(json.dumps({"event": "listening", **announcement}), flush=True)  # noqa: T201 - this is its output
    gc.freeze()  # loaded objects stay: no collection looks through them again
    _run_all(servers, [service.listener for service in services])


@contextmanager
def serving(services: Sequence[Served]) -> Iterator[None]:
    """Serve from a thread until the end of the block, while the program goes on."""
    servers = [_Server(_configure(service)) for service in services]
    listeners = [service.listener for service in services]
    thread = Thread(target=_run_all, args=(servers, listeners), daemon=True)
    thread.start()
    try:
        yield
    finally:
        for server in servers:
            server.stop(signal.SIGTERM, None)
        thread.join()


def _run_all(servers: Sequence[_Server], listeners: Sequence[socket.socket]) -> None:
    # other loops accept on the descriptor, past what a listener's own `accept` checks
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(serve_all(servers, listeners))


async def serve_all(servers: Sequence[_Server], listeners: Sequence[socket.socket]) -> None:
    await asyncio.gather(*(server.serve([own]) for server, own in zip(servers, listeners, strict=True)))


def _configure(service: Served) -> uvicorn.Config:
    if service.tls is not None and (said := ends_soon(read_given(service.tls.certificate), system_clock())) is not None:
        _log.warning(said, file=str(service.tls.certificate))
    return uvicorn.Config(
        service.app,
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=bool(service.trusted_proxies),  # else uvicorn trusts everybody on this machine
        forwarded_allow_ips=list(service.trusted_proxies),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ssl_certfile=service.tls.certificate if service.tls else None,
        ssl_keyfile=service.tls.key if service.tls else None,
    )
