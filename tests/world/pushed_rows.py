"""Rows as a party's own system sends them."""

import io
from typing import Any

import pyarrow as pa


def csv_of(rows: list[dict[str, str]]) -> bytes:
    return "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]).encode()


def arrow_of(rows: list[dict[str, Any]], **options: Any) -> bytes:
    table = pa.Table.from_pylist(rows)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, **options) as writer:
        writer.write_table(table)
    return sink.getvalue()
