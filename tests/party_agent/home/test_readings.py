"""Data sets read again: what a token may cause, by which rule ids are written, and what becomes of changed tables."""

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, current_thread
from typing import Any

import httpx
import pytest

from commingle.__main__ import main
from commingle.party_agent.edge.api import LocalApi, OwnThread
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.errors import DataError, LostError
from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.private.sources import FileSource
from commingle.party_agent.rounds.agent import Agent
from commingle.party_agent.wire.local_socket import AGENT_URL, AgentTransport
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.subject_ids import IdRules, SubjectColumns
from commingle.shared.errors import SpecError
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.releasing import approved_by_all, change_table, look, reason_of, spent, state_of
from tests.world.consortium import SCHEMAS, Consortium, CrashError, N, Noise, rows_of, strictly, write_csv
from tests.world.local_api import alone, serving_at, token_of
from tests.world.noise import no_noise

HUNDREDS = 300


@contextmanager
def serving(consortium: Consortium) -> Iterator[tuple[Agent, LocalApi, httpx.Client]]:
    """An agent on a socket, its API, and the party's own system, whose token may have tables read again."""
    with consortium.agent("clinic") as agent:
        headers = {"Authorization": f"Bearer {token_of(agent)}"}
        api = LocalApi(alone(agent), loops=None, peer_is_operator=False)
        with (
            serving_at(agent.home.socket, create_app(api)),
            httpx.Client(
                transport=AgentTransport(agent.home.socket), base_url=AGENT_URL, headers=headers, timeout=60
            ) as http,
        ):
            yield agent, api, http


def read_again(http: httpx.Client) -> int:
    return http.post("/v1/datasets/main/reading").status_code


@contextmanager
def held(thread: OwnThread) -> Iterator[None]:
    """A thread in a call that lasts as long as the block."""
    began, ended = Event(), Event()

    def call() -> bool:
        began.set()
        return ended.wait(60)

    with ThreadPoolExecutor(1) as other:
        holding = other.submit(asyncio.run, thread.run(call))
        try:
            assert began.wait(60)
            yield
        finally:
            ended.set()
        assert holding.result()


def answers(http: httpx.Client) -> list[int]:
    return [http.get(path).status_code for path in ("/healthz", "/readyz", "/v1/datasets", "/v1/ledger")]


@pytest.mark.slow
def test_hundreds_of_registrations_of_fifos_leave_every_route_answering(consortium: Consortium) -> None:
    consortium.table("clinic").unlink()
    os.mkfifo(consortium.table("clinic"))
    with serving(consortium) as (_, _, http):
        assert {read_again(http) for _ in range(HUNDREDS)} == {202}
        assert answers(http) == [200] * 4


@pytest.mark.slow
def test_reading_that_hangs_leaves_every_route_answering_and_others_wait_for_it(consortium: Consortium) -> None:
    with serving(consortium) as (agent, api, http):
        with held(api.readings):
            before = agent.datasets.get("main").snapshot
            assert {read_again(http) for _ in range(HUNDREDS)} == {202}
            assert answers(http) == [200] * 4
            assert agent.datasets.get("main").snapshot == before
        asyncio.run(api.readings.run(bool))  # behind all of them
        assert agent.datasets.get("main").snapshot != before


@pytest.mark.slow
def test_ledger_that_does_not_answer_is_told_by_readiness_while_health_answers(consortium: Consortium) -> None:
    with serving(consortium) as (_, api, http):
        with held(api.ledger):
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()) == (503, {"status": "busy"})
            assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_calls_are_made_one_after_the_other_in_one_thread() -> None:
    own, seen, running = OwnThread("one"), list[int](), set[int]()

    def call(number: int) -> str:
        running.add(number)
        assert len(running) == 1
        seen.append(number)
        running.remove(number)
        return current_thread().name

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(own.run(call, number) for number in range(100)))

    assert asyncio.run(all_of_them()) == ["one"] * 100
    assert seen == list(range(100))


def test_of_calls_with_one_key_that_wait_only_the_newest_is_made() -> None:
    own, began, ended, made = OwnThread("one"), Event(), Event(), list[str]()

    def first() -> None:
        began.set()
        ended.wait(60)

    async def many() -> None:
        waiting = [asyncio.ensure_future(own.run(first))]
        waiting += [
            asyncio.ensure_future(own.run_newest(key, made.append, key + str(n))) for n in range(3) for key in "ab"
        ]
        await asyncio.sleep(0)
        began.wait(60)
        ended.set()
        await asyncio.gather(*waiting)

    asyncio.run(many())
    assert made == ["a2", "b2"]


