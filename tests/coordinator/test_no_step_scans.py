"""No step of a release looks at all releases: every statement finds its rows by an index, or ends at its limit."""

import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from commingle.coordinator.publisher import Publisher, clean
from tests.world.coordinator import Honest, Hub, Parties, Proposed

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
    proposed = hub.by_member(parties, clinic, study=f"study {number}")
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


@pytest.mark.slow
def test_release_is_a_few_steps_more_work_for_each_of_two_hundred_members(hub: Hub, parties: Parties) -> None:
    found = []
    for members in (10, 200):
        while len(hub.http.get("/v1/parties", params={"limit": 200}).json()["items"]) < members:
            hub.enrolled(f"member-{secrets.token_hex(4)}")
        hub.http.get("/v1/events", params={"after": 0}).raise_for_status()
        with work() as done:
            release_by_a_member(hub, parties, members)
        found.append(sum(done.values()))
    few, many = found
    assert few < many < few + 190 * 60, "one row of each member's ledger head is read"


def with_one_block(hub: Hub, parties: Parties, number: int) -> Proposed:
    proposed = hub.proposed(parties, study=f"waits {number}")
    for party in parties:
        assert hub.approve(proposed, party.name, party.approval(proposed)).status_code == 201
    assert hub.upload(proposed, parties[0].name, hub.block(proposed, parties[0])).status_code == 201
    return proposed


def test_publisher_looks_for_what_is_complete_among_releases_with_events_and_once_a_minute_among_all(
    hub: Hub, parties: Parties
) -> None:
    seconds = [0.0]
    publisher, looked = Publisher(hub.coordinator, timer=lambda: seconds[0]), list[int]()
    for number in range(8):
        waits = with_one_block(hub, parties, number)
        with work() as done:
            publisher.run_once()
        looked.append(sum(count for text, count in done.items() if "shares.body IS NULL" in text))
    assert looked[-1] < looked[1] + 20
    assert hub.upload(waits, parties[1].name, hub.block(waits, parties[1])).status_code == 201
    publisher.run_once()
    assert hub.state(waits) == "published"
    publisher.run_once()
    for after, looks in ((59.0, False), (61.0, True)):
        seconds[0] = after
        with work() as done:
            publisher.run_once()
        assert any("shares.body IS NULL" in text for text in done) is looks


def test_page_of_a_member_goes_through_so_many_releases_and_names_the_page_that_follows(
    hub: Hub, parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commingle.coordinator.store.releases.MOST_WALKED", 3)
    lab = hub.enrolled("lab")
    of_lab = hub.proposed((parties[0], lab), study="of the lab").id
    for number in range(7):
        hub.proposed(parties, study=f"of others {number}")
    found, walked, cursor = list[str](), list[int](), None
    while cursor or not walked:
        with work() as done:
            page = hub.http.get("/v1/releases", params={"party": "lab"} | ({"cursor": cursor} if cursor else {})).json()
        walked.append(sum(done.values()))
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
    assert (found, len(walked)) == ([of_lab], 3)
    assert max(walked[:2]) < 300
    (newest,) = hub.http.get("/v1/releases", params={"party": "lab", "over": "false"}).json()["items"]
    assert newest["id"] == of_lab, "of open releases, which are few, all are looked at"


def test_tidying_makes_no_writer_wait_for_files_that_are_needed(hub: Hub, parties: Parties) -> None:
    hub.complete(parties)
    hub.publisher.run_once()
    hub.clock.now += timedelta(days=400)
    asked: list[str] = []
    with statements(lambda statement, *_: asked.append(statement)):
        assert clean(hub.coordinator) == 0
    assert any("releases.matrix" in text for text in asked)
    assert [text for text in asked if text.startswith("BEGIN IMMEDIATE")] == []


LISTS: dict[str, dict[str, str]] = {
    "all": {},
    "published": {"state": "published"},
    "open": {"state": "proposed"},
    "of a member": {"party": "clinic"},
    "open, of a member": {"party": "clinic", "over": "false"},
}
OPEN, PUBLISHED = 1_000, 10_000


def copied(database: Path, release: str, numbers: range) -> None:
    """The same release many times more, under ids of their own and later in the list."""
    with sqlite3.connect(database) as db:
        for table, key in (("releases", "id"), ("shares", "release")):
            known = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            others = ", ".join(f'"{name}"' for name in known if name not in {"seq", key})
            row = f'SELECT ?, {others} FROM {table} WHERE "{key}" = ?'  # noqa: S608 - names of its own tables
            ids = [(f"{number:08x}{release[8:]}", release) for number in numbers]
            db.executemany(f'INSERT INTO {table} ("{key}", {others}) {row}', ids)
    db.close()


def listed(hub: Hub) -> dict[str, tuple[int, int]]:
    """By list: the work of its first page and of the one that follows."""
    found = {}
    for name, asked in LISTS.items():
        pages, cursor = [], None
        for _ in range(2):
            with work() as done:
                page = hub.http.get("/v1/releases", params=asked | ({"cursor": cursor} if cursor else {})).json()
            assert page["items"], name
            pages.append(sum(done.values()))
            cursor = page["next"]
        found[name] = (pages[0], pages[1])
    return found


@pytest.mark.slow
def test_lists_are_no_more_work_with_a_thousand_open_releases_and_ten_thousand_published(
    hub: Hub, parties: Parties, database: Path
) -> None:
    waits, done = hub.proposed(parties, study="waits"), hub.complete(parties)
    hub.publisher.run_once()
    found = []
    for before, now in ((0, 1), (1, 10)):  # tenths
        for release, most in ((waits.id, OPEN), (done.id, PUBLISHED)):
            copied(database, release, range(before * most // 10, now * most // 10))
        found.append(listed(hub))
    few, many = found
    assert {name: (few[name], pages) for name, pages in many.items() if max(pages) > max(few[name]) + 200} == {}
