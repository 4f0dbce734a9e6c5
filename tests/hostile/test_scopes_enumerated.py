"""What each scope is answered at an agent: every route and every field, and none of them follows from rows.

`ROUTES`, `FIELDS` and `METRICS` are the tables a maintainer adds to: a route or a field that is in none of them fails.
Then the same is asked of an agent over two tables that differ in one person's record, with a token for each scope: the
answers are the same to the last byte. Who may ask for which route is the matter of `test_authorisation_local`.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from http import HTTPStatus
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter

from commingle.party_agent.console.app import create_console
from commingle.party_agent.edge.client import PartyClient
from commingle.party_agent.errors import DataError
from commingle.party_agent.home.tokens import EVERY_SCOPE, AgentScope, create_token
from commingle.party_agent.regression.service import Regressions
from commingle.party_agent.wire.answers import EXAMPLES
from commingle.party_agent.wire.owner_words import Viewer, sees_counts
from commingle.shared.documents.regression import RegressionRequest, RegressionResult
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.spec import StatedPurpose
from commingle.shared.forecast.result import Forecast
from commingle.shared.mechanisms.interface import ExchangeCost
from commingle.shared.runtime.errors import UnreachableError
from commingle.shared.runtime.pages.doors import COOKIE, LinkDoor, Session
from tests.hostile.attack import endpoints
from tests.hostile.test_authorisation_local import OPEN, needed
from tests.world.consortium import (
    BY_A_PERSON,
    BY_HAND,
    SCHEMAS,
    Consortium,
    CrashError,
    Noise,
    consortium_of,
    rows_of,
    strictly,
    write_csv,
)
from tests.world.local_api import network_app, operator_app
from tests.world.transport import InProcess, no_fault


class Told(StrEnum):
    """What a field tells. There is no kind for cells: no field may tell one."""

    PUBLIC = "everybody may know it: what is published, or made to be handed on"
    TERMS = "agreed or declared by people, before any row is read: a spec, a schema, a source"
    OWN = "what this party does and decides, of which no part follows from rows"
    BUDGET = "what is spent and left, by terms alone"
    SENT = "of what the caller has sent itself"
    COUNT = "a count of rows, or when they were read: the operator's alone (rounds/counts.py), left out for others"


ROUTES: Mapping[str, str] = {
    "GET /healthz": "none",
    "GET /readyz": "none",
    "GET /metrics": "read",
    "GET /v1/audit": "read",
    "GET /v1/datasets": "read",
    "POST /v1/datasets": "operator",
    "POST /v1/datasets/{name}/reading": "register",
    "GET /v1/datasets/{name}/uploads/{upload}": "register",
    "PUT /v1/datasets/{name}/uploads/{upload}": "register",
    "DELETE /v1/datasets/{name}/uploads/{upload}": "register",
    "PUT /v1/datasets/{name}/uploads/{upload}/pieces/{number}": "register",
    "POST /v1/datasets/{name}/uploads/{upload}/close": "register",
    "GET /v1/jobs": "read",
    "GET /v1/jobs/{release}": "read",
    "GET /v1/ledger": "read",
    "GET /v1/proposals": "read",
    "POST /v1/proposals": "propose",
    "GET /v1/proposals/{release}": "read",
    "PUT /v1/proposals/{release}/approval": "decide",
    "PUT /v1/proposals/{release}/rejection": "decide",
    "GET /v1/regressions": "read",
    "POST /v1/regressions": "decide",
    "GET /v1/regressions/{regression}": "read",
    "GET /v1/releases/{release}/{file}": "read",
    "GET /v1/status": "read",
    "POST /v1/studies/answer": "operator",
}

UNDESCRIBED: Mapping[str, str] = {
    "GET /metrics": "see METRICS",
    "GET /v1/releases/{release}/{file}": "a published file, byte for byte",
    "DELETE /v1/datasets/{name}/uploads/{upload}": "nothing",
}
"""Routes whose answers have no fields."""

FIELDS: Mapping[str, Mapping[Told, str]] = {
    "Health": {Told.OWN: "status"},
    "StatusView": {Told.PUBLIC: "name fingerprint", Told.OWN: "consortia running trouble"},
    "ConsortiumView": {Told.TERMS: "name coordinator fingerprint", Told.OWN: "trouble"},
    "DatasetList": {Told.TERMS: "items"},
    "DatasetView": {
        Told.TERMS: "name source subject_id id_rules subjects unit people attributes derived",
        Told.COUNT: "n ids_changed id_forms clipped missing filled read",
    },
    "NumericAttribute": {Told.TERMS: "kind name lower upper unit missing product"},
    "BinaryAttribute": {Told.TERMS: "kind name levels missing intervals"},
    "CategoricalAttribute": {Told.TERMS: "kind name levels missing intervals cross"},
    "Intervals": {Told.TERMS: "lower upper unit cuts"},
    "UploadView": {Told.SENT: "dataset upload pieces"},
    "PieceView": {Told.SENT: "number rows"},
    "JobList": {Told.OWN: "items"},
    "JobView": {Told.OWN: "release stage error", Told.COUNT: "done total"},
    "ProposalList": {Told.TERMS: "items next"},
    "ProposalView": {
        Told.TERMS: "id study stated stated_sentences approvals_needed mechanism k projection subjects n buckets kept "
        "epsilon delta adjacency calibration id_rules dataset attributes missing leaves columns row_norm whitening "
        "first_stage parties proposer expires cost guess_percent per_subject_epsilon per_subject_outsiders_epsilon "
        "protects trust forecast exchange outlook",
        Told.OWN: "state reason agreed forecast_state decision decided approvals_given findings guess_after_percent",
        Told.COUNT: "held wide",
    },
    "ProposedView": {Told.TERMS: "id study parties expires trust", Told.OWN: "state"},
    "StatedPurpose": {Told.TERMS: "purpose requester ethics_reference target features attachments"},
    "Attachment": {Told.TERMS: "name sha256"},
    "Forecast": {
        Told.TERMS: "mechanism n k epsilon delta parties target target_named public_table public_rows "
        "r_squared_assumed r_squared r_squared_range r_squared_constant relative_error reliable useful n_needed best_k "
        "delta_implementation "
        "terms kept shared_error exchange sentences"
    },
    "TermForecast": {Told.TERMS: "term encoded original"},
    "ExchangeCost": {Told.TERMS: "bounds parties bytes seconds proof_bytes proof_seconds"},
    "PartyCost": {Told.TERMS: "name bytes_sent bytes_received seconds"},
    "CostView": {Told.TERMS: "unit", Told.BUDGET: "rho epsilon delta replacement"},
    "LossView": {Told.BUDGET: "rho delta epsilon"},
    "WhiteningView": {Told.TERMS: "columns condition_number"},
    "FirstStageView": {Told.TERMS: "sums", Told.BUDGET: "rho delta epsilon"},
    "DecidedView": {Told.OWN: "document by why"},
    "LedgerView": {
        Told.TERMS: "population unit",
        Told.BUDGET: "cap spent replacement remaining charges",
        Told.OWN: "entries next",
    },
    "ChargeView": {
        Told.TERMS: "release kind study dataset coordinator unit",
        Told.OWN: "state attempt decided",
        Told.BUDGET: "rho delta epsilon replacement",
    },
    "RegressionCharge": {Told.TERMS: "unit", Told.BUDGET: "rho delta"},
    "RegressionList": {Told.OWN: "items"},
    "RegressionLine": {Told.TERMS: "id dataset target method epsilon delta", Told.OWN: "state", Told.BUDGET: "charge"},
    "RegressionView": {
        Told.TERMS: "id dataset target method epsilon delta request",
        Told.OWN: "state",
        Told.BUDGET: "charge",
        Told.PUBLIC: "result document",
    },
    "RegressionRequest": {
        Told.TERMS: "type version dataset target features method calibration epsilon delta bounds mapping "
        "intercept row_norm label_bound public n nonce"
    },
    "PublicSecondMoments": {Told.PUBLIC: "rows features label"},
    "RegressionResult": {
        Told.PUBLIC: "type version party request method calibration reason target features n coefficients published "
        "privacy created ledger_head software"
    },
    "Coefficient": {Told.PUBLIC: "name label encoded original"},
    "RegressionPrivacy": {
        Told.PUBLIC: "adjacency protects rho_units loss_delta epsilon delta guarantee exact_noise replacement"
    },
    "ChargedLoss": {Told.PUBLIC: "rho_units loss_delta"},
    "SignedDocument": {Told.PUBLIC: "signing_key envelope"},
    "Envelope": {Told.PUBLIC: "payload payloadType signatures"},
    "Signature": {Told.PUBLIC: "keyid sig"},
}

PLAIN: Mapping[str, Any] = {
    "ProposalView.stated": StatedPurpose,
    "ProposalView.forecast": Forecast,
    "ProposalView.exchange": ExchangeCost,
    "RegressionView.request": RegressionRequest,
    "RegressionView.result": RegressionResult,
}
"""What is in a field that the interface describes as an object and no more."""

BY_NAME = {
    *("RegressionRequest.bounds", "RegressionResult.published"),
    *("DatasetView.clipped", "DatasetView.missing", "DatasetView.filled"),
}
"""Fields whose names are those of attributes, or of figures that a charge paid for."""

METRICS: Mapping[Told, str] = {
    Told.PUBLIC: "info",
    Told.OWN: "charges waiting_proposals oldest_waiting_proposal_seconds last_contact_timestamp_seconds "
    "postponed_releases",
    Told.BUDGET: "cap_epsilon cap_delta cap_rho spent_epsilon spent_delta spent_rho remaining_epsilon remaining_delta "
    "remaining_rho replacement_epsilon replacement_delta replacement_rho",
}

Schema = Mapping[str, Any]
Answer = tuple[int, bytes]


def _kinds(table: Mapping[Told, str]) -> dict[str, Told]:
    """Kind by name. Each is classified once."""
    found = [(name, told) for told, names in table.items() for name in names.split()]
    assert len(found) == len(dict(found)), "a name is classified twice"
    return dict(found)


KIND = {f"{model}.{name}": told for model, table in FIELDS.items() for name, told in _kinds(table).items()}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    consortium = consortium_of(tmp_path_factory.mktemp("described"), "clinic", "insurer", policy=BY_HAND)
    with consortium.agent("clinic") as agent:
        app = network_app(agent)
        assert {f"{method} {path}" for method, path in endpoints(app)} == set(ROUTES)
        return app.openapi()


def schemas_of(document: Schema) -> dict[str, Any]:
    """By name, with those of `PLAIN`."""
    return {**document["components"]["schemas"], **plain_schemas()}


@cache
def plain_schemas() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in PLAIN.values():
        made = TypeAdapter(kind).json_schema(ref_template="#/components/schemas/{model}")
        found |= {kind.__name__: made, **made.get("$defs", {})}
    return found


def shapes(schema: Schema, schemas: Schema) -> Iterator[tuple[str, Schema]]:
    """The objects with names that a schema can be, its own fields not looked into."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield name, schemas[name]
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *([schema["items"]] if "items" in schema else ())):
        yield from shapes(part, schemas)


