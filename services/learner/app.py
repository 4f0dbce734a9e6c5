"""The learner's HTTP API: fits of published releases, for people and programs without Python."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, HTTPException, Query
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commingle.services.errors import (
    BusyError,
    UnknownCursorError,
    UnknownReleaseError,
    UnpublishedError,
)
from commingle.services.fit import Fit, FitRequest, fit_prepared
from commingle.services.learner.memory import LoadedRelease
from commingle.services.learner.requests import ANALYSES, FitBody, PlanBody, PredictionBody, RequestBody
from commingle.services.learner.source import ReleaseSource
from commingle.services.learner.views import Predictions, ReleaseDetail, ReleaseList, ReleaseMoments
from commingle.services.results import Result
from commingle.shared import __version__
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.errors import CommingleError, MissingExtraError
from commingle.shared.estimation.errors import EstimationError, RowsError
from commingle.shared.forecast.curves import plan as make_plan
from commingle.shared.forecast.result import Plan
from commingle.shared.planning.errors import PlanningError
from commingle.shared.runtime.errors import RemoteError, UnreachableError
from commingle.shared.runtime.middleware import CountRequests, RequestMetrics
from commingle.shared.runtime.problem import PROBLEM_RESPONSES, install_problems, problem

_STATUSES: dict[type[CommingleError], int] = {
    EstimationError: 422,
    PlanningError: 422,
    PrivacyError: 422,
    UnknownReleaseError: 404,
    UnpublishedError: 409,
    UnknownCursorError: 422,
    MissingExtraError: 501,
    BusyError: 503,
    UnreachableError: 503,
    RemoteError: 502,
    ProtocolError: 502,  # the coordinator serves what does not verify
}
MAX_BODY_BYTES = 8 << 20
_PATIENCE_SECONDS = 60.0
_PAGE = 100


class LearnerMetrics(RequestMetrics):
    """Those of requests, and what only a learner has."""

    def __init__(self) -> None:
        super().__init__("learner")
        self.fits = Counter("commingle_learner_fits", "Fits computed", ["estimator"], registry=self.registry)


class BodyLimit:
    """Stops reading a body that is too large, whatever its headers say, or takes too long."""

    def __init__(self, app: ASGIApp, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self._app = app
        self._patience_seconds = patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count one request's body while it comes in."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        until = asyncio.get_running_loop().time() + self._patience_seconds
        received, more = 0, True

        async def counted() -> Message:
            nonlocal received, more
            try:
                async with asyncio.timeout_at(until if more else None):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, "the body did not come in time; send it again") from None
            more = message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > MAX_BODY_BYTES:
                raise HTTPException(413, f"the body exceeds {MAX_BODY_BYTES} bytes; send fewer rows at a time")
            return message

        await self._app(scope, counted, send)


def create_app(source: ReleaseSource) -> FastAPI:
    """The application. It holds no state but the source's and its own metrics."""
    app = FastAPI(
        title="Commingle learner",
        version=__version__,
        description="Fits linear models on published, verified, differentially private releases.",
        responses=PROBLEM_RESPONSES,
        redoc_url=None,
    )
    metrics = LearnerMetrics()
    held = Gauge("commingle_learner_releases_held", "Releases in memory", registry=metrics.registry)
    held.set_function(lambda: len(source.memory))
    install_problems(app, _STATUSES)
    app.add_middleware(BodyLimit)
    app.add_middleware(CountRequests, metrics=metrics)
    _add_releases(app, source)
    _add_fits(app, source, metrics)
    _add_plans(app)
    _add_analyses(app, source)
    _add_operations(app, source, metrics)
    return app


