"""The code of docs/testing.md, and what the consortium for tests says and refuses."""

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from math import inf
from pathlib import Path
from signal import SIGSTOP
from typing import Any

import httpx
import pytest

from commingle.services.testing.links import Link
from commingle.testing import Consortium, ConsortiumError, Fault, Node, ProcessError
from tests.world.command import eventually

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
TABLES = {
    "clinic": {"subject": [f"s{i}" for i in range(60)], "age": [float(20 + i % 40) for i in range(60)]},
    "ward": {"subject": [f"s{i}" for i in range(60)], "stay": [float(i % 7) for i in range(60)]},
}
pytestmark = pytest.mark.slow


def approvals(consortium: Consortium, release: str) -> set[str]:
    return {*httpx.get(f"{consortium.coordinator.url}/v1/releases/{release}").json()["approvals"]}


@pytest.fixture(scope="module")
def consortium() -> Iterator[Consortium]:
    with Consortium(TABLES) as running:
        yield running


def test_code_of_the_page_does_what_the_page_says() -> None:
    first, pushing, faults, processes, fixture = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    for code in (first, pushing, faults, processes, fixture):
        exec(compile(code, "docs/testing.md", "exec"), names)  # noqa: S102 - our own page
        if code == first:
            assert names["release"].spec.mechanism == "moments"
        if code == pushing:
            assert names["stored"].n == 2
            assert names["ended"].state == "published"
        if code == faults:
            assert (names["lost"].struck, names["twice"].struck) == (1, 1)
        if code in {faults, processes}:
            assert names["state"] == "published"


@pytest.mark.parametrize(
    ("fault", "method", "path"),
    [
        ("drop", "PUT", "/approvals/"),
        ("lose answer", "PUT", "/blocks/"),
        ("delay", "PUT", "/replies/"),
        ("duplicate", "PUT", "/blocks/"),
        ("garble", "PUT", "/columns/"),
        ("garble answer", "GET", "/replies"),
    ],
)
def test_release_is_published_whatever_happens_to_one_message(
    consortium: Consortium, fault: Fault, method: str, path: str
) -> None:
    injected = consortium.agents["clinic"].link.inject(fault, method=method, path=path, seconds=0.2)
    assert consortium.wait(consortium.propose(consortium.study())) == "published"
    assert injected.struck == 1


@pytest.fixture
def slow(consortium: Consortium) -> Iterator[Link]:
    """The way of an agent; afterwards it is as fast as before."""
    link = consortium.agents["ward"].link
    yield link
    link.slow(seconds=0.0, bytes_per_second=inf, lost=0.0)


def test_release_is_published_over_a_line_that_takes_its_time(consortium: Consortium, slow: Link) -> None:
    slow.slow(seconds=0.05, bytes_per_second=4e6, lost=0.0)
    assert consortium.wait(consortium.propose(consortium.study())) == "published"


def test_message_takes_as_long_as_the_line_needs_for_its_bytes(slow: Link) -> None:
    slow.slow(seconds=0.1, bytes_per_second=100_000, lost=0.0)
    start = time.monotonic()
    httpx.put(f"{slow.url}/v1/nothing", content=bytes(50_000), timeout=30)
    assert time.monotonic() - start >= 0.6


def test_what_a_line_loses_ends_with_its_connection(slow: Link) -> None:
    slow.slow(seconds=0.0, bytes_per_second=inf, lost=1.0)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{slow.url}/healthz", timeout=30)


def test_agent_that_was_cut_off_goes_on_when_its_link_is_mended(consortium: Consortium) -> None:
    link = consortium.agents["clinic"].link
    link.cut()
    proposed = consortium.propose(consortium.study())
    asked = len(link.requests)
    eventually(lambda: approvals(consortium, proposed) == {"ward"}, what="the other party has approved")
    eventually(lambda: len(link.requests) > asked + 1, what="the agent has tried again")
    assert approvals(consortium, proposed) == {"ward"}
    link.mend()
    assert consortium.wait(proposed) == "published"


def test_agent_whose_clock_is_wrong_signs_nothing_that_is_taken_until_it_is_right_again(consortium: Consortium) -> None:
    agent = consortium.agents["ward"]
    agent.set_clock(ahead=timedelta(hours=2))
    proposed = consortium.propose(consortium.study())
    with agent.client() as client:
        eventually(lambda: client.status().trouble is not None, what="the agent says that its clock is wrong")
    assert not consortium.state(proposed).final
    agent.set_clock(ahead=timedelta(0))
    assert consortium.wait(proposed) == "published"


def test_api_of_an_agent_is_for_who_has_its_token(consortium: Consortium) -> None:
    agent = consortium.agents["clinic"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{agent.url}/v1/status")
    with agent.client() as client:
        assert client.status().name == "clinic"


@pytest.mark.parametrize(
    "asked",
    [
        lambda node: node.fill_disk(),
        lambda node: node.signal(SIGSTOP),
        lambda node: node.await_death(),
        lambda node: node.pid,
        lambda node: Node(home=node.home, url="", server=node.server).start(fault="party.debited"),
    ],
)
def test_what_only_a_process_can_suffer_is_refused_with_a_remedy(consortium: Consortium, asked: Any) -> None:
    with pytest.raises(ConsortiumError) as refused:
        asked(consortium.agents["clinic"])
    assert "processes=True" in refused.value.remedy


def test_command_that_fails_says_why(consortium: Consortium) -> None:
    with pytest.raises(ProcessError, match="No such command"):
        consortium.command("party", "nonsense")


def test_table_with_a_column_that_is_no_attribute_is_refused_by_its_name() -> None:
    with (
        pytest.raises(ConsortiumError, match="'age' cannot be used, it does not vary"),
        Consortium({"clinic": {"subject": ["a", "b"], "age": [1.0, 1.0]}}),
    ):
        pass
