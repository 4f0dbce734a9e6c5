"""Who may do what at an agent and at a learner: every pair of actor and endpoint.

An agent asks for a token unless its operator is there, and some tokens are for some things only. A learner's endpoints
compute and keep nothing, so there is nothing there that only some may do.
"""

import secrets
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from commingle import ReleaseClient
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from tests.hostile.attack import Endpoint, endpoints
from tests.world.consortium import Consortium, consortium_of, strictly
from tests.world.coordinator import Hub, problem
from tests.world.local_api import network_app, operator_app
from tests.world.released import COORDINATOR, ServingCoordinator, published, study
from tests.world.transport import InProcess, pool_of_threads

METHODS = ("DELETE", "GET", "OPTIONS", "PATCH", "POST", "PUT", "TRACE")
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}
"""What an agent answers to everybody."""
SCOPE = {"GET": "read", "PUT": "decide", "POST": "register"}
SPENDING = {("POST", "/v1/regressions"): "decide"}
PROPOSING = {("POST", "/v1/proposals"): "propose"}
DECLARING = {("POST", "/v1/datasets"): "operator", ("POST", "/v1/studies/answer"): "operator"}
PUSHING = "/v1/datasets/{name}/uploads/{upload}"
OUTSIDERS = ("anonymous", "stranger", "other party", "coordinator", "expired token")


def brought(actor: str, consortium: Consortium) -> dict[str, str]:
    home, now = consortium.homes["clinic"], consortium.clock_shows
    hour = timedelta(hours=1)
    match actor:
        case "anonymous" | "operator":
            return {}
        case "stranger":
            token = secrets.token_urlsafe(32)
        case "other party":
            token = create_token(consortium.homes["insurer"], name="own", scopes=EVERY_SCOPE, lifetime=hour, now=now)
        case "coordinator":
            token = consortium.coordinator.key.verifying_key.raw.hex()
        case "expired token":
            token = create_token(home, name="old", scopes=EVERY_SCOPE, lifetime=hour, now=now - 2 * hour)
        case scope:
            token = create_token(home, name="own", scopes=frozenset({scope}), lifetime=hour, now=now)  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {token}"}


def allowed(actor: str, endpoint: Endpoint) -> bool:
    """The table: everything to the operator, to a token what it is for, nothing to anybody else."""
    return actor in {"operator", needed(endpoint)}


def needed(endpoint: Endpoint) -> str:
    method, path = endpoint
    return (
        "register"
        if path.startswith(PUSHING)
        else (SPENDING | PROPOSING | DECLARING).get(endpoint, SCOPE.get(method, ""))
    )


@pytest.mark.parametrize("actor", [*OUTSIDERS, *sorted(EVERY_SCOPE), "operator"])
def test_agent_serves_whom_the_table_says(consortium: Consortium, actor: str) -> None:
    release = consortium.propose()
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        headers = brought(actor, consortium)
        # a token counts for what it is, also at the socket, where its bearer could do without
        ways = {"operator": [operator_app], "anonymous": [network_app]}.get(actor, [network_app, operator_app])
        for app in (way(agent) for way in ways):
            with httpx.Client(transport=InProcess(app), base_url="http://agent", headers=headers) as http:
                for method, path in sorted(endpoints(app)):
                    place = path.format(
                        release=release, regression=release, name="main", upload="one", number=1, file="matrix"
                    )
                    answer = http.request(method, place, content=b"{}")
                    said = (method, path, answer.text)
                    if (method, path) in OPEN:
                        assert answer.status_code == 200
                    elif allowed(actor, (method, path)):
                        assert answer.status_code in {200, 202, 204, 403, 404, 409, 422, 502}, said
                        assert problem(answer)[1] != "scope" if answer.is_error else True
                    else:
                        refusal = (401, "unauthorised") if actor in OUTSIDERS else (403, "scope")
                        assert problem(answer) == refusal, said
            assert {needed(endpoint) for endpoint in endpoints(app) - OPEN} == EVERY_SCOPE | {"operator"}
        decided = agent.proposals.get(release).decision != "waiting"
    assert decided == (actor in {"decide", "operator"})


ANYBODY = ("anonymous", "stranger", "party", "coordinator")


@pytest.mark.slow
def test_learner_answers_everybody_alike_and_takes_nobodys_credentials_to_its_coordinator() -> None:
    release, files = published()
    fake, asked = ServingCoordinator(files={release: files}), list[httpx.Request]()

    def listening(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return fake.answer(request)

    client = ReleaseClient(
        "http://hub", transport=httpx.MockTransport(listening), trusted_coordinator=COORDINATOR.fingerprint
    )
    app = learner_app(ReleaseSource(client), pool=pool_of_threads())
    fit = {"target": "charges, yearly"}
    bodies = {
        "plans": {"study": study(mechanism="rmgm", n=2000, epsilon=1, title="charges").model_dump(mode="json")},
        "fits": fit,
        "predictions": {**fit, "rows": [{"age": 40, "bmi": 20, "smoker": "yes"}]},
        "ridge-path": fit,
        "lasso-path": fit,
        "pca": {},
        "partial-correlations": {},
        "two-stage": {**fit, "endogenous": ["bmi"], "instruments": ["age"]},
        "compare": {**fit, "smaller": ["age"]},
        "table": {"row": "smoker", "column": "smoker"},
        "describe": {},
        "survival": {"outcome": "smoker"},
        "hazard-ratios": {"outcome": "smoker", "features": ["age"]},
        "glm": {"formula": "smoker ~ age"},
    }
    not_in_rows = {
        "table",
        "describe",
        "survival",
        "hazard-ratios",
        "glm",
    }  # refused for a release of rows: to everybody alike
    for actor in ANYBODY:
        headers = {} if actor == "anonymous" else {"Authorization": f"Bearer {actor}", "Cookie": f"session={actor}"}
        with httpx.Client(transport=InProcess(app), base_url="http://learner", headers=headers) as http:
            for method, path in sorted(endpoints(app)):
                body = bodies.get(path.split("/")[-1])
                wanted = 422 if path.split("/")[-1] in not_in_rows else 200
                assert http.request(method, path.format(release=release), json=body).status_code == wanted, path
    assert {method for method, _ in endpoints(app)} == {"GET", "POST"}
    assert {request.method for request in asked} == {"GET"}
    assert not any(name in request.headers for request in asked for name in ("authorization", "cookie"))


@pytest.mark.slow
def test_no_service_has_methods_beyond_its_document(tmp_path: Path) -> None:
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path)
    with consortium_of(tmp_path, "clinic", "insurer").agent("clinic") as agent:
        learner = ReleaseSource(ReleaseClient("http://hub", transport=InProcess(hub.app)))
        for app in (hub.app, operator_app(agent), learner_app(learner)):
            known = endpoints(app)
            with httpx.Client(transport=InProcess(app), base_url="http://any") as http:
                for path in {path for _, path in known}:
                    for method in METHODS:
                        if (method, path) not in known:
                            assert problem(http.request(method, path)) == (405, "http"), (method, path)
    hub.close()
