from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from commingle import ReleaseClient
from commingle.services.client.files import ReleaseFiles
from commingle.services.errors import UnknownReleaseError, UnpublishedError
from commingle.shared.errors import ProtocolError, VerificationError
from commingle.shared.runtime.errors import NonsenseError, RemoteProblemError, SettingsError, UnreachableError
from tests.world.documents import flipped
from tests.world.released import (
    COORDINATOR,
    STRANGER,
    Handler,
    ServingCoordinator,
    html,
    problem,
    published,
    refused,
    resigned,
    too_slow,
)
from tests.world.transport import on_a_socket

HUB = "http://hub.example"


def client_of(fake: ServingCoordinator, *, cache: Path | None = None, trusted: str | None = None) -> ReleaseClient:
    return ReleaseClient(HUB, transport=fake.transport, cache=cache, trusted_coordinator=trusted)


ID, FILES = published()


@pytest.fixture
def fake() -> ServingCoordinator:
    return ServingCoordinator.serving((ID, FILES))


def test_everything_over_a_real_socket(fake: ServingCoordinator) -> None:
    with on_a_socket(fake.answer) as url, ReleaseClient(url, trusted_coordinator=COORDINATOR.fingerprint) as client:
        assert client.coordinator().name == "hub"
        assert [summary.id for summary in client.releases()] == [ID]
        release = client.fetch(ID)
        assert (release.id, release.files, release.pinned) == (ID, FILES, True)
        with pytest.raises(UnknownReleaseError):
            client.fetch("0" * 64)


def test_body_cut_short_by_the_network_is_unreachable(fake: ServingCoordinator) -> None:
    with on_a_socket(fake.answer, cut_bytes=10) as url, ReleaseClient(url) as client, pytest.raises(UnreachableError):
        client.fetch(ID)


BLOATED = ReleaseFiles(FILES.manifest, FILES.matrix + bytes(64 << 20), FILES.moments)


@pytest.mark.parametrize(
    ("served", "error", "said"),
    [(published(mechanism="dgm")[1], VerificationError, "came in answer"), (BLOATED, NonsenseError, "more than the")],
    ids=["another release", "a matrix larger than its manifest allows"],
)
def test_what_is_served_in_place_of_a_release_is_refused(
    served: ReleaseFiles, error: type[Exception], said: str
) -> None:
    with client_of(ServingCoordinator.serving((ID, served))) as client, pytest.raises(error, match=said):
        client.fetch(ID)


