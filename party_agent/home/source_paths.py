"""Where an owner's tables may lie: anywhere but in the agent's own home, whose ledger and keys are nobody's rows."""

import os
from pathlib import Path

from commingle.party_agent.errors import SourceError, SourceRefusedError
from commingle.party_agent.home.home import Home
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import PushedSource, Source
from commingle.party_agent.private.sql_store import SqlSource, database_file


def resolve_source(home: Home, source: Source) -> Source:
    """The source that may be declared: a file's path without symbolic links, so that none is pointed elsewhere later.

    Raises:
        SourceRefusedError: it is a file of the home.
        SourceError: no path can be like that.
    """
    if isinstance(source, PushedSource) or (isinstance(source, PartitionedSource) and source.is_remote):
        return source
    if not isinstance(source, SqlSource):
        source = source.model_copy(update={"path": str(_resolved(source.path))})
    name = database_file(source) if isinstance(source, SqlSource) else source.path
    if name is not None and _belongs_to(home, _resolved(name)):
        raise SourceRefusedError(
            "a file in the agent's own home is no source", remedy="Register a table that is kept elsewhere."
        )
    return source


def _resolved(path: str) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a NUL, or what is no text in the file system's encoding
        raise SourceError("the path of the source cannot be one", remedy="Check the path.") from None


def _belongs_to(home: Home, path: Path) -> bool:
    """Whether a resolved path is in the home, or is another name (a hard link, a second mount) of a file there."""
    if path.is_relative_to(home.root.resolve()):
        return True
    wanted = _inode(path)
    own = (_inode(Path(folder, name)) for folder, _, names in os.walk(home.root) for name in names)
    return wanted is not None and wanted in own


def _inode(path: Path) -> tuple[int, int] | None:
    """What a file is whatever its name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
