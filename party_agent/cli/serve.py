"""`commingle party serve`."""

import os
import signal
from functools import partial
from pathlib import Path
from typing import NotRequired

import click

from commingle.party_agent.home.home import Home, PartySettings
from commingle.party_agent.operate.compose import compose_agents, home_option, open_services
from commingle.shared import loops as compiled
from commingle.shared.runtime import faults
from commingle.shared.runtime.cli import changes
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.settings import ServeCommand, Tracing, traces_option
from commingle.shared.runtime.telemetry import configure_logging
from commingle.shared.runtime.tls import ServerTls, tls_options

_PATIENCE_SECONDS = 5.0
"""A command that asks while no agent runs has the ledger for about a second."""

_SELF_SIGNED = (
    "openssl req -x509 -newkey rsa:3072 -nodes -days 365 -subj /CN=localhost "
    "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout api.key -out api.pem"
)


@click.command(
    cls=ServeCommand,
    kind=PartySettings,
    epilog="\b\nExamples:\n  commingle party serve --home ./ward\n"
    "  commingle party serve --home ./ward --port 8100 --tls-certificate api.pem --tls-key api.key",
)
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="With --port: the address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), help="Also serve HTTPS, to tokens only.  [HOME/agent.sock only]")
@tls_options
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning"]),
    help="The least severe messages to log.",
)
@traces_option
@changes(socket=str, url=NotRequired[str])
def serve(*, home: Path, host: str, port: int | None, tls: ServerTls | None, log_level: str, trace: Tracing) -> None:
    """Run the agent: answer proposals, privatise, upload. The first line of output says where it listens."""
    if port is None and tls is not None:
        raise click.UsageError("--tls-certificate and --tls-key go with --port")
    if port is not None and tls is None:
        raise SettingsError(
            "on the network the local API is served by TLS only, as tokens could be read on the way",
            remedy=f"Add --tls-certificate and --tls-key. One of your own: {_SELF_SIGNED}",
        )
    # help needs none of these, which load slowly; the first is loaded before the ledger is held (`open_services`)
    from commingle.party_agent.edge import app as _app  # noqa: F401, PLC0415
    from commingle.party_agent.edge.loop import Loops  # noqa: PLC0415
    from commingle.shared.runtime.server import run  # noqa: PLC0415

    place = Home(home)
    party = place.settings().name
    configure_logging(service="party_agent", level=log_level, party=party)
    trace(service="agent", party=party)
    compiled.available()  # says in the log what is missing
    faults.arm_from(os.environ)
    if place.next_key.exists():  # the coordinator may know the next key already, and only that one
        raise SettingsError("the key is being replaced", remedy="Finish it: commingle party rotate-key")
    with compose_agents(place, patience_seconds=_PATIENCE_SECONDS) as agents:
        loops, halt = Loops(agents), partial(os.kill, os.getpid(), signal.SIGTERM)
        address = None if port is None else (host, port)
        with open_services(agents, loops, address, tls) as (services, begin):
            where = {"socket": str(place.socket)} | ({} if address is None else {"url": services[-1].url})
            run(services, announcement=where, on_listening=partial(begin, halt))
        if loops.halted is not None:
            raise loops.halted
