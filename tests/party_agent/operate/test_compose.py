"""Reaching the local API from many threads of one process."""

from concurrent.futures import ThreadPoolExecutor

from commingle.party_agent.operate.compose import agent_clients
from tests.world.consortium import Consortium
from tests.world.local_api import operator_app, serving_at


def test_a_running_agent_answers_one_page_while_another_waits(consortium: Consortium) -> None:
    home = consortium.homes["clinic"]
    reach = agent_clients(home)
    with (
        consortium.agent("clinic") as agent,
        serving_at(home.socket, operator_app(agent)),
        reach(None) as slow,
        reach(None) as other,  # in the same thread: it would wait forever for the first
    ):
        assert (other.status().name, slow.status().name) == ("clinic", "clinic")


def test_without_an_agent_every_page_gets_the_ledger_in_its_turn(consortium: Consortium) -> None:
    reach = agent_clients(consortium.homes["clinic"])

    def page(_: int) -> str:
        with reach(None) as agent:
            return agent.status().name

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(page, range(8))) == ["clinic"] * 8
