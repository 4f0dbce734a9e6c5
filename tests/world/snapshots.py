"""Snapshots of tables that are no files."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from commingle.party_agent.private.rows import RawReader
from commingle.party_agent.private.snapshot import Snapshot, write_snapshot
from commingle.party_agent.private.sources import SourceTable
from commingle.shared.documents.schema import Attribute
from commingle.shared.documents.subject_ids import SubjectKey


def snapshot_of(
    read: RawReader, attributes: Sequence[Attribute], *, key: SubjectKey | None = None, folder: Path | None = None
) -> Snapshot:
    """As a data set's that reads the same, whatever its cells are."""
    found = SourceTable([read], key or SubjectKey.of("id"), attributes).scan(strict=False)
    return write_snapshot(folder or Path(mkdtemp()), bytes(32), tuple(attributes), iter(found.sorter))
