"""Whatever is sent to a coordinator, an agent or a learner, it answers as its OpenAPI document says."""

from pathlib import Path

import pytest
from fastapi import FastAPI

from commingle import ReleaseClient
from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.services.learner.app import create_app as learner_app
from commingle.services.learner.source import ReleaseSource
from tests.hostile.attack import attack, hub_with_releases
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, strictly
from tests.world.coordinator import Honest, key_of
from tests.world.exchange import approved
from tests.world.local_api import declare, network_app, operator_app
from tests.world.transport import InProcess

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("member", [False, True])
def test_coordinator_answers_as_documented(tmp_path: Path, *, member: bool) -> None:
    with hub_with_releases(tmp_path) as (hub, releases):
        exchanging = approved(hub, [Honest(name, key_of(name)) for name in ("clinic", "registry")])
        exchanging.send_all("columns", "reply")
        releases.append(exchanging.proposed.id)
        feed = Feed(hub.store)
        feed.stop()  # nobody waits
        known = [
            {"release": release, "party": party, "sender": "clinic"}
            for release in releases
            for party in ("clinic", "registry")
        ]
        signer = hub.auth(key_of("clinic")) if member else None
        app = create_app(hub.coordinator, hub.publisher, feed)
        statuses = attack(app, known=known, signer=signer, examples=8 if member else 5)
        states = [hub.http.get(f"/v1/releases/{release}").json()["state"] for release in releases]
    assert states == ["published", "approved", "proposed", "approved"]
    assert 200 in statuses["GET", "/v1/releases/{release}/matrix"] <= {200, 404, 409}
    assert statuses["GET", "/v1/releases"] == {200, 422}
    for message in ("columns", "replies"):
        seen = statuses["GET", f"/v1/releases/{{release}}/{message}/{{party}}"]
        assert (200 in seen) == member
        assert seen <= {200, 401, 403, 404, 409}
    # nobody who only makes things up gets anything recorded
    changing = {endpoint: seen for endpoint, seen in statuses.items() if endpoint[0] in {"POST", "PUT"}}
    assert all(seen <= {400, 401, 403, 404, 409, 413, 422} for seen in changing.values())
    behind = {endpoint for endpoint, seen in changing.items() if seen & {404, 409, 422}}
    assert (behind == changing.keys()) == member


def needing_no_token(app: FastAPI) -> FastAPI:
    """The same, described as it is at the socket, where no token is the operator."""
    for operations in app.openapi()["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return app


def test_agent_answers_as_documented(consortium: Consortium) -> None:
    releases = [consortium.propose(title=title) for title in ("one", "two")]
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(releases[0], BY_A_PERSON)
        known = [
            {
                "release": release,
                "regression": release,
                "name": "stays",
                "upload": "monday",
                "number": "1",
                "file": "matrix",
            }
            for release in releases
        ]
        declare(agent, "stays", SCHEMAS["clinic"])
        token = create_token(agent.home, name="own", scopes=EVERY_SCOPE, lifetime=None, now=agent.clock())
        statuses = attack(network_app(agent), known=known, headers={"Authorization": f"Bearer {token}"})
        assert statuses["PUT", "/v1/proposals/{release}/approval"] > {200, 404}
        # what was taken is sent again without its token; that nothing is taken without one at all is seen below
        taken = [seen for (_, path), seen in statuses.items() if path.startswith("/v1/") and min(seen) < 300]
        assert taken
        assert all(401 in seen for seen in taken)
        assert statuses["POST", "/v1/datasets"] <= {401, 403, 422}
        assert statuses["POST", "/v1/datasets/{name}/reading"] <= {202, 401, 404, 409, 422}
        assert statuses["POST", "/v1/regressions"] <= {401, 404, 422}
        assert statuses["POST", "/v1/proposals"] <= {201, 401, 409, 422}
        assert statuses["PUT", "/v1/datasets/{name}/uploads/{upload}"] <= {200, 201, 401, 404, 409, 422, 429}
        operators = attack(needing_no_token(operator_app(agent)), known=known)
        assert operators["PUT", "/v1/proposals/{release}/approval"] >= {404, 409}  # those above were decided before
        assert operators["POST", "/v1/datasets"] <= {201, 401, 403, 409, 422}
        without = attack(network_app(agent), known=known, examples=5)
    assert {path for (_, path), seen in without.items() if seen != {401}} == {"/healthz", "/readyz"}


def test_learner_answers_as_documented(tmp_path: Path) -> None:
    with hub_with_releases(tmp_path) as (hub, releases):
        client = ReleaseClient("http://hub", transport=InProcess(hub.app), trusted_coordinator=hub.key.fingerprint)
        statuses = attack(learner_app(ReleaseSource(client)), known=[{"release": release} for release in releases])
    assert statuses["GET", "/v1/releases"] == {200, 422}
    for path in ("/v1/releases/{release}", "/v1/releases/{release}/moments"):
        assert statuses["GET", path] == {200, 404, 409}
    assert {422} <= statuses["POST", "/v1/plans"] <= {200, 400, 422}
    for path in ("/v1/releases/{release}/fits", "/v1/releases/{release}/predictions"):
        assert {404, 409, 422} <= statuses["POST", path] <= {200, 400, 404, 409, 422}
