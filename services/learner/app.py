"""The learner's HTTP API: fits of published releases for people, and for programs without Python."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest
from starlette.concurrency import run_in_threadpool

from commingle.services.client.metadata import FORMS, served
from commingle.services.errors import UnknownCursorError, UnknownReleaseError, UnpublishedError
from commingle.services.learner.computing import COMPUTATIONS, Answer, Asked, Computation, start_worker
from commingle.services.learner.pages import add_pages
from commingle.services.learner.source import ReleaseSource
from commingle.services.learner.views import ReleaseDetail, ReleaseList, ReleaseMoments
from commingle.shared.errors import (
    CommingleError,
    EstimationError,
    KernelsError,
    PlanningError,
    PrivacyError,
    ProtocolError,
)
from commingle.shared.runtime.bodies import read_body
from commingle.shared.runtime.errors import (
    BusyError,
    RemoteError,
    RequestBodyError,
    SignInError,
    TooCostlyError,
    TooLargeError,
    TruncatedError,
    UnreachableError,
)
from commingle.shared.runtime.pages.doors import Door, Guard
from commingle.shared.runtime.pages.site import Site
from commingle.shared.runtime.pool import WorkPool, client_of, while_connected
from commingle.shared.runtime.problem import describe, problem, service_app, status_of, takes
from commingle.shared.runtime.telemetry import CountRequests, RequestMetrics

STATUSES: dict[type[CommingleError], int] = {
    EstimationError: 422,
    PlanningError: 422,
    PrivacyError: 422,
    SignInError: 401,
    UnknownReleaseError: 404,
    UnpublishedError: 409,
    UnknownCursorError: 422,
    KernelsError: 501,
    RequestBodyError: 422,
    TooCostlyError: 422,
    TruncatedError: 408,
    TooLargeError: 413,
    BusyError: 503,
    UnreachableError: 503,
    RemoteError: 502,
    ProtocolError: 502,  # the coordinator serves what does not verify
}
_PAGE = 100
_UNGUARDED = frozenset({"/healthz", "/readyz", "/metrics"})


class LearnerMetrics(RequestMetrics):
    def __init__(self) -> None:
        super().__init__("learner")
        self.fits = Counter("commingle_learner_fits", "Fits computed", ["estimator"], registry=self.registry)


def create_app(source: ReleaseSource, *, pool: WorkPool | None = None, door: Door | None = None) -> FastAPI:
    """The application, whose only state is the source and its own metrics. The pool works while it runs.

    With a door only routes on its health are open to everybody.
    """
    pool = pool or WorkPool(start_worker)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        pool.warm_up()
        yield
        pool.close()

    said = "Answers questions about published, verified, differentially private releases."
    app = service_app("Commingle learner", STATUSES, description=said, lifespan=lifespan)
    metrics = LearnerMetrics()
    held = Gauge("commingle_learner_releases_held", "Releases in memory", registry=metrics.registry)
    held.set_function(lambda: len(source.memory))
    if door is not None:
        app.add_middleware(Guard, door=door, site=Site(None, name="Commingle learner", pages=()), unguarded=_UNGUARDED)
    app.add_middleware(CountRequests, metrics=metrics)
    _add_releases(app, source)
    computer = _Computer(source, pool, metrics)
    _add_computations(app, computer)
    _add_operations(app, source, metrics)
    add_pages(
        app,
        source,
        computer.on_page,
        coordinator=source.coordinator,
        status_of=lambda error: status_of(error, STATUSES),
        door=door,
    )
    return app


def _add_releases(app: FastAPI, source: ReleaseSource) -> None:
    @app.get("/v1/releases", tags=["releases"])
    def list_releases(
        cursor: Annotated[str | None, Query(max_length=500)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
    ) -> ReleaseList:
        """The published releases."""
        return source.page(cursor=cursor, limit=limit)

    @app.get("/v1/releases/{release}", tags=["releases"])
    def show_release(release: str) -> ReleaseDetail:
        """Attributes, size, privacy and signal of one release, after verification."""
        return ReleaseDetail.of(source.fetch(release))

    @app.get("/v1/releases/{release}/moments", tags=["releases"])
    def show_moments(release: str) -> ReleaseMoments:
        """Estimated second moments and the noise in them."""
        return ReleaseMoments.of(source.fetch(release))

    @app.get("/v1/releases/{release}/metadata", tags=["releases"], response_class=JsonLinkedData)
    def show_metadata(release: str, form: Literal["dcat", "croissant"] = "dcat") -> JsonLinkedData:
        """What catalogues read: files, members and the privacy statement, as DCAT-AP or as Croissant."""
        published = source.fetch(release).published
        return JsonLinkedData(FORMS[form](published, served(published, source.coordinator)))


class JsonLinkedData(JSONResponse):
    media_type = "application/ld+json"


class _Computer:
    """Answers questions: it reads the body, and the pool does everything else."""

    def __init__(self, source: ReleaseSource, pool: WorkPool, metrics: LearnerMetrics) -> None:
        self._source = source
        self._pool = pool
        self._metrics = metrics

    async def answer(self, asked: Computation, request: Request, release: str | None = None) -> Response:
        with self._pool.place(client_of(request)):
            body = await read_body(request, asked.most_bytes)
            answer = await self._run(asked.work, request, body, release)
        return Response(answer.content, media_type="application/json")

    async def on_page(self, work: Callable[..., Answer], request: Request, release: str, body: bytes) -> Answer:
        with self._pool.place(client_of(request)):
            return await self._run(work, request, body, release)

    async def _run(self, work: Callable[..., Answer], request: Request, body: bytes, release: str | None) -> Answer:
        about = () if release is None else (await run_in_threadpool(self._about, release),)
        answer: Answer = await while_connected(request, self._pool.run(client_of(request), work, *about, body))
        if answer.estimator is not None:
            self._metrics.fits.labels(answer.estimator).inc()
        return answer

    def _about(self, release: str) -> Asked:
        held = self._source.fetch(release)
        return Asked(held.published.release, held.pinned, tuple(sorted(held.published.pinned)), held.prepared)


def _add_computations(app: FastAPI, computer: _Computer) -> None:
    def add(asked: Computation) -> None:
        async def of_release(release: str, request: Request) -> Response:
            return await computer.answer(asked, request, release)

        async def of_nothing(request: Request) -> Response:
            return await computer.answer(asked, request)

        app.add_api_route(
            asked.path,
            of_release if "{release}" in asked.path else of_nothing,
            methods=["POST"],
            name=asked.name,
            description=asked.description,
            tags=[asked.tag],
            response_model=asked.gives,
            responses={200: {"content": {"application/json": {"example": asked.shows}}}} if asked.shows else None,
            openapi_extra=takes(asked.takes),
        )

    for asked in COMPUTATIONS:
        add(asked)
    describe(app, (asked.takes for asked in COMPUTATIONS))


def _add_operations(app: FastAPI, source: ReleaseSource, metrics: LearnerMetrics) -> None:
    @app.get("/healthz", tags=["operations"])
    async def healthz() -> dict[str, str]:
        """The process runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operations"], response_model=None)
    def readyz() -> dict[str, Any] | Response:
        """Releases can be served: the coordinator answers, or some were kept."""
        wrong, kept = source.readiness()
        if wrong is not None and not kept:
            said = f"no release is kept here and the coordinator cannot be used: {wrong}"
            return problem(503, "not-ready", said, wrong.remedy)
        coordinator = "reachable" if wrong is None else str(wrong)
        return {"status": "ready", "coordinator": coordinator, "releases_kept": kept}

    @app.get("/metrics", tags=["operations"], response_class=Response)
    def show_metrics() -> Response:
        """Prometheus text."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)
