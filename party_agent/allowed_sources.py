"""Which tables may be registered: an operator's list for the party's own systems, and nothing of the home for anybody.

The list is `HOME/sources.json`; without it, only the operator registers. A token that could register any source or ask
any query could single out one subject, or have the agent's own ledger read.
"""

import os
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field

from commingle.party_agent.errors import SourceError, SourceRefusedError
from commingle.party_agent.home import Home
from commingle.party_agent.private.parquet_store import PartitionedSource
from commingle.party_agent.private.sources import Source
from commingle.party_agent.private.sql_store import Queries, SqlSource, database_file
from commingle.shared.runtime.settings import Settings, load_settings


def _absolute(pattern: str) -> str:
    if not pattern.startswith("/") and "://" not in pattern:
        raise ValueError("begins with /, or is the whole address of a bucket's prefix")
    return pattern


class AllowedQuery(Settings):
    """A query, or those of all partitions, and the URL of the database it is for, all to the letter."""

    url: Annotated[str, Field(repr=False)]
    query: Queries


class AllowedSources(Settings):
    """`sources.json`.

    Attributes:
        files: patterns of absolute paths without symbolic links, of files and of directories of partitions; `*` stands
            for anything within one name. Addresses of buckets stand for themselves only.
        queries: a token's query has to be one of these.
        pushed: names of data sets whose rows tokens may push; `*` stands for anything.
    """

    files: tuple[Annotated[str, AfterValidator(_absolute)], ...] = ()
    queries: tuple[AllowedQuery, ...] = ()
    pushed: tuple[str, ...] = ()

    def permit(self, source: Source) -> bool:
        """Whether a token may register a source, the path of which has been resolved."""
        if isinstance(source, SqlSource):
            return AllowedQuery(url=source.url, query=source.query) in self.queries
        if isinstance(source, PartitionedSource) and source.is_remote:
            return source.path in self.files
        return any(PurePosixPath(source.path).match(pattern) for pattern in self.files)

    def permit_pushing(self, dataset: str) -> bool:
        """Whether tokens may push a data set's rows."""
        return any(fnmatchcase(dataset, pattern) for pattern in self.pushed)


def allowed_sources(home: Home) -> AllowedSources:
    """The operator's list. Read at every use, so that an edit counts at once. Raises SettingsError."""
    path = home.root / "sources.json"
    return load_settings(AllowedSources, path) if path.exists() else AllowedSources()


def resolve_source(home: Home, source: Source, *, operator: bool) -> Source:
    """The source that may be registered: a file's path without symbolic links, so that none is pointed elsewhere later.

    Raises:
        SourceRefusedError: it is not on the operator's list, or is a file of the home.
        SourceError: no path can be like that.
        SettingsError: the list cannot be read.
    """
    is_remote = isinstance(source, PartitionedSource) and source.is_remote
    if not isinstance(source, SqlSource) and not is_remote:
        source = source.model_copy(update={"path": str(_resolved(source.path))})
    if not operator and not allowed_sources(home).permit(source):
        raise SourceRefusedError(
            "this source is not one of those that tokens may register",
            remedy="The operator adds it to sources.json in the agent's home, with symbolic links resolved, or "
            "registers it: commingle party datasets add",
        )
    name = database_file(source) if isinstance(source, SqlSource) else source.path
    if name is not None and not is_remote and _belongs_to(home, _resolved(name)):
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
