"""Partitions read on Dask workers of the party's own (extra `dask`; docs/scale.md#a-dask-cluster).

Adversary: nobody. Scheduler and workers see rows, and who controls one of them could run code in the agent, with
which they exchange pickles: they belong to the party, like the agent's machine. Hence TLS wherever they are not on this
machine. They are given neither noise nor key, so what they keep or log cannot undo the noise of a block.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from commingle.party_agent.errors import SourceError
from commingle.party_agent.private.engine import Made, Partition, Progress, Work
from commingle.shared import __version__
from commingle.shared.errors import CommingleError, MissingExtraError

if TYPE_CHECKING:  # an extra, and it loads slowly
    from distributed import Client, Future

    from commingle.party_agent.private.dask_processes import OwnCluster

_CONNECT_SECONDS = 20
_LOOK_SECONDS = 5.0
_LOOKS_WITHOUT_WORKERS = 12
_READ_AGAIN = "Start them; what was paid for is then read again, at no further cost."
_CERTIFICATE = "Start it with the variables DASK_DISTRIBUTED__COMM__TLS__… that the scheduler has (docs/scale.md)."
_SAME_VERSIONS = "Install one version of commingle, Python and Dask at agent, scheduler and workers."


@dataclass(frozen=True, slots=True)
class Dask:
    """Workers of a scheduler, or processes of this machine, which stay from the first reading on.

    Attributes:
        scheduler: its address; None for processes of this machine.
        workers: how many these are.
    """

    scheduler: str | None = None
    workers: int = 2

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """See `Engine`. A worker that dies loses nothing but time: its partitions are read again elsewhere."""
        with self._client() as client:
            waiting, read = iter(enumerate(partitions)), 0
            at_once = 2 * max(1, len(client.nthreads()))  # few enough for their ranks to fit into the scheduler
            running: dict[Future[Any], int] = {}
            while True:
                for place, partition in islice(waiting, at_once - len(running)):
                    running[client.submit(_do, __version__, work, partition, pure=False)] = place
                if not running:
                    return
                for future in _finished(client, running):
                    made, rows = _opened(future.result())
                    place = running.pop(future)
                    read += rows
                    progress(read)
                    yield from ((place, one) for one in made)

    def describe(self) -> str:
        """See `Engine`."""
        if self.scheduler is None:
            return f"Dask: {self.workers} processes of this machine"
        with self._client() as client:
            return f"Dask at {self.scheduler}: {len(client.nthreads())} workers"

    @contextmanager
    def _client(self) -> "Iterator[Client]":
        try:
            from distributed import Client, Security  # noqa: PLC0415 - an extra
            from distributed.scheduler import KilledWorker  # noqa: PLC0415
        except ModuleNotFoundError:
            raise MissingExtraError("distributed", extra="dask") from None
        by_tls = self.scheduler is not None and self.scheduler.startswith("tls://")
        if by_tls and Security().get_connection_args("client").get("ssl_context") is None:
            raise _fault("this process has no certificate for the scheduler", _CERTIFICATE)
        try:
            where = self.scheduler or _processes(self.workers)
            with Client(where, timeout=_CONNECT_SECONDS, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
                yield client
        except KilledWorker:
            raise _fault(
                "a partition ended one worker after the other", "Give them memory, or smaller parts."
            ) from None
        except (OSError, TimeoutError, CancelledError):
            raise _fault("the scheduler or its workers do not answer", _READ_AGAIN) from None
        except CommingleError:
            raise
        except Exception as error:  # noqa: BLE001 - what Dask raises where it cannot pass work on; its text may quote it
            raise _fault(f"the workers cannot take the work ({type(error).__name__})", _SAME_VERSIONS) from None


@cache
def _processes(workers: int) -> "OwnCluster":
    """Started by the first reading, and there for the next ones."""
    from commingle.party_agent.private.dask_processes import OwnCluster  # noqa: PLC0415 - an extra

    return OwnCluster(workers)


def _do(version: str, work: Work[Partition, Made], partition: Partition) -> tuple[list[Made], int] | CommingleError:
    """On a worker: what is made of a partition, and its rows. Faults are told by kind only, they could quote a cell."""
    if version != __version__:
        return _fault(f"a worker runs commingle {__version__}", f"Install commingle {version} there.")
    rows = 0

    def told(seen: int) -> None:
        nonlocal rows
        rows = seen

    try:
        return list(work(partition, told)), rows
    except CommingleError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever it is: its text would be logged here and at the scheduler
        return _fault(f"a worker failed ({type(error).__name__})", "Look at its memory and its disk.")


def _opened(found: tuple[list[Made], int] | CommingleError) -> tuple[list[Made], int]:
    if isinstance(found, CommingleError):
        raise found
    return found


def _finished(client: "Client", running: "dict[Future[Any], int]") -> "list[Future[Any]]":
    """Some that are done. Raises SourceError: for a minute there has been no worker."""
    from distributed import wait  # noqa: PLC0415 - an extra

    looks = 0
    while looks < _LOOKS_WITHOUT_WORKERS:
        try:
            with client.as_current():
                return list(wait(list(running), timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            looks = 0 if client.nthreads() else looks + 1
    raise _fault("the scheduler has lost all its workers", _READ_AGAIN)


def _fault(what: str, remedy: str) -> SourceError:
    return SourceError(what, remedy=remedy)
