"""A consortium in this process: commands run here, and servers are threads with sockets of their own.

This module alone puts agents and a coordinator together, as their `serve` commands do.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from io import StringIO
from json import loads
from pathlib import Path
from typing import Any, Self, TextIO

import structlog

from commingle.__main__ import main
from commingle.coordinator.home import open_coordinator
from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from commingle.coordinator.publisher import Publisher
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import compose_agents, open_services
from commingle.services.errors import ProcessError
from commingle.services.testing.processes import Command, last_lines, only_processes, printed
from commingle.shared.runtime.files import close_to_others
from commingle.shared.runtime.server import Served, listen, serving
from commingle.shared.runtime.settings import system_clock
from commingle.shared.runtime.tls import ServerTls

_RENDERING = (structlog.processors.add_log_level, structlog.processors.JSONRenderer())


@dataclass(slots=True)
class SkewedClock:
    """A clock that is ahead of the true time."""

    ahead: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return system_clock() + self.ahead


@dataclass(slots=True)
class ServerThread:
    """A server of this process, which you can stop and start again, always on the same port."""

    name: str
    open: Callable[[SkewedClock], AbstractContextManager[None]]
    clock: SkewedClock = field(default_factory=SkewedClock)
    _stack: ExitStack | None = None

    @property
    def alive(self) -> bool:
        return self._stack is not None

    def begin(self, *, fault: str = "") -> None:
        if fault:
            raise only_processes("Only a process can kill itself at a fault point")
        stack = ExitStack()
        stack.enter_context(self.open(self.clock))
        self._stack = stack

    def await_listening(self) -> None:
        """Return at once: it listens as soon as it has begun."""

    def kill(self) -> None:
        """Stop it after its open requests, as a thread cannot be killed."""
        if self._stack is not None:
            self._stack.close()
            self._stack = None

    def set_clock(self, *, ahead: timedelta) -> None:
        self.clock.ahead = ahead


@dataclass(slots=True)
class InProcess:
    """Runs commands and servers in this process; leaving the context stops the servers. All log to a file in `logs`."""

    logs: Path
    _servers: list[ServerThread] = field(default_factory=list)
    _before: dict[str, Any] = field(default_factory=dict)
    _log: TextIO | None = None

    def __enter__(self) -> Self:
        close_to_others(self.logs)
        self._log = self._file.open("a")
        self._before = structlog.get_config()
        self._log_here()
        return self

    def __exit__(self, *_: object) -> None:
        for server in reversed(self._servers):
            server.kill()
        structlog.configure(**self._before)
        if self._log is not None:
            self._log.close()

    def check(self) -> None:
        """Do nothing: threads do not end by themselves."""

    def last_words(self, _: Collection[str]) -> str:
        return last_lines(self._file)

    def run(self, jobs: Mapping[str, Sequence[Command]]) -> dict[str, list[Any]]:
        self._log_here()  # the program around this may have said otherwise, and an answer has no lines of a log
        try:
            return {name: [_run(name, command) for command in commands] for name, commands in jobs.items()}
        finally:
            self._log_here()  # commands say where they log, as processes of their own

    def coordinator(self, home: Path, port: int) -> ServerThread:
        return self._server("coordinator", partial(_coordinator, home, port))

    def agent(self, name: str, home: Path, port: int | None, tls: ServerTls | None) -> ServerThread:
        return self._server(name, partial(_agent, home, port, tls, partial(self._say_halted, name)))

    @property
    def _file(self) -> Path:
        return self.logs / "consortium.log"

    def _log_here(self) -> None:
        structlog.configure(processors=_RENDERING, logger_factory=structlog.PrintLoggerFactory(self._log))

    def _say_halted(self, name: str) -> None:
        # not by `get_logger`: while a command runs, that logs where the command does
        structlog.wrap_logger(structlog.PrintLogger(self._log), processors=_RENDERING).error("halted", party=name)

    def _server(self, name: str, opened: Callable[[SkewedClock], AbstractContextManager[None]]) -> ServerThread:
        self._servers.append(ServerThread(name, opened))
        return self._servers[-1]


def _run(name: str, command: Command) -> Any:  # noqa: ANN401 - JSON
    with redirect_stderr(StringIO()) as said:
        try:
            return loads(printed(main, [*map(str, command), "--json"]))
        except SystemExit:
            raise ProcessError(f"{name} failed: {said.getvalue()}", remedy="Correct the command.") from None


@contextmanager
def _coordinator(home: Path, port: int, clock: SkewedClock) -> Iterator[None]:
    with open_coordinator(home, patient=True) as opened:
        hub = replace(opened, clock=clock)
        feed = Feed(hub.store)
        with serving([Served(create_app(hub, Publisher(hub), feed), listen(host="127.0.0.1", port=port))]):
            try:
                yield
            finally:
                feed.stop()


@contextmanager
def _agent(
    home: Path, port: int | None, tls: ServerTls | None, halted: Callable[[], None], clock: SkewedClock
) -> Iterator[None]:
    address = None if port is None else ("127.0.0.1", port)
    with compose_agents(Home(home), clock=clock) as agents:
        loops = Loops(agents)
        with open_services(agents, loops, address, tls) as (services, begin), serving(services):
            begin(halted)
            yield
