"""What is served is what `shared/wire.py` declares: no field more, none less."""

import json

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
from tests.world.coordinator import Hub
from tests.world.exchange import Exchanging

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
def test_answers_have_exactly_the_declared_fields(
    path: str, kind: type[Answer], hub: Hub, exchanging: Exchanging
) -> None:
    exchanging.send_all("columns", "reply")
    asked = path.format(release=exchanging.proposed.id)
    answer = hub.http.get(asked, auth=hub.auth(exchanging.parties[0].key))
    assert answer.status_code == 200
    assert answer.json() == declared(kind, answer.text)
