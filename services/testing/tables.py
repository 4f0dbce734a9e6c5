"""The tables that agents of a consortium are given, and what each says of its columns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from pydantic import TypeAdapter

from commingle.services.tables.reading import read_table
from commingle.services.tables.schema import Unusable, draft
from commingle.services.testing.errors import ConsortiumError
from commingle.shared.documents.schema import Attribute

DATASET = "main"
_ATTRIBUTES = TypeAdapter(tuple[Attribute, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A party's table, with its schema.

    Attributes:
        rows: a CSV or Parquet file.
        attributes: of its columns.
        subject_id: the columns that identify subjects.
        id_rules: how ids are written; none for exactly.
    """

    rows: Path
    attributes: tuple[Attribute, ...]
    subject_id: tuple[str, ...] = ("subject",)
    id_rules: tuple[str, ...] = ()


def dataset_of(
    table: Any,  # noqa: ANN401 - of any library
    folder: Path,
    *,
    subject_id: str,
    schema: Sequence[Attribute | Mapping[str, Any]] | None,
) -> Dataset:
    """A table as a file of that folder, unless it is one already, with the schema given or one drafted from it.

    Args:
        table: a file, or whatever `pyarrow.table` takes: a data frame, columns by name.
        folder: the party's.
        subject_id: the column that identifies subjects.
        schema: attributes, or their JSON.

    Raises:
        TableError, ConsortiumError: there is no such column, or a column that needs a schema.
    """
    if isinstance(table, Dataset):
        return table
    if isinstance(table, str | Path):
        rows = Path(table).resolve()
    else:
        rows = folder / "rows.parquet"
        pyarrow.parquet.write_table(table if isinstance(table, pa.Table) else pa.table(table), rows)
    if schema is None:
        return Dataset(rows=rows, attributes=_drafted(rows, subject_id), subject_id=(subject_id,))
    given = [one if isinstance(one, Mapping) else one.model_dump(mode="json") for one in schema]
    return Dataset(rows=rows, attributes=_ATTRIBUTES.validate_json(json.dumps(given)), subject_id=(subject_id,))


def rows_of(dataset: Dataset) -> int:
    """How many it has."""
    return read_table(dataset.rows, subject_id=dataset.subject_id).table.n


def _drafted(rows: Path, subject_id: str) -> tuple[Attribute, ...]:
    table = read_table(rows, subject_id=(subject_id,), typed=True).table
    found = {name: draft(name, cells, target=False, levels=False) for name, cells in table.columns.items()}
    for name, attribute in found.items():
        if isinstance(attribute, Unusable):
            raise ConsortiumError(
                f"{rows.name}: column {name!r} cannot be used, {attribute.reason}",
                remedy="Leave it out, or give `schemas`.",
            )
    return tuple(attribute for attribute in found.values() if not isinstance(attribute, Unusable))
