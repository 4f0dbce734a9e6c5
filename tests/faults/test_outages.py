"""What a round goes through without any process ending: disks, databases and coordinators that go away and return."""

import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from commingle.shared.release.rounds import State
from tests.faults.loopback import Loopback
from tests.world.command import eventually
from tests.world.local_api import operator_client
from tests.world.postgres import PostgresServer, own_postgres

pytestmark = pytest.mark.slow
_SHORTER_THAN_A_COORDINATOR_WAITS_SECONDS = 2.0


@pytest.fixture
def running(consortium: Loopback) -> Loopback:
    for server in (consortium.hub, *consortium.agents.values()):
        server.restart()
    return consortium


def job_error(consortium: Loopback, name: str, release: str) -> str:
    with operator_client(consortium.home(name)) as http:
        return str(http.get(f"/v1/jobs/{release}").json().get("error"))


def clinic_stops_before_its_upload(running: Loopback) -> str:
    """A release of which one block is in; the other is on the disk of an agent that is down."""
    clinic = running.agents["clinic"]
    clinic.restart(fault="party.stored")
    release = running.propose()
    clinic.await_death()
    running.wait_for(release, State.COLLECTING)
    return release


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Another process, such as a backup or a curious operator, holds the write lock."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_agent_whose_disk_is_full_says_so_and_goes_on_when_there_is_space(running: Loopback) -> None:
    clinic = running.agents["clinic"]
    clinic.fill_disk()
    release = running.propose()
    eventually(lambda: "cannot be written" in job_error(running, "clinic", release), what="no word of the disk")
    clinic.fill_disk(full=False)
    running.check(release, State.PUBLISHED)


def test_coordinator_whose_disk_is_full_refuses_and_goes_on_when_there_is_space(running: Loopback) -> None:
    release = clinic_stops_before_its_upload(running)
    running.hub.fill_disk()
    running.propose_in_vain()
    assert httpx.get(f"{running.hub.url}/readyz", timeout=60).status_code == 503
    running.agents["clinic"].start()
    eventually(lambda: "storage" in job_error(running, "clinic", release), what="the agent does not notice")
    running.hub.fill_disk(full=False)
    running.check(release, State.PUBLISHED)


def test_ledger_locked_by_another_process_for_longer_than_the_agent_waits_delays_the_round(running: Loopback) -> None:
    with locked(running.home("clinic").database):
        release = running.propose()
        eventually(lambda: "holds the ledger" in job_error(running, "clinic", release), what="no word of the lock")
    running.check(release, State.PUBLISHED)


def test_coordinator_database_locked_for_a_while_makes_everybody_wait(running: Loopback) -> None:
    release = clinic_stops_before_its_upload(running)
    with locked(running.hub.home / "coordinator.sqlite"):
        running.agents["clinic"].start()
        time.sleep(_SHORTER_THAN_A_COORDINATOR_WAITS_SECONDS)
        assert running.state(release) is State.COLLECTING
    running.check(release, State.PUBLISHED)


def test_coordinator_frozen_and_killed_during_an_upload_gets_the_same_block_again(running: Loopback) -> None:
    release = clinic_stops_before_its_upload(running)
    running.agents["clinic"].start(fault="party.uploaded")  # would die after an upload that succeeds
    running.hub.signal(signal.SIGSTOP)
    time.sleep(0.5)
    running.hub.restart()
    running.agents["clinic"].await_death()
    running.agents["clinic"].start()
    running.check(release, State.PUBLISHED)


def test_coordinator_set_back_to_an_older_database_is_sent_what_it_has_lost(running: Loopback, tmp_path: Path) -> None:
    clinic, insurer = running.agents.values()
    for agent in (clinic, insurer):
        agent.restart(fault="party.debited")
    release = running.propose()
    for agent in (clinic, insurer):
        agent.await_death()
    running.hub.kill()
    files = list(running.hub.home.glob("coordinator.sqlite*"))
    for file in files:
        shutil.copy(file, tmp_path)
    running.hub.start()
    clinic.start()
    eventually(lambda: running.charge("clinic", release) == "acked", what="not uploaded")
    running.hub.kill()
    for file in running.hub.home.glob("coordinator.sqlite*"):
        file.unlink()
    for file in files:
        shutil.copy(tmp_path / file.name, file)
    running.hub.start()
    insurer.start()
    running.check(release, State.PUBLISHED)


def test_agent_frozen_in_the_middle_of_a_round_goes_on(running: Loopback) -> None:
    clinic = running.agents["clinic"]
    clinic.signal(signal.SIGSTOP)
    release = running.propose()
    running.wait_for(release, State.PROPOSED)
    time.sleep(2)
    clinic.signal(signal.SIGCONT)
    running.check(release, State.PUBLISHED)


HALTS: dict[str, tuple[Callable[[PostgresServer], None], Callable[[PostgresServer], None]]] = {
    "stops": (PostgresServer.stop, PostgresServer.start),
    "freezes": (lambda database: database.signal(signal.SIGSTOP), lambda database: database.signal(signal.SIGCONT)),
}


@pytest.mark.parametrize("how", HALTS)
def test_database_server_that_halts_in_the_middle_of_a_round_and_returns(tmp_path: Path, how: str) -> None:
    halt, go_on = HALTS[how]
    with own_postgres() as database:
        loopback = Loopback(tmp_path / "consortium", settings=("--database-url", database.url))
        try:
            loopback.set_up()
            release = clinic_stops_before_its_upload(loopback)
            halt(database)
            if how == "stops":
                assert httpx.get(f"{loopback.hub.url}/readyz", timeout=60).status_code == 503
            loopback.agents["clinic"].start()
            time.sleep(1)
            go_on(database)
            loopback.check(release, State.PUBLISHED)
            assert httpx.get(f"{loopback.hub.url}/readyz", timeout=60).status_code == 200
        finally:
            loopback.close()
