"""What a system with a token of scope `register` tried: to choose what is read, and to read single cells."""

import json
import sqlite3
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pytest
from structlog.testing import capture_logs

from commingle.party_agent.errors import ConflictError
from commingle.party_agent.home.home import Home
from commingle.party_agent.rounds.agent import Agent
from commingle.shared.release.rounds import State
from tests.hostile.actors import LocalUser
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, rows_of, strictly, write_csv
from tests.world.coordinator import problem
from tests.world.local_api import operator, system

QUERY = "SELECT * FROM stays"
ATTRIBUTES = [attribute.model_dump(mode="json") for attribute in SCHEMAS["clinic"]]


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """Where the party's own system puts its tables."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    return folder


@pytest.fixture
def home(consortium: Consortium, allowed: Path) -> Home:
    """A home whose operator has tables outside it, a database among them."""
    with sqlite3.connect(allowed / "stays.db") as db:
        db.execute("CREATE TABLE stays (subject, age, bmi)")
        db.executemany("INSERT INTO stays VALUES (:subject, :age, :bmi)", rows_of("clinic"))
    db.close()
    return consortium.homes["clinic"]


def file(path: object) -> dict[str, str]:
    return {"kind": "file", "path": str(path)}


def partitions(path: object) -> dict[str, str]:
    return {"kind": "partitions", "path": str(path)}


def sql(url: str, query: str = QUERY) -> dict[str, str]:
    return {"kind": "sql", "url": url, "query": query}


def registration(source: dict[str, str], **changes: object) -> dict[str, object]:
    """One that may be of the same people as the world's, which are listed."""
    about = {"name": "more", "source": source, "subject_id": "subject", "subjects": "listed", "people": "everybody"}
    return {**about, "attributes": ATTRIBUTES, **changes}


Trick = Callable[[Home, Path], dict[str, str]]


def by_link(target: Callable[[Home], Path]) -> Trick:
    def trick(home: Home, allowed: Path) -> dict[str, str]:
        link = allowed / "link.csv"
        link.symlink_to(target(home))
        return file(link)

    return trick


def by_hard_link(home: Home, allowed: Path) -> dict[str, str]:
    other = allowed / "other.csv"
    other.hardlink_to(home.database)
    return file(other)


def by_folder(home: Home, allowed: Path) -> dict[str, str]:
    (allowed / "folder").symlink_to(home.root)
    return file(allowed / "folder" / "ledger.sqlite")


OWN: dict[str, Trick] = {
    "ledger": lambda home, _: file(home.database),
    "ledger, by a link": by_link(lambda home: home.database),
    "ledger, by a linked folder": by_folder,
    "ledger, by a hard link": by_hard_link,
    "ledger, by way of proc": lambda home, _: file(f"/proc/self/root{home.database}"),
    "ledger, as a database": lambda home, _: sql(f"sqlite:///{home.database}", "SELECT seq AS subject FROM entries"),
    "ledger, as a URI": lambda home, _: sql(f"sqlite:///file:{home.database}?mode=ro&uri=true"),
    "ledger, as an escaped URI": lambda home, _: sql(
        f"sqlite:///file://{str(home.database).replace('l', '%256c')}?uri=true"
    ),
    "key": lambda home, _: file(home.root / "keys" / "signing.key"),
    "home, as partitions": lambda home, _: partitions(home.root),
    "folder of the home, as partitions": lambda home, _: partitions(home.root / "outbox" / ".." / "outbox"),
    "what there is not yet": lambda home, _: file(home.root / "outbox" / "block.csv"),
}
"""What nobody may register, the operator neither."""


def registered(agent: Agent) -> list[str]:
    return [dataset.name for dataset in agent.datasets.all()]


SINGLED_OUT: dict[str, dict[str, object]] = {
    "as its operator would": {},
    "an attribute as the subject": {"subject_id": ["subject", "age"], "attributes": ATTRIBUTES[1:]},
    "a rule that a cell follows or not": {"subject_id": ["subject", "age"], "id_rules": ["exact/1", "digits/1"]},
    "other bounds": {"attributes": [{**ATTRIBUTES[0], "lower": 30, "upper": 31}]},
    "another name for the same rows, without its cap": {"name": "main2"},
    "other people": {"source": {"kind": "sql", "url": "sqlite:///x.db", "query": f"{QUERY} WHERE subject = 's7'"}},
}
"""Declarations that would let a token read cells by what becomes of the data set, or of releases that name it."""


