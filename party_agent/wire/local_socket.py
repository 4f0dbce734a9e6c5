"""The agent's Unix socket, `HOME/agent.sock`: both its ends; each checks who is at the other.

A process that reaches it as the home's user, or as root, is the operator. It needs no token, so there is none that
another process could catch. Neither end takes an address from the environment or from a file, so nothing leads it
elsewhere.

The kernel says who is at the other end (SO_PEERCRED). If it does not, outside Linux, the modes of home (0700) and
socket (0600) alone decide.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx

from commingle.party_agent.errors import PeerError
from commingle.shared.runtime.errors import SettingsError, UnreachableError
from commingle.shared.runtime.remote import reaching

AGENT_URL = "http://agent"
"""What it is called over its socket. Any name would do."""
_BACKLOG = 256
_LONGEST_ADDRESS = 100  # bytes; the kernels' own limits are 104 to 108
_ROOT = 0
_PEER = struct.Struct("3i")  # pid, uid and gid: `struct ucred` of unix(7)


class _Listener(socket.socket):
    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if user_of(connection) not in {None, _ROOT, os.geteuid()}:
            connection.close()
            raise ConnectionAbortedError("a connection of another user")  # asyncio waits for the next one after this
        return connection, address


def listen(path: Path) -> socket.socket:
    """Listen at `path`, mode 0600, in place of what a killed process left there. The caller holds the ledger's lock."""
    listener = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        with _address(path) as address:
            listener.bind(address)
        path.chmod(0o600)  # nobody can connect before it listens
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen at {path} ({error.strerror or error})",
            remedy="Keep the home on a local disk and, outside Linux, under a path of less than 90 bytes.",
        ) from None
    return listener


class AgentTransport(httpx.BaseTransport):
    """The way to the agent that listens at `path`; it leads through no proxy, whatever the environment says.

    Requests raise UnreachableError if none answers, and PeerError if another user's process listens there, which is
    sent nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        http = HTTPConnection("agent")
        try:
            http.sock = _connect(self._path, request.extensions.get("timeout", {}).get("read"))
            target = request.url.raw_path.decode("ascii")
            http.request(request.method, target, request.read(), dict(request.headers))
            answer = http.getresponse()
            return httpx.Response(answer.status, headers=answer.getheaders(), content=answer.read())
        except (OSError, HTTPException) as error:
            raise UnreachableError(
                f"no answer from {self._path} ({type(error).__name__})",
                remedy="Check that the agent runs; the call is safe to repeat.",
            ) from None
        finally:
            http.close()


def user_of(connection: socket.socket) -> int | None:
    """The user of the process at the other end, as when it connected or began to listen; None if unknown."""
    return None if (peer := _peer(connection)) is None else peer[1]


def process_at(path: Path, *, timeout_seconds: float) -> int | None:
    """The process that listens at `path`; None if unknown. Raises UnreachableError if none listens."""
    with reaching(str(path)):
        try:
            with _connect(path, timeout_seconds) as connection:
                peer = _peer(connection)
        except OSError as error:
            raise httpx.NetworkError(str(error)) from None
    return None if peer is None or not peer[0] else peer[0]  # 0 where it cannot be seen from here, as in a container


def _peer(connection: socket.socket) -> tuple[int, int] | None:
    if sys.platform != "linux":
        return None
    process, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(process), int(user)


def _connect(path: Path, timeout_seconds: float | None) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_seconds)
        with _address(path) as address:
            connection.connect(address)
        _require_agent(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_agent(connection: socket.socket, path: Path) -> None:
    user, own = user_of(connection), os.geteuid()
    expected = path.parent.stat().st_uid if own == _ROOT else own  # root may ask the agent of any user
    if user not in {None, _ROOT, expected}:
        raise PeerError(
            f"a process of user {user} listens at {path}, and not one of user {expected}",
            remedy="It was sent nothing. Find out who may write to that directory, and start the agent again.",
        )


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """The address for the kernel. A home may lie deeper than a socket's address is long; on Linux it is opened."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
