"""Rows that a party's own system pushes: what is kept, what is refused and in which words, who may, and how much."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
import structlog

from commingle import PartyClient
from commingle.party_agent.edge.loop import Loop
from commingle.party_agent.home.home import PushingLimits
from commingle.party_agent.home.tokens import revoke_token
from commingle.party_agent.operate.backup import write_backup
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES
from commingle.shared.runtime.errors import RemoteProblemError, UnreachableError
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, rows_of, strictly
from tests.world.coordinator import problem
from tests.world.disks import mounted
from tests.world.local_api import arrow_of, csv_of, declare, operator, reached, system, token_of
from tests.world.transport import unreachable

PLACE = "/v1/datasets/stays/uploads/monday"
ROWS = rows_of("clinic")


@pytest.fixture
def agent(agent: Agent) -> Agent:
    declare(agent, "stays", SCHEMAS["clinic"])
    return agent


@pytest.fixture
def etl(agent: Agent) -> Iterator[httpx.Client]:
    with system(agent, "register", name="etl") as http:
        yield http


def put(http: httpx.Client, number: int, body: bytes, kind: str = CSV) -> httpx.Response:
    return http.put(f"{PLACE}/pieces/{number}", content=body, headers={"Content-Type": kind})


def test_rows_in_three_forms_become_the_data_set_that_a_file_would_be(agent: Agent, etl: httpx.Client) -> None:
    typed = [{**row, "age": float(row["age"])} for row in ROWS]
    forms = [
        (csv_of(ROWS[:10]), CSV),
        ("\n".join(map(json.dumps, typed[10:20])).encode(), f"{JSON_LINES}; charset=utf-8"),
        (arrow_of(typed[20:]), ARROW),
    ]
    assert etl.put(PLACE).status_code == 201
    assert [put(etl, i, *form).json() for i, form in enumerate(forms, start=1)] == [
        {"number": 1, "rows": 10},
        {"number": 2, "rows": 10},
        {"number": 3, "rows": 20},
    ]
    closed = etl.post(f"{PLACE}/close", json={"pieces": 3})
    file = agent.datasets.get("main")
    assert closed.status_code == 200
    assert (closed.json()["n"], closed.json()["clipped"]) == (40, file.clipped)
    snapshots = [agent.datasets.snapshot(agent.datasets.get(name).snapshot) for name in ("stays", "main")]
    read = [[(ids.to_pylist(), rows.tolist()) for ids, rows in one.records()] for one in snapshots]
    assert read[0] == read[1]


def test_every_call_can_be_repeated(agent: Agent, etl: httpx.Client) -> None:
    assert [etl.put(PLACE).status_code for _ in range(2)] == [201, 200]
    for _ in range(2):
        assert put(etl, 1, csv_of(ROWS)).status_code == 200
    assert etl.get(PLACE).json() == {"dataset": "stays", "upload": "monday", "pieces": [1]}
    closed = [etl.post(f"{PLACE}/close", json={"pieces": 1}) for _ in range(2)]
    assert closed[0].json() == closed[1].json()
    assert agent.datasets.get("stays").n == 40


def test_upload_that_is_closed_again_with_another_number_of_pieces_is_a_conflict(
    agent: Agent, etl: httpx.Client
) -> None:
    etl.put(PLACE)
    for number, rows in ((1, ROWS[:20]), (2, ROWS[20:])):
        put(etl, number, csv_of(rows))
    assert etl.post(f"{PLACE}/close", json={"pieces": 2}).status_code == 200
    refused = etl.post(f"{PLACE}/close", json={"pieces": 1})
    assert problem(refused) == (409, "conflict")
    assert refused.json()["detail"] == "this upload was closed with 2 pieces, not with 1"
    assert etl.post(f"{PLACE}/close", json={"pieces": 2}).status_code == 200
    assert agent.datasets.get("stays").n == 40


def test_piece_that_is_sent_again_takes_its_own_place_and_an_upload_that_of_the_rows_before(
    agent: Agent, etl: httpx.Client
) -> None:
    for upload, n in (("monday", 40), ("tuesday", 30)):
        place = PLACE.replace("monday", upload)
        etl.put(place)
        for rows in (ROWS[:5], ROWS[:n]):
            etl.put(f"{place}/pieces/1", content=csv_of(rows), headers={"Content-Type": CSV})
        assert etl.post(f"{place}/close", json={"pieces": 1}).json()["n"] == n
        kept = {path.name for path in agent.home.snapshots.iterdir()}
        assert kept == {agent.datasets.get(name).snapshot for name in ("main", "stays")}
    assert list((agent.home.root / "rows" / "uploads").iterdir()) == []


def test_release_is_made_of_rows_that_were_pushed(consortium: Consortium) -> None:
    with consortium.agent("clinic") as agent, system(agent, "register", name="etl") as etl:
        declare(agent, "main", SCHEMAS["clinic"])
        etl.put(PLACE.replace("stays", "main"))
        pieces = f"{PLACE.replace('stays', 'main')}/pieces/1"
        etl.put(pieces, content=csv_of(ROWS), headers={"Content-Type": CSV})
        closed = etl.post(f"{PLACE.replace('stays', 'main')}/close", json={"pieces": 1})
        assert closed.status_code == 200
        consortium.table("clinic").unlink()
        release = consortium.propose()
        agent.step(strictly)
        assert agent.approve(release, BY_A_PERSON).decision == "approved"


def test_neither_answer_nor_log_tells_a_value_of_a_piece_that_is_refused(
    etl: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    etl.put(PLACE)
    with structlog.testing.capture_logs() as logs:
        refused = put(etl, 1, csv_of([*ROWS[:2], {**ROWS[2], "age": "x9713.25"}]))
    assert problem(refused) == (422, "data")
    assert refused.json()["detail"] == "row 3, column age: 1 value is no number"
    assert "9713.25" not in refused.text + repr(logs) + "".join(capsys.readouterr())
    assert etl.get(PLACE).json()["pieces"] == []


def test_dictionaries_are_refused_from_others_and_decoded_by_the_client(agent: Agent) -> None:
    ages = pa.array([float(row["age"]) for row in ROWS])
    names = pa.array([row["subject"] for row in ROWS]).dictionary_encode()
    table = pa.table({"subject": names, "age": ages, "bmi": pa.array([20] * len(ROWS))})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with system(agent, "register", name="etl") as http:
        http.put(PLACE)
        assert problem(put(http, 1, sink.getvalue(), ARROW)) == (422, "piece")
    with PartyClient("http://agent", token=token_of(agent, "register", name="own"), transport=reached(agent)) as party:
        made = party.push("stays", table, rows_at_once=7)
    assert made.n == 40


def test_upload_that_is_begun_again_and_fails_leaves_the_rows_of_the_first_time(
    agent: Agent, etl: httpx.Client
) -> None:
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    etl.post(f"{PLACE}/close", json={"pieces": 1})
    (agent.home.snapshots / ".left.by.a.crash").write_text("")
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS[:3]))
    put(etl, 2, csv_of(ROWS[2:4]))
    assert problem(etl.post(f"{PLACE}/close", json={"pieces": 2})) == (422, "data")
    assert agent.datasets.snapshot(agent.datasets.get("stays").snapshot).n == 40
    put(etl, 2, csv_of(ROWS[3:4]))
    assert etl.post(f"{PLACE}/close", json={"pieces": 2}).json()["n"] == 4
    kept = {path.name for path in agent.home.snapshots.iterdir()}
    assert kept == {agent.datasets.get(name).snapshot for name in ("main", "stays")}


def test_upload_is_closed_with_all_its_pieces_only(agent: Agent, etl: httpx.Client) -> None:
    assert problem(put(etl, 1, csv_of(ROWS))) == (404, "unknown")
    etl.put(PLACE)
    put(etl, 2, csv_of(ROWS))
    for announced in (1, 2, 3):
        refused = etl.post(f"{PLACE}/close", json={"pieces": announced})
        assert problem(refused) == (409, "conflict")
        assert "missing: [1" in refused.json()["remedy"]
    put(etl, 1, csv_of(ROWS[:1]))
    declare(agent, "stays", SCHEMAS["clinic"][:1])
    refused = etl.post(f"{PLACE}/close", json={"pieces": 2})
    assert (problem(refused), "declared again" in refused.text) == ((409, "conflict"), True)
    assert etl.delete(PLACE).status_code == 204
    assert problem(etl.get(PLACE)) == (404, "unknown")


def test_upload_of_another_system_is_not_there(agent: Agent, etl: httpx.Client) -> None:
    """Else closing it would tell of a guessed subject whether it is among the other's."""
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    with system(agent, "register", name="other") as other:
        assert problem(other.get(PLACE)) == (404, "unknown")
        assert problem(put(other, 2, csv_of(ROWS))) == (404, "unknown")
        assert problem(other.post(f"{PLACE}/close", json={"pieces": 1})) == (404, "unknown")
        assert other.delete(PLACE).status_code == 204
    assert etl.get(PLACE).json()["pieces"] == [1]