def plain(field: str, schema: Schema) -> Schema:
    """The schema of a field, that of `PLAIN` where the interface says no more than that it is an object."""
    return {"$ref": f"/{PLAIN[field].__name__}"} if field in PLAIN else schema


def answered(document: Schema, route: str) -> Iterator[tuple[str, Schema]]:
    """The models that a route answers with where it does what it is asked."""
    method, path = route.split()
    for status, answer in document["paths"][path][method.lower()]["responses"].items():
        if status.startswith("2"):
            for content in answer.get("content", {}).values():
                yield from shapes(content.get("schema", {}), schemas_of(document))


def reached(document: Schema, route: str) -> set[str]:
    """Every field of every answer, however deep."""
    schemas, found, left = schemas_of(document), set[str](), list(answered(document, route))
    while left:
        model, schema = left.pop()
        for name, described in schema.get("properties", {}).items():
            field = f"{model}.{name}"
            if field not in found:
                found.add(field)
                left.extend(shapes(plain(field, described), schemas))
    return found


def test_every_route_has_its_scope_in_the_table() -> None:
    scopes = {route: needed((route.split()[0], route.split()[1])) for route in ROUTES}
    assert {route: "none" if tuple(route.split()) in OPEN else scope for route, scope in scopes.items()} == ROUTES


