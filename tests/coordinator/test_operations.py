"""What an operator asks, and that every answer is what `shared/wire.py` declares: no field more, none less."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commingle.shared.wire import (
    Answer,
    CoordinatorIdentity,
    EventPage,
    PartyKeys,
    PartyPage,
    PartyRecord,
    ReleaseDetails,
    ReleasePage,
    ReleaseSteps,
)
from tests.world.coordinator import Hub, Parties, problem
from tests.world.exchange import Relayed


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(f"sqlite:///{tmp_path / 'coordinator.sqlite'}", tmp_path, apart=True)
    yield hub
    hub.close()


def test_working_coordinator_is_healthy_and_ready_and_its_probe_leaves_nothing_behind(hub: Hub) -> None:
    assert hub.http.get("/healthz").json() == {"status": "ok"}
    assert hub.http.get("/readyz").json() == {"status": "ready"}
    assert list((hub.home / "blobs").iterdir()) == []


def test_database_that_does_not_work_is_503_everywhere_but_healthz(hub: Hub) -> None:
    hub.sql("DROP TABLE events")
    assert problem(hub.http.get("/readyz")) == (503, "storage")
    assert problem(hub.http.get("/v1/events")) == (503, "storage")
    assert hub.http.get("/healthz").status_code == 200


def test_metrics_say_that_the_database_is_away_and_still_count_what_is_refused(hub: Hub) -> None:
    assert "commingle_coordinator_database_up 1.0" in hub.http.get("/metrics").text
    hub.sql("ALTER TABLE releases RENAME TO away")
    hub.http.get("/v1/releases")
    lines = hub.http.get("/metrics").text.splitlines()
    assert "commingle_coordinator_database_up 0.0" in lines
    assert 'commingle_coordinator_requests_total{method="GET",route="/v1/releases",status="503"} 1.0' in lines
    assert not [line for line in lines if line.startswith("commingle_coordinator_rounds{")]


def test_metrics_count_requests_rounds_and_bytes(hub: Hub, parties: Parties) -> None:
    proposed = hub.approved(parties)
    block = hub.block(proposed, parties[0])
    hub.upload(proposed, "clinic", block)
    hub.upload(proposed, "clinic", block)
    hub.http.get("/v1/releases/nonsense")
    hub.http.get("/nowhere")
    text = hub.http.get("/metrics").text
    assert 'commingle_coordinator_rounds{state="collecting"} 1.0' in text
    assert 'commingle_coordinator_rounds{state="published"} 0.0' in text
    assert f"commingle_coordinator_uploaded_bytes_total {float(len(block.body))}" in text
    requests = "commingle_coordinator_requests_total"
    assert f'{requests}{{method="GET",route="/v1/releases/{{release}}",status="404"}} 1.0' in text
    assert f'{requests}{{method="PUT",route="/v1/releases/{{release}}/blocks/{{party}}",status="201"}} 1.0' in text
    assert f'{requests}{{method="GET",route="none",status="404"}} 1.0' in text


def test_long_polls_are_counted_apart_from_answers(hub: Hub) -> None:
    hub.http.get("/v1/events")
    hub.http.get("/v1/releases")
    lines = hub.http.get("/metrics").text.splitlines()
    counted = {line.partition(" ")[0] for line in lines if "_seconds_count" in line}
    assert 'commingle_coordinator_wait_seconds_count{route="/v1/events"}' in counted
    assert 'commingle_coordinator_request_seconds_count{route="/v1/events"}' not in counted
    assert 'commingle_coordinator_request_seconds_count{route="/v1/releases"}' in counted


def test_interface_is_explained_on_a_page(hub: Hub) -> None:
    page = hub.http.get("/docs")
    assert (page.status_code, "PUT /v1/releases/{release}/blocks/{party}" in page.text) == (200, True)


PAGES: list[tuple[str, type[Answer]]] = [
    ("/v1/coordinator", CoordinatorIdentity),
    ("/v1/parties", PartyPage),
    ("/v1/parties/clinic", PartyRecord),
    ("/v1/parties/clinic/keys", PartyKeys),
    ("/v1/releases", ReleasePage),
    ("/v1/releases/{release}", ReleaseDetails),
    ("/v1/events", EventPage),
    ("/v1/parties/clinic/releases", ReleaseSteps),
]


def declared(kind: type[Answer], text: str) -> object:
    """What a reader makes of an answer: unknown fields are gone, absent ones are there."""
    value: object = json.loads(kind.model_validate_json(text).model_dump_json())
    return value


@pytest.mark.parametrize(("path", "kind"), PAGES)
def test_answers_have_exactly_the_declared_fields(path: str, kind: type[Answer], hub: Hub, exchanging: Relayed) -> None:
    exchanging.send_all("columns", "reply")
    asked = path.format(release=exchanging.proposed.id)
    answer = hub.http.get(asked, auth=hub.auth(exchanging.parties[0].key))
    assert answer.status_code == 200
    assert answer.json() == declared(kind, answer.text)
