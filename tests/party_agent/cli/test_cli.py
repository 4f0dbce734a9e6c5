"""The operator's commands, without and with a running agent."""

import io
import json
import shlex
import signal
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.consortium import Commingle
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import compose_agents
from commingle.shared.documents.spec import Attachment, ReleaseSpec
from commingle.shared.documents.terms import Bounds
from commingle.shared.mechanisms.moments.block import TRUST_MOMENTS, TRUST_PROVED
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.releasing import look, proposed_and_lost
from tests.world.command import Command, eventually
from tests.world.consortium import AUTOMATIC, BY_A_PERSON, SCHEMAS, Consortium, rows_of, write_csv
from tests.world.tampering import TamperedCoordinator
from tests.world.transport import on_a_socket


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "party")


@pytest.fixture
def consortium(consortium: Consortium) -> Consortium:
    """Commands live in the present, so this coordinator does too."""
    consortium.clock_shows = system_clock()
    return consortium


def adding(consortium: Consortium, name: str = "x") -> tuple[object, ...]:
    """The command by which the clinic registers one more table of listed subjects."""
    home = consortium.homes["clinic"].root
    return "datasets", "add", name, "--home", home, "--subject-id", "subject", "--listed"


def at(consortium: Consortium, url: str) -> None:
    """The homes know the coordinator under its real address."""
    for home in consortium.homes.values():
        known = home.consortium()
        home.join(known.coordinator().model_copy(update={"url": url}), name=known.name)


def schema_file(tmp_path: Path) -> Path:
    path = tmp_path / "clinic.schema.json"
    path.write_text(json.dumps([a.model_dump(mode="json") for a in SCHEMAS["clinic"]]))
    return path


def test_party_is_made_enrolled_pinned_and_given_data_by_commands(
    run: Command, tmp_path: Path, coordinator: TamperedCoordinator
) -> None:
    home = tmp_path / "ward"
    made = run.json("init", "--home", home, "--name", "clinic", "--epsilon-cap", 6)
    assert made == {
        "home": str(home), "name": "clinic", "fingerprint": Home(home).identity().signing_key.fingerprint,
    }  # fmt: skip
    invite = coordinator.invited("clinic")
    with on_a_socket(coordinator.handle) as url:
        enrolled = run.json("enrol", "--home", home, "--coordinator", url, "--invite", invite)
    assert enrolled == {"consortium": "hub", "coordinator": url, "fingerprint": coordinator.key.fingerprint}
    assert run.json("pin", "--home", home, "lab", "AB" * 32) == {"pinned": {"lab": "ab" * 32}}
    table = write_csv(tmp_path / "t.csv", rows_of("clinic"))
    add = ("datasets", "add", "main", "--home", home, "--source", table, "--subject-id", "subject")
    added = run.json(*add, "--schema", schema_file(tmp_path))
    assert (added["n"], sorted(added["clipped"])) == (40, ["age", "bmi"])
    code, out, _ = run(*add, "--schema", schema_file(tmp_path))
    assert code == 1
    out = run.out(*add, "--schema", schema_file(tmp_path), "--replace")
    assert "Data set main: 40 people, keyed (add_remove)." in out
    assert "in the unit of the table?" not in out
    grams = write_csv(tmp_path / "grams.csv", [row | {"bmi": "30000"} for row in rows_of("clinic")])
    code, out, _ = run(
        *(grams if part == table else part for part in add), "--schema", schema_file(tmp_path), "--replace"
    )
    assert "bmi: 40 values were outside the bounds and are clipped: are the bounds in the unit of the table?" in out
    assert "nearly all values" not in out
    alike = write_csv(tmp_path / "alike.csv", [row | {"bmi": "28"} for row in rows_of("clinic")])
    code, out, _ = run(
        *(alike if part == table else part for part in add), "--schema", schema_file(tmp_path), "--replace"
    )
    assert "bmi: nearly all values lie within 1 % of the bounds" in out
    run.out(*add, "--schema", schema_file(tmp_path), "--replace")
    assert [item["name"] for item in run.json("datasets", "list", "--home", home)["items"]] == ["main"]
    assert run.json("ledger", "--home", home)["cap"]["epsilon"] == 6.0
    status = run.json("status", "--home", home)
    assert (status["running"], status["fingerprint"]) == (False, made["fingerprint"])
    code, out, _ = run("status", "--home", home)
    assert ("running: False" in out, "None" in out) == (True, False)