@pytest.mark.parametrize("scope", ["none", *sorted(EVERY_SCOPE)])
def test_every_field_a_scope_is_answered_is_classified(document: dict[str, Any], scope: str) -> None:
    routes = [route for route, wanted in ROUTES.items() if wanted == scope]
    found = set[str]().union(*(reached(document, route) for route in routes))
    assert sorted(found - KIND.keys()) == []
    schemas = schemas_of(document)
    counted = [field for field in found if KIND[field] is Told.COUNT]
    always = [f"{model}.{name}" for model, schema in schemas.items() for name in schema.get("required", ())]
    assert not set(counted) & set(always), "what only the operator is told can be left out"
    undescribed = {route for route in routes if not reached(document, route)}
    assert undescribed == {route for route in UNDESCRIBED if ROUTES[route] == scope}


def test_no_field_is_classified_that_nobody_is_answered(document: dict[str, Any]) -> None:
    assert sorted(KIND.keys() - set[str]().union(*(reached(document, route) for route in ROUTES))) == []


def test_every_object_without_a_description_says_what_is_in_it(document: dict[str, Any]) -> None:
    """None can hide a field."""
    hidden = set()
    for route in ROUTES:
        for field in reached(document, route):
            model, name = field.split(".")
            described = schemas_of(document)[model]["properties"][name]
            if '"object"' in json.dumps(described):
                hidden.add(field)
    assert hidden == PLAIN.keys() | BY_NAME


