"""The learner's HTTP API: fits of published releases, for people and programs without Python."""

from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query
from fastapi.responses import Response
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest

from commingle.services.errors import MissingExtraError, NotPublishedError, UnknownReleaseError
from commingle.services.fit import Fit, FitRequest, fit_prepared
from commingle.services.learner.analyses import ANALYSES, AnalysisBody
from commingle.services.learner.catalogue import Catalogue
from commingle.services.learner.edge import BodyLimit, Metrics
from commingle.services.learner.errors import BusyError, CursorError
from commingle.services.learner.shelf import Held
from commingle.services.learner.views import (
    FitBody,
    Moments,
    PlanBody,
    PredictionBody,
    Predictions,
    ReleaseDetail,
    ReleaseList,
)
from commingle.shared import __version__
from commingle.shared.documents.errors import ProtocolError
from commingle.shared.dp.errors import PrivacyError
from commingle.shared.errors import CommingleError
from commingle.shared.estimation.errors import EstimationError, RowsError
from commingle.shared.forecast.curves import plan as make_plan
from commingle.shared.forecast.result import Plan
from commingle.shared.planning.design import design_of
from commingle.shared.planning.errors import PlanningError
from commingle.shared.runtime.errors import RemoteError, UnreachableError
from commingle.shared.runtime.metrics import CountRequests
from commingle.shared.runtime.problem import PROBLEM_RESPONSES, install_problems, problem

_STATUSES: dict[type[CommingleError], int] = {
    EstimationError: 422,
    PlanningError: 422,
    PrivacyError: 422,
    UnknownReleaseError: 404,
    NotPublishedError: 409,
    CursorError: 422,
    MissingExtraError: 501,
    BusyError: 503,
    UnreachableError: 503,
    RemoteError: 502,
    ProtocolError: 502,  # the coordinator serves what does not verify
}
_PAGE = 100


def create_app(catalogue: Catalogue) -> FastAPI:
    """The application. It holds no state but the catalogue's and its own metrics."""
    app = FastAPI(
        title="Commingle learner",
        version=__version__,
        description="Fits linear models on published, verified, differentially private releases.",
        responses=PROBLEM_RESPONSES,
        redoc_url=None,
    )
    metrics = Metrics()
    held = Gauge("commingle_learner_releases_held", "Releases in memory", registry=metrics.registry)
    held.set_function(lambda: len(catalogue.shelf))
    install_problems(app, _STATUSES)
    app.add_middleware(BodyLimit)
    app.add_middleware(CountRequests, metrics=metrics)
    _add_releases(app, catalogue)
    _add_fits(app, catalogue, metrics)
    _add_plans(app)
    _add_analyses(app, catalogue)
    _add_operations(app, catalogue, metrics)
    return app


def _add_releases(app: FastAPI, catalogue: Catalogue) -> None:
    @app.get("/v1/releases", tags=["releases"])
    def list_releases(
        cursor: Annotated[str | None, Query(max_length=500)] = None,
        limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
    ) -> ReleaseList:
        """What can be fitted."""
        return catalogue.page(cursor=cursor, limit=limit)

    @app.get("/v1/releases/{release}", tags=["releases"])
    def show_release(release: str) -> ReleaseDetail:
        """Attributes, size, privacy and signal of one release, after verification."""
        return ReleaseDetail.of(catalogue.take(release))

    @app.get("/v1/releases/{release}/moments", tags=["releases"])
    def show_moments(release: str) -> Moments:
        """Estimated second moments and the noise in them."""
        return Moments.of(catalogue.take(release))


def _add_fits(app: FastAPI, catalogue: Catalogue, metrics: Metrics) -> None:
    def fitted(held: Held, request: FitRequest) -> Fit:
        result = fit_prepared(held.prepared, request)
        metrics.fits.labels(result.estimator).inc()
        return result

    @app.post("/v1/releases/{release}/fits", tags=["fits"])
    def fit(release: str, body: FitBody) -> dict[str, Any]:
        """Coefficients in original units with intervals, diagnostics and warnings."""
        held = catalogue.take(release)
        return {"release": held.id, "coordinator_pinned": held.pinned, **fitted(held, body.request()).to_dict()}

    @app.post("/v1/releases/{release}/predictions", tags=["fits"])
    def predict(release: str, body: PredictionBody) -> Predictions:
        """A fit, applied to rows given."""
        result = fitted(catalogue.take(release), body.request())
        return Predictions(
            release=release,
            target=result.target,
            estimator=result.estimator,
            predictions=_predicted(result, body),
            warnings=list(result.warnings),
        )


def _add_plans(app: FastAPI) -> None:
    @app.post("/v1/plans", tags=["plans"])
    def plan(body: PlanBody) -> Plan:
        """What a release of a study would be worth: expected errors and R-squared, before any budget is spent."""
        return make_plan(design_of(body.study), body.assumptions())


def _add_analyses(app: FastAPI, catalogue: Catalogue) -> None:
    def add(kind: str, asked: type[AnalysisBody]) -> None:
        def analyse(release: str, body: AnalysisBody) -> dict[str, Any]:
            held = catalogue.take(release)
            return {"release": held.id, "coordinator_pinned": held.pinned, **body.run(held.prepared).to_dict()}

        analyse.__annotations__["body"] = asked  # the class that FastAPI validates and describes
        path, name = f"/v1/releases/{{release}}/analyses/{kind}", kind.replace("-", "_")
        app.post(path, tags=["analyses"], name=name, description=asked.__doc__)(analyse)

    for kind, asked in ANALYSES.items():
        add(kind, asked)


def _add_operations(app: FastAPI, catalogue: Catalogue, metrics: Metrics) -> None:
    @app.get("/healthz", tags=["operations"])
    async def healthz() -> dict[str, str]:
        """The process runs."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operations"], response_model=None)
    def readyz() -> dict[str, Any] | Response:
        """Releases can be served: the coordinator answers, or some were kept."""
        ready = catalogue.readiness()
        if ready.coordinator is not None and not ready.releases:
            said = f"no release is kept here and the coordinator cannot be used: {ready.coordinator}"
            return problem(503, "not-ready", said, ready.coordinator.remedy)
        coordinator = "reachable" if ready.coordinator is None else str(ready.coordinator)
        return {"status": "ready", "coordinator": coordinator, "releases_kept": ready.releases}

    @app.get("/metrics", tags=["operations"], response_class=Response)
    def show_metrics() -> Response:
        """Prometheus text."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


def _predicted(result: Fit, body: PredictionBody) -> list[float]:
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
