"""What a system with a token of scope `register` tried: to read what is not its own, and to read single cells."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from commingle.party_agent.agent import Agent
from commingle.party_agent.allowed_sources import resolve_source
from commingle.party_agent.home import Home
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.tokens import EVERY_SCOPE, create_token
from tests.hostile.actors import LocalUser
from tests.world.consortium import BY_HAND, SCHEMAS, Consortium, consortium_of, rows_of, write_csv
from tests.world.coordinator import problem
from tests.world.local_api import network_app, operator_app
from tests.world.transport import InProcess

QUERY = "SELECT * FROM stays"
ATTRIBUTES = [attribute.model_dump(mode="json") for attribute in SCHEMAS["clinic"]]


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return consortium_of(tmp_path, "clinic", "insurer", policy=BY_HAND)


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """Where the party's own system puts its tables."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    return folder


@pytest.fixture
def home(consortium: Consortium, allowed: Path) -> Home:
    """An operator's home, who has allowed a folder and a query."""
    home = consortium.homes["clinic"]
    database = allowed / "stays.db"
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE stays (subject, age, bmi)")
        db.executemany("INSERT INTO stays VALUES (:subject, :age, :bmi)", rows_of("clinic"))
    db.close()
    listed = {
        "files": [f"{allowed}/*.csv", f"{allowed}/tables", "s3://own/lake"],
        "queries": [{"url": f"sqlite:///{database}", "query": QUERY}],
    }
    (home.root / "sources.json").write_text(json.dumps(listed))
    return home


def system(agent: Agent, app: Callable[[Agent], Any] = network_app) -> httpx.Client:
    """The party's own system, which may do all that a token can."""
    token = create_token(agent.home, name="system", scopes=EVERY_SCOPE, lifetime=None, now=agent.clock())
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(transport=InProcess(app(agent)), base_url="http://agent", headers=headers)


def operator(agent: Agent) -> httpx.Client:
    return httpx.Client(transport=InProcess(operator_app(agent)), base_url="http://agent")


def file(path: object) -> dict[str, str]:
    return {"kind": "file", "path": str(path)}


def partitions(path: object) -> dict[str, str]:
    return {"kind": "partitions", "path": str(path)}


def sql(url: str, query: str = QUERY) -> dict[str, str]:
    return {"kind": "sql", "url": url, "query": query, "order_by": "subject"}


def registration(source: dict[str, str], **changes: object) -> dict[str, object]:
    return {"name": "more", "source": source, "subject_id": "subject", "attributes": ATTRIBUTES, **changes}


Trick = Callable[[Home, Path], dict[str, str]]


def by_link(target: Callable[[Home], Path]) -> Trick:
    """A symbolic link among what is allowed."""

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
    "ledger, by way of /proc": lambda home, _: file(f"/proc/self/root{home.database}"),
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
FOREIGN: dict[str, Trick] = {
    "passwd": lambda *_: file("/etc/passwd"),
    "passwd, by a link": by_link(lambda _: Path("/etc/passwd")),
    "passwd, upwards": lambda _, allowed: file(f"{allowed}/../../../../../../../../../../etc/passwd"),
    "folder below": lambda _, allowed: file(allowed / "below" / "table.csv"),
    "other suffix": lambda _, allowed: file(allowed / "table.parquet"),
    "folder, as partitions": lambda _, allowed: partitions(allowed / "lake"),
    "bucket": lambda *_: partitions("s3://bucket/lake"),
    "allowed bucket of another server": lambda *_: partitions("s3://own/lake?endpoint_override=elsewhere"),
    "below an allowed bucket": lambda *_: partitions("s3://own/lake/below"),
    "another database": lambda _, allowed: sql(f"sqlite:///{allowed}/other.db"),
    "another query": lambda _, allowed: sql(
        f"sqlite:///{allowed}/stays.db", f"{QUERY} WHERE subject = 's7' AND age > 31"
    ),
    "another query, as a comment": lambda _, allowed: sql(f"sqlite:///{allowed}/stays.db", f"{QUERY} --"),
}
"""What an operator may, and a token may not."""


def registered(agent: Agent) -> list[str]:
    return [dataset.name for dataset in agent.datasets.all()]


@pytest.mark.parametrize("app", [network_app, operator_app])
@pytest.mark.parametrize("what", [*OWN, *FOREIGN])
def test_token_registers_nothing_that_the_operator_has_not_allowed(
    consortium: Consortium, home: Home, allowed: Path, what: str, app: Callable[[Agent], Any]
) -> None:
    with consortium.agent("clinic") as agent, system(agent, app) as http:
        refused = http.post("/v1/datasets", json=registration((OWN | FOREIGN)[what](home, allowed)))
        assert problem(refused) == (403, "source-refused")
        assert registered(agent) == ["main"]
        assert "passwd" not in refused.text
        assert "ledger" not in refused.text


@pytest.mark.parametrize("what", OWN)
def test_operator_registers_no_file_of_the_home(consortium: Consortium, home: Home, allowed: Path, what: str) -> None:
    with consortium.agent("clinic") as agent, operator(agent) as http:
        assert problem(http.post("/v1/datasets", json=registration(OWN[what](home, allowed)))) == (
            403,
            "source-refused",
        )
        assert registered(agent) == ["main"]