def seen(value: Any, schema: Schema, schemas: Schema) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from seen(item, schema, schemas)
    elif isinstance(value, dict):
        of = [(model, shape) for model, shape in shapes(schema, schemas) if value.keys() <= shape["properties"].keys()]
        assert of or not list(shapes(schema, schemas)), f"not as described: {sorted(value)}"
        for model, shape in of[:1]:
            for name, inner in value.items():
                yield f"{model}.{name}"
                yield from seen(inner, plain(f"{model}.{name}", shape["properties"][name]), schemas)


GAPS = tuple(
    a.model_copy(update={"missing": "midpoint" if a.name == "age" else "error"})
    for a in SCHEMAS["clinic"]
    if isinstance(a, NumericAttribute)
)
"""Regressions are of the other one."""
Row = dict[str, str]


def person(**cells: str) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{**row, **cells} if row["subject"] == "s7" else row for row in rows]


NEIGHBOURS: Mapping[str, Callable[[list[Row]], list[Row]]] = {
    "absent": lambda rows: [row for row in rows if row["subject"] != "s7"],
    "missing cell": person(age=""),
    "bad cell": person(age="forty"),
    "beyond its bounds": person(bmi="900"),
    "another id": person(subject="s99"),
    "twice": lambda rows: [*rows, {"subject": "s7", "age": "31", "bmi": "20"}],
}
SHOWN_TO_THE_OPERATOR = {"absent", "missing cell", "beyond its bounds"}
IN_TURN = ("none", "read", "register", "propose", "decide")
"""Decisions come last: their entries in the chain are salted, and the audit shows them."""
CONSOLE = "127.0.0.1:8901"
FREE_SPACE = re.compile(rb"[^<>]*disk space</dt><dd>[^<]*")
"""Which is other from moment to moment."""
BODIES: Mapping[str, Any] = {
    "POST /v1/proposals": next(iter(EXAMPLES["Study"].values())),
    "POST /v1/datasets": next(iter(EXAMPLES["DatasetRequest"].values())),
}


