"""Running an application on a socket of its own, so that whoever started it learns the address."""

import json
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from shared.runtime.errors import PortInUseError

_GRACE_SECONDS = 10


def serve(app: FastAPI, *, host: str, port: int, on_listening: Callable[[str], None] = lambda _: None) -> None:
    """Listen, say where on standard output as one line of JSON, and serve until told to stop.

    Port 0 takes any free port. `on_listening` is told the address.

    Raises:
        PortInUseError: the address is taken or is not one of this machine's.
    """
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
    address = f"[{host}]" if family == socket.AF_INET6 else host
    url = f"http://{address}:{listener.getsockname()[1]}"
    print(json.dumps({"event": "listening", "url": url}), flush=True)  # noqa: T201 - this is its output
    on_listening(url)
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=_GRACE_SECONDS)
    uvicorn.Server(config).run(sockets=[listener])
