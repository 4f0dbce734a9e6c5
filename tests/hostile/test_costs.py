"""What strangers make a service compute: little a request, one job of a client at a time, nothing for who is gone."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from pydantic import ValidationError
from starlette.requests import Request

from commingle import ReleaseClient
from commingle.coordinator.http.app import create_app as coordinator_app
from commingle.coordinator.http.streams import Feed
from commingle.services.analysis.paths import MAX_PENALTIES, lasso_path
from commingle.services.learner.app import create_app
from commingle.services.learner.computing import parse, plan, start_worker
from commingle.services.learner.requests import PlanBody, PredictionBody
from commingle.services.learner.source import ReleaseSource
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.runtime.errors import RequestBodyError, TooCostlyError
from commingle.shared.runtime.pool import (
    CPU_SECONDS,
    MEMORY_BYTES,
    PER_CLIENT,
    JobFaultError,
    ProcessWorker,
    WorkPool,
    client_of,
)
from tests.hostile.jobs import cost_of, spin
from tests.shared.estimation.tables import moments_of
from tests.world.coordinator import Hub
from tests.world.documents import study_file
from tests.world.released import COORDINATOR, ServingCoordinator, published

DEADLINE = 120  # seconds; of what would otherwise hang
ID = published()[0]
FIT = {"target": "age"}
MALLORY, ALICE = "203.0.113.7", "198.51.100.9"


def costly_plan(columns: int = 255) -> dict[str, Any]:
    """As many columns as a release may have, of the mechanism whose forecast draws noise."""
    attributes = [{"kind": "numeric", "name": f"attribute {i:03}", "lower": 0, "upper": 1} for i in range(columns)]
    party = {"name": "clinic", "dataset": "cohort", "attributes": attributes}
    return {"study": study_file([party], mechanism="moments", delta=1e-6, n=100_000)}


@dataclass
class Gate:
    """A worker whose jobs wait until they may go on, or are stopped."""

    begun: list[str]
    open: Event
    stopped: Event = field(default_factory=Event)

    def run(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        self.begun.append(getattr(function, "__name__", "analysis"))
        while not self.open.wait(0.01):
            if self.stopped.is_set():
                raise JobFaultError("stopped")
        return function(*arguments)

    def stop(self) -> None:
        self.stopped.set()


@dataclass
class World:
    """A learner whose jobs wait at a gate."""

    begun: list[str] = field(default_factory=list)
    open: Event = field(default_factory=Event)
    workers: list[Gate] = field(default_factory=list)

    def __post_init__(self) -> None:
        fake = ServingCoordinator.serving(published())
        client = ReleaseClient("http://hub", transport=fake.transport, trusted_coordinator=COORDINATOR.fingerprint)
        self.app: FastAPI = create_app(ReleaseSource(client), pool=WorkPool(self._worker))

    def _worker(self) -> Gate:
        self.workers.append(Gate(self.begun, self.open))
        return self.workers[-1]

    def client(self, address: str) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=(address, 50_000))
        return httpx.AsyncClient(transport=transport, base_url="http://learner")


def limited(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(asyncio.wait_for(test(), DEADLINE))

    return run


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110 - what is waited for happens in threads and processes
        await asyncio.sleep(0.01)


@limited
async def test_sixty_plans_of_one_client_are_refused_but_for_the_allowed_and_reads_go_on() -> None:
    world = World()
    async with world.client(MALLORY) as http:
        asked = [asyncio.create_task(http.post("/v1/plans", json=costly_plan())) for _ in range(60)]
        await until(lambda: sum(task.done() for task in asked) == 60 - PER_CLIENT)
        refused = [task.result() for task in asked if task.done()]
        assert {answer.status_code for answer in refused} == {503}
        assert {answer.json()["type"] for answer in refused} == {"urn:commingle:problem:busy"}
        assert all(answer.headers["Retry-After"] for answer in refused)
        assert world.begun == ["plan"]
        for path in ("/v1/releases", f"/v1/releases/{ID}", "/healthz"):
            assert (await http.get(path)).status_code == 200
        for task in asked:
            task.cancel()


@limited
async def test_who_asks_for_much_does_not_make_another_wait() -> None:
    world = World()
    async with world.client(MALLORY) as mallory, world.client(ALICE) as alice:
        many = [asyncio.create_task(mallory.post("/v1/plans", json=costly_plan(2))) for _ in range(PER_CLIENT)]
        await until(lambda: world.begun == ["plan"])
        one = asyncio.create_task(alice.post(f"/v1/releases/{ID}/fits", json=FIT))
        await until(lambda: world.begun == ["plan", "fit"])
        for task in many[1:]:
            task.cancel()
        world.open.set()
        assert (await one).status_code == 200
        assert (await many[0]).status_code == 200


@limited
async def test_who_hangs_up_has_its_job_stopped_and_its_place_freed() -> None:
    world = World()
    for _ in range(PER_CLIENT + 1):
        async with hanging_up(world.app, "/v1/plans", json.dumps(costly_plan(2)).encode()) as hang_up:
            await until(lambda: len(world.workers) > 0 and not world.workers[-1].stopped.is_set())
            hang_up()
        assert world.workers[-1].stopped.is_set()
    world.open.set()
    async with world.client(MALLORY) as http:
        assert (await http.post(f"/v1/releases/{ID}/fits", json=FIT)).status_code == 200


@limited
async def test_who_hangs_up_while_it_waits_is_never_computed() -> None:
    world = World()
    async with world.client(MALLORY) as http:
        first = asyncio.create_task(http.post(f"/v1/releases/{ID}/fits", json=FIT))
        await until(lambda: world.begun == ["fit"])
        async with hanging_up(world.app, "/v1/plans", json.dumps(costly_plan()).encode()) as hang_up:
            hang_up()
        world.open.set()
        assert (await first).status_code == 200
        assert (await http.post(f"/v1/releases/{ID}/fits", json=FIT)).status_code == 200
    assert world.begun == ["fit", "fit"]


@asynccontextmanager
async def hanging_up(app: FastAPI, path: str, body: bytes) -> AsyncIterator[Callable[[], None]]:
    """A request that waits for its turn or its result, and whose sender hangs up when it calls what it is given.

    At the end the application has returned.
    """
    waits, gone, messages = (
        asyncio.Event(),
        asyncio.Event(),
        [{"type": "http.request", "body": body, "more_body": False}],
    )

    async def receive() -> Any:
        if messages:
            return messages.pop()
        waits.set()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        """Nobody listens."""

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [],
        "client": (MALLORY, 50_000),
        "scheme": "http",
        "root_path": "",
    }
    task = asyncio.ensure_future(app(scope, receive, send))
    await waits.wait()
    yield gone.set
    await task


def test_clients_are_told_apart_by_what_they_cannot_choose() -> None:
    def client(host: str) -> str:
        return client_of(Request({"type": "http", "headers": [], "client": (host, 1)}))

    assert client("2001:db8:1:2::5") == client("2001:db8:1:2:ffff::6") != client("2001:db8:1:3::5")
    assert client("::ffff:203.0.113.7") == client("203.0.113.7") != client("203.0.113.8")


@pytest.mark.parametrize(
    "body",
    [
        {"target": "y", "rows": [{f"{i}": None for i in range(70)}] * 10_000},
        {"target": "y", "rows": [{f"{i}": None for i in range(100_000)}]},
        {"target": "y", "rows": [{}] * 1_000_000},
        {"target": "y", "features": [0] * 1_000_000, "rows": [{}]},
    ],
    ids=["values", "names", "rows", "features"],
)
def test_body_that_does_not_fit_is_not_explained_a_million_times(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        PredictionBody.model_validate(body)
    assert refused.value.error_count() < 1_000


@pytest.mark.parametrize("body", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"9" * 1_000_000, b'{"\xff": 1}', b"", b"[]"])
def test_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RequestBodyError):
        parse(PlanBody, body)


def test_unknown_fields_are_not_listed() -> None:
    body = json.dumps(dict.fromkeys(map(str, range(100_000)))).encode()
    with pytest.raises(RequestBodyError) as refused:
        parse(PlanBody, body)
    assert len(str(refused.value)) < 500


def test_sixty_forecasts_of_one_client_are_refused_but_for_the_allowed_and_reads_go_on(tmp_path: Path) -> None:
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    path = f"/v1/releases/{hub.proposed([hub.enrolled('clinic'), hub.enrolled('registry')]).id}"
    gate = Gate([], Event())
    app = coordinator_app(hub.coordinator, hub.publisher, Feed(hub.store), pool=WorkPool(lambda: gate))

    async def attack() -> None:
        transport = httpx.ASGITransport(app, client=(MALLORY, 50_000))
        async with httpx.AsyncClient(transport=transport, base_url="http://hub") as http:
            asked = [asyncio.create_task(http.get(f"{path}/forecast")) for _ in range(60)]
            await until(lambda: sum(task.done() for task in asked) == 60 - PER_CLIENT)
            assert {task.result().status_code for task in asked if task.done()} == {503}
            assert (await http.get(path)).status_code == 200
            gate.open.set()
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200, 503}
            assert (await http.get(f"{path}/forecast")).json()["n"] > 0

    limited(attack)()
    assert gate.begun == ["forecast_of"]  # who asked while it was computed was answered with it
    hub.close()


def ticks(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11])


def cost_in_a_worker(function: Callable[..., object], *arguments: object) -> float:
    worker = start_worker()
    try:
        return float(worker.run(cost_of, (function, *arguments)))
    finally:
        worker.stop()


@pytest.mark.slow
def test_plan_of_eighteen_kilobytes_costs_less_than_any_request_may() -> None:
    """It cost 49 CPU seconds: a worker that goes beyond its limit is ended, and its job refused."""
    body = json.dumps(costly_plan()).encode()
    assert len(body) > 18_000
    assert cost_in_a_worker(plan, body) < CPU_SECONDS


@pytest.mark.slow
def test_path_of_three_features_that_are_nearly_one_costs_less_than_any_request_may() -> None:
    """It cost 75 CPU seconds: what little a sweep of three features takes was asked for ten at a time."""
    one, apart = np.random.default_rng(0).normal(size=(2, 400, 4))
    rows = np.column_stack([np.ones(400), one[:, :1] / 10 + 1e-5 * np.cumsum(apart[:, :3], axis=1), one[:, 3] / 10])
    schema = tuple(NumericAttribute(name=name, lower=-1, upper=1) for name in ("a", "b", "c", "y"))
    released = PreparedMoments.of(moments_of(rows.T @ rows, schema, noise=1e-9, rows=400, n=400), schema)
    penalties = np.geomspace(1e-200, 1e-300, MAX_PENALTIES).tolist()
    assert cost_in_a_worker(partial(lasso_path, penalties=penalties), released, "y") < CPU_SECONDS


@pytest.mark.slow
@limited
async def test_job_that_costs_too_much_time_or_memory_is_ended_and_the_next_one_done() -> None:
    """127 levels by 127 asked for 8 GB of the machine's memory in a request of 50 bytes."""
    pool = WorkPool(lambda: ProcessWorker(cpu_seconds=1))
    with pytest.raises(TooCostlyError):
        await pool.run(MALLORY, spin)
    assert await pool.run(MALLORY, abs, -1) == 1
    with pytest.raises(TooCostlyError, match="memory"):
        await pool.run(MALLORY, bytearray, MEMORY_BYTES)
    assert await pool.run(MALLORY, abs, -1) == 1
    pool.close()


@pytest.mark.slow
@limited
async def test_stopped_job_leaves_no_process() -> None:
    pool = WorkPool(ProcessWorker)
    process = await pool.run(MALLORY, os.getpid)
    before = ticks(process)
    job = asyncio.create_task(pool.run(MALLORY, spin))
    await until(lambda: ticks(process) > before)
    job.cancel()
    await until(lambda: not os.path.exists(f"/proc/{process}"))  # noqa: PTH110 - a path of the kernel
    assert await pool.run(MALLORY, os.getpid) != process
    pool.close()


@pytest.mark.slow
def test_defect_in_a_job_is_told_by_its_class_only() -> None:
    worker = ProcessWorker()
    try:
        with pytest.raises(JobFaultError, match=r"^ValueError$"):
            worker.run(int, ("a secret",))
    finally:
        worker.stop()


@pytest.mark.slow
def test_refusal_crosses_the_process_as_it_is() -> None:
    worker = start_worker()
    try:
        with pytest.raises(RequestBodyError) as refused:
            worker.run(plan, (b"{}",))
    finally:
        worker.stop()
    assert refused.value.remedy