def test_linkage_key_is_made_by_the_first_member_and_taken_over_by_the_next(run: Command, tmp_path: Path) -> None:
    run("init", "--home", tmp_path / "a", "--name", "a")
    key = tmp_path / "a" / "keys" / "linkage.key"
    out = run.out("init", "--home", tmp_path / "b", "--name", "b", "--linkage-key", key)
    assert "Hand" not in out
    assert Home(tmp_path / "a").consortium().linkage_key() == Home(tmp_path / "b").consortium().linkage_key()
    key.chmod(0o644)
    code, _, err = run("init", "--home", tmp_path / "c", "--name", "c", "--linkage-key", key)
    assert (code, "can be read by others" in err, (tmp_path / "c").exists()) == (1, True, False)


def test_command_that_is_printed_for_a_home_with_blanks_can_be_copied(run: Command, tmp_path: Path) -> None:
    home = tmp_path / "a ward"
    code, out, _ = run("init", "--home", home, "--name", "ward")
    [line] = (one for one in out.splitlines() if "linkage send" in one)
    assert (code, shlex.split(line)) == (0, ["commingle", "party", "linkage", "send", "--home", str(home)])


@pytest.mark.parametrize(
    "options",
    [
        ("--epsilon-cap", "nan"),
        ("--epsilon-cap=-1",),
        ("--epsilon-cap", "1e300"),
        ("--delta-cap", "1"),
        ("--name", "Bad Name"),
        ("--population", "Bad Name"),
    ],
    ids=str,
)
def test_init_with_what_cannot_be_is_one_clear_error_and_writes_nothing(
    run: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    name = () if "--name" in options else ("--name", "ward")
    code, out, err = run("init", "--home", tmp_path / "h", *name, *options, "--json")
    assert code == 1
    assert err.startswith("Error: ")
    assert json.loads(out)["error"].keys() == {"code", "message", "remedy"}
    assert not (tmp_path / "h").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("datasets", "list"),
        ("proposals",),
        ("approve", "ab" * 4),
        ("reject", "ab" * 4),
        ("ledger",),
        ("serve",),
        ("status",),
    ],
)
def test_party_that_is_not_enrolled_says_so(run: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    run("init", "--home", tmp_path / "h", "--name", "a")
    assert "this member is not enrolled" in run.refused(*command, "--home", tmp_path / "h")
    code, _, err = run(*command, "--home", tmp_path / "absent")
    assert (code, err.startswith("Error: cannot read")) == (1, True)


@pytest.mark.parametrize(
    "given",
    [("lab", "AB" * 32, "insurer", "cd" * 32), (f"lab={'ab' * 32}", f"insurer={'cd' * 32}")],
    ids=["pairs", "assignments"],
)
def test_several_members_are_pinned_at_once(run: Command, tmp_path: Path, given: tuple[str, ...]) -> None:
    run("init", "--home", tmp_path / "h", "--name", "a")
    run("pin", "--home", tmp_path / "h", "ward", "ef" * 32)
    said = run.json("pin", "--home", tmp_path / "h", *given)
    assert said == {"pinned": {"lab": "ab" * 32, "insurer": "cd" * 32}}
    assert Home(tmp_path / "h").consortium().pins() == {"lab": "ab" * 32, "insurer": "cd" * 32, "ward": "ef" * 32}


@pytest.mark.parametrize(
    ("given", "exit_code"),
    [
        ((), 2),
        (("lab",), 2),
        (("lab", "ab" * 32, "insurer"), 2),
        ((f"lab={'ab' * 32}", f"lab={'cd' * 32}"), 2),
        ((f"={'ab' * 32}",), 2),
        ((f"lab={'ab' * 32}", "insurer", "cd" * 32), 2),
        ((f"lab={'ab' * 32}", "insurer=garbage"), 1),
    ],
    ids=["none", "no fingerprint", "one short", "twice", "nobody", "mixed", "garbage"],
)
def test_what_are_no_pairs_pins_nobody(run: Command, tmp_path: Path, given: tuple[str, ...], exit_code: int) -> None:
    run("init", "--home", tmp_path / "h", "--name", "a")
    assert run("pin", "--home", tmp_path / "h", *given)[0] == exit_code
    assert Home(tmp_path / "h").consortium().pins() == {}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--source", "a.csv", "--database-url", "sqlite://"),
        ("--database-url", "sqlite://"),
        ("--query", "SELECT 1"),
    ],
)
def test_data_set_needs_exactly_one_source(
    run: Command, consortium: Consortium, tmp_path: Path, options: tuple[str, ...]
) -> None:
    add = adding(consortium)
    assert "--source" in run.refused(*add, "--schema", schema_file(tmp_path), *options, code=2)