@pytest.mark.parametrize("name", ["manifest", "matrix", "moments"])
def test_tampered_file_is_refused_and_not_cached(name: str, tmp_path: Path) -> None:
    parts = {part: getattr(FILES, part) for part in ("manifest", "matrix", "moments")}
    tampered = ReleaseFiles(**{**parts, name: flipped(parts[name], len(parts[name]) // 2)})
    with client_of(ServingCoordinator.serving((ID, tampered)), cache=tmp_path) as client:
        with pytest.raises((ProtocolError, NonsenseError)):
            client.fetch(ID)
        assert client.cache is not None
        assert client.cache.releases() == ()


def test_coordinator_with_another_key_than_pinned_is_told() -> None:
    fake = ServingCoordinator(key=STRANGER)
    with client_of(fake, trusted=COORDINATOR.fingerprint) as client, pytest.raises(VerificationError):
        client.coordinator()
    assert client_of(fake).coordinator().fingerprint == STRANGER.fingerprint


def test_coordinator_whose_fingerprint_is_not_that_of_its_key_is_told() -> None:
    identity = {**ServingCoordinator().identity(), "fingerprint": STRANGER.fingerprint}
    fake = ServingCoordinator(instead=lambda _: httpx.Response(200, json=identity))
    with pytest.raises(VerificationError):
        client_of(fake).coordinator()


def test_all_pages_are_listed_once_and_in_order() -> None:
    ids = [f"{i:064x}" for i in range(7)]
    fake = ServingCoordinator(files=dict.fromkeys(ids, FILES), page_size=3)
    assert [summary.id for summary in client_of(fake).releases()] == ids
    assert len(fake.requests) == 3


def test_list_filters_by_state_and_is_empty_without_releases() -> None:
    fake = ServingCoordinator(unpublished=["0" * 64])
    assert list(client_of(fake).releases()) == []
    assert [summary.id for summary in client_of(fake).releases(state="collecting")] == ["0" * 64]


def test_pages_that_go_round_in_circles_end_with_an_error() -> None:
    fake = ServingCoordinator(instead=lambda _: httpx.Response(200, json={"items": [], "next": "again"}))
    with pytest.raises(NonsenseError, match="without end"):
        list(client_of(fake).releases())


def test_unknown_and_unpublished_releases_are_told_apart() -> None:
    with client_of(ServingCoordinator(unpublished=["1" * 64])) as client:
        with pytest.raises(UnknownReleaseError):
            client.fetch("0" * 64)
        with pytest.raises(UnpublishedError, match="collecting"):
            client.fetch("1" * 64)


@pytest.mark.parametrize("release_id", ["", "..", "../coordinator", "A" * 64, "0" * 63, "0" * 64 + "\n", "%2e%2e"])
def test_what_is_no_id_is_refused_before_any_request(release_id: str) -> None:
    fake = ServingCoordinator()
    with client_of(fake) as client, pytest.raises(UnknownReleaseError):
        client.fetch(release_id)
    assert fake.requests == []


FAILURES: list[tuple[Handler, type[Exception]]] = [
    (refused, UnreachableError),
    (too_slow, UnreachableError),
    (lambda _: httpx.Response(503, html="<h1>maintenance</h1>"), UnreachableError),
    (html, NonsenseError),
    (lambda _: httpx.Response(200, content=b'{"items": [{"id"'), NonsenseError),
    (lambda _: httpx.Response(200, json=[1, 2]), NonsenseError),
    (lambda _: httpx.Response(404, html="<h1>not here</h1>"), NonsenseError),
    (lambda _: httpx.Response(302, headers={"location": "http://elsewhere"}), NonsenseError),
    (lambda _: problem(500, "fault"), RemoteProblemError),
]
CALLS: list[Callable[[ReleaseClient], object]] = [
    lambda client: client.fetch(published()[0]),
    lambda client: list(client.releases()),
    lambda client: client.coordinator(),
]


@pytest.mark.parametrize(("answer", "error"), FAILURES)
@pytest.mark.parametrize("request_of", CALLS, ids=["fetch", "releases", "coordinator"])
def test_every_failure_of_the_far_side_is_one_of_ours(
    answer: Handler, error: type[Exception], request_of: Callable[[ReleaseClient], object]
) -> None:
    with client_of(ServingCoordinator(instead=answer)) as client, pytest.raises((error, ProtocolError)) as caught:
        request_of(client)
    assert getattr(caught.value, "remedy", "")


@pytest.mark.parametrize("url", ["", "hub", "hub:8000", "ftp://hub", "http://", "http://a:b", "file:///etc"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(SettingsError, match="not an address"):
        ReleaseClient(url)


def test_cached_release_needs_no_coordinator(fake: ServingCoordinator, tmp_path: Path) -> None:
    client_of(fake, cache=tmp_path).fetch(ID)
    fake.instead = refused
    again = client_of(fake, cache=tmp_path).fetch(ID)
    assert again.files == FILES
    assert len(fake.requests) == 4  # three files and the log of member keys


@pytest.mark.parametrize("damage", [flipped, lambda _: b"", lambda data: data[:-1]], ids=["flipped", "empty", "cut"])
@pytest.mark.parametrize("which", range(3))
def test_damaged_cache_is_noticed_and_mended(
    fake: ServingCoordinator, tmp_path: Path, damage: Callable[[bytes], bytes], which: int
) -> None:
    client_of(fake, cache=tmp_path).fetch(ID)
    blob = tmp_path / "blobs" / FILES.digests[which]
    blob.write_bytes(damage(blob.read_bytes()))
    assert client_of(fake, cache=tmp_path).fetch(ID).files == FILES
    assert len(fake.requests) == 8
    client_of(fake, cache=tmp_path).fetch(ID)
    assert len(fake.requests) == 8


@pytest.mark.parametrize("index", [b"", b"\xff\xfe", b"../../etc/passwd", b"0" * 64])
def test_damaged_index_is_noticed(fake: ServingCoordinator, tmp_path: Path, index: bytes) -> None:
    client_of(fake, cache=tmp_path).fetch(ID)
    (tmp_path / "releases" / ID).write_bytes(index)
    assert client_of(fake, cache=tmp_path).fetch(ID).files == FILES


def test_cache_filled_with_a_consistent_forgery_is_not_believed(fake: ServingCoordinator, tmp_path: Path) -> None:
    client = client_of(fake, cache=tmp_path, trusted=COORDINATOR.fingerprint)
    assert client.cache is not None
    client.cache.put(ID, resigned(FILES, STRANGER))
    assert client.fetch(ID).files == FILES


def test_cache_that_cannot_be_written_does_not_stop_a_fetch(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    client = client_of(ServingCoordinator.serving((ID, FILES)), cache=tmp_path / "cache")
    assert client.fetch(ID).files == FILES


def test_release_signed_by_another_coordinator_is_refused_before_its_matrix_is_asked_for() -> None:
    """Its manifest would say how large that may be."""
    fake = ServingCoordinator.serving((ID, resigned(FILES, STRANGER)))
    with (
        client_of(fake, trusted=COORDINATOR.fingerprint) as client,
        pytest.raises(VerificationError, match="trusted coordinator"),
    ):
        client.fetch(ID)
    assert not any(path.endswith("/matrix") for path in fake.requests)
