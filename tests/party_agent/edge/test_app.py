"""The local API: who may ask, what is answered and never told; its document, whose examples are run."""

import errno
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest

from commingle.party_agent.edge import views
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.edge.views import export_audit, ledger_view, proposal_view
from commingle.party_agent.home.tokens import EVERY_SCOPE, create_token
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.wire.answers import EXAMPLES, LedgerView, ProposalView
from commingle.party_agent.wire.owner_words import Viewer
from commingle.shared.documents.model import encode, text_digest
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.spec import PartySpec, ReleaseSpec
from commingle.shared.forecast.forecast import forecast_of
from commingle.shared.release.audit import verify_party_audit
from commingle.shared.release.plan import BlockPlan, plan_block
from commingle.shared.runtime.errors import UnreachableError
from tests.packaging.openapi import FOLDER
from tests.world.applications import in_turn
from tests.world.consortium import BY_A_PERSON, SCHEMAS, Consortium, rows_of, strictly
from tests.world.coordinator import problem
from tests.world.local_api import operator
from tests.world.transport import InProcess, unreachable

RELEASE = "0" * 64


def registration(path: Path, **changes: object) -> dict[str, Any]:
    attributes = [a.model_dump(mode="json") for a in SCHEMAS["clinic"]]
    source = {"kind": "file", "path": str(path)}
    about = {"name": "more", "source": source, "subject_id": "subject", "subjects": "listed"}
    return {**about, "attributes": attributes, **changes}


def test_status_says_who_this_is(api: httpx.Client, local: LocalApi) -> None:
    said = api.get("/v1/status").json()
    assert said["name"] == "clinic"
    assert said["fingerprint"] == local.agents.identity.signing_key.fingerprint
    assert (said["running"], said["trouble"]) == (False, None)


def test_readiness_fails_while_the_coordinator_is_away(consortium: Consortium) -> None:
    with consortium.agents("clinic") as agents:
        loops = Loops(agents)
        way = in_turn(create_app, LocalApi(agents, loops, peer_is_operator=True))
        with httpx.Client(transport=way, base_url="http://agent") as client:
            assert client.get("/readyz").status_code == 200
            loops.all[0].trouble = UnreachableError("no answer", remedy="Check the network.")
            response = client.get("/readyz")
            assert (response.status_code, response.json()) == (503, {"status": "unreachable"})
            assert client.get("/v1/status").json()["trouble"] == "no answer\n  Check the network."
            assert client.get("/healthz").status_code == 200


def test_metrics_tell_budget_charges_waiting_proposals_and_contact(consortium: Consortium) -> None:
    consortium.propose()
    with consortium.agents("clinic") as agents:
        loops = Loops(agents)
        with httpx.Client(
            transport=in_turn(create_app, LocalApi(agents, loops, peer_is_operator=True)), base_url="http://agent"
        ) as client:
            before = read_metrics(client)
            assert before["commingle_agent_last_contact_timestamp_seconds"] == 0
            consortium.coordinator.before = unreachable(
                "GET", "/v1/parties/clinic/releases"
            )  # it looks, and need not wait afterwards
            with pytest.raises(UnreachableError):
                loops.all[0].turn()
            consortium.clock_shows += timedelta(hours=2)
            waits = read_metrics(client)
            agents.approve(agents.proposals.all()[0].release, BY_A_PERSON)
            after = read_metrics(client)
    assert before["commingle_agent_remaining_epsilon"] == pytest.approx(10, rel=1e-3)
    assert waits["commingle_agent_waiting_proposals"] == 1
    assert waits["commingle_agent_oldest_waiting_proposal_seconds"] == 7200
    assert waits["commingle_agent_last_contact_timestamp_seconds"] > 0
    assert waits["commingle_agent_postponed_releases"] == 0
    assert after["commingle_agent_waiting_proposals"] == 0
    assert after['commingle_agent_charges{state="reserved"}'] == 1
    assert after["commingle_agent_remaining_rho"] < waits["commingle_agent_remaining_rho"]
    assert after["commingle_agent_cap_rho"] == pytest.approx(
        after["commingle_agent_remaining_rho"] + after["commingle_agent_spent_rho"]
    )


