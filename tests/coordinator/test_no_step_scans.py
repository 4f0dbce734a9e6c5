"""No step of a release looks at all releases: every statement finds its rows by an index, or ends at its limit."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.world.coordinator import Honest, Hub, Parties

GROWING = ("releases", "shares", "events")


@contextmanager
def statements(note: Callable[[str, Any, Any], object]) -> Iterator[None]:
    """Tell of all that is asked of databases meanwhile: statement, parameters, cursor."""

    def asked(_connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        note(statement, parameters, cursor)

    sa.event.listen(sa.Engine, "before_cursor_execute", asked)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", asked)


def scans(database: Path, statement: str, parameters: Any) -> list[str]:
    """The steps of a statement that read a growing table from end to end."""
    with sqlite3.connect(database) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    db.close()
    return [step for step in plan if step.split()[0] == "SCAN" and step.split()[1] in GROWING]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "coordinator.sqlite"


@pytest.fixture
def database_url(database: Path) -> str:
    return f"sqlite:///{database}"


def test_release_from_proposal_to_publication_scans_nothing(hub: Hub, parties: Parties, database: Path) -> None:
    asked: list[tuple[str, Any]] = []
    with statements(lambda statement, parameters, _: asked.append((statement, parameters))):
        proposed = hub.complete(parties)
        hub.publisher.run_once()
        hub.http.get(f"/v1/releases/{proposed.id}").raise_for_status()
        hub.http.get("/v1/events", params={"after": 0}).raise_for_status()
        hub.http.get(f"/v1/parties/{parties[0].name}/releases", params={"after": 0}).raise_for_status()
    assert hub.state(proposed) == "published"
    read = [(text, given) for text, given in asked if text.startswith(("SELECT", "UPDATE")) and "LIMIT" not in text]
    assert len(read) > 20
    assert {text: found for text, given in read if (found := scans(database, text, given))} == {}


def test_statement_that_scans_is_seen(hub: Hub, parties: Parties, database: Path) -> None:
    hub.complete(parties)
    assert scans(database, "SELECT id FROM releases WHERE reason = ?", ("x",)) == ["SCAN releases"]


@contextmanager
def work() -> Iterator[Counter[str]]:
    """How many instructions SQLite does for each statement meanwhile."""
    done, now = Counter[str](), [""]

    def tick() -> None:
        done[now[0]] += 1

    def begin(statement: str, _: Any, cursor: Any) -> None:
        now[0] = statement
        cursor.connection.set_progress_handler(tick, 1)

    with statements(begin):
        yield done


def release_by_a_member(hub: Hub, parties: Sequence[Honest], number: int) -> None:
    """From its proposal to its end, with all that its members look at, a minute's look at everything among it."""
    clinic, auth = parties[0], hub.auth(parties[0].key)
    spec = hub.spec(parties, study=f"study {number}")
    proposed = hub.signed(spec.model_copy(update={"proposer": clinic.key.fingerprint}), clinic.key)
    body = proposed.envelope.to_json()
    assert hub.http.post("/v1/releases", content=body, auth=auth).status_code == 201
    for party in parties:
        assert hub.approve(proposed, party.name, party.approval(proposed)).status_code == 201
    for party in parties:
        assert hub.upload(proposed, party.name, hub.block(proposed, party)).status_code == 201
    last = hub.http.get("/v1/events", params={"after": 1 << 40}).json()["last"]
    hub.publisher.run_once()
    hub.http.get("/v1/releases", params={"party": clinic.name, "over": "false"}).raise_for_status()
    hub.http.get(f"/v1/parties/{clinic.name}/releases", params={"after": last}, auth=auth).raise_for_status()
    assert hub.state(proposed) == "published"


def test_release_of_a_member_is_as_much_work_after_many_releases_as_after_a_few(hub: Hub, parties: Parties) -> None:
    found: list[Counter[str]] = []
    for measured in (3, 15):
        for number in range(len(found) * 10, measured):
            release_by_a_member(hub, parties, number)
        with work() as done:
            release_by_a_member(hub, parties, 100 + measured)
        found.append(done)
    few, many = found
    assert len(few) > 20
    assert {text: (few[text], count) for text, count in many.items() if count > few[text] + 20} == {}
