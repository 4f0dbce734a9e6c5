"""No step of a release looks at all releases: every statement finds its rows by an index, or ends at its limit."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.world.coordinator import Honest, Hub

GROWING = ("releases", "shares", "events")


@contextmanager
def statements() -> Iterator[list[tuple[str, Any]]]:
    """All that is asked of databases meanwhile."""
    asked: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        asked.append((statement, parameters))

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


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


def test_release_from_proposal_to_publication_scans_nothing(
    hub: Hub, parties: tuple[Honest, Honest], database: Path
) -> None:
    with statements() as asked:
        proposed = hub.complete(parties)
        hub.publisher.run_once()
        hub.http.get(f"/v1/releases/{proposed.id}").raise_for_status()
        hub.http.get("/v1/events", params={"after": 0}).raise_for_status()
        hub.http.get(f"/v1/parties/{parties[0].name}/releases", params={"after": 0}).raise_for_status()
    assert hub.state(proposed) == "published"
    read = [(text, given) for text, given in asked if text.startswith(("SELECT", "UPDATE")) and "LIMIT" not in text]
    assert len(read) > 20
    assert {text: found for text, given in read if (found := scans(database, text, given))} == {}


def test_statement_that_scans_is_seen(hub: Hub, parties: tuple[Honest, Honest], database: Path) -> None:
    hub.complete(parties)
    assert scans(database, "SELECT id FROM releases WHERE reason = ?", ("x",)) == ["SCAN releases"]