def test_query_that_looks_at_other_rows_is_added_with_its_owners_promise_only(
    run: Command, consortium: Consortium, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "t.db") as db:
        db.execute("CREATE TABLE t (subject, age, bmi)")
        db.executemany("INSERT INTO t VALUES (:subject, :age, :bmi)", rows_of("clinic"))
    db.close()
    add = adding(consortium)
    asked = ("--database-url", f"sqlite:///{tmp_path}/t.db", "--query", "SELECT * FROM t ORDER BY age")
    code, _, err = run(*add, "--schema", schema_file(tmp_path), *asked)
    assert (code, "it uses order" in err, "--each-row-by-itself" in err) == (1, True, True)
    assert run.json(*add, "--schema", schema_file(tmp_path), *asked, "--each-row-by-itself")["n"] == 40


def test_schema_that_cannot_be_read_is_a_clear_error(run: Command, consortium: Consortium, tmp_path: Path) -> None:
    add = adding(consortium)
    table = ("--source", consortium.table("clinic"))
    assert run(*add, *table, "--schema", tmp_path / "absent")[0] == 1
    (tmp_path / "bad.json").write_text("{}")
    assert "not a valid attribute schema" in run.refused(*add, *table, "--schema", tmp_path / "bad.json")


@pytest.mark.slow
def test_proposal_is_approved_and_rejected_by_commands_while_no_agent_runs(
    run: Command, consortium: Consortium
) -> None:
    first, second = consortium.propose(title="[/bold] one"), consortium.propose(title="two [red]")
    look(consortium, *consortium.homes)
    home = ("--home", consortium.homes["clinic"].root)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        code, out, err = run("approve", first[:20], *home, "--yes", "--json")
        assert (code, json.loads(out)["decision"], err) == (0, "approved", "")
        assert run("approve", second, *home, "--yes")[0] == 0
        assert "here rejected" in run.out(
            "reject", second, *home, "--yes", "--by", "Dr. Adams", "--why", "no [ethics] vote"
        )
    assert "rejection by “Dr. Adams”: “no [ethics] vote”" in run("proposals", second[:8], *home)[1]
    out = run.out("proposals", *home)
    for expected in ("[/bold] one", "two [red]", "costs this ledger epsilon 1", "Not useful with n = 40 at epsilon 1"):
        assert expected in out
    code, out, _ = run("ledger", *home)
    assert (code, "reserved" in out, "[/bold] one" in out.replace("\n", "")) == (0, True, True)
    assert ("given back" in out, "released" in out) == (True, False)
    assert consortium.state(second) == "rejected"
    assert "no such proposal" in run.refused("approve", "f" * 8, *home)


def test_rejection_of_a_release_that_the_coordinator_lost_succeeds_and_says_why_it_ended(
    run: Command, consortium: Consortium
) -> None:
    release = proposed_and_lost(consortium, "clinic")
    home = ("--home", consortium.homes["clinic"].root)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        assert "does not know it" in run.refused("approve", release, *home, "--yes")
        out = run.out("reject", release, *home, "--yes")
    assert "rejected, here rejected" in out
    assert "its coordinator does not know it" in out


@pytest.fixture
def release(consortium: Consortium) -> str:
    return consortium.propose()


