"""Putting an agent together from its home directory, serving it, and reaching the one that runs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from threading import Lock, Thread
from typing import TYPE_CHECKING

import click
import httpx

from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import AgentRunningError, LedgerError
from commingle.party_agent.home.home import Home, Membership
from commingle.party_agent.home.policy import is_signed_on
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds.agents import Agents, assemble
from commingle.party_agent.wire.local_socket import AgentTransport
from commingle.party_agent.wire.local_socket import listen as listen_at
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.runtime.cli import A_FOLDER
from commingle.shared.runtime.coordinator_client import CoordinatorClient
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.remote import connect
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import Clock, system_clock
from commingle.shared.runtime.tls import ServerTls
from commingle.shared.text import printable

if TYPE_CHECKING:  # a command that asks the running agent needs no FastAPI
    from commingle.party_agent.edge.api import LocalApi
    from commingle.party_agent.edge.loop import Loops
    from commingle.shared.runtime.server import Served

_JOIN_SECONDS = 5.0
_COORDINATOR_TIMEOUT_SECONDS = 30.0
_LONGEST_NAME = 120

home_option = click.option(
    "--home",
    type=A_FOLDER,
    required=True,
    callback=lambda _, __, path: Home(path),
    envvar="COMMINGLE_PARTY_HOME",
    help="The member's directory (or COMMINGLE_PARTY_HOME).",
)


consortium_option = click.option(
    "--consortium", metavar="NAME", help="Which consortium, if this member belongs to several."
)


def _shown(_: click.Context, __: click.Parameter, name: str) -> str:
    if printable(name) != name or len(name) > _LONGEST_NAME or is_signed_on(name):
        raise click.UsageError(f"a person's name is at most {_LONGEST_NAME} visible characters, and not an address")
    return name.strip()


person_option = click.option(
    "--person",
    metavar="NAME",
    default="",
    callback=_shown,
    help="The person who uses it. Every decision made with it counts as this person's.",
)


@contextmanager
def compose_agents(
    home: Home,
    *,
    transport: httpx.BaseTransport | None = None,
    clock: Clock = system_clock,
    draw: Sampler = rounded_gaussian,
    patience_seconds: float = 0.0,
) -> Iterator[Agents]:
    """The agents on a home directory, holding the ledger's lock.

    `transport` is the way to the coordinators, if it is not the network; patience is for a command that has the ledger
    for a moment.
    """
    home.settings(), home.identity(), home.policy()  # a mistake is reported now and not in the middle of a round
    memberships = home.consortia()
    if not memberships:
        raise _not_enrolled()
    for membership in memberships.values():
        membership.coordinator(), membership.pins()
    if not home.database.exists():
        raise LedgerError(
            f"{home.database} is missing",
            remedy="Restore the newest backup. A member never starts again with an empty ledger.",
        )
    if draw is rounded_gaussian:
        draw(1, 1)  # a sampler that does not work is reported now and not after a debit
    home.secure()
    store = AgentStore(home.database, patience_seconds=patience_seconds)
    try:
        with ExitStack() as calls:
            clients = {
                name: calls.enter_context(calling(home, membership, transport=transport, clock=clock))
                for name, membership in memberships.items()
            }
            agents = assemble(home, store, clients, clock=clock, draw=draw)
            agents.ledger.verify()  # reports an altered ledger before anything is spent on it
            yield agents
    finally:
        store.close()


@contextmanager
def calling(
    home: Home, membership: Membership, *, transport: httpx.BaseTransport | None = None, clock: Clock = system_clock
) -> Iterator[CoordinatorClient]:
    """Signed calls to the coordinator of a consortium. Raises SettingsError, KeyFileError."""
    if not membership.name:
        raise _not_enrolled()
    coordinator = membership.coordinator()
    with connect(
        coordinator.url,
        ca_file=coordinator.ca_file,
        allow_http=coordinator.allow_http,
        timeout_seconds=_COORDINATOR_TIMEOUT_SECONDS,
        transport=transport,
        auth=RequestSigner(home.identity().signing_key, audience=coordinator.key.fingerprint, clock=clock),
    ) as http:
        yield CoordinatorClient(http)


def _not_enrolled() -> SettingsError:
    return SettingsError(
        "this member is not enrolled yet", remedy="First: commingle party enrol --coordinator URL --invite-file FILE"
    )


def agent_client(home: Home, *, token: str | None = None) -> AbstractContextManager[PartyClient]:
    """The local API, asked as the operator or with a token.

    It is the running agent's or, if none runs, one in this process, which has the ledger until the end.

    Raises:
        AgentRunningError: another command has the ledger, or an agent that does not listen yet.
        PeerError: of calls, if another user's process listens in the agent's place.
    """
    return agent_clients(home)(token)


def agent_clients(home: Home) -> Callable[[str | None], AbstractContextManager[PartyClient]]:
    """`agent_client` by a session's token, for the threads of one process: a running agent answers them side by side.

    If none runs, one thread at a time has the ledger, which has one process and one writer, and would refuse others.
    """
    turn = Lock()

    @contextmanager
    def client(token: str | None) -> Iterator[PartyClient]:
        with ExitStack() as held:
            held.enter_context(turn)
            way = _way(home, held)
            if isinstance(way, AgentTransport):
                held.close()
            with PartyClient.over(way, token=token) as agent:
                yield agent

    return client


def _way(home: Home, held: ExitStack) -> httpx.BaseTransport:
    try:
        agents = held.enter_context(compose_agents(home))
    except AgentRunningError:
        if not home.socket.exists():
            raise
        return AgentTransport(home.socket)
    from commingle.party_agent.edge.api import LocalApi  # noqa: PLC0415 - only where no agent runs

    return _InProcess(LocalApi(agents, loops=None, peer_is_operator=True))


class _InProcess(httpx.BaseTransport):
    def __init__(self, api: "LocalApi") -> None:
        from commingle.party_agent.edge.app import create_app  # noqa: PLC0415 - as above

        self._asgi = httpx.ASGITransport(create_app(api), raise_app_exceptions=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return asyncio.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._asgi.handle_async_request(request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=await answer.aread())


@contextmanager
def open_services(
    agents: Agents, loops: "Loops", address: tuple[str, int] | None, tls: ServerTls | None
) -> Iterator[tuple[list["Served"], Callable[[Callable[[], None]], None]]]:
    """The services of a running agent: on the home's socket, and for tokens on the network if there is an address.

    The second value begins the agents' work. Call it once the services answer, with what stops them.
    """
    from commingle.party_agent.edge.api import LocalApi  # noqa: PLC0415 - only a running agent needs these
    from commingle.party_agent.edge.app import create_app  # noqa: PLC0415
    from commingle.party_agent.edge.webhook import Notices  # noqa: PLC0415
    from commingle.shared.runtime.server import Served, listen  # noqa: PLC0415

    at, notices = agents.home.socket, Notices(agents.home, agents.proposals, agents.jobs, agents.clock)
    try:
        local = LocalApi(agents, loops, peer_is_operator=True)
        services = [Served(create_app(local), listen_at(at))]
        if address is not None:
            host, port = address
            remote = create_app(replace(local, peer_is_operator=False))
            services.append(Served(remote, listen(host=host, port=port), tls))

        def begin(halt: Callable[[], None]) -> None:
            loops.start(on_halt=halt)
            Thread(target=notices.run, daemon=True).start()

        yield services, begin
    finally:
        at.unlink(missing_ok=True)
        notices.stop.set()
        loops.finish(seconds=_JOIN_SECONDS)
