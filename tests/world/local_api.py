"""An agent's local API on its socket, in a thread of this process; rows pushed to it; what may be in its place."""

import io
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pyarrow as pa
from fastapi import FastAPI

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import EVERY_SCOPE, AgentScope, create_token
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.rounds.party import Party
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport, listen
from commingle.shared.documents.schema import Attribute
from commingle.shared.runtime.server import Served, serving
from tests.world.applications import in_turn
from tests.world.transport import InProcess


def alone(agent: Agent) -> Agents:
    """The party of an agent, as one that is in no other consortium."""
    return Agents(**{each.name: getattr(agent, each.name) for each in fields(Party)}, consortia=(agent,))


def operator_app(agent: Agent) -> FastAPI:
    """The local API as it is on the socket: who sends no token is the operator."""
    return create_app(LocalApi(alone(agent), loops=None, peer_is_operator=True))


def network_app(agent: Agent) -> FastAPI:
    """The local API as it is on the network: only tokens count."""
    return create_app(LocalApi(alone(agent), loops=None, peer_is_operator=False))


def reached(agent: Agent, *, peer_is_operator: bool = False) -> InProcess:
    """The local API without a socket, as it is on the network unless the operator asks."""
    return in_turn(create_app, LocalApi(alone(agent), loops=None, peer_is_operator=peer_is_operator))


def operator(agent: Agent) -> httpx.Client:
    return httpx.Client(transport=reached(agent, peer_is_operator=True), base_url="http://agent")


def token_of(agent: Agent, *scopes: AgentScope, name: str = "system") -> str:
    made = frozenset(scopes) or EVERY_SCOPE
    return create_token(agent.home, name=name, scopes=made, lifetime=None, now=agent.clock())


def system(agent: Agent, *scopes: AgentScope, name: str = "system", peer_is_operator: bool = False) -> httpx.Client:
    headers = {"Authorization": f"Bearer {token_of(agent, *scopes, name=name)}"}
    return httpx.Client(
        transport=reached(agent, peer_is_operator=peer_is_operator), base_url="http://agent", headers=headers
    )


def operator_client(home: Home) -> httpx.Client:
    """What `curl --unix-socket HOME/agent.sock http://agent` is."""
    return httpx.Client(transport=AgentTransport(home.socket), base_url=AGENT_URL, timeout=60)


@contextmanager
def serving_at(path: Path, app: FastAPI) -> Iterator[None]:
    """Serve at a path as `party serve` does; what is served stays until the end."""
    with serving([Served(app, listen(path))]):
        yield


@contextmanager
def recording(listener: socket.socket) -> Iterator[list[bytes]]:
    """Whatever is sent to a listening socket: an item for each connection, from the beginning of its first bytes."""
    received: list[bytes] = []

    def accept() -> None:
        with suppress(OSError):  # closed at the end
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(1)
                    received.append(b"")
                    with suppress(TimeoutError):
                        received[-1] = connection.recv(1 << 16)

    thread = Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield received
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def declare(agent: Agent, name: str, attributes: Iterable[Attribute], **changes: object) -> None:
    """As the operator declares a data set whose rows are pushed."""
    schema = [attribute.model_dump(mode="json") for attribute in attributes]
    declared = {"name": name, "source": {"kind": "pushed"}, "subject_id": "subject", "subjects": "listed"}
    with operator(agent) as http:
        answer = http.post("/v1/datasets?replace=true", json={**declared, "attributes": schema, **changes})
        assert answer.status_code == 201


def csv_of(rows: list[dict[str, str]]) -> bytes:
    return "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]).encode()


def arrow_of(rows: list[dict[str, Any]], **options: Any) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()
