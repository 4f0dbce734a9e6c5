"""Whatever is sent to an agent, it answers as its OpenAPI document says, and nothing without a token on the network."""

from pathlib import Path

import pytest
from fastapi import FastAPI

from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from tests.hostile.attack import attack
from tests.world.consortium import BY_A_PERSON, BY_HAND, SCHEMAS, consortium_of, strictly
from tests.world.local_api import declare, network_app, operator_app

pytestmark = pytest.mark.slow


def needing_no_token(app: FastAPI) -> FastAPI:
    """The same, described as it is at the socket, where no token is the operator."""
    for operations in app.openapi()["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    return app


def test_agent_answers_as_documented(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)
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
        without = attack(network_app(agent), known=known)
    assert {path for (_, path), seen in without.items() if seen != {401}} == {"/healthz", "/readyz"}