@dataclass(frozen=True)
class Clinic:
    """An agent that can be put back, so that it meets the same questions over another table."""

    consortium: Consortium
    tokens: Mapping[str, str]
    releases: Mapping[str, str]
    regression: str
    door: LinkDoor
    cookie: str

    def over(self, change: Callable[[list[Row]], list[Row]]) -> dict[str, dict[str, Answer]]:
        """What it answers, by who asks and by route, once its operator has registered a table and it has looked."""
        home = self.consortium.homes["clinic"]
        shutil.rmtree(home.root)
        shutil.copytree(self.consortium.root / "kept", home.root)
        write_csv(self.consortium.table("clinic"), change(rows_of("clinic")))
        self.consortium.coordinator.before = unmoved
        try:
            with self.consortium.agent("clinic", draw=Noise(crash=True)) as agent:
                with suppress(DataError):
                    self.consortium.register(agent, replace=True, attributes=GAPS, subjects="keyed")
                agent.step(attend)
                app, local = network_app(agent), reached_at(operator_app(agent))
                network = reached_at(app)
                found = {"person": dict(self._pages(InProcess(app))), "operator": dict(self._asked(local, "read", ""))}
                return {**found, **{scope: dict(self._asked(network, scope)) for scope in IN_TURN}}
        finally:
            self.consortium.coordinator.before = no_fault

    def _asked(self, http: httpx.Client, scope: str, token: str | None = None) -> Iterator[tuple[str, Answer]]:
        """For everything that a scope is for, of each of the releases."""
        told = self.tokens.get(scope, "") if token is None else token
        headers = {"Authorization": f"Bearer {told}"} if told else {}
        for route in sorted(route for route, wanted in ROUTES.items() if wanted == scope):
            method, path = route.split()
            for name, release in self.releases.items() if "{release}" in path else [("", "")]:
                names = {"file": "matrix", "name": "main", "upload": "one", "number": 1}
                at = path.format(release=release, regression=self.regression, **names)
                answer = http.request(method, at, headers=headers, json=BODIES.get(route, {}))
                yield f"{route} {name}".strip(), (answer.status_code, answer.content)

    def _pages(self, way: InProcess) -> Iterator[tuple[str, Answer]]:
        """The console by a person's link, which asks with a token of their own."""
        home = self.consortium.homes["clinic"]
        app = create_console(home, self.door, lambda token: PartyClient.over(way, token=token))
        with httpx.Client(
            transport=InProcess(app), base_url=f"http://{CONSOLE}", cookies={COOKIE: self.cookie}
        ) as browser:
            proposals = (f"/proposals/{release}" for release in self.releases.values())
            for path in ("/", "/ledger", "/members", "/datasets", "/doctor", *proposals):
                answer = browser.get(path)
                yield path, (answer.status_code, FREE_SPACE.sub(b"", answer.content))


def reached_at(app: FastAPI) -> httpx.Client:
    return httpx.Client(transport=InProcess(app), base_url="http://agent")


def attend(_: str, work: Callable[[], None]) -> None:
    """A release that cannot go on leaves the others as they are."""
    with suppress(UnreachableError, CrashError):
        work()


