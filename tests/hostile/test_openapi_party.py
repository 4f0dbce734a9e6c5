"""Whatever is sent to an agent, it answers as its OpenAPI document says, and nothing without its token."""

from pathlib import Path

import pytest

from commingle.party_agent.app import LocalApi, create_app
from tests.hostile.attack import attack
from tests.world.consortium import BY_HAND, consortium_of, strictly

pytestmark = pytest.mark.slow

TOKEN = "the-token-of-the-local-api"  # noqa: S105 - of a test


def test_agent_answers_as_documented(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)
    releases = [consortium.propose(title=title) for title in ("one", "two")]
    with consortium.agent("clinic") as agent:
        agent.step(strictly)
        agent.approve(releases[0])
        app = create_app(LocalApi(agent, TOKEN, None))
        known = [{"release": release, "regression": release} for release in releases]
        statuses = attack(app, known=known, headers={"Authorization": f"Bearer {TOKEN}"})
        assert statuses["PUT", "/v1/proposals/{release}/approval"] > {200, 404}
        assert all(401 in seen for (_, path), seen in statuses.items() if path.startswith("/v1/"))
        assert statuses["POST", "/v1/datasets"] <= {401, 422}
        assert statuses["POST", "/v1/regressions"] <= {401, 404, 422}
        without = attack(app, known=known)
    assert {path for (_, path), seen in without.items() if seen != {401}} == {"/healthz", "/readyz"}
