"""Whole rounds of real agents over a coordinator in the same process, of one table or of its partitions."""

import socket
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from commingle.party_agent.errors import SourceError
from commingle.party_agent.home.home import EngineSettings
from commingle.party_agent.private import engine
from commingle.shared.documents.dsse import open_envelope
from commingle.shared.documents.linkage import alignment_digest
from commingle.shared.documents.schema import Whitening
from commingle.shared.documents.statements import AlignmentStatement
from commingle.shared.release.charge import ChargeState
from commingle.shared.release.plan import plan_block
from tests.party_agent.private.lake import write_partitions
from tests.party_agent.private.tables import column
from tests.party_agent.releasing import (
    approved_by_all,
    blocks_before_and_after_the_file,
    look,
    register_partitions,
    spent,
    state_of,
)
from tests.world.consortium import BLOOD_CONTRASTS, LINKAGE, NAMES, Consortium, N, Noise, consortium_of, rows_of


@pytest.mark.parametrize("mechanism", ["rmgm", "dgm"])
def test_three_agents_bring_a_release_to_publication(trio: Consortium, mechanism: Literal["rmgm", "dgm"]) -> None:
    release = trio.propose(mechanism=mechanism)
    noises = {name: Noise() for name in NAMES}
    for _ in range(3):
        for name in NAMES:
            trio.step(name, draw=noises[name])
    found = trio.coordinator.found(release)
    assert trio.state(release) == "published"
    for name in NAMES:
        plan, block = plan_block(found.document, found.document.party(name)), found.block(name)
        assert block.shape == (plan.rows, len(plan.columns))
        assert noises[name].calls == [(plan.sigma, block.size)]
        charge = trio.charge(name, release)
        assert charge is not None
        assert (charge.state, charge.loss.rho, charge.attempt) == (ChargeState.ACKED, plan.loss, 1)
        assert len(list((trio.homes[name].outbox / release).iterdir())) == 1  # some days longer


def test_whitened_release_is_published_with_the_noise_of_its_row_norm(pair: Consortium) -> None:
    whitening = Whitening(centre=(0.0, 0.25), matrix=((2.0, 0.5), (0.5, 3.0)))
    release = pair.propose(mechanism="dgm", row_norm=1.0, whitenings={"clinic": whitening})
    noise = Noise()
    for _ in range(3):
        pair.step("clinic", draw=noise)
        pair.step("insurer")
    found = pair.coordinator.found(release)
    assert pair.state(release) == "published"
    assert found.statement("clinic").columns == ("whitened[age]", "whitened[bmi]")
    rows = found.block("clinic") - noise.drawn[0].reshape(N, 2)
    squared = (rows**2).sum(axis=1)
    assert squared.max() <= 1 << 30  # (2^15)^2: the norm 1 in steps
    assert np.count_nonzero(squared > 0.999 * (1 << 30)) > N // 4


def test_alignment_digests_of_tables_in_different_order_agree(trio: Consortium) -> None:
    release = trio.propose()
    look(trio, *NAMES)
    found = trio.coordinator.found(release)
    ids = sorted(f"s{i}".encode() for i in range(N))
    listed = (len(i).to_bytes(4, "big") + i for i in ids)
    expected = alignment_digest(LINKAGE, spec_digest=release, subjects=N, listed=listed)
    for name in NAMES:
        keys = [found.document.party(name).verifying_key]
        statement = open_envelope(found.alignments[name], AlignmentStatement, keys=keys).document
        assert (statement.digest, statement.subjects) == (expected, N)


def test_published_dgm_block_minus_noise_is_the_encoded_table_by_rank(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic", "lab")
    release = consortium.propose(mechanism="dgm")
    noise = Noise()
    for _ in range(2):
        consortium.step("lab", draw=noise)
        consortium.step("clinic")
    consortium.step("lab", draw=noise)
    found = consortium.coordinator.found(release)
    block = found.block("lab") - noise.drawn[0].reshape(N, 4)
    by_id = {row["subject"]: row for row in _table(consortium.table("lab"))}
    for rank, subject in enumerate(sorted(by_id, key=str.encode)):
        row = by_id[subject]
        assert block[rank, 0] == (32768 if row["smoker"] == "yes" else -32768)
        assert list(block[rank, 1:]) == [int(32768 * contrast) for contrast in BLOOD_CONTRASTS[row["blood"]]]


def test_release_that_does_not_name_this_party_is_not_looked_at(trio: Consortium) -> None:
    release = trio.propose(names=("clinic", "insurer"))
    trio.step("lab")
    assert f"GET /v1/releases/{release}" not in trio.coordinator.requests


def test_rounds_of_different_noise_differ_only_by_the_noise(tmp_path: Path) -> None:
    mixed = []
    for folder in ("one", "two"):  # a party would refuse the same seed twice
        consortium = consortium_of(tmp_path / folder, "clinic", "lab")
        release = consortium.propose()
        noise = Noise()
        for _ in range(3):
            consortium.step("clinic", draw=noise)
            consortium.step("lab")
        mixed.append(consortium.coordinator.found(release).block("clinic") - noise.drawn[0].reshape(16, 2))
    assert np.array_equal(mixed[0], mixed[1])


def _table(path: Path) -> list[dict[str, str]]:
    header, *lines = path.read_text().splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


@pytest.fixture
def folder(pair: Consortium, tmp_path: Path) -> Path:
    rows = rows_of("clinic")
    columns = {name: column([row[name] for row in rows]) for name in rows[0]}
    return register_partitions(pair, write_partitions(tmp_path / "lake", columns, [9, 20]))


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
    monkeypatch.setattr(engine, "CONNECT_SECONDS", 0.3)
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