def test_tokens_push_to_data_sets_that_were_declared_so_only(agent: Agent, etl: httpx.Client) -> None:
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    for name, refusal in (("main", (403, "source-refused")), ("absent", (404, "unknown"))):
        assert problem(etl.put(PLACE.replace("stays", name))) == refusal
    assert problem(etl.post("/v1/datasets/stays/reading")) == (409, "conflict")
    source = agent.datasets.declaration("main").source.model_dump()
    declare(agent, "stays", SCHEMAS["clinic"], source=source)
    assert problem(etl.post(f"{PLACE}/close", json={"pieces": 1})) == (403, "source-refused")


def test_open_uploads_are_few_and_end_when_nobody_goes_on(
    consortium: Consortium, agent: Agent, etl: httpx.Client
) -> None:
    places = [PLACE.replace("monday", f"day-{i}") for i in range(5)]
    assert [etl.put(place).status_code for place in places] == [201] * 4 + [429]
    newest = max(path.stat().st_mtime for path in (agent.home.root / "rows" / "uploads").iterdir())
    consortium.clock_shows += timedelta(seconds=newest - agent.clock().timestamp(), days=8)
    assert etl.put(places[4]).status_code == 201
    assert problem(etl.get(places[0])) == (404, "unknown")


def test_rows_that_nobody_goes_on_pushing_are_dropped_by_the_running_agent(
    consortium: Consortium, agent: Agent, etl: httpx.Client
) -> None:
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    uploads, consortium.coordinator.before = agent.home.root / "rows" / "uploads", unreachable("GET", "/v1/")
    newest = max(path.stat().st_mtime for path in uploads.iterdir())
    consortium.clock_shows += timedelta(seconds=newest - agent.clock().timestamp())
    for days, left in ((6, 1), (2, 0)):
        consortium.clock_shows += timedelta(days=days)
        with pytest.raises(UnreachableError):
            Loop(agent).turn()
        assert len(list(uploads.rglob("*.parquet"))) == left