def read_metrics(client: httpx.Client) -> dict[str, float]:
    """Values by name, with the labels of charges only."""
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    named = (line.rpartition(" ")[::2] for line in lines)
    return {name if "_charges" in name else name.partition("{")[0]: float(value) for name, value in named}


def test_data_set_is_registered_listed_and_replaced(api: httpx.Client, consortium: Consortium) -> None:
    path = consortium.table("clinic")
    made = api.post("/v1/datasets", json=registration(path))
    assert made.status_code == 201
    view = made.json()
    ages = [float(row["age"]) for row in rows_of("clinic")]
    assert (view["name"], view["n"], view["source"]) == ("more", 40, str(path))
    assert view["clipped"]["age"] == sum(not 20 <= age <= 80 for age in ages) > 0
    assert view["missing"] == {"age": 0, "bmi": 0}
    assert [item["name"] for item in api.get("/v1/datasets").json()["items"]] == ["main", "more"]
    assert problem(api.post("/v1/datasets", json=registration(path))) == (409, "conflict")
    assert api.post("/v1/datasets?replace=true", json=registration(path)).status_code == 201


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"name": "Bad Name"}, 422, "protocol"),
        ({"source": {"kind": "carrier pigeon"}}, 422, "protocol"),
        ({"source": {"kind": "file", "path": "/absent.csv"}}, 422, "source"),
        ({"attributes": []}, 409, "conflict"),
        ({"subject_id": "age"}, 409, "conflict"),
        ({"subject_id": "absent"}, 422, "data"),
        ({"more": 1}, 422, "protocol"),
        ({"attributes": [{"kind": "numeric", "name": "age", "lower": 3, "upper": 3}]}, 422, "protocol"),
        ({"attributes": [{"kind": "binary", "name": "age", "levels": ["a", "b"]}]}, 422, "data"),
        ({"source": {"kind": "sql", "url": "nonsense", "query": "SELECT subject FROM t"}}, 422, "source"),
        ({"source": {"kind": "sql", "url": "sqlite://", "query": "SELECT * FROM t LIMIT 9"}}, 403, "source-refused"),
        ({"source": {"kind": "sql", "url": "sqlite://me:hunter2@/x", "query": "SELECT subject FROM t"}}, 422, "source"),
    ],
)
def test_registration_that_cannot_be_is_a_problem_and_registers_nothing(
    api: httpx.Client, consortium: Consortium, changes: dict[str, object], status: int, code: str
) -> None:
    response = api.post("/v1/datasets", json=registration(consortium.table("clinic"), **changes))
    accepted = {code, "document"} if code == "protocol" else {code}
    assert problem(response) in {(status, each) for each in accepted}, response.text
    assert "hunter2" not in response.text
    assert len(api.get("/v1/datasets").json()["items"]) == 1


def test_field_that_stands_in_the_wrong_part_is_not_asked_for_by_its_own_name(api: httpx.Client) -> None:
    said = api.post("/v1/datasets", json={"by": "subject"}).json()["detail"]
    assert said.endswith("by: is no field of this")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/proposals", {}),
        ("POST", "/v1/datasets", {"name": "Bad Name"}),
        ("POST", "/v1/datasets/main/uploads/monday/close", {"pieces": 0}),
        ("PUT", f"/v1/proposals/{'0' * 64}/approval", {"bye": "Dr. Adams"}),
    ],
)
def test_body_that_is_not_valid_is_referred_to_the_description_of_this_api(
    api: httpx.Client, method: str, path: str, body: dict[str, object]
) -> None:
    refused = api.request(method, path, json=body)
    assert problem(refused) == (422, "document"), refused.text
    assert refused.json()["remedy"] == "Compare the request with /openapi.json."


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"null"])
def test_body_that_is_no_registration_is_a_problem(api: httpx.Client, body: bytes) -> None:
    assert api.post("/v1/datasets", content=body).status_code == 422


