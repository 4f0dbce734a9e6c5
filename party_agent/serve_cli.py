"""`commingle party serve`: the composition root of the agent's process."""

import os
import signal
from pathlib import Path
from threading import Thread

import click

from commingle.party_agent.app import LocalApi, create_app
from commingle.party_agent.compose import RunningAgent, compose_agent, home_option
from commingle.party_agent.home import Home
from commingle.party_agent.loop import Loop
from commingle.shared.runtime import faults
from commingle.shared.runtime.cli import json_option
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import remove_durably, write_durably
from commingle.shared.runtime.logging import configure_logging
from commingle.shared.runtime.server import serve as serve_app

_JOIN_SECONDS = 5.0


@click.command(epilog="Example: commingle party serve --home ./ward")
@home_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the local API listens.")
@click.option("--port", default=8100, show_default=True, type=click.IntRange(0, 65535))
@click.option("--log-level", default="info", show_default=True, type=click.Choice(["debug", "info", "warning"]))
@json_option
def serve(*, home: Path, host: str, port: int, log_level: str, as_json: bool) -> None:
    """Run the agent: answer proposals, privatise, upload. The first line of output says where it listens."""
    del as_json  # the announcement is JSON either way
    configure_logging(service="party_agent", level=log_level)
    faults.arm_from(os.environ)
    place = Home(home)
    if place.next_key.exists():  # the coordinator may know the next key already, and only that one
        raise SettingsError("the key is being replaced", remedy="Finish it: commingle party rotate-key")
    with compose_agent(place) as agent:
        loop = Loop(agent)
        thread = Thread(target=loop.run, kwargs={"on_halt": lambda: os.kill(os.getpid(), signal.SIGTERM)}, daemon=True)

        def started(url: str) -> None:
            write_durably(place.running, RunningAgent(url=url).model_dump_json().encode())
            thread.start()

        try:
            serve_app(create_app(LocalApi(agent, place.token(), loop)), host=host, port=port, on_listening=started)
        finally:
            remove_durably(place.running)  # another process may listen there next, and would be sent our token
            loop.finish(thread, seconds=_JOIN_SECONDS)
        if loop.halted is not None:
            raise loop.halted
