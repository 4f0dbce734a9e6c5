"""A Dask cluster of this machine for one agent: it takes only connections with its certificate and writes no disk.

Dask's own local cluster serves pages on ports of loopback, which any user of the machine can read, and writes what does
not fit into memory to a folder as it is. Needs the extra `dask`.
"""

import logging
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from weakref import finalize

from distributed import Nanny, Scheduler, Security, SpecCluster, Worker
from distributed.worker_memory import parse_memory_limit

_log = logging.getLogger(__name__)
_KEPT_IN_MEMORY = {"distributed.worker.memory.target": False, "distributed.worker.memory.spill": False}
"""Where memory is short a worker waits, and ends in the end; see `KilledWorker` in `engine`."""


class _WithoutPages:
    def start_http_server(self, *_: object, **__: object) -> None:
        """Serve neither the dashboard nor the pages that Dask serves without one, about tasks, logs and metrics."""


class PagelessScheduler(_WithoutPages, Scheduler):
    """Listens for workers and clients with a certificate only."""


class PagelessWorker(_WithoutPages, Worker):
    """Listens for the scheduler and other workers, with a certificate only."""


class OwnCluster(SpecCluster):
    """A scheduler in this process, and worker processes that end with it.

    It uses TLS under a certificate of its own: otherwise any user of this machine who reached it could run code here.
    """

    def __init__(self, workers: int) -> None:
        folder = mkdtemp(prefix="commingle-dask-")  # mode 0700
        finalize(self, rmtree, folder, ignore_errors=True)  # at the end of this process, if not before
        shared: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tls://", "security": Security.temporary()}
        nanny = {
            **shared,
            "nthreads": 1,
            "memory_limit": parse_memory_limit("auto", 1, workers, logger=_log),
            "local_directory": folder,
            "worker_class": PagelessWorker,
            "config": _KEPT_IN_MEMORY,
            "silence_logs": logging.WARNING,
        }
        super().__init__(  # type: ignore[no-untyped-call] # as all of distributed
            workers={number: {"cls": Nanny, "options": nanny} for number in range(workers)},
            scheduler={"cls": PagelessScheduler, "options": {**shared, "port": 0, "dashboard": False}},
            security=shared["security"],
            silence_logs=logging.WARNING,
        )
