"""Partitions on Dask workers: two processes of this machine, one of which is killed; schedulers that are not there."""

import socket
from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import LocalCluster, Scheduler

from commingle.party_agent.engine_settings import EngineSettings
from commingle.party_agent.errors import DataError, SourceError
from commingle.party_agent.private import dask_engine
from commingle.party_agent.private.dask_engine import Dask
from commingle.party_agent.private.engine import Engine
from commingle.shared.errors import CommingleError
from tests.party_agent.private.lake import KillingOnce, failing, lake, reading_the_rows, write_partitions
from tests.party_agent.private.tables import NUMBER, column
from tests.party_agent.private.test_partitions import ATTRIBUTES, Release, asked, before_noise
from tests.party_agent.private.test_privatise import columns_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    yield EngineSettings(kind="dask", workers=2).open()
    dask_engine._processes(2).close()
    dask_engine._processes.cache_clear()


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm", "moments"])
def test_block_before_noise_is_that_of_this_process(tmp_path: Path, engine: Engine, mechanism: Release) -> None:
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


def test_worker_of_another_version_is_refused() -> None:
    refused = dask_engine._do("0.0.0", reading_the_rows, 1)
    assert isinstance(refused, CommingleError)
    assert "Install commingle 0.0.0 there" in refused.remedy


def test_scheduler_that_is_not_there_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_engine, "_CONNECT_SECONDS", 0.5)
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


def test_worker_that_is_killed_half_way_changes_nothing(tmp_path: Path, engine: Engine) -> None:
    folder = write_partitions(tmp_path / "t", columns_of(), [5, 20, 50])
    flag = tmp_path / "killed"
    killing = lake(folder, *ATTRIBUTES, engine=KillingOnce(engine, flag))
    here, _ = before_noise(lake(folder, *ATTRIBUTES), asked("dgm"))
    there, _ = before_noise(killing, asked("dgm"))
    assert flag.exists()
    assert np.array_equal(there, here)