@pytest.mark.parametrize("at_the_socket", [False, True])
def test_token_chooses_neither_source_nor_key_nor_schema(consortium: Consortium, at_the_socket: bool) -> None:
    with consortium.agent("clinic") as agent, system(agent, peer_is_operator=at_the_socket) as http:
        before = agent.datasets.all()
        for what, replace in product(SINGLED_OUT, ("true", "false")):
            body = {**registration(file(consortium.table("clinic"))), **SINGLED_OUT[what]}
            refused = http.post(f"/v1/datasets?replace={replace}", json=body)
            assert problem(refused) == (403, "scope"), what
            assert agent.datasets.all() == before


def test_operator_registers_no_file_of_the_home(consortium: Consortium, home: Home, allowed: Path) -> None:
    with consortium.agent("clinic") as agent, operator(agent) as http:
        for what, trick in OWN.items():
            folder = allowed / what
            folder.mkdir()
            refused = http.post("/v1/datasets", json=registration(trick(home, folder)))
            assert problem(refused) == (403, "source-refused"), what
            assert registered(agent) == ["main"]


def test_operator_registers_any_table_outside_the_home(consortium: Consortium) -> None:
    with consortium.agent("clinic") as agent, operator(agent) as http:
        made = http.post("/v1/datasets", json=registration(file(consortium.table("clinic"))))
        assert (made.status_code, made.json()["n"]) == (201, 40)


def test_source_that_was_registered_by_a_link_does_not_follow_it_elsewhere(
    consortium: Consortium, allowed: Path
) -> None:
    table = write_csv(allowed / "table.csv", rows_of("clinic"))
    LocalUser(consortium).link(table, allowed / "link.csv")
    with consortium.agent("clinic") as agent, operator(agent) as http:
        assert http.post("/v1/datasets", json=registration(file(allowed / "link.csv"))).status_code == 201
        assert agent.datasets.get("more").source.model_dump()["path"] == str(table)


def written(rows: list[dict[str, str]]) -> Callable[[Path], object]:
    return lambda path: write_csv(path, rows)


ROWS = rows_of("clinic")
TABLES: dict[str, Callable[[Path], object]] = {
    "as it is": written(ROWS),
    "a cell within other bounds": written([{**ROWS[0], "age": "79"}, *ROWS[1:]]),
    "a cell that is clipped": written([{**ROWS[0], "age": "1e9"}, *ROWS[1:]]),
    "a cell that is missing": written([{**ROWS[0], "age": ""}, *ROWS[1:]]),
    "a cell that is no number": written([{**ROWS[0], "age": "none"}, *ROWS[1:]]),
    "a subject twice": written([{**ROWS[0], "subject": ROWS[1]["subject"]}, *ROWS[1:]]),
    "a subject missing": written([{**ROWS[0], "subject": ""}, *ROWS[1:]]),
    "a row less": written(ROWS[1:]),
    "no rows": lambda path: path.write_text("subject,age,bmi\n"),
    "nothing": lambda path: path.write_text(""),
    "no header": lambda path: path.write_text("s1,31,20\ns2,32,21\n"),
    "ragged": lambda path: path.write_text("subject,age,bmi\ns1,31\n"),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "no file": lambda _: None,
}


