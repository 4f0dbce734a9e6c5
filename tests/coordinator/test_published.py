import pytest

from commingle.shared.release.verification import verify_release
from tests.world.coordinator import Honest, Hub, Proposed, problem


@pytest.fixture(params=["rmgm", "dgm"])
def published(request: pytest.FixtureRequest, hub: Hub, parties: tuple[Honest, Honest]) -> Proposed:
    proposed = hub.complete(parties, mechanism=request.param)
    hub.publisher.run_once()
    return proposed


def files(hub: Hub, proposed: Proposed) -> tuple[bytes, bytes, bytes]:
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
    )
    return manifest, matrix, moments


def test_complete_round_is_published_and_verifies_offline(hub: Hub, published: Proposed) -> None:
    release = verify_release(*files(hub, published), trusted_coordinator=hub.key.fingerprint)
    assert release.release == published.id
    assert release.spec == published.spec
    assert hub.state(published) == "published"
    assert hub.kinds(published) == ["proposal", "approval", "approval", "block", "block", "published"]


def test_known_etag_gets_304_without_a_body(hub: Hub, published: Proposed) -> None:
    first = hub.http.get(f"/v1/releases/{published.id}/matrix")
    again = hub.http.get(f"/v1/releases/{published.id}/matrix", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "immutable" in first.headers["cache-control"]


def test_files_of_an_unpublished_release_are_refused_as_not_published(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    proposed = hub.proposed(parties)
    for name in ("manifest", "matrix", "moments"):
        assert problem(hub.http.get(f"/v1/releases/{proposed.id}/{name}")) == (409, "not-published")
        assert problem(hub.http.get(f"/v1/releases/{'0' * 64}/{name}")) == (404, "unknown")


def test_published_release_refuses_everything_but_repeats(
    hub: Hub, published: Proposed, parties: tuple[Honest, Honest]
) -> None:
    clinic, _ = parties
    assert hub.approve(published, "clinic", clinic.approval(published)).status_code == 200
    assert problem(hub.reject(published, "clinic", clinic.rejection(published))) == (409, "state")
    assert hub.state(published) == "published"