def test_call_that_fails_fails_alone_and_one_that_was_cancelled_is_not_made() -> None:
    own, ended, made = OwnThread("one"), Event(), list[int]()

    async def some() -> None:
        hanging = asyncio.ensure_future(own.run(ended.wait, 60))
        await asyncio.sleep(0)
        cancelled = asyncio.ensure_future(own.run(made.append, 1))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        await asyncio.sleep(0)
        ended.set()
        await hanging
        with pytest.raises(ValueError, match="invalid literal"):
            await own.run(int, "x")
        await own.run(made.append, 2)

    asyncio.run(some())
    assert made == [2]


CHANGES = ["value", "text", "order", "fewer", "subject"]


@pytest.mark.parametrize("again", [False, True], ids=["changed", "registered again"])
@pytest.mark.parametrize("crash", [False, True], ids=["approved", "debited"])
def test_release_is_made_of_the_rows_that_were_approved(
    pair: Consortium, tmp_path_factory: pytest.TempPathFactory, *, again: bool, crash: bool
) -> None:
    releases = [approved_by_all(pair, mechanism="dgm", title="before")]
    pair.step("clinic", draw=no_noise)
    releases.append(approved_by_all(pair, mechanism="dgm", title="after"))
    if crash:
        with pytest.raises(CrashError):
            pair.step("clinic", draw=Noise(crash=True))
    pair.coordinator.close()
    approved = shutil.copytree(pair.root, tmp_path_factory.mktemp("approved") / "trial")
    for what in CHANGES:
        pair.become(approved)
        change_table(pair, what)
        with pair.agent("clinic", draw=no_noise) as agent:
            if again:
                with suppress(DataError):  # of text in a number, which its owner is told
                    pair.register(agent, replace=True)
            agent.step(strictly)
        before, after = (pair.coordinator.found(release).body("clinic") for release in releases)
        assert before == after, what


def test_snapshot_is_kept_while_an_approved_release_needs_it_and_no_longer(pair: Consortium) -> None:
    release = approved_by_all(pair)
    change_table(pair, "value")
    with pair.agent("clinic") as agent:
        pair.register(agent, replace=True)
        assert len(list(agent.datasets.folder.iterdir())) == 2
        agent.step(strictly)
        charge = agent.ledger.charge(release)
        assert charge is not None
        assert charge.state == "acked"
        agent.datasets.sweep()
        assert [path.name for path in agent.datasets.folder.iterdir()] == [agent.datasets.get("main").snapshot]


@pytest.mark.parametrize("damage", ["gone", "altered", "cut"])
def test_snapshot_that_is_lost_after_the_approval_gives_the_release_up_without_noise(
    pair: Consortium, damage: str
) -> None:
    release = approved_by_all(pair)
    [path] = pair.homes["clinic"].snapshots.iterdir()
    if damage == "gone":
        path.unlink()
    else:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] if damage == "cut" else whole[:-1] + bytes([whole[-1] ^ 1]))
    noise, before = Noise(), spent(pair)
    with pytest.raises(LostError):
        pair.step("clinic", draw=noise)
    assert (reason_of(pair, release), noise.calls, spent(pair) >= before) == ("block_lost", [], True)


def test_data_set_registered_again_with_more_attributes_goes_on(pair: Consortium) -> None:
    release = approved_by_all(pair)
    with pair.agent("clinic") as agent:
        more = (*SCHEMAS["clinic"], NumericAttribute(name="bmi2", lower=0, upper=1))
        rows = [{**row, "bmi2": "0.5"} for row in rows_of("clinic")]
        write_csv(pair.table("clinic"), rows)
        pair.register(agent, replace=True, attributes=more)
        agent.step(strictly)
    assert state_of(pair, release) == "acked"


def test_unreadable_file_and_a_changed_list_neither_end_nor_change_what_a_token_reads_again(pair: Consortium) -> None:
    with pair.agent("clinic") as agent:
        first = agent.datasets.get("main")
        pair.table("clinic").unlink()
        agent.datasets.try_again("main")
        assert agent.datasets.get("main") == first
        change_table(pair, "fewer")
        agent.datasets.try_again("main")
        second = agent.datasets.get("main")
        ids = [[one for piece in agent.datasets.snapshot(second.snapshot).ids() for one in piece.to_pylist()]]
    assert (second.n, len(ids[0])) == (first.n, first.n)  # who is gone has a row of missing cells


DIGITS: IdRules = ("digits/1",)
PERSON: IdRules = ("text/1", "date/1")


def write_ids(pair: Consortium, name: str, id_of: Any) -> None:
    """The party's table with other columns of ids, made from each row's number."""
    rows = [{**id_of(int(row.pop("subject")[1:])), **row} for row in rows_of(name)]
    write_csv(pair.table(name), rows)


