"""Releases of tables in partitions: published like others, and what the ledger says where partitions cannot be read."""

import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.data.datasets import DatasetRequest
from commingle.party_agent.errors import SourceError
from commingle.party_agent.home.home import EngineSettings
from commingle.party_agent.private import dask_engine
from commingle.party_agent.private.parquet_store import PartitionedSource
from tests.party_agent.private.lake import write_partitions
from tests.party_agent.private.tables import column
from tests.party_agent.releasing import approved_by_all, blocks_before_and_after_the_file, spent, state_of
from tests.world.consortium import SCHEMAS, Consortium, Noise, rows_of


@pytest.fixture
def folder(pair: Consortium, tmp_path: Path) -> Path:
    """The clinic's table in partitions, registered in place of its file."""
    rows = rows_of("clinic")
    columns = {name: column([row[name] for row in rows]) for name in rows[0]}
    folder = write_partitions(tmp_path / "lake", columns, [9, 20])
    request = DatasetRequest(
        subjects="listed",
        name="main",
        source=PartitionedSource(path=str(folder)),
        subject_id="subject",
        attributes=SCHEMAS["clinic"],
    )
    with pair.agent("clinic") as agent:
        found = agent.datasets.register(request, replace=True)
        assert found.view(counts=False).source == str(folder)
    return folder


def test_release_of_partitions_is_that_of_the_file(pair: Consortium, folder: Path) -> None:
    assert folder.is_dir()
    parts, whole = blocks_before_and_after_the_file(pair)
    assert parts == whole


def test_partition_that_cannot_be_read_is_told_to_the_owner_and_leaves_the_snapshot(
    pair: Consortium, folder: Path
) -> None:
    (folder / "part-1.parquet").write_bytes(b"half")
    with pair.agent("clinic") as agent:
        before = agent.datasets.get("main")
        with pytest.raises(SourceError, match=r"cannot read partition 2 of 3 \(part-1.parquet\)"):
            agent.datasets.read_again("main", strict=False)
        assert agent.datasets.get("main") == before
    release = approved_by_all(pair)
    pair.step("clinic")
    assert state_of(pair, release) == "acked"


@pytest.mark.slow
def test_scheduler_that_is_not_there_costs_nothing_more_and_releases_nothing(
    pair: Consortium, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder.is_dir()
    monkeypatch.setattr(dask_engine, "_CONNECT_SECONDS", 0.3)
    release, home = approved_by_all(pair), pair.homes["clinic"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        gone = EngineSettings(kind="dask", scheduler=f"tcp://127.0.0.1:{free.getsockname()[1]}")
    home.save_settings(home.settings().model_copy(update={"engine": gone}))
    noise, before = Noise(), spent(pair)
    with pytest.raises(SourceError, match="do not answer"):
        pair.step("clinic", draw=noise)
    assert (state_of(pair, release), spent(pair), noise.calls) == ("debited", before, [])
    home.save_settings(home.settings().model_copy(update={"engine": EngineSettings()}))
    pair.step("clinic", draw=noise)
    assert (state_of(pair, release), spent(pair)) == ("acked", before)


def test_partitions_written_anew_by_another_job_give_the_same_snapshot(pair: Consortium, folder: Path) -> None:
    def rows() -> list[object]:
        snapshot = agent.datasets.snapshot(agent.datasets.get("main").snapshot)
        return [(ids.to_pylist(), rows.tolist()) for ids, rows in snapshot.records()]

    with pair.agent("clinic") as agent:
        before, whole = rows(), pq.read_table(folder)
        for path in folder.iterdir():
            path.unlink()
        order = pa.array(range(len(whole) - 1, -1, -1))
        pq.write_table(whole.take(order), folder / "compacted.parquet")
        agent.datasets.read_again("main", strict=True)
        assert rows() == before
