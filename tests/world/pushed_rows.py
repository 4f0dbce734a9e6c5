"""Rows as a party's own system sends them."""

import io
from collections.abc import Iterable
from typing import Any

import httpx
import pyarrow as pa

from commingle.party_agent.rounds.agent import Agent
from commingle.shared.documents.schema import Attribute
from tests.world.local_api import operator_app
from tests.world.transport import InProcess


def declare(agent: Agent, name: str, attributes: Iterable[Attribute], **changes: object) -> None:
    """As the operator declares a data set whose rows are pushed."""
    schema = [attribute.model_dump(mode="json") for attribute in attributes]
    declared = {"name": name, "source": {"kind": "pushed"}, "subject_id": "subject", "subjects": "listed"}
    with httpx.Client(transport=InProcess(operator_app(agent)), base_url="http://agent") as operator:
        answer = operator.post("/v1/datasets?replace=true", json={**declared, "attributes": schema, **changes})
        assert answer.status_code == 201


def csv_of(rows: list[dict[str, str]]) -> bytes:
    return "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]).encode()


def arrow_of(rows: list[dict[str, Any]], **options: Any) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()