def register(
    pair: Consortium, name: str, subject_id: SubjectColumns, id_rules: IdRules | None, *, keyed: bool = False
) -> None:
    request = DatasetRequest(
        subjects="keyed" if keyed else "listed",
        name="main",
        source=FileSource(path=str(pair.table(name))),
        subject_id=subject_id,
        id_rules=id_rules,
        attributes=SCHEMAS[name],
    )
    with pair.agent(name) as agent:
        agent.datasets.register(request, replace=True)


def state_after_a_round(pair: Consortium, id_rules: IdRules | None) -> str:
    pair.enrol_everybody()
    release = pair.coordinator.propose(pair.spec().model_copy(update={"id_rules": id_rules}))
    look(pair, *3 * ("clinic", "insurer"))
    return pair.state(release)


@pytest.mark.parametrize(("id_rules", "state"), [(DIGITS, "published"), (None, "aborted")])
def test_leading_zeros_and_blanks_are_matched_by_the_rule_and_abort_without_it(
    pair: Consortium, id_rules: IdRules | None, state: str
) -> None:
    write_ids(pair, "clinic", lambda i: {"subject": f"0000{100_000 + i}"})
    write_ids(pair, "insurer", lambda i: {"subject": f"{100 + i // 1000} {i % 1000:03}"})
    for name in ("clinic", "insurer"):
        register(pair, name, "subject", id_rules)
    assert state_after_a_round(pair, id_rules) == state


def test_several_columns_identify_a_person_together(pair: Consortium) -> None:
    write_ids(pair, "clinic", lambda i: {"name": f"ANNA  {i // 2}", "born": f"1980-01-{1 + i % 2:02}"})
    write_ids(pair, "insurer", lambda i: {"who": f"Anna {i // 2}", "birthday": f"1980010{1 + i % 2}"})
    register(pair, "clinic", ("name", "born"), PERSON)
    register(pair, "insurer", ("who", "birthday"), PERSON)
    assert state_after_a_round(pair, PERSON) == "published"


def test_data_set_registered_with_other_rules_waits_and_both_are_said_for_members_to_agree_on(pair: Consortium) -> None:
    assert state_after_a_round(pair, DIGITS) == "proposed"
    with pair.agent("clinic") as agent:
        (proposal,) = agent.proposals.all()
        said = " ".join(proposal.findings)
        assert "as digits/1 writes them, and data set main is registered with exact/1" in said
        assert "agree on rules" in said


def test_ids_behind_one_prefix_are_the_people_of_ids_without_by_the_rule_that_their_owner_is_shown(
    pair: Consortium,
) -> None:
    write_ids(pair, "clinic", lambda i: {"subject": f"P-{i:06}"})
    write_ids(pair, "insurer", lambda i: {"subject": str(i)})
    rule = "digits-after:P-/1"
    for member, seen in (("clinic", True), ("insurer", False)):
        register(pair, member, "subject", None)
        with pair.agent(member) as agent:
            assert (f"all can register with --id-rule {rule}" in (agent.datasets.get("main").id_words or "")) == seen
        register(pair, member, "subject", (rule,))
    assert state_after_a_round(pair, (rule,)) == "published"


def test_rules_and_columns_must_be_as_many(pair: Consortium) -> None:
    with pytest.raises(SpecError, match="2 rules"):
        register(pair, "clinic", "subject", PERSON)


def test_counts_of_ids_are_told_to_the_operator_by_command_and_doctor(
    pair: Consortium, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_ids(pair, "clinic", lambda i: {"subject": f"{i:04}"})
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in SCHEMAS["clinic"]]))
    home = pair.homes["clinic"]
    add = ["party", "datasets", "add", "main", "--home", home.root, "--source", pair.table("clinic"), "--replace"]
    options = ["--subject-id", "subject", "--id-rule", "digits/1", "--schema", schema]
    with pytest.raises(SystemExit):
        main([str(part) for part in (*add, *options)])
    assert "40 ids are written otherwise by digits/1" in capsys.readouterr().out

    def doctor() -> str:
        (check,) = (check for check in examine_home(home, now=system_clock()) if check.name == "data sets")
        return check.found

    assert doctor().startswith("1 registered: main (40 people, read ")
    assert "; 40 ids are written otherwise by digits/1; ids are digits (1 to 2) (digits/1)." in doctor()
    write_ids(pair, "clinic", lambda i: {"subject": ["", "x9", "7"][i] if i < 3 else str(i)})
    with pytest.raises(SystemExit):
        main([str(part) for part in (*add, *options)])
    said = capsys.readouterr().err.replace("\n", " ")
    for expected in ("1 subject id is missing", "1 subject id does not follow", "1 duplicate subject id"):
        assert expected in said
    assert N == 40
