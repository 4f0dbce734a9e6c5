"""Partitions on Dask workers: two processes of this machine, one of which is killed; schedulers that are not there."""

import os
import socket
import ssl
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import dask
import httpx
import numpy as np
import pytest
from distributed import Client, LocalCluster, Scheduler, Worker

from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.home.home import EngineSettings
from commingle.party_agent.operate.doctor import open_addresses
from commingle.party_agent.private import engine as engine_module
from commingle.party_agent.private import snapshot as snapshot_module
from commingle.party_agent.private import sorting
from commingle.party_agent.private.engine import Dask, Engine, do_on_worker, own_processes
from commingle.shared.errors import CommingleError
from tests.party_agent.private.lake import KillingOnce, failing, lake, reading_the_rows, write_partitions
from tests.party_agent.private.releases import RELEASES, Release, columns_of
from tests.party_agent.private.releases import before_noise as before_noise_of
from tests.party_agent.private.tables import NUMBER, column, rows_of, snapshot_from, snapshot_of
from tests.party_agent.private.test_partitions import ATTRIBUTES, asked, before_noise

pytestmark = pytest.mark.slow


def _where_rows_are(dask_worker: Worker) -> tuple[str, str]:
    """What holds the results of a worker, and the nearest folder of its own that others could enter."""
    return type(dask_worker.data).__name__, str(Path(dask_worker.local_directory).parents[1])


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    yield EngineSettings(kind="dask", workers=2).open()
    own_processes(2).close()
    own_processes.cache_clear()


@pytest.mark.parametrize("pieces", [1, 64])
@pytest.mark.parametrize("mechanism", RELEASES)
def test_block_before_noise_is_that_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, mechanism: Release, pieces: int
) -> None:
    """Workers have another disk: they read partitions at registration, and are sent rows as arrays for a release."""
    monkeypatch.setattr(snapshot_module, "PART_PIECES", pieces)
    monkeypatch.setattr(sorting, "PIECE_RECORDS", 7)
    folder = write_partitions(tmp_path / "t", columns_of(), [5, 20, 21, 50])
    shuffled = write_partitions(tmp_path / "u", columns_of(), [30, 40], seed=1)
    here, sums = before_noise(lake(folder, *ATTRIBUTES), asked(mechanism))
    for other in (folder, shuffled):
        there, same = before_noise(lake(other, *ATTRIBUTES, engine=engine), asked(mechanism))
        assert np.array_equal(there, here)
        assert same == sums


def test_what_a_worker_refuses_is_said_as_here(tmp_path: Path, engine: Engine) -> None:
    folder = write_partitions(tmp_path / "t", {"id": column(["a", "b"]), "x": column([1.0, None])}, [1])
    with pytest.raises(DataError, match="column x: 1 missing"):
        lake(folder, NUMBER, engine=engine, strict=True).scan()


def test_fault_on_a_worker_does_not_say_what_it_quotes(engine: Engine) -> None:
    with pytest.raises(SourceError, match=r"a worker failed \(ValueError\)") as refused:
        list(engine.run(failing, ["SENTINEL"], lambda _: None))
    assert "SENTINEL" not in refused.value.diagnostics()


def test_every_partition_is_read_once_and_progress_adds_up(engine: Engine) -> None:
    seen: list[int] = []
    found = dict(engine.run(reading_the_rows, list(range(9)), seen.append))
    assert found == {place: place for place in range(9)}
    assert seen == [10 * done for done in range(1, 10)]
    assert engine.describe() == "Dask: 2 processes of this machine"


def test_own_cluster_answers_nobody_without_its_certificate(engine: Engine) -> None:
    assert dict(engine.run(reading_the_rows, [1], lambda _: None)) == {0: 1}
    ports = [address.port for address in open_addresses(os.getpid()) if address.pid != os.getpid()]
    assert len(ports) == 2, "one of each worker"
    cluster = own_processes(2)
    ports += [
        int(one.rpartition(":")[2])
        for one in (cluster.scheduler_address, *(w.address for w in cluster.workers.values()))
    ]
    for port in ports:
        with pytest.raises((httpx.HTTPError, ssl.SSLError)):
            httpx.get(f"http://127.0.0.1:{port}/", timeout=5)
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"https://127.0.0.1:{port}/", timeout=5, verify=False)  # noqa: S501 - what is asked is whether it answers


def test_own_cluster_keeps_rows_in_memory_and_its_folder_for_this_user(engine: Engine) -> None:
    assert dict(engine.run(reading_the_rows, [1], lambda _: None)) == {0: 1}
    with Client(own_processes(2), set_as_default=False) as client:
        for kind, folder in client.run(_where_rows_are).values():
            assert kind == "dict", "what spills is something else"
            assert stat.S_IMODE(Path(folder).stat().st_mode) == 0o700
            assert Path(folder).parts[:3] != (*Path(gettempdir()).parts, "dask-scratch-space")


def test_worker_of_another_version_is_refused() -> None:
    refused = do_on_worker("0.0.0", reading_the_rows, 1)
    assert isinstance(refused, CommingleError)
    assert "Install commingle 0.0.0 there" in refused.remedy


def test_scheduler_that_is_not_there_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "CONNECT_SECONDS", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SourceError, match="do not answer"):
        list(Dask(address).run(reading_the_rows, [1], lambda _: None))


def test_scheduler_with_tls_and_no_certificate_here_is_an_error_with_a_remedy() -> None:
    with pytest.raises(SourceError, match="no certificate") as refused:
        Dask("tls://127.0.0.1:9").describe()
    assert "DASK_DISTRIBUTED__COMM__TLS__" in refused.value.remedy


def test_scheduler_that_vanishes_while_partitions_are_read_is_an_error() -> None:
    quickly = dask.config.set({"distributed.comm.timeouts.connect": "1s"})
    with quickly, LocalCluster(1, processes=False, dashboard_address="127.0.0.1:0") as short:
        assert Dask(short.scheduler_address).describe().endswith(": 1 workers")

        def vanish(_: int) -> None:
            scheduler: Scheduler = short.scheduler
            short.sync(scheduler.close)

        with pytest.raises(SourceError, match="do not answer"):
            list(Dask(short.scheduler_address).run(reading_the_rows, list(range(9)), vanish))


def test_worker_that_is_killed_while_a_table_is_read_changes_nothing(tmp_path: Path, engine: Engine) -> None:
    folder, flag = write_partitions(tmp_path / "t", columns_of(), [5, 20, 50]), tmp_path / "killed"
    killing = lake(folder, *ATTRIBUTES, engine=KillingOnce(engine, flag))
    read = rows_of(snapshot_from(tmp_path / "s", killing))
    assert flag.exists()
    assert read == rows_of(snapshot_from(tmp_path / "s", lake(folder, *ATTRIBUTES)))


def test_worker_that_is_killed_during_a_release_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine
) -> None:
    monkeypatch.setattr(snapshot_module, "PART_PIECES", 3)
    snapshot, flag = snapshot_of(tmp_path, columns_of(), *ATTRIBUTES, piece=7), tmp_path / "killed"
    here, _ = before_noise_of(snapshot, asked("dgm"))
    there, _ = before_noise_of(replace(snapshot, engine=KillingOnce(engine, flag)), asked("dgm"))
    assert flag.exists()
    assert np.array_equal(there, here)
