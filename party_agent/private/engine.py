"""Where partitions are read: in this process, or on Dask workers (extra `dask`; docs/scale.md#a-dask-cluster).

Work yields exact integers that the agent adds up, so neither engine nor order can change a bit of a block. An engine is
given readers of rows, public bounds and ranks; never noise, a key, the ledger or a signature.

Adversary: none. A Dask scheduler and its workers see rows. Somebody who controls one of them could run code in the
agent, as the two exchange pickles. So they belong to the party, like the machine of the agent, and use TLS unless they
are on this machine. They receive neither noise nor key, so what they keep or log cannot undo the noise of a block.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from commingle.party_agent.errors import SourceError
from commingle.shared import __version__
from commingle.shared.errors import CommingleError, MissingExtraError

if TYPE_CHECKING:  # an extra, and it loads slowly
    from distributed import Client, Future

    from commingle.party_agent.private.dask_processes import OwnCluster

CONNECT_SECONDS = 20
_LOOK_SECONDS = 5.0
_LOOKS_WITHOUT_WORKERS = 12
_READ_AGAIN = "Start them; what was paid for is then read again, at no further cost."
_CERTIFICATE = "Start it with the variables DASK_DISTRIBUTED__COMM__TLS__… that the scheduler has (docs/scale.md)."
_SAME_VERSIONS = "Install one version of commingle, Python and Dask at agent, scheduler and workers."

Progress = Callable[[int], None]
"""Takes the number of rows read so far."""

Partition = TypeVar("Partition")
Made = TypeVar("Made")


Work = Callable[[Partition, Progress], Iterator[Made]]
"""What is made of one partition, piece by piece; no piece counts unless the iteration ends without an error.

It is pickled, so it is a function of a module, or a dataclass.
"""


class Engine(Protocol):
    """Does work on partitions."""

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        """What `work` makes of each partition, with the partition's place in the sequence.

        Partitions come in any order. What is made of one partition comes in order and together.

        Raises CommingleError: as `work` raised it, or because the engine does not work. Use nothing of it then.
        """

    def describe(self) -> str:
        """Where it works, for the operator. Raises SourceError: it does not work."""


class InProcess:
    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        seen = [0] * len(partitions)

        def told(place: int, rows: int) -> None:
            seen[place] = rows
            progress(sum(seen))

        for place, partition in enumerate(partitions):
            for made in work(partition, partial(told, place)):
                yield place, made

    def describe(self) -> str:
        return "in this process"


IN_PROCESS = InProcess()


@dataclass(frozen=True, slots=True)
class Dask:
    """Workers of a scheduler, or without one processes of this machine, which stay from the first reading on."""

    scheduler: str | None = None
    workers: int = 2

    def run(
        self, work: Work[Partition, Made], partitions: Sequence[Partition], progress: Progress
    ) -> Iterator[tuple[int, Made]]:
        # a worker that dies costs only time: its partitions are read again elsewhere
        with self._client() as client:
            waiting, read = iter(enumerate(partitions)), 0
            at_once = 2 * max(1, len(client.nthreads()))  # few enough for their ranks to fit into the scheduler
            running: dict[Future[Any], int] = {}
            while True:
                for place, partition in islice(waiting, at_once - len(running)):
                    running[client.submit(do_on_worker, __version__, work, partition, pure=False)] = place
                if not running:
                    return
                for future in _finished(client, running):
                    if isinstance(found := future.result(), CommingleError):
                        raise found
                    (made, rows), place = found, running.pop(future)
                    read += rows
                    progress(read)
                    yield from ((place, one) for one in made)

    def describe(self) -> str:
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
            raise SourceError("this process has no certificate for the scheduler", remedy=_CERTIFICATE)
        try:
            where = self.scheduler or own_processes(self.workers)
            with Client(where, timeout=CONNECT_SECONDS, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=CONNECT_SECONDS)
                yield client
        except KilledWorker:
            raise SourceError(
                "a partition ended one worker after the other", remedy="Give them memory, or smaller parts."
            ) from None
        except (OSError, TimeoutError, CancelledError):
            raise SourceError("the scheduler or its workers do not answer", remedy=_READ_AGAIN) from None
        except CommingleError:
            raise
        except Exception as error:  # noqa: BLE001 - what Dask raises where it cannot pass work on; its text may quote it
            raise SourceError(
                f"the workers cannot take the work ({type(error).__name__})", remedy=_SAME_VERSIONS
            ) from None


@cache
def own_processes(workers: int) -> "OwnCluster":
    from commingle.party_agent.private.dask_processes import OwnCluster  # noqa: PLC0415 - an extra

    return OwnCluster(workers)


def do_on_worker(
    version: str, work: Work[Partition, Made], partition: Partition
) -> tuple[list[Made], int] | CommingleError:
    """What a worker makes of a partition, and its rows. It tells faults by kind only: a text could quote a cell."""
    if version != __version__:
        return SourceError(f"a worker runs commingle {__version__}", remedy=f"Install commingle {version} there.")
    rows = 0

    def told(seen: int) -> None:
        nonlocal rows
        rows = seen

    try:
        return list(work(partition, told)), rows
    except CommingleError as error:
        return error
    except Exception as error:  # noqa: BLE001 - whatever it is: its text would be logged here and at the scheduler
        return SourceError(f"a worker failed ({type(error).__name__})", remedy="Look at its memory and its disk.")


def _finished(client: "Client", running: "dict[Future[Any], int]") -> "list[Future[Any]]":
    from distributed import wait  # noqa: PLC0415 - an extra

    looks = 0
    while looks < _LOOKS_WITHOUT_WORKERS:
        try:
            with client.as_current():
                return list(wait(list(running), timeout=_LOOK_SECONDS, return_when="FIRST_COMPLETED").done)
        except TimeoutError:
            looks = 0 if client.nthreads() else looks + 1
    raise SourceError("the scheduler has lost all its workers", remedy=_READ_AGAIN)
