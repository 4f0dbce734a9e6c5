"""Whatever is sent to a learner, it answers as its OpenAPI document says."""

from pathlib import Path

import pytest

from commingle import ReleaseClient
from commingle.services.learner.app import create_app
from commingle.services.learner.source import ReleaseSource
from tests.hostile.attack import attack
from tests.hostile.hub import hub_with_releases
from tests.world.transport import InProcess

pytestmark = pytest.mark.slow


def test_learner_answers_as_documented(tmp_path: Path) -> None:
    with hub_with_releases(tmp_path) as (hub, releases):
        client = ReleaseClient("http://hub", transport=InProcess(hub.app), trusted_coordinator=hub.key.fingerprint)
        statuses = attack(create_app(ReleaseSource(client)), known=[{"release": release} for release in releases])
    assert statuses["GET", "/v1/releases"] == {200, 422}
    for path in ("/v1/releases/{release}", "/v1/releases/{release}/moments"):
        assert statuses["GET", path] == {200, 404, 409}
    assert {422} <= statuses["POST", "/v1/plans"] <= {200, 400, 422}
    for path in ("/v1/releases/{release}/fits", "/v1/releases/{release}/predictions"):
        assert {404, 409, 422} <= statuses["POST", path] <= {200, 400, 404, 409, 422}