def everything_told(agent: Agent, release: str) -> list[tuple[int, str]]:
    """All that a token is answered when it has the data set read again, and looks at what has become of it."""
    calls = [
        ("POST", "/v1/datasets/main/reading"),
        ("POST", "/v1/datasets/main/reading"),
        ("GET", "/v1/datasets"),
        ("GET", "/v1/proposals"),
        ("GET", f"/v1/proposals/{release}"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/status"),
        ("GET", "/v1/ledger"),
    ]
    (agent.home.root / "tokens.json").unlink(missing_ok=True)
    with system(agent) as http:
        answers = [http.request(method, where) for method, where in calls]
    return [(answer.status_code, answer.text) for answer in answers]


@pytest.mark.slow
@pytest.mark.parametrize("keyed", [False, True], ids=["listed", "keyed"])
def test_neither_answers_to_a_token_nor_the_state_of_a_release_depend_on_a_row(
    consortium: Consortium, allowed: Path, *, keyed: bool
) -> None:
    told, states = {}, {}
    path = write_csv(allowed / "table.csv", ROWS)
    with consortium.agent("clinic") as agent:
        table: dict[str, Any] = {"source": file(path), "name": "main", "subjects": "keyed" if keyed else "listed"}
        with operator(agent) as person:
            made = person.post("/v1/datasets?replace=true", json=registration(**table))
            assert made.status_code == 201
        release = consortium.propose(keyed=keyed)
        agent.step(strictly)
        for what, write in TABLES.items():
            path.unlink(missing_ok=True)
            write(path)
            told[what] = everything_told(agent, release)
            agent.step(strictly)
            states[what] = (consortium.state(release), agent.proposals.get(release).findings)
    assert [what for what, answers in told.items() if answers != told["as it is"]] == []
    assert set(map(str, states.values())) == {str((State.PROPOSED, ()))}
    assert [status for status, _ in told["as it is"][:2]] == [202, 202]
    shown = json.loads(told["as it is"][2][1])["items"]
    assert [sorted(item) for item in shown] == [
        ["attributes", "name", "people", "source", "subject_id", "subjects", "unit"]
    ]


@pytest.mark.parametrize("keyed", [False, True], ids=["listed", "keyed"])
def test_no_log_line_follows_from_a_record_that_a_token_has_read_again(
    consortium: Consortium, allowed: Path, *, keyed: bool
) -> None:
    """Adversary: a reader of the logs. What is logged is that a file is none."""
    logged: dict[str, Any] = {}
    path = write_csv(allowed / "table.csv", ROWS)
    with consortium.agent("clinic") as agent:
        declared = registration(file(path), name="main", subjects="keyed" if keyed else "listed")
        with operator(agent) as person:
            assert person.post("/v1/datasets?replace=true", json=declared).status_code == 201
        release = consortium.propose(keyed=keyed)
        for what, write in TABLES.items():
            path.unlink(missing_ok=True)
            write(path)
            with capture_logs() as logged[what]:
                everything_told(agent, release)
    different = {what for what, lines in logged.items() if lines != logged["as it is"]}
    assert different == {"nothing", "no header", "no text", "no file"}


@pytest.mark.parametrize("subjects", ["keyed", "listed"])
def test_rows_that_a_token_has_read_again_are_those_of_the_declared_source(
    consortium: Consortium, allowed: Path, subjects: str
) -> None:
    path = write_csv(allowed / "table.csv", ROWS)
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        assert (
            person.post("/v1/datasets", json=registration(file(path), subjects=subjects, people="them")).status_code
            == 201
        )
        write_csv(path, ROWS[1:])
        assert http.post("/v1/datasets/more/reading").status_code == 202
        found = agent.datasets.get("more")
        kept = [one for piece in agent.datasets.snapshot(found.snapshot).ids() for one in piece.to_pylist()]
        gone = ROWS[0]["subject"].encode()
        assert (len(kept), gone in kept) == ((39, False) if subjects == "keyed" else (40, True))


def test_reading_again_that_fails_leaves_what_releases_are_made_of(consortium: Consortium, allowed: Path) -> None:
    path = write_csv(allowed / "table.csv", ROWS)
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        assert person.post("/v1/datasets", json=registration(file(path))).status_code == 201
        before = agent.datasets.get("more")
        path.unlink()
        assert http.post("/v1/datasets/more/reading").status_code == 202
        assert agent.datasets.get("more") == before
        assert problem(person.post("/v1/datasets/more/reading")) == (422, "source")  # the operator is told
        assert problem(http.post("/v1/datasets/absent/reading")) == (404, "unknown")


def test_fault_of_a_reading_is_logged_by_its_kind_alone(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("SENTINEL")

    with consortium.agent("clinic") as agent, capture_logs() as logs:
        monkeypatch.setattr("commingle.party_agent.home.datasets.write_snapshot", fail)
        agent.datasets.try_again("main")
    assert [log["fault"] for log in logs if log["event"] == "data set not read again"] == ["RuntimeError"]
    assert "SENTINEL" not in repr(logs)


@pytest.mark.parametrize("cell", ["", "NaN", "many", "9" * 400, "1e999"])
def test_cell_that_the_operator_is_told_of_is_missing_where_a_token_has_it_read(
    consortium: Consortium, allowed: Path, cell: str
) -> None:
    """Else whether a proposal on it is approved would tell a coordinator, who holds a token, what a cell is."""
    path = write_csv(allowed / "table.csv", ROWS)
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        assert person.post("/v1/datasets", json=registration(file(path))).status_code == 201
        before = agent.datasets.get("more").snapshot
        write_csv(path, [{**ROWS[0], "age": cell}, *ROWS[1:]])
        assert http.post("/v1/datasets/more/reading").status_code == 202
        assert (agent.datasets.get("more").n, agent.datasets.get("more").snapshot != before) == (40, True)
        assert person.post("/v1/datasets/more/reading").status_code == 422


def test_cap_of_a_data_set_holds_for_every_name_of_its_source_and_its_people(
    consortium: Consortium, allowed: Path
) -> None:
    others = write_csv(allowed / "others.csv", [{**row, "subject": f"t{row['subject']}"} for row in ROWS])
    own = consortium.table("clinic")
    with consortium.agent("clinic") as agent, operator(agent) as person:
        for name, path, people in (("again", own, "others"), ("more", others, "everybody"), ("else", others, "them")):
            made = person.post("/v1/datasets", json=registration(file(path), name=name, people=people))
            assert made.status_code == 201
        assert agent.datasets.related("main") == {"main", "again", "more"}
        assert agent.datasets.related("else") == {"else", "more"}
        assert set(agent.lost_by("main")) == {"main", "again", "more"}


def test_whether_two_data_sets_have_somebody_in_common_decides_no_cap(consortium: Consortium, allowed: Path) -> None:
    with consortium.agent("clinic") as agent, operator(agent) as person:
        found = []
        for rows in (ROWS, [{**row, "subject": f"t{row['subject']}"} for row in ROWS]):
            path = write_csv(allowed / "them.csv", rows)
            declared = registration(file(path), name="them", people="them")
            assert person.post("/v1/datasets?replace=true", json=declared).status_code == 201
            found.append(agent.datasets.related("them"))
        assert found == [{"them"}, {"them"}]


def test_data_set_of_the_same_people_or_source_is_of_the_same_kind(consortium: Consortium, allowed: Path) -> None:
    others, own = write_csv(allowed / "others.csv", ROWS), consortium.table("clinic")
    with consortium.agent("clinic") as agent, operator(agent) as person:
        for path, people in ((others, "everybody"), (own, "them"), (own, "everybody")):
            asked = registration(file(path), subjects="keyed", people=people)
            made = person.post("/v1/datasets", json=asked)
            assert problem(made) == (409, "conflict")
            assert "data set main is of the same people or source, and is listed" in made.text
        assert person.post("/v1/datasets", json=registration(file(others), people="everybody")).status_code == 201
        keyed = registration(file(others), name="keyed", subjects="keyed", people="them")
        assert problem(person.post("/v1/datasets", json=keyed)) == (409, "conflict")  # it has the source of `more`
        more = registration(file(others), subjects="keyed", people="them")
        assert person.post("/v1/datasets?replace=true", json=more).status_code == 201
        assert person.post("/v1/datasets", json=keyed).status_code == 201
        assert [one["unit"] for one in person.get("/v1/datasets").json()["items"]] == [
            "add_remove",
            "replace_one",
            "add_remove",
        ]


@pytest.mark.parametrize("subjects", ["keyed", "listed"])
def test_data_set_that_was_charged_stays_of_its_kind(
    consortium: Consortium, subjects: Literal["keyed", "listed"]
) -> None:
    keyed = subjects == "keyed"
    with consortium.agent("clinic") as agent:
        consortium.register(agent, replace=True, subjects=subjects)
        release = consortium.propose(keyed=keyed)
        agent.step(strictly)
        agent.approve(release, BY_A_PERSON)
        with pytest.raises(ConflictError, match="was charged when it was not"):
            consortium.register(agent, replace=True, subjects="listed" if keyed else "keyed")
        agent.reject(release, "operator")  # what is reserved comes back
        consortium.register(agent, replace=True, subjects="listed" if keyed else "keyed")