def test_whitening_of_a_proposal_is_shown_to_whom_it_concerns(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    whitening = Whitening(centre=(0.0, 0.5), matrix=((4.0, 0.0), (0.0, 0.5)))
    consortium.propose(row_norm=1.0, whitenings={"clinic": whitening})
    others = Whitening(centre=(0.0,), matrix=((4.0,),))
    consortium.propose(title="of others", row_norm=1.0, whitenings={"insurer": others})
    local.agents.consortia[0].step(strictly)
    items = {item["study"]: item for item in api.get("/v1/proposals").json()["items"]}
    assert items["study"]["whitening"] == {"columns": 2, "condition_number": pytest.approx(8)}
    assert items["of others"]["whitening"] is None


def test_proposals_come_in_pages_and_a_page_tells_of_no_others(
    api: httpx.Client, local: LocalApi, consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {consortium.propose(title=f"study {number}") for number in range(5)}
    local.agents.consortia[0].step(strictly)
    told: list[str] = []

    def counted(spec: ReleaseSpec, party: PartySpec) -> BlockPlan:
        told.append(spec.study)
        return plan_block(spec, party)

    monkeypatch.setattr(views, "plan_block", counted)
    found, after = list[str](), dict[str, str]()
    while after or not found:
        told.clear()
        page = api.get("/v1/proposals", params={"limit": 2, **after}).json()
        assert len(told) == len(page["items"]) <= 2
        found += [item["id"] for item in page["items"]]
        after = {"after": page["next"]} if page["next"] else {}
    assert (set(found), len(found)) == (asked, 5)
    local.agents.approve(found[3], BY_A_PERSON)
    kinds = [api.get("/v1/proposals", params={"waiting": waits}).json() for waits in ("true", "false")]
    ledgers = [api.get("/v1/ledger", params={"release": release}).json()["charges"] for release in found[2:4]]
    assert [[charge["release"] for charge in charges] for charges in ledgers] == [[], [found[3]]]
    assert [[item["id"] for item in kind["items"]] for kind in kinds] == [[*found[:3], found[4]], [found[3]]]
    assert api.get("/v1/proposals", params={"after": "f" * 64}).status_code == 404


def test_charges_come_in_pages_from_the_newest_on_and_a_client_puts_them_together(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    asked = [consortium.propose(title=f"study {number}") for number in range(5)]
    local.agents.consortia[0].step(strictly)
    for release in asked:
        local.agents.approve(release, BY_A_PERSON)
    found, before = list[list[str]](), dict[str, str]()
    while before or not found:
        page = api.get("/v1/ledger", params={"limit": 2, **before}).json()
        found.append([charge["release"] for charge in page["charges"]])
        before = {"before": page["next"]} if page["next"] else {}
    assert found == [asked[3:], asked[1:3], asked[:1]]
    with PartyClient.over(in_turn(create_app, local)) as client:
        whole = client.ledger()
    assert ([charge.release for charge in whole.charges], whole.next) == (asked, None)
    assert api.get("/v1/ledger", params={"before": "f" * 64}).status_code == 404


def test_proposals_are_shown_with_cost_and_findings_and_decided(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    first, second = consortium.propose(title="one"), consortium.propose(title="two", mechanism="dgm")
    local.agents.consortia[0].step(strictly)
    items = {item["study"]: item for item in api.get("/v1/proposals").json()["items"]}
    assert {item["decision"] for item in items.values()} == {"waiting"}
    one = items["one"]
    assert (one["attributes"], one["parties"], one["k"]) == (["age", "bmi"], ["clinic", "insurer"], 16)
    assert one["cost"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert one["per_subject_epsilon"] > one["cost"]["epsilon"]
    assert one["per_subject_outsiders_epsilon"] == one["per_subject_epsilon"]  # rmgm publishes block by block
    assert api.put(f"/v1/proposals/{first}/approval").json()["decision"] == "approved"
    assert api.put(f"/v1/proposals/{second}/rejection").json()["decision"] == "rejected"
    assert problem(api.put(f"/v1/proposals/{second}/approval")) == (409, "conflict")
    assert api.get(f"/v1/proposals/{first}").json()["decision"] == "approved"
    assert api.get("/v1/ledger").json()["spent"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    for method, path in (("GET", ""), ("PUT", "/approval"), ("PUT", "/rejection")):
        assert problem(api.request(method, f"/v1/proposals/{RELEASE}{path}")) == (404, "unknown")


def test_ledger_that_cannot_be_written_decides_nothing_and_says_what_to_mend_until_it_can(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    release = consortium.propose()
    local.agents.consortia[0].step(strictly)
    for closed, answer in ((1, (503, "disk")), (0, None)):
        with local.agents.store.reading() as db:
            db.execute(f"PRAGMA query_only={closed}")  # as a disk that the system has made read-only
        said = api.put(f"/v1/proposals/{release}/approval")
        assert (problem(said) if said.is_error else None) == answer
    assert api.get(f"/v1/proposals/{release}").json()["decision"] == "approved"


def test_ledger_that_another_program_holds_is_no_full_disk_and_a_full_disk_is_one_on_every_route(
    api: httpx.Client, local: LocalApi, consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = consortium.propose()
    local.agents.consortia[0].step(strictly)
    with local.agents.store.reading() as db:
        db.execute("PRAGMA busy_timeout=0")
    with closing(sqlite3.connect(local.agents.home.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = api.put(f"/v1/proposals/{release}/approval")
        assert (problem(refused), refused.json()["remedy"]) == (
            (503, "ledger-busy"),
            "End what holds HOME/ledger.sqlite, and try again.",
        )
        other.execute("ROLLBACK")

    with monkeypatch.context() as disk:
        disk.setattr(AgentStore, "transaction", full)
        assert problem(api.put(f"/v1/proposals/{release}/approval")) == (503, "disk")
    assert api.put(f"/v1/proposals/{release}/approval").json()["decision"] == "approved"


def full(_: AgentStore) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_who_decided_is_kept_in_the_chain_alone_and_why_is_sent_with_a_rejection(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    first, second, third = (consortium.propose(title=title) for title in ("one", "two", "three"))
    local.agents.consortia[0].step(strictly)
    told = api.put(f"/v1/proposals/{first}/approval", json={"by": "Dr. Adams", "why": "vote 12/26"}).json()
    assert told["decided"] == [{"document": "approval", "by": "Dr. Adams", "why": "vote 12/26"}]
    api.put(f"/v1/proposals/{first}/rejection", json={"why": "vote revoked"})
    now = local.agents.clock()
    token = create_token(local.agents.home, name="desk", scopes=frozenset({"decide"}), lifetime=None, now=now)
    by_token = {"Authorization": f"Bearer {token}"}
    api.put(f"/v1/proposals/{second}/rejection", json={"by": "B."}, headers=by_token)
    api.put(f"/v1/proposals/{third}/approval", headers=by_token)
    shown = {release: api.get(f"/v1/proposals/{release}").json()["decided"] for release in (first, second, third)}
    assert [(n["document"], n["by"], n["why"]) for release in shown for n in shown[release]] == [
        ("approval", "Dr. Adams", "vote 12/26"),
        ("rejection", "the operator", "vote revoked"),
        ("rejection", "B. (token desk)", ""),
        ("approval", "token desk", ""),
    ]
    local.agents.ledger.verify()
    history = verify_party_audit(encode(export_audit(local.agents)))  # an auditor takes such entries, too
    assert sum('"by": ' in entry for entry in history.audit.entries) == 4
    found = [consortium.coordinator.found(release) for release in shown]
    sent = [e.payload_bytes for one in found for e in (*one.rejections.values(), *one.approvals.values())]
    assert len(sent) == 4
    assert not any(word in payload for payload in sent for word in (b"Adams", b"vote 12/26", b"desk"))
    assert sum(b"vote revoked" in payload for payload in sent) == 1
    for wrong in ({"by": "A\x1b[2J"}, {"by": "A", "as": "B"}):
        assert problem(api.put(f"/v1/proposals/{third}/approval", json=wrong)) == (422, "document")


def test_forecast_is_the_agents_own_whatever_the_coordinator_says(
    api: httpx.Client, local: LocalApi, consortium: Consortium
) -> None:
    promise = {"useful": True, "sentences": ["Wonderfully useful."]}
    consortium.coordinator.shown = lambda view: {**view, "forecast": promise}
    release = consortium.propose()
    local.agents.consortia[0].step(strictly)
    shown = api.get(f"/v1/proposals/{release}").json()
    expected = forecast_of(consortium.coordinator.found(release).document)
    assert expected is not None
    assert shown["forecast"] == json.loads(json.dumps(asdict(expected)))
    assert shown["outlook"] == list(expected.sentences)
    assert "Wonderfully" not in json.dumps(shown)
    assert expected.sentences[0].startswith("Not useful with n = 40 at epsilon 1")


def test_jobs_show_progress_and_errors(api: httpx.Client, local: LocalApi, consortium: Consortium) -> None:
    release = consortium.propose()
    assert api.get("/v1/jobs").json() == {"items": []}
    assert problem(api.get(f"/v1/jobs/{release}")) == (404, "unknown")
    local.agents.consortia[0].step(strictly)
    api.put(f"/v1/proposals/{release}/approval")
    assert api.get(f"/v1/jobs/{release}").json() == {
        "release": release, "stage": "approved", "done": 40, "total": 40, "error": None,
    }  # fmt: skip
    local.agents.jobs.fail(release, "a reason")
    assert api.get("/v1/jobs").json()["items"][0]["error"] == "a reason"


def test_unexpected_fault_is_a_problem_without_its_message(local: LocalApi) -> None:
    app = create_app(local)

    @app.get("/v1/broken")
    def broken() -> None:
        raise ValueError("SENTINEL")

    with httpx.Client(transport=InProcess(app), base_url="http://agent") as client:
        response = client.get("/v1/broken")
    assert problem(response) == (500, "fault")
    assert "SENTINEL" not in response.text


def test_no_response_tells_a_secret(api: httpx.Client, local: LocalApi, consortium: Consortium) -> None:
    home = local.agents.home
    token = create_token(home, name="own", scopes=EVERY_SCOPE, lifetime=None, now=local.agents.clock())
    path = consortium.root / "password-hunter2.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (subject, age, bmi)")
        db.executemany("INSERT INTO t VALUES (:subject, :age, :bmi)", rows_of("clinic"))
    db.close()
    url = f"sqlite:///{path}"
    source = {"kind": "sql", "url": url, "query": "SELECT * FROM t"}
    assert api.post("/v1/datasets", json=registration(path, name="db", source=source)).status_code == 201
    no_such_table = {**source, "query": "SELECT * FROM absent"}
    refused = api.post("/v1/datasets", json=registration(path, name="db2", source=no_such_table))
    assert problem(refused) == (422, "source")
    release = consortium.propose()
    local.agents.consortia[0].step(strictly)
    api.put(f"/v1/proposals/{release}/approval")
    paths = ["/v1/status", "/v1/datasets", "/v1/ledger", "/v1/proposals", f"/v1/proposals/{release}", "/v1/jobs"]
    said = "".join(api.get(p).text for p in [*paths, f"/v1/jobs/{release}", "/readyz", "/openapi.json"]) + refused.text
    secrets = {
        "password": "hunter2",
        "token": token,
        "digest of the token": text_digest(token),
        "linkage key": local.agents.home.consortium().linkage_key().hex(),
        "signing key": (home.root / "keys" / "signing.key").read_text().strip(),
        "sealing key": (home.root / "keys" / "sealing.key").read_text().strip(),
        "snapshot": str(local.agents.datasets.get("main").snapshot),
    }
    assert [name for name, secret in secrets.items() if secret in said] == []


DOCUMENT = json.loads((FOLDER / "party-agent.json").read_text())
VALIDATED = {"HTTPValidationError", "ValidationError"}  # FastAPI's own, which no answer here is


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_field_parameter_and_operation_is_explained() -> None:
    unexplained = [
        f"{name}.{field}"
        for name, schema in DOCUMENT["components"]["schemas"].items()
        for field, said in schema.get("properties", {}).items()
        if name not in VALIDATED and not (said.get("description") or said.get("const") or field == "kind")
    ]
    for name, operation in operations():
        unexplained += [f"{name} {p['name']}" for p in operation.get("parameters", []) if not p.get("description")]
        unexplained += [] if operation.get("description") else [name]
    assert unexplained == []


def test_every_body_has_an_example() -> None:
    bodies = {
        name: operation["requestBody"]["content"] for name, operation in operations() if "requestBody" in operation
    }
    lacking = [
        (name, kind)
        for name, content in bodies.items()
        for kind, said in content.items()
        if not (said.get("example") or said.get("examples")) and said["schema"].get("format") != "binary"
    ]
    assert (len(bodies), lacking) == (8, [])


def shown(path: str, method: str, kind: str = "application/json") -> list[Any]:
    """The examples of an operation."""
    said = DOCUMENT["paths"][path][method]["requestBody"]["content"][kind]
    return [said["example"]] if "example" in said else [each["value"] for each in said["examples"].values()]


def test_every_example_does_what_its_operation_says(consortium: Consortium, tmp_path: Path) -> None:
    upload = "/v1/datasets/{name}/uploads/{upload}"
    with consortium.agent("clinic") as agent, operator(agent) as http:
        consortium.register(agent, replace=True, subjects="keyed")
        at = upload.format(name="stays", upload="monday")
        file, query, pushed = shown("/v1/datasets", "post")
        assert http.post("/v1/datasets", json=pushed).status_code == 201
        assert http.put(at).status_code == 201
        for kind in ("text/csv", "application/x-ndjson"):
            (rows,) = shown(f"{upload}/pieces/{{number}}", "put", kind)
            sent = http.put(f"{at}/pieces/1", content=rows, headers={"Content-Type": kind})
            assert sent.json() == {"number": 1, "rows": 2}
        (closing,) = shown(f"{upload}/close", "post")
        assert http.post(f"{at}/close", json=closing).json()["missing"] == {"age": 0, "glucose": 1, "emergency": 0}
        (asked,) = shown("/v1/regressions", "post")
        assert http.post("/v1/regressions", json=asked).json()["state"].startswith(("published", "kept"))
        table = tmp_path / "stays.csv"
        table.write_text(EXAMPLES["text/csv"])
        place = {**file, "source": {**file["source"], "path": str(table)}}
        assert http.post("/v1/datasets?replace=true", json=place).status_code == 201
        assert http.post("/v1/datasets?replace=true", json=query).json()["type"].endswith(":source")  # no such database
        (study,) = shown("/v1/proposals", "post")
        assert http.post("/v1/proposals", json=study).status_code == 201
        release = consortium.propose(keyed=True)
        agent.step(strictly)
        for decision in ("approval", "rejection"):
            (note,) = shown(f"/v1/proposals/{{release}}/{decision}", "put")
            decided = http.put(f"/v1/proposals/{release}/{decision}", json=note)
            assert decided.json()["decided"][-1] == {"document": decision, **note}
        answered = http.get(f"/v1/proposals/{release}").json()
        answered_view = proposal_view(agent, agent.proposals.get(release), Forecasts(agent.store), Viewer.OPERATOR)
        assert answered == answered_view.model_dump(mode="json")
        assert set(answered) == set(ProposalView.model_fields)
        ledger = http.get("/v1/ledger").json()
        assert (ledger, set(ledger)) == (
            ledger_view(agent.ledger).model_dump(mode="json"),
            set(LedgerView.model_fields),
        )
    RegressionRequest.model_validate_json(json.dumps(asked))
