"""Where an agent has the partitions of its tables read: `engine` of `settings.json`.

The operator's alone: a data set may be registered by a token, and who could name a scheduler with it would get rows.
"""

from ipaddress import ip_address
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from commingle.party_agent.private.dask_engine import Dask
from commingle.party_agent.private.engine import IN_PROCESS, Engine
from commingle.shared.runtime.settings import Settings


class EngineSettings(Settings):
    """In this process unless said otherwise.

    Attributes:
        scheduler: of Dask, `tls://host:port`; left out, a cluster on this machine for as long as a table is read.
        workers: processes of a cluster on this machine.
        allow_tcp: take a `tcp://` address of another machine, whose network then sees ids and encoded rows.
    """

    kind: Literal["in-process", "dask"] = "in-process"
    scheduler: str | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    allow_tcp: bool = False

    @model_validator(mode="after")
    def _protected(self) -> Self:
        address = urlsplit(self.scheduler or "tls://")
        if address.scheme not in {"tls", "tcp"}:
            raise ValueError("the scheduler's address begins with tls:// or tcp://")
        if address.scheme == "tcp" and not self.allow_tcp and not _is_loopback(address.hostname or ""):
            raise ValueError("a scheduler on another machine is reached by tls://, or by tcp:// with allow_tcp")
        return self

    def open(self) -> Engine:
        """The engine."""
        return IN_PROCESS if self.kind == "in-process" else Dask(self.scheduler, self.workers)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
