"""`commingle coordinator console`."""

from pathlib import Path

import click

from commingle.coordinator.cli import examples
from commingle.coordinator.home import open_coordinator
from commingle.coordinator.trust_cli import home_option
from commingle.shared.runtime.cli import console_port_option


@click.command(epilog=examples("console --home hub"))
@home_option
@console_port_option
def console(*, home: Path, port: int) -> None:
    """Follow members and rounds in a browser on this machine.

    A link is printed that works once. Ctrl-C ends the console. It reads the coordinator's database and changes nothing.
    """
    from commingle.coordinator.console.app import create_console  # noqa: PLC0415 - help needs no FastAPI
    from commingle.shared.runtime.pages.local import run_console  # noqa: PLC0415 - as above

    with open_coordinator(home) as hub:
        run_console(lambda session, address: create_console(hub, session, address=address), port=port)