def _add_releases(app: FastAPI, source: ReleaseSource) -> None:
    @app.get("/v1/releases", tags=["releases"])
    def list_releases(
        cursor: Annotated[str | None, Query(max_length=500)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
    ) -> ReleaseList:
        """What can be fitted."""
        return source.page(cursor=cursor, limit=limit)

    @app.get("/v1/releases/{release}", tags=["releases"])
    def show_release(release: str) -> ReleaseDetail:
        """Attributes, size, privacy and signal of one release, after verification."""
        return ReleaseDetail.of(source.fetch(release))

    @app.get("/v1/releases/{release}/moments", tags=["releases"])
    def show_moments(release: str) -> ReleaseMoments:
        """Estimated second moments and the noise in them."""
        return ReleaseMoments.of(source.fetch(release))


def _add_fits(app: FastAPI, source: ReleaseSource, metrics: LearnerMetrics) -> None:
    def compute_fit(held: LoadedRelease, request: FitRequest) -> Fit:
        result = fit_prepared(held.prepared, request)
        metrics.fits.labels(result.estimator).inc()
        return result

    @app.post("/v1/releases/{release}/fits", tags=["fits"])
    def fit(release: str, body: FitBody) -> dict[str, Any]:
        """Coefficients in original units with intervals, diagnostics and warnings."""
        held = source.fetch(release)
        return _with_release(held, compute_fit(held, body.request()))

    @app.post("/v1/releases/{release}/predictions", tags=["fits"])
    def predict(release: str, body: PredictionBody) -> Predictions:
        """A fit, applied to rows given."""
        result = compute_fit(source.fetch(release), body.request())
        return Predictions(
            release=release,
            target=result.target,
            estimator=result.estimator,
            predictions=_predictions(result, body),
            warnings=list(result.warnings),
        )


def _add_plans(app: FastAPI) -> None:
    @app.post("/v1/plans", tags=["plans"])
    def plan(body: PlanBody) -> Plan:
        """What a release of a study would be worth: expected errors and R-squared, before any budget is spent."""
        return make_plan(body.study, body.assumptions())


def _add_analyses(app: FastAPI, source: ReleaseSource) -> None:
    def add(kind: str, asked: type[RequestBody], run: Callable[..., Result]) -> None:
        def analyse(release: str, body: RequestBody) -> dict[str, Any]:
            held = source.fetch(release)
            return _with_release(held, run(held.prepared, **dict(body)))

        analyse.__annotations__["body"] = asked  # the class that FastAPI validates and describes
        path, name = f"/v1/releases/{{release}}/analyses/{kind}", kind.replace("-", "_")
        app.post(path, tags=["analyses"], name=name, description=asked.__doc__)(analyse)

    for kind, (asked, run) in ANALYSES.items():
        add(kind, asked, run)


def _add_operations(app: FastAPI, source: ReleaseSource, metrics: LearnerMetrics) -> None:
    @app.get("/healthz", tags=["operations"])
    async def healthz() -> dict[str, str]:
        """The process runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operations"], response_model=None)
    def readyz() -> dict[str, Any] | Response:
        """Releases can be served: the coordinator answers, or some were kept."""
        ready = source.readiness()
        if ready.coordinator is not None and not ready.releases:
            said = f"no release is kept here and the coordinator cannot be used: {ready.coordinator}"
            return problem(503, "not-ready", said, ready.coordinator.remedy)
        coordinator = "reachable" if ready.coordinator is None else str(ready.coordinator)
        return {"status": "ready", "coordinator": coordinator, "releases_kept": ready.releases}

    @app.get("/metrics", tags=["operations"], response_class=Response)
    def show_metrics() -> Response:
        """Prometheus text."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _with_release(held: LoadedRelease, result: Result) -> dict[str, Any]:
    pins = {"coordinator_pinned": held.pinned, "members_pinned": sorted(held.published.pinned)}
    return {"release": held.published.release, **pins, **result.to_dict()}


def _predictions(result: Fit, body: PredictionBody) -> list[float]:
    lacking = next((i for i, row in enumerate(body.rows) if not row.keys() >= set(result.features)), None)
    if lacking is not None:
        missing = sorted(set(result.features) - body.rows[lacking].keys())
        raise RowsError(
            f"row {lacking} lacks {', '.join(map(repr, missing))}", remedy="Give every feature in every row."
        )
    columns: dict[str, Any] = {name: [row[name] for row in body.rows] for name in result.features}
    with np.errstate(all="ignore"):
        predictions = result.predict(columns or {"": range(len(body.rows))})
    if not np.isfinite(predictions).all():
        raise RowsError("a prediction is not a finite number", remedy="Give finite values of sensible size.")
    return predictions.tolist()  # type: ignore[no-any-return] # numpy types it as Any
