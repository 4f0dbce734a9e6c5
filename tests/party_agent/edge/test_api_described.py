"""The agent's OpenAPI document: every field is explained, and every example in it is run."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commingle.party_agent.edge import api as examples
from commingle.party_agent.edge.views import ledger_view, proposal_view
from commingle.party_agent.rounds.forecasts import Forecasts
from commingle.party_agent.rounds.jobs import Viewer
from commingle.party_agent.wire.answers import LedgerView, ProposalView
from commingle.shared.documents.regression import RegressionRequest
from tests.packaging.openapi import FOLDER
from tests.world.consortium import Consortium, strictly
from tests.world.local_api import operator

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
    with (
        consortium.agent("clinic") as agent,
        operator(agent) as http,
    ):
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
        table.write_text(examples.CSV_ROWS)
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
