"""A learner where people sign on: nothing is shown to anybody else, but how it is."""

from collections.abc import Iterator

import httpx
import pytest

from commingle import ReleaseClient
from commingle.services.learner.app import create_app
from commingle.services.learner.source import ReleaseSource
from commingle.shared.runtime.oidc import Provider
from commingle.shared.runtime.pages.doors import SsoDoor
from commingle.shared.runtime.server import Served, listen, serving
from tests.world.provider import SECRET, SigningProvider, browser, signing_provider, sso_settings
from tests.world.released import COORDINATOR, ServingCoordinator, published
from tests.world.transport import pool_of_threads

ID = published()[0]


@pytest.fixture
def provider() -> Iterator[SigningProvider]:
    with signing_provider() as found:
        yield found


@pytest.fixture
def url(provider: SigningProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    secret = tmp_path_factory.mktemp("sso") / "secret"
    secret.write_text(SECRET)
    fake = ServingCoordinator.serving(published())
    client = ReleaseClient("http://hub", transport=fake.transport, trusted_coordinator=COORDINATOR.fingerprint)
    listener = listen(host="127.0.0.1", port=0)
    at = f"http://127.0.0.1:{listener.getsockname()[1]}"
    door = SsoDoor(Provider(sso_settings(provider.issuer, at, client_secret_file=secret)))
    with serving([Served(create_app(ReleaseSource(client), pool=pool_of_threads(), door=door), listener)]):
        yield at


def test_pages_and_interface_are_for_those_who_signed_in(url: str, provider: SigningProvider) -> None:
    with httpx.Client(base_url=url) as strangers:
        for path in (
            "/",
            "/docs",
            "/openapi.json",
            "/v1/releases",
            f"/v1/releases/{ID}",
            f"/releases/{ID}",
            "/nowhere",
        ):
            assert strangers.get(path).status_code == 401
        assert strangers.post(f"/v1/releases/{ID}/fits", json={}, headers={"Origin": url}).status_code == 401
        assert [strangers.get(path).status_code for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
    with browser(url) as people:
        page = people.get(f"/releases/{ID}")
        assert (page.status_code, str(page.url)) == (200, f"{url}/releases/{ID}")
        assert page.headers["cache-control"] == "no-store"
        assert people.get("/v1/releases").json()["items"][0]["id"] == ID
        fit = {"target": "charges, yearly", "features": ["age"]}
        assert people.post(f"/v1/releases/{ID}/fits", json=fit).status_code == 200
        other = {"Origin": "https://evil.example"}
        assert people.post(f"/v1/releases/{ID}/fits", json=fit, headers=other).status_code == 403
        assert 'action="/leave"' in page.text
        assert httpx.post(f"{url}/enter/ended", data={"logout_token": provider.logout_token()}).status_code == 200
        assert people.get(f"/v1/releases/{ID}", headers={"Accept": "*/*"}).status_code == 401
        assert people.get("/").status_code == 200
        assert "You have left" in people.post("/leave").text
        provider.user = {"sub": "u-dent", "groups": []}
        assert people.get("/").status_code == 403
