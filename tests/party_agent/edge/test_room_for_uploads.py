"""No token that pushes rows keeps others, the operator or the ledger from their work: by uploads, bytes or disk."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from commingle.party_agent.home.home import PushingLimits
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.wire.answers import CSV
from tests.world import local_api
from tests.world.consortium import SCHEMAS, rows_of
from tests.world.coordinator import problem
from tests.world.disks import mounted
from tests.world.local_api import csv_of, declare

SLOTS, ALL_SLOTS, OF_TOKENS = 4, 16, 12
ROWS = rows_of("clinic")


@pytest.fixture
def agent(agent: Agent) -> Agent:
    declare(agent, "stays", SCHEMAS["clinic"])
    return agent


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


def system(agent: Agent, name: str) -> System:
    return System(local_api.system(agent, "register", name=name))


def operator(agent: Agent) -> System:
    return System(local_api.operator(agent))


def limit(agent: Agent, **limits: int) -> None:
    settings = agent.home.settings()
    agent.home.save_settings(settings.model_copy(update={"pushing": PushingLimits(**limits)}))


def many(count: int) -> list[dict[str, Any]]:
    """So many rows of different subjects."""
    return [ROWS[0] | {"subject": f"a subject with a long name that is number {i}"} for i in range(count)]


def test_token_that_has_its_uploads_open_is_told_when_to_try_again_and_others_go_on(agent: Agent) -> None:
    greedy, other = system(agent, "greedy"), system(agent, "other")
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
        system(agent, f"system-{number // SLOTS}-{number}").begins(f"upload-{number}")
    assert problem(system(agent, "one-more").begin("upload")) == (429, "too-many-uploads")
    for number in range(ALL_SLOTS - OF_TOKENS):
        operator(agent).begins(f"upload-{number}")
    assert problem(operator(agent).begin("upload")) == (409, "conflict")


def test_token_has_so_many_bytes_in_all_its_open_uploads_and_no_more(agent: Agent) -> None:
    greedy, other = system(agent, "greedy"), system(agent, "other")
    for each in (greedy, other, operator(agent)):
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
        assert operator(agent).put("one", number, rows).status_code == 200
    greedy.delete("one")
    assert greedy.put("two", 1, rows).status_code == 200


def test_what_is_kept_free_on_the_disk_is_used_by_nobody_who_pushes(agent: Agent) -> None:
    with mounted(agent.home.root / "rows", kibibytes=512):
        callers = system(agent, "etl"), operator(agent)
        for each in callers:
            limit(agent, reserve_bytes=0)
            each.begins("one")
            limit(agent, reserve_bytes=400 << 10)
            answers = [each.put("one", number) for number in range(1, 40)]
            refused = next(answer for answer in answers if answer.status_code != 200)
            assert problem(refused) == (507, "no-room")
        limit(agent, reserve_bytes=0)
        assert operator(agent).put("one", 40).status_code == 200


@pytest.mark.parametrize("free_kibibytes", [0, 4])
def test_full_disk_is_said_and_leaves_no_part_of_a_piece(agent: Agent, free_kibibytes: int) -> None:
    limit(agent, reserve_bytes=0)
    with mounted(agent.home.root / "rows", kibibytes=256) as disk:
        etl, rows = system(agent, "etl"), many(2000)
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
