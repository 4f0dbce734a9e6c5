"""Running an application on a socket of its own, so that whoever started it learns the address."""

import json
import signal
import socket
from collections.abc import Callable, Sequence
from types import FrameType

import uvicorn
from fastapi import FastAPI

from commingle.shared.runtime.errors import PortInUseError
from commingle.shared.runtime.tls import ServerTls

_GRACE_SECONDS = 10
_HEADER_BYTES = 1 << 19  # a block's signed statement with 256 long column names travels in one header


class _Server(uvicorn.Server):
    """Says when it has been told to stop."""

    def __init__(self, config: uvicorn.Config, on_stopping: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stopping = on_stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_stopping()
        super().handle_exit(sig, frame)


def _nothing() -> None:
    """Nobody wants to know."""


def serve(
    app: FastAPI,
    *,
    host: str,
    port: int,
    tls: ServerTls | None = None,
    trusted_proxies: Sequence[str] = (),
    on_listening: Callable[[str], None] = lambda _: None,
    on_stopping: Callable[[], None] = _nothing,
) -> None:
    """Listen, say where on standard output as one line of JSON, and serve until told to stop by a signal.

    Port 0 takes any free port. `on_listening` is told the address; `on_stopping` is called when the signal has come,
    before open requests are waited for. Of `trusted_proxies` alone X-Forwarded-For is believed.

    Raises:
        PortInUseError: the address is taken or is not one of this machine's.
    """
    if not 0 <= port < 1 << 16:
        raise PortInUseError(f"there is no port {port}", remedy="Choose one from 0 to 65535 with --port.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=256)
    except OSError as error:
        raise PortInUseError(
            f"cannot listen on {host}:{port} ({error.strerror})",
            remedy="Stop the process that uses it or choose another with --port (0 takes any free one).",
        ) from None
    # asyncio sets this only on sockets it made itself; without it every keep-alive answer waits 40 ms
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=bool(trusted_proxies),  # else uvicorn believes whoever is on this machine
        forwarded_allow_ips=list(trusted_proxies),
        timeout_graceful_shutdown=_GRACE_SECONDS,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    server = _Server(config, on_stopping)
    # also for what comes before uvicorn listens to signals, and when it raises them again after it has stopped
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    address = f"[{host}]" if family == socket.AF_INET6 else host
    url = f"{'https' if tls else 'http'}://{address}:{listener.getsockname()[1]}"
    on_listening(url)
    print(json.dumps({"event": "listening", "url": url}), flush=True)  # noqa: T201 - this is its output
    server.run(sockets=[listener])
