"""`commingle party console`."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Lock

import click

from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import AgentScope, create_token, revoke_token
from commingle.party_agent.operate.compose import agent_client, home_option, person_option
from commingle.shared.runtime.cli import console_port_option
from commingle.shared.runtime.settings import system_clock

_LONGEST_SESSION = timedelta(hours=8)


@click.command(epilog="Example: commingle party console --home ./ward")
@home_option
@person_option
@console_port_option
def console(*, home: Path, person: str, port: int) -> None:
    """Read and decide proposals in a browser on this machine.

    A link is printed that works once. Ctrl-C ends the console. With --person it is for that person, who may read and
    decide there and nothing else; without, for the operator.

    On a machine without a browser choose a --port, and forward it: ssh -L PORT:127.0.0.1:PORT. Browsers take every
    name under .localhost for their own machine; where one does not, add the name to its hosts file.
    """
    from commingle.party_agent.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.local import run_console  # noqa: PLC0415 - as above

    place = Home(home)
    place.settings()  # refuses a directory that is no party's home
    with _token_of(place, person) as token:
        reach = partial(_in_turn, place, Lock(), token)
        run_console(
            lambda session, address: create_console(place, session, reach, address=address, person=person), port=port
        )


@contextmanager
def _token_of(place: Home, person: str) -> Iterator[str | None]:
    """What a person's console asks with, as long as it runs; None for the operator's."""
    if not person:
        yield None
        return
    name, now, scopes = f"console-{secrets.token_hex(4)}", system_clock(), frozenset[AgentScope](("read", "decide"))
    try:
        yield create_token(place, name=name, scopes=scopes, lifetime=_LONGEST_SESSION, now=now, person=person)
    finally:
        revoke_token(place, name)


@contextmanager
def _in_turn(place: Home, turn: Lock, token: str | None) -> Iterator[PartyClient]:
    """One page at a time: where no agent runs, each holds the ledger."""
    with turn, agent_client(place, token=token) as agent:
        yield agent