def unmoved(asked: httpx.Request) -> httpx.Response | None:
    """The coordinator takes nothing, so that it is the same each time."""
    if asked.method == "GET":
        return None
    if asked.url.path.endswith("/ledger-heads"):
        return httpx.Response(200, json={})
    raise httpx.ConnectError("it is away", request=asked)


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Clinic:
    """One release waits for a person, one is refused for its number of subjects, one is to be made; a regression is."""
    consortium = consortium_of(tmp_path_factory.mktemp("clinic"), "clinic", "insurer", policy=BY_HAND)
    home, schemas = consortium.homes["clinic"], {**SCHEMAS, "clinic": GAPS}
    asked = RegressionRequest(
        dataset="main", target="bmi", features=("age",), method="ssp", epsilon=0.3, delta=1e-6, n=50, nonce="1" * 64
    )
    with consortium.agent("clinic") as agent, consortium.agent("insurer") as insurer:
        consortium.register(agent, replace=True, attributes=GAPS, subjects="keyed")
        consortium.register(insurer, replace=True, subjects="keyed")
        Regressions(agent).ask(asked)
        made = consortium.propose(title="made", schemas=schemas, keyed=True)
        for each in (agent, insurer):
            each.step(strictly)
            each.approve(made, BY_A_PERSON)
    waits = consortium.propose(title="waits", schemas=schemas, keyed=True)
    refused = consortium.propose(title="refused", schemas=schemas, n=50)
    # 40 subjects are twice as many, which the operator is told, and 39 are not
    few = consortium.propose(title="few", schemas=schemas, n=20, keyed=True)
    now = consortium.clock_shows
    made_for: list[tuple[str, set[AgentScope], str]] = [(scope, {scope}, "") for scope in EVERY_SCOPE]
    made_for.append(("person", {"read", "decide"}, "Ann"))
    tokens = {
        name: create_token(home, name=name, scopes=frozenset(scopes), lifetime=None, now=now, person=person)
        for name, scopes, person in made_for
    }
    shutil.copytree(home.root, consortium.root / "kept")
    door = LinkDoor(Session("Ann", tokens["person"]), address=CONSOLE, command="commingle party console")
    cookie = door.enter(door.link)
    assert cookie is not None
    return Clinic(
        consortium, tokens, {"waits": waits, "refused": refused, "made": made, "few": few}, asked.id, door, cookie
    )


@pytest.fixture(scope="module")
def before(clinic: Clinic) -> dict[str, dict[str, Answer]]:
    return clinic.over(lambda rows: rows)


@pytest.mark.slow
@pytest.mark.parametrize("changed", NEIGHBOURS)
def test_no_byte_that_anybody_but_the_operator_is_answered_follows_from_one_persons_record(
    clinic: Clinic, before: dict[str, dict[str, Answer]], changed: str
) -> None:
    after = clinic.over(NEIGHBOURS[changed])
    assert after.keys() == {"none", "person", "operator", *EVERY_SCOPE}
    for who in after.keys() - {"operator"}:
        routes = after[who].keys() | before[who].keys()
        moved = [route for route in routes if after[who].get(route) != before[who].get(route)]
        assert moved == [], who
    if changed in SHOWN_TO_THE_OPERATOR:
        assert after["operator"] != before["operator"]


@pytest.mark.slow
def test_answers_have_the_fields_of_the_table_and_tokens_see_no_exact_count(
    document: dict[str, Any], before: dict[str, dict[str, Answer]]
) -> None:
    schemas, found = schemas_of(document), dict[str, set[str]]()
    for who in before.keys() - {"person"}:
        fields = found.setdefault(who, set())
        for key, (status, content) in before[who].items():
            route = " ".join(key.split()[:2])
            if status < HTTPStatus.BAD_REQUEST and route not in UNDESCRIBED:
                for model, _ in answered(document, route):
                    fields |= set(seen(json.loads(content), {"$ref": f"/{model}"}, schemas))
    assert set[str]().union(*found.values()) <= KIND.keys()
    shown = {who: {field for field in fields if KIND[field] is Told.COUNT} for who, fields in found.items()}
    operators = shown.pop("operator")
    assert set().union(*shown.values()) == set()
    assert operators == {field for field, told in KIND.items() if told is Told.COUNT}
    assert found["read"] >= {"JobView.stage", "ProposalView.findings", "RegressionLine.state", "ChargeView.state"}


@pytest.mark.slow
def test_every_metric_is_classified(before: dict[str, dict[str, Answer]]) -> None:
    status, content = before["read"]["GET /metrics"]
    names = set(re.findall(r"^# TYPE commingle_agent_(\w+) ", content.decode(), re.MULTILINE))
    of_a_running_agent = {"last_contact_timestamp_seconds", "postponed_releases"}
    assert (status, names) == (200, _kinds(METRICS).keys() - of_a_running_agent)


@pytest.mark.parametrize("viewer", Viewer)
def test_exact_counts_are_the_operators_and_of_rows_just_sent_their_senders(viewer: Viewer) -> None:
    assert sees_counts(viewer) == (viewer in {Viewer.OPERATOR, Viewer.SENDER})
