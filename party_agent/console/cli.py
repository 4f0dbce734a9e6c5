"""`commingle party console`."""

import secrets
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import click

from commingle.party_agent.compose import ask, home_option
from commingle.party_agent.console.session import Session
from commingle.party_agent.home import Home
from commingle.shared.runtime.cli import say

_HOST = "127.0.0.1"


@click.command(epilog="Example: commingle party console --home ./ward")
@home_option
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="On 127.0.0.1.  [any free one]")
def console(*, home: Path, port: int) -> None:
    """Read and decide proposals in a browser on this machine.

    A link is printed that works once. Ctrl-C ends the console.

    On a machine without a browser choose a --port, and forward it: ssh -L PORT:127.0.0.1:PORT. Browsers take every
    name under .localhost for their own machine; where one does not, add the name to its hosts file.
    """
    from commingle.party_agent.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.server import Served, listen, run  # noqa: PLC0415 - as above

    place = Home(home)
    place.settings()  # refuses a directory that is no party's home
    session, listener = Session(), listen(host=_HOST, port=port)
    # cookies know no ports: under a name of its own, no other server on this machine is sent this one's
    address = f"{secrets.token_hex(8)}.localhost:{listener.getsockname()[1]}"
    app = create_console(place, session, partial(_ask_in_turn, place, Lock()), address=address)
    say(f"Open this in a browser on this machine. It works once:\n\n  http://{address}/enter/{session.link}\n")
    run([Served(app, listener)], announcement=None)


def _ask_in_turn(place: Home, turn: Any, method: str, path: str, *, body: bytes | None = None) -> Any:  # noqa: ANN401 - a lock; JSON
    """One request at a time: where no agent runs, each holds the ledger."""
    with turn:
        return ask(place, method, path, body=body)
