"""Whatever is sent to a coordinator, it answers as its OpenAPI document says."""

from pathlib import Path

import pytest

from commingle.coordinator.http.app import create_app
from commingle.coordinator.http.streams import Feed
from tests.hostile.attack import attack
from tests.hostile.hub import hub_with_releases
from tests.world.coordinator import Honest, key_of
from tests.world.exchange import approved

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
        statuses = attack(app, known=known, signer=signer, examples=20 if member else 5)
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
