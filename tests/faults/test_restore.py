"""The coordinator's database is restored from its dump, as docs/operations.md says; the agents go on."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from commingle.shared.release.rounds import State
from tests.faults.loopback import Loopback
from tests.world.command import eventually
from tests.world.postgres import PostgresServer, own_postgres

pytestmark = pytest.mark.slow


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with own_postgres() as database:
        if not (database.binaries / "pg_dump").exists():
            pytest.skip("no pg_dump beside the PostgreSQL server binaries on this machine")
        yield database


def back_up(consortium: Loopback, database: PostgresServer, to: Path) -> None:
    """While everything runs: the database first, then the blobs."""
    to.mkdir()
    options = ("--format=custom", f"--file={to / 'coordinator.dump'}")
    subprocess.run([str(database.binaries / "pg_dump"), *options, database.url], check=True)
    shutil.copytree(consortium.hub.home / "blobs", to / "blobs")


def restore(consortium: Loopback, database: PostgresServer, backup: Path) -> None:
    options = ("--clean", "--if-exists", f"--dbname={database.url}")
    subprocess.run([str(database.binaries / "pg_restore"), *options, str(backup / "coordinator.dump")], check=True)
    shutil.rmtree(consortium.hub.home / "blobs")
    shutil.copytree(backup / "blobs", consortium.hub.home / "blobs")


def test_agents_go_on_with_a_coordinator_that_was_restored(tmp_path: Path, database: PostgresServer) -> None:
    consortium = Loopback(tmp_path / "consortium", settings=("--database-url", database.url))
    try:
        consortium.set_up()
        clinic, insurer = consortium.agents.values()
        published = consortium.propose()
        consortium.check(published, State.PUBLISHED)
        before = consortium.asked.files(published)
        clinic.kill()
        under_way = consortium.propose()
        eventually(lambda: "insurer" in consortium.view(under_way)["approvals"], what="no approval by the insurer")
        back_up(consortium, database, tmp_path / "backup")
        clinic.start()
        consortium.check(under_way, State.PUBLISHED)
        forgotten = consortium.propose()
        consortium.check(forgotten, State.PUBLISHED)

        consortium.hub.kill()
        restore(consortium, database, tmp_path / "backup")
        healthy = consortium.consortium.command("coordinator", "doctor", "--home", consortium.hub.home)
        assert healthy["healthy"]
        consortium.hub.start()

        assert consortium.asked.files(published) == before
        assert httpx.get(f"{consortium.hub.url}/v1/releases/{forgotten}", timeout=60).status_code == 404
        spent = [consortium.charge(name, forgotten) for name in ("clinic", "insurer")]
        assert spent == ["acked", "acked"]  # what was charged stays charged
        consortium.check(consortium.propose(), State.PUBLISHED)
        # its blocks were handed over after the backup: those that are kept are sent again, and no noise is drawn again
        consortium.wait_for(under_way, State.PUBLISHED, State.ABORTED, State.REJECTED)
        assert {consortium.charge(name, under_way) for name in ("clinic", "insurer")} <= {"acked", "withdrawn"}
        for agent in (clinic, insurer):
            assert agent.alive
    finally:
        consortium.close()
