"""However many tables are to be read, and however long that takes, the local API answers."""

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread

import httpx
import pytest

from commingle.party_agent.edge.api import LocalApi, OwnThread
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport
from tests.world.consortium import BY_HAND, Consortium, consortium_of
from tests.world.local_api import alone, serving_at

HUNDREDS = 300


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)


@contextmanager
def serving(consortium: Consortium) -> Iterator[tuple[Agent, LocalApi, httpx.Client]]:
    """An agent on a socket, its API, and the party's own system, whose token may have tables read again."""
    with consortium.agent("clinic") as agent:
        token = create_token(agent.home, name="system", scopes=EVERY_SCOPE, lifetime=None, now=agent.clock())
        api, headers = LocalApi(alone(agent), loops=None, peer_is_operator=False), {"Authorization": f"Bearer {token}"}
        with (
            serving_at(agent.home.socket, create_app(api)),
            httpx.Client(
                transport=AgentTransport(agent.home.socket), base_url=AGENT_URL, headers=headers, timeout=20
            ) as http,
        ):
            yield agent, api, http


def read_again(http: httpx.Client) -> int:
    return http.post("/v1/datasets/main/reading").status_code


def answers(http: httpx.Client) -> list[int]:
    return [http.get(path).status_code for path in ("/healthz", "/readyz", "/v1/datasets", "/v1/ledger")]


@pytest.mark.slow
def test_hundreds_of_registrations_of_fifos_leave_every_route_answering(consortium: Consortium) -> None:
    consortium.table("clinic").unlink()
    os.mkfifo(consortium.table("clinic"))
    with serving(consortium) as (_, _, http):
        assert {read_again(http) for _ in range(HUNDREDS)} == {202}
        assert answers(http) == [200] * 4


@pytest.mark.slow
def test_reading_that_hangs_leaves_every_route_answering_and_others_wait_for_it(
    consortium: Consortium,
) -> None:
    ended = Event()
    with (
        serving(consortium) as (agent, api, http),
        ThreadPoolExecutor(1) as other,
    ):
        hanging = other.submit(asyncio.run, api.readings.run(ended.wait, 60))
        try:
            before = agent.datasets.get("main").snapshot
            assert {read_again(http) for _ in range(HUNDREDS)} == {202}
            assert answers(http) == [200] * 4
            assert agent.datasets.get("main").snapshot == before
        finally:
            ended.set()
        assert hanging.result()
        asyncio.run(api.readings.run(bool))  # behind all of them
        assert agent.datasets.get("main").snapshot != before


@pytest.mark.slow
def test_ledger_that_does_not_answer_is_told_by_readiness_while_health_answers(
    consortium: Consortium,
) -> None:
    ended = Event()
    with serving(consortium) as (_, api, http), ThreadPoolExecutor(1) as other:
        other.submit(asyncio.run, api.ledger.run(ended.wait, 60))
        try:
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()) == (503, {"status": "busy"})
            assert http.get("/healthz").status_code == 200
        finally:
            ended.set()
        assert http.get("/readyz").status_code == 200


def test_calls_are_made_one_after_the_other_in_one_thread() -> None:
    own, seen, running = OwnThread("one"), list[int](), set[int]()

    def call(number: int) -> str:
        running.add(number)
        assert len(running) == 1
        seen.append(number)
        running.remove(number)
        return current_thread().name

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(own.run(call, number) for number in range(100)))

    assert asyncio.run(all_of_them()) == ["one"] * 100
    assert seen == list(range(100))


def test_of_calls_with_one_key_that_wait_only_the_newest_is_made() -> None:
    own, began, ended, made = OwnThread("one"), Event(), Event(), list[str]()

    def first() -> None:
        began.set()
        ended.wait(60)

    async def many() -> None:
        waiting = [asyncio.ensure_future(own.run(first))]
        waiting += [
            asyncio.ensure_future(own.run_newest(key, made.append, key + str(n))) for n in range(3) for key in "ab"
        ]
        await asyncio.sleep(0)
        began.wait(60)
        ended.set()
        await asyncio.gather(*waiting)

    asyncio.run(many())
    assert made == ["a2", "b2"]


def test_call_that_fails_fails_alone_and_one_that_was_cancelled_is_not_made() -> None:
    own, ended, made = OwnThread("one"), Event(), list[int]()

    async def some() -> None:
        hanging = asyncio.ensure_future(own.run(ended.wait, 60))
        await asyncio.sleep(0)
        cancelled = asyncio.ensure_future(own.run(made.append, 1))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await asyncio.sleep(0)
        ended.set()
        await hanging
        with pytest.raises(ValueError, match="invalid literal"):
            await own.run(int, "x")
        await own.run(made.append, 2)

    asyncio.run(some())
    assert made == [2]
