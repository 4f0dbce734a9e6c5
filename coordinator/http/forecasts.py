"""`/v1/releases/{id}/forecast`: anybody may ask, so it is computed in a process that can be stopped, and once."""

from asyncio import Lock
from collections import OrderedDict
from weakref import WeakValueDictionary

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from commingle.coordinator.coordinator import Coordinator, require_release, spec_of
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.forecast.result import Forecast
from commingle.shared.runtime.pool import WorkPool, client_of, while_connected
from commingle.shared.runtime.worker import ProcessWorker, Worker

_MEMORY = 1024
_PRELOAD = (forecast_of.__module__, "commingle.shared.mechanisms.rows.forecast")


def start_worker() -> Worker:
    """A worker that has what a forecast needs."""
    return ProcessWorker(preload=_PRELOAD)


def forecasts_router(coordinator: Coordinator, pool: WorkPool) -> APIRouter:
    """`GET /v1/releases/{id}/forecast`."""
    router = APIRouter(prefix="/v1/releases", tags=["releases"])
    known: OrderedDict[str, Forecast | None] = OrderedDict()
    computing: WeakValueDictionary[str, Lock] = WeakValueDictionary()

    def spec(release: str) -> ReleaseSpec:
        with coordinator.store.read() as tx:
            return spec_of(require_release(tx, release)).document

    async def compute(client: str, release: str) -> None:
        """Once: whose turn comes meanwhile waits, and goes on where the one before hangs up."""
        asked = await run_in_threadpool(spec, release)
        async with pool.turn(client), computing.setdefault(release, Lock()):
            if release not in known:
                known[release] = await pool.do(forecast_of, asked)

    @router.get("/{release}/forecast")
    async def show_forecast(release: str, request: Request) -> Forecast | None:
        """What to expect of a release, from its spec alone; null where no attribute can be a label."""
        if release not in known:
            client = client_of(request)
            with pool.place(client):
                await while_connected(request, compute(client, release))
            if len(known) > _MEMORY:
                known.popitem(last=False)
        return known[release]

    return router