def test_agent_may_start_while_a_person_thinks(
    run: Command, consortium: Consortium, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    look(consortium, *consortium.homes)
    home, started = consortium.homes["clinic"], []

    def thinking(*_: Any, **__: Any) -> None:
        with compose_agents(home):
            started.append(home)
        raise click.Abort

    monkeypatch.setattr(click, "confirm", thinking)
    for command in ("approve", "reject"):
        assert run(command, release[:8], "--home", home.root)[0] == 130
    assert started == [home, home]


def test_proposal_is_shown_and_confirmed_before_it_is_decided(
    run: Command, consortium: Consortium, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    look(consortium, *consortium.homes)
    home = ("--home", consortium.homes["clinic"].root)
    for given in ("", release[0], release[:7]):
        code, out, err = run("approve", given, *home)
        assert (code, out, "at least the first 8 letters" in err) == (2, "", True)
    assert "--json asks nobody: add --yes" in run.refused("approve", release, *home, "--json", code=2)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = run("approve", release[:8], *home, "--by", "Dr. Adams")
    assert (code, out) == (130, "")
    assert err.index("costs this ledger epsilon 1") < err.index("Approve this as Dr. Adams? [y/N]")
    assert run.json("proposals", release[:8], *home)["decision"] == "waiting"
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        assert run("approve", release[:8], *home, "--by", "Dr. Adams", "--why", "vote 12/26")[0] == 0
    shown = run.json("proposals", release[:8], *home)
    assert (shown["decision"], shown["decided"]) == (
        "approved",
        [{"document": "approval", "by": "Dr. Adams", "why": "vote 12/26"}],
    )


def with_semicolons(rows: list[dict[str, str]]) -> bytes:
    lines = [";".join(rows[0]), *(";".join(row.values()).replace(".", ",") for row in rows)]
    return "\n".join(lines).encode("utf-16")


def with_line_ends_in_cells(rows: list[dict[str, str]]) -> bytes:
    lines = [",".join(["note", *rows[0]]), *(",".join(['"first\nlast"', *row.values()]) for row in rows)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("written", "said", "options"),
    [
        (
            with_semicolons,
            "Read it so: --encoding utf-16 --separator ';' --decimal ','",
            ("--encoding", "utf-16", "--separator", ";", "--decimal", ","),
        ),
        (with_line_ends_in_cells, "--lines-per-record", ("--lines-per-record", "2")),
    ],
)
def test_table_is_registered_as_it_is_said_to_be_written(
    run: Command,
    consortium: Consortium,
    tmp_path: Path,
    written: Callable[[list[dict[str, str]]], bytes],
    *,
    said: str,
    options: tuple[str, ...],
) -> None:
    rows = rows_of("clinic")
    (tmp_path / "table.csv").write_bytes(written(rows))
    add = (*adding(consortium, "more"), "--source", tmp_path / "table.csv", "--schema", schema_file(tmp_path))
    assert said in run.refused(*add)
    assert run(*add, "--lines-per-record", "1001")[0] == 2
    code, out, err = run(*add, *options)
    assert (code, out.startswith(f"Data set more: {len(rows)} people, listed (replace_one).\n")) == (0, True), err


@pytest.mark.parametrize(
    ("bounds", "trust"), [(None, TRUST_PROVED), ("proved", TRUST_PROVED), ("trusted", TRUST_MOMENTS)]
)
def test_whom_a_moments_release_trusts_is_said_before_it_is_approved(
    run: Command, consortium: Consortium, bounds: Bounds | None, trust: str
) -> None:
    release = consortium.propose(mechanism="moments", bounds=bounds)
    look(consortium, *consortium.homes)
    assert consortium.state(release) == "proposed"
    home = ("--home", consortium.homes["clinic"].root)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        (item,) = run.json("proposals", *home)["items"]
        assert item["trust"] == trust
        assert item["cost"]["epsilon"] < item["per_subject_outsiders_epsilon"] < item["per_subject_epsilon"]
        code, _, err = run("approve", release, *home, "--yes")
    assert code == 0
    own = next(party for party in item["exchange"]["parties"] if party["name"] == "clinic")
    assert (item["exchange"]["bounds"], own["bytes_sent"] > 0) == (bounds or "proved", True)
    assert ("Proofs that members keep their bounds and follow it are" in err) == (bounds != "trusted")
    assert "What is debited stays spent also where another member never sends its part, or a proof of it." in err
    assert trust in err
    assert f"to outsiders epsilon {item['per_subject_outsiders_epsilon']:.3g}" in err
    assert f"fellow members included, epsilon {item['per_subject_epsilon']:.3g}." in err


def test_approval_without_a_coordinator_is_told_before_it_is_signed(
    run: Command, consortium: Consortium, release: str
) -> None:
    look(consortium, *consortium.homes)
    at(consortium, "http://127.0.0.1:1")
    home = ("--home", consortium.homes["clinic"].root)
    code, _, err = run("approve", release, *home, "--yes")
    assert (code, "no answer from http://127.0.0.1:1" in err) == (1, True)
    assert err.index("Not useful with n = 40 at epsilon 1") < err.index("no answer")  # told before anything was signed
    assert run.json("proposals", *home)["items"][0]["decision"] == "waiting"


def test_altered_ledger_is_told_before_anything_else(run: Command, consortium: Consortium, release: str) -> None:
    look(consortium, *consortium.homes)
    with consortium.agent("clinic") as agent:
        agent.approve(release, BY_A_PERSON)
        with agent.store.transaction() as db:
            db.execute("UPDATE entries SET body = replace(body, 'reserved', 'released')")
    assert "was altered" in run.refused("proposals", "--home", consortium.homes["clinic"].root)


@pytest.mark.slow
def test_commands_talk_to_the_running_agent_and_it_finishes_the_round(
    run: Command, consortium: Consortium, release: str
) -> None:
    consortium.homes["insurer"].save_policy(AUTOMATIC)
    home = consortium.homes["clinic"]
    found = consortium.coordinator.found(release)
    serve = ("party", "serve", "--home", home.root)

    def answer(*command: object) -> Any:
        return run.json(*command, "--home", home.root)

    def published() -> bool:
        consortium.step("insurer")
        return found.state == "published"

    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        with Commingle().serving(*serve, log=subprocess.PIPE) as (clinic, said):
            eventually(lambda: bool(answer("proposals")["items"]), what="no proposal", seconds=60)
            assert answer("status")["running"] is True
            assert said["socket"] == str(home.socket)
            assert "another agent works on" in run.refused("serve", "--home", home.root)
            assert answer("approve", release, "--yes")["decision"] == "approved"
            eventually(published, what="not published", seconds=60)
            eventually(lambda: answer("ledger")["charges"][0]["state"] == "acked", what="not acknowledged", seconds=60)
            clinic.send_signal(signal.SIGTERM)
            _, err = clinic.communicate(timeout=60)
    assert clinic.returncode == 0, err
    assert not home.socket.exists()
    logged = [json.loads(line) for line in err.splitlines()]
    done = [line["event"] for line in logged if line["event"] in {"approved", "stored", "uploaded"}]
    assert done == ["approved", "stored", "uploaded"]
    values = {row["age"] for row in rows_of("clinic")} | {home.consortium().linkage_key().hex()}
    timeless = json.dumps([{**line, "timestamp": None} for line in logged])  # ages look like seconds
    assert not any(value in timeless for value in values)


@pytest.mark.slow
def test_running_agent_whose_ledger_was_set_back_stops_and_says_so(consortium: Consortium, release: str) -> None:
    look(consortium, *consortium.homes)
    backup = consortium.homes["clinic"].database.read_bytes()
    with consortium.agent("clinic") as agent:
        agent.approve(release, BY_A_PERSON)
    consortium.homes["clinic"].database.write_bytes(backup)
    with on_a_socket(consortium.coordinator.handle) as url:
        at(consortium, url)
        serve = ("party", "serve", "--home", consortium.homes["clinic"].root)
        with Commingle().serving(*serve, log=subprocess.PIPE) as (process, _):
            _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "restore the newest ledger" in err


def test_what_a_study_is_for_is_shown_before_it_is_decided(
    run: Command, consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {
        "purpose": "Do older people pay more?",
        "requester": "Dr. Adams",
        "ethics_reference": "EA1/123/26",
        "target": "charges",
        "features": ("age",),
        "attachments": (Attachment(name="protocol.pdf", sha256="ab" * 32),),
    }
    silent, spoken = consortium.spec(title="silent"), consortium.spec(title="spoken")
    for spec in (silent, ReleaseSpec(**dict(spoken) | said)):
        consortium.enrol_everybody()
        consortium.coordinator.propose(spec)
    look(consortium, *consortium.homes)
    home = ("--home", consortium.homes["clinic"].root)
    items = {item["study"]: item for item in run.json("proposals", *home)["items"]}
    assert items["spoken"]["stated"]["target"] == "charges"
    assert items["silent"]["stated"] == {}
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    _, out, err = run("approve", items["spoken"]["id"], *home)
    assert out == ""
    for expected in (
        "Purpose: “Do older people pay more?”",
        "Requested by “Dr. Adams”",
        "Ethics reference: “EA1/123/26”",
        "To explain charges by age",
        f"Attachment: “protocol.pdf”, SHA-256 {'ab' * 32}",
        "of 'charges'. ",
    ):
        assert expected in err
    assert "Nothing is said of what it is for." in run("proposals", items["silent"]["id"], *home)[1]
