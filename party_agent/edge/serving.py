"""What an agent serves, and the threads that work meanwhile: the composition root of its process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.edge.webhook import Notices
from commingle.party_agent.rounds.agents import Agents
from commingle.party_agent.wire.local_socket import listen as listen_at
from commingle.shared.runtime.server import Served, listen
from commingle.shared.runtime.tls import ServerTls

_JOIN_SECONDS = 5.0


@contextmanager
def open_services(
    agents: Agents, loops: Loops, address: tuple[str, int] | None, tls: ServerTls | None
) -> Iterator[tuple[list[Served], Callable[[Callable[[], None]], None]]]:
    """What is served on the home's socket, and to tokens on the network where there is an address.

    With it comes a function that begins the agents' work, to be called once these are served, with what stops them.
    """
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
