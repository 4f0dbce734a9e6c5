"""`commingle party console`."""

from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import click

from commingle.party_agent.compose import ask, home_option
from commingle.party_agent.home import Home
from commingle.shared.runtime.cli import console_port_option


@click.command(epilog="Example: commingle party console --home ./ward")
@home_option
@console_port_option
def console(*, home: Path, port: int) -> None:
    """Read and decide proposals in a browser on this machine.

    A link is printed that works once. Ctrl-C ends the console.

    On a machine without a browser choose a --port, and forward it: ssh -L PORT:127.0.0.1:PORT. Browsers take every
    name under .localhost for their own machine; where one does not, add the name to its hosts file.
    """
    from commingle.party_agent.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.local import run_console  # noqa: PLC0415 - as above

    place = Home(home)
    place.settings()  # refuses a directory that is no party's home
    asked = partial(_ask_in_turn, place, Lock())
    run_console(lambda session, address: create_console(place, session, asked, address=address), port=port)


def _ask_in_turn(place: Home, turn: Any, method: str, path: str, *, body: bytes | None = None) -> Any:  # noqa: ANN401 - a lock; JSON
    """One request at a time: where no agent runs, each holds the ledger."""
    with turn:
        return ask(place, method, path, body=body)