def test_token_of_a_former_ones_name_meets_none_of_its_rows(agent: Agent, etl: httpx.Client) -> None:
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    revoke_token(agent.home, "etl", agent.clock())
    with system(agent, "register", name="etl") as again:
        assert problem(again.get(PLACE)) == (404, "unknown")
        assert again.put(PLACE).json()["pieces"] == []


def test_rows_are_for_their_owner_alone_and_in_no_backup(agent: Agent, etl: httpx.Client, tmp_path: Path) -> None:
    etl.put(PLACE)
    put(etl, 1, csv_of(ROWS))
    etl.put(PLACE.replace("monday", "tuesday"))
    etl.post(f"{PLACE}/close", json={"pieces": 1})
    rows = agent.home.root / "rows"
    assert {path.stat().st_mode & 0o077 for path in (rows, *rows.rglob("*")) if path.name != "CACHEDIR.TAG"} == {0}
    assert not any(name.startswith("rows") for name in write_backup(agent.home, tmp_path / "backup.tar"))


def test_client_goes_on_with_what_was_interrupted_and_passes_on_the_agents_words(agent: Agent) -> None:
    bad = [*ROWS[:7], {**ROWS[7], "age": "old"}]
    with PartyClient("http://agent", token=token_of(agent, "register", name="own"), transport=reached(agent)) as party:
        with pytest.raises(RemoteProblemError, match=r"^row 2, column age: 1 value is no number$") as refused:
            party.push("stays", bad, upload="u", rows_at_once=3)
        assert refused.value.problem == "data"
        sent = party.push("stays", ROWS[:8], upload="u", rows_at_once=3)
    assert sent.n == 8


SLOTS, ALL_SLOTS, OF_TOKENS = 4, 16, 12


@dataclass(frozen=True)
class System:
    """Who pushes rows: with a token, or the operator."""

    http: httpx.Client

    def begin(self, upload: str) -> httpx.Response:
        return self.http.put(f"/v1/datasets/stays/uploads/{upload}")

    def begins(self, upload: str) -> None:
        assert self.begin(upload).status_code == 201

    def put(self, upload: str, number: int, rows: list[dict[str, str]] | None = None) -> httpx.Response:
        body, kind = csv_of(rows or ROWS), {"Content-Type": CSV}
        return self.http.put(f"/v1/datasets/stays/uploads/{upload}/pieces/{number}", content=body, headers=kind)

    def delete(self, upload: str) -> None:
        assert self.http.delete(f"/v1/datasets/stays/uploads/{upload}").status_code == 204

    def close(self, upload: str, pieces: int = 1) -> httpx.Response:
        return self.http.post(f"/v1/datasets/stays/uploads/{upload}/close", json={"pieces": pieces})