def test_without_a_list_tokens_register_nothing_and_are_told_how_they_could(consortium: Consortium, home: Home) -> None:
    (home.root / "sources.json").unlink()
    with consortium.agent("clinic") as agent, system(agent) as http:
        refused = http.post("/v1/datasets", json=registration(file(consortium.table("clinic"))))
        assert problem(refused) == (403, "source-refused")
        assert "sources.json" in refused.json()["remedy"]


def test_operator_registers_what_is_on_no_list(consortium: Consortium, home: Home) -> None:
    (home.root / "sources.json").unlink()
    with consortium.agent("clinic") as agent, operator(agent) as http:
        made = http.post("/v1/datasets", json=registration(file(consortium.table("clinic"))))
        assert (made.status_code, made.json()["n"]) == (201, 40)


@pytest.mark.usefixtures("home")
def test_source_that_was_registered_by_a_link_does_not_follow_it_elsewhere(
    consortium: Consortium, allowed: Path
) -> None:
    table = write_csv(allowed / "table.csv", rows_of("clinic"))
    LocalUser(consortium).link(table, allowed / "link.csv")
    with consortium.agent("clinic") as agent, system(agent) as http:
        assert http.post("/v1/datasets", json=registration(file(allowed / "link.csv"))).status_code == 202
        found = agent.datasets.get("more")
        assert found.source.model_dump()["path"] == str(table)


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


def everything_told(http: httpx.Client, path: Path) -> list[tuple[int, str]]:
    """All that a token is answered when it registers a table in every way, and looks at what has become of it."""
    body = registration(file(path))
    calls: list[tuple[str, str, object]] = [
        ("POST", "/v1/datasets", body),
        ("POST", "/v1/datasets", body),
        ("POST", "/v1/datasets?replace=true", body),
        ("POST", "/v1/datasets?replace=true", {**body, "attributes": ATTRIBUTES[:1]}),
        ("GET", "/v1/datasets", None),
        ("GET", "/v1/proposals", None),
        ("GET", "/v1/jobs", None),
        ("GET", "/v1/status", None),
        ("GET", "/v1/ledger", None),
    ]
    answers = [http.request(method, where, json=content) for method, where, content in calls]
    return [(answer.status_code, answer.text) for answer in answers]


def test_what_a_token_is_answered_depends_on_no_row(consortium: Consortium, home: Home, allowed: Path) -> None:
    told = {}
    path = allowed / "table.csv"
    for what, write in TABLES.items():
        for of_the_one_before in (path, home.root / "tokens.json"):
            of_the_one_before.unlink(missing_ok=True)
        write(path)
        with consortium.agent("clinic") as agent, system(agent) as http:
            told[what] = everything_told(http, path)
            with agent.store.transaction() as db:
                db.execute("DELETE FROM datasets WHERE name = 'more'")
    assert [what for what, answers in told.items() if answers != told["as it is"]] == []
    assert [status for status, _ in told["as it is"][:4]] == [202, 409, 202, 202]
    shown = json.loads(told["as it is"][4][1])["items"]
    assert [sorted(item) for item in shown] == [["attributes", "name", "source", "subject_id"]] * 2


@pytest.mark.usefixtures("home")
def test_query_that_is_allowed_is_registered_without_a_count(consortium: Consortium, allowed: Path) -> None:
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        answer = http.post("/v1/datasets", json=registration(sql(f"sqlite:///{allowed}/stays.db")))
        assert (answer.status_code, sorted(answer.json())) == (202, ["attributes", "name", "source", "subject_id"])
        assert agent.datasets.get("more").n == 40
        shown = {item["name"]: item for item in person.get("/v1/datasets").json()["items"]}
        assert (shown["more"]["n"], shown["more"]["missing"]) == (40, {"age": 0, "bmi": 0})  # the operator's to see


@pytest.mark.usefixtures("home")
def test_table_that_could_not_be_read_is_nobodys_to_release(consortium: Consortium, allowed: Path) -> None:
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        assert http.post("/v1/datasets", json=registration(file(allowed / "absent.csv"))).status_code == 202
        assert agent.datasets.find("more") is None
        shown = {item["name"]: item["n"] for item in person.get("/v1/datasets").json()["items"]}
        assert shown == {"main": 40, "more": 0}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("cell", ["", "NaN", "many", "9" * 400, "1e999"])
def test_cell_of_any_kind_leaves_what_a_token_registered_as_good_for_a_release(
    consortium: Consortium, allowed: Path, cell: str
) -> None:
    """Else whether a proposal on it is approved would tell a coordinator, who holds a token, what a cell is."""
    rows = rows_of("clinic")
    path = write_csv(allowed / "table.csv", [{**rows[0], "age": cell}, *rows[1:]])
    with consortium.agent("clinic") as agent, system(agent) as http, operator(agent) as person:
        assert http.post("/v1/datasets", json=registration(file(path))).status_code == 202
        assert agent.datasets.get("more").n == 40
        again = person.post("/v1/datasets?replace=true", json=registration(file(path)))
        assert again.status_code == 422  # the operator is told


def test_token_may_register_the_partitions_that_the_operator_has_allowed(home: Home, allowed: Path) -> None:
    (allowed / "tables").mkdir()
    for path in (str(allowed / "tables"), "s3://own/lake"):
        source = PartitionedSource(path=path)
        assert resolve_source(home, source, operator=False) == source
