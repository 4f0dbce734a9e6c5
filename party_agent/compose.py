"""Putting an agent together from its home directory, and reaching the one that runs; for every command of a party."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import httpx

from commingle.party_agent.agents import Agents, assemble
from commingle.party_agent.consortium import Membership
from commingle.party_agent.coordinator_client import CoordinatorClient
from commingle.party_agent.errors import AgentRunningError, LedgerError
from commingle.party_agent.home import Home
from commingle.party_agent.local_socket import AGENT_URL, reaching_agent
from commingle.party_agent.store import AgentStore
from commingle.shared.dp.noise import Sampler, rounded_gaussian
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.remote import check, connect, json_of
from commingle.shared.runtime.request_signing import RequestSigner
from commingle.shared.runtime.settings import Clock, system_clock
from commingle.shared.text import printable

if TYPE_CHECKING:  # a command that asks the running agent needs no FastAPI
    from commingle.party_agent.app import LocalApi

_COORDINATOR_TIMEOUT_SECONDS = 30.0
_HEADERS = {"Content-Type": "application/json"}
_LONGEST_NAME = 120

home_option = click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    envvar="COMMINGLE_PARTY_HOME",
    help="The party's directory (or COMMINGLE_PARTY_HOME).",
)


consortium_option = click.option(
    "--consortium", metavar="NAME", help="Which, where this party belongs to more than one."
)

person_option = click.option(
    "--person",
    metavar="NAME",
    default="",
    callback=lambda _, __, name: require_shown(name),
    help="Whom it is for: every decision with it is this person's.",
)


def require_shown(name: str) -> str:
    """A person's name as it may be shown and kept. Raises UsageError."""
    if printable(name) != name or len(name) > _LONGEST_NAME:
        raise click.UsageError(f"a person's name is at most {_LONGEST_NAME} characters that can be seen")
    return name.strip()


@contextmanager
def compose_agents(
    home: Home,
    *,
    transport: httpx.BaseTransport | None = None,
    clock: Clock = system_clock,
    draw: Sampler = rounded_gaussian,
) -> Iterator[Agents]:
    """The agents on a home directory, holding the ledger's lock.

    Args:
        home: the directory.
        transport: the way to the coordinators, where it is not the network.
        clock: time.
        draw: entropy.

    Raises:
        SettingsError, KeyFileError: the home is incomplete, or the party is not enrolled.
        AgentRunningError: another process has it.
        LedgerError: the ledger is missing or damaged.
    """
    home.settings(), home.identity(), home.policy()  # a mistake in them is told now and not in the middle of a round
    memberships = home.consortia()
    if not memberships:
        raise _not_enrolled()
    for membership in memberships.values():
        membership.coordinator(), membership.pins()
    if not home.database.exists():
        raise LedgerError(
            f"{home.database} is missing",
            remedy="Restore the newest backup. A party never starts again with an empty ledger.",
        )
    if draw is rounded_gaussian:
        draw(1, 1)  # a sampler that does not work is told now and not after a debit
    home.secure()
    store = AgentStore(home.database)
    try:
        with ExitStack() as calls:
            clients = {
                name: calls.enter_context(calling(home, membership, transport=transport, clock=clock))
                for name, membership in memberships.items()
            }
            agents = assemble(home, store, clients, clock=clock, draw=draw)
            agents.ledger.verify()  # what was altered is told before anything is spent on it
            yield agents
    finally:
        store.close()


@contextmanager
def calling(
    home: Home,
    membership: Membership,
    *,
    transport: httpx.BaseTransport | None = None,
    clock: Clock = system_clock,
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
        "this party is not enrolled yet", remedy="First: commingle party enrol --coordinator URL --invite-file FILE"
    )


def ask(
    home: Home,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:  # noqa: ANN401 - JSON
    """One call of the local API: of the running agent, or in this process where none runs.

    Raises:
        PeerError: another user's process listens in the agent's place; it was sent nothing.
        CommingleError: whatever the API answers.
    """
    sent, url = {**_HEADERS, **(headers or {})}, httpx.URL(f"{AGENT_URL}{path}", params=params or None)
    try:
        with compose_agents(home) as agents:
            from commingle.party_agent.app import LocalApi  # noqa: PLC0415 - only where no agent runs

            api = LocalApi(agents, loops=None, peer_is_operator=True)
            return asyncio.run(_in_process(api, httpx.Request(method, url, content=body, headers=sent)))
    except AgentRunningError:
        if not home.socket.exists():  # another command, or an agent that has only just started
            raise
    with reaching_agent(home.socket) as client:  # without a limit: reading a large table takes as long as it takes
        response = client.request(method, url, content=body, headers=sent)
    return json_of(check(response, "the agent", own=True))


def bearer(token: str | None) -> dict[str, str]:
    """The header of a call with a token; none for the operator."""
    return {} if token is None else {"Authorization": f"Bearer {token}"}


async def _in_process(api: "LocalApi", request: httpx.Request) -> Any:  # noqa: ANN401 - JSON
    from commingle.party_agent.app import create_app  # noqa: PLC0415 - as above

    transport = httpx.ASGITransport(create_app(api), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, timeout=None) as client:  # noqa: S113 - as above
        return json_of(check(await client.send(request), "the agent", own=True))