def pushing(agent: Agent, name: str) -> System:
    return System(system(agent, "register", name=name))


def operating(agent: Agent) -> System:
    return System(operator(agent))


def limit(agent: Agent, **limits: int) -> None:
    settings = agent.home.settings()
    agent.home.save_settings(settings.model_copy(update={"pushing": PushingLimits(**limits)}))


def many(count: int) -> list[dict[str, Any]]:
    """So many rows of different subjects."""
    return [ROWS[0] | {"subject": f"a subject with a long name that is number {i}"} for i in range(count)]


def test_token_that_has_its_uploads_open_is_told_when_to_try_again_and_others_go_on(agent: Agent) -> None:
    greedy, other = pushing(agent, "greedy"), pushing(agent, "other")
    for number in range(SLOTS):
        greedy.begins(f"upload-{number}")
    refused = greedy.begin("one-more")
    assert problem(refused) == (429, "too-many-uploads")
    assert int(refused.headers["Retry-After"]) > 0
    assert greedy.begin("upload-0").status_code == 200  # the same again is no other
    other.begins("upload-0")
    greedy.delete("upload-0")
    greedy.begins("one-more")


def test_all_tokens_together_leave_uploads_to_the_operator(agent: Agent) -> None:
    for number in range(OF_TOKENS):
        pushing(agent, f"system-{number // SLOTS}-{number}").begins(f"upload-{number}")
    assert problem(pushing(agent, "one-more").begin("upload")) == (429, "too-many-uploads")
    for number in range(ALL_SLOTS - OF_TOKENS):
        operating(agent).begins(f"upload-{number}")
    assert problem(operating(agent).begin("upload")) == (409, "conflict")


def test_token_has_so_many_bytes_in_all_its_open_uploads_and_no_more(agent: Agent) -> None:
    greedy, other = pushing(agent, "greedy"), pushing(agent, "other")
    for each in (greedy, other, operating(agent)):
        each.begins("one")
    greedy.begins("two")
    rows = many(400)
    assert greedy.put("one", 1, rows).status_code == 200
    files = [path.stat().st_size for path in agent.home.root.rglob("rows/uploads/*/*")]
    limit(agent, token_bytes=2 * max(files), reserve_bytes=0)
    refused = greedy.put("two", 1, rows)
    assert problem(refused) == (507, "no-room")
    assert "pushing.token_bytes" in refused.json()["remedy"]
    assert greedy.put("one", 1, rows).status_code == 200  # in its own place
    assert other.put("one", 1, rows).status_code == 200
    for number in (1, 2, 3):
        assert operating(agent).put("one", number, rows).status_code == 200
    greedy.delete("one")
    assert greedy.put("two", 1, rows).status_code == 200


def test_what_is_kept_free_on_the_disk_is_used_by_nobody_who_pushes(agent: Agent) -> None:
    with mounted(agent.home.root / "rows", kibibytes=512):
        callers = pushing(agent, "etl"), operating(agent)
        for each in callers:
            limit(agent, reserve_bytes=0)
            each.begins("one")
            limit(agent, reserve_bytes=400 << 10)
            answers = [each.put("one", number) for number in range(1, 40)]
            refused = next(answer for answer in answers if answer.status_code != 200)
            assert problem(refused) == (507, "no-room")
        limit(agent, reserve_bytes=0)
        assert operating(agent).put("one", 40).status_code == 200


@pytest.mark.parametrize("free_kibibytes", [0, 4])
def test_full_disk_is_said_and_leaves_no_part_of_a_piece(agent: Agent, free_kibibytes: int) -> None:
    limit(agent, reserve_bytes=0)
    with mounted(agent.home.root / "rows", kibibytes=256) as disk:
        etl, rows = pushing(agent, "etl"), many(2000)
        etl.begins("one")
        etl.put("one", 1, rows)
        agent.home.snapshots.mkdir()
        taken = 256 - free_kibibytes - sum(path.stat().st_blocks // 2 for path in disk.rglob("*") if path.is_file())
        (disk / "others").write_bytes(b"x" * (taken << 10))
        before = {path.name for path in disk.rglob("*")}
        assert problem(etl.put("one", 2, rows)) == (507, "no-room")
        assert problem(etl.close("one")) == (507, "no-room")
        assert {path.name for path in disk.rglob("*")} == before
        (disk / "others").unlink()
        assert etl.close("one").status_code == 200


def test_disk_that_others_fill_after_it_was_looked_at_is_said(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commingle.shared.runtime.files.Disks.require", lambda *_: None)
    test_full_disk_is_said_and_leaves_no_part_of_a_piece(agent, 4)
