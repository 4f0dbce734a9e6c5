"""A coordinator that is started before its PostgreSQL."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from commingle.coordinator.errors import UnreachableDatabaseError
from commingle.coordinator.store.store import open_store
from tests.world.command import Command, eventually
from tests.world.coordinator import problem
from tests.world.postgres import own_postgres

_SERVE = [sys.executable, "-m", "commingle", "coordinator", "serve", "--port", "0"]


@pytest.mark.slow
def test_coordinator_waits_for_its_database_and_says_so(command: Command, tmp_path: Path) -> None:
    with own_postgres() as postgres:
        postgres.stop()
        (tmp_path / "url").write_text(postgres.url)
        command.json("init", "--home", tmp_path / "hub", "--database-url-file", tmp_path / "url")
        serve = [*_SERVE, "--home", str(tmp_path / "hub")]
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                with httpx.Client(base_url=json.loads(process.stdout.readline())["url"], timeout=60) as http:
                    assert http.get("/healthz").status_code == 200
                    for path in ("/readyz", "/v1/parties"):
                        assert problem(http.get(path)) == (503, "storage")
                    assert "commingle_coordinator_database_up 0.0" in http.get("/metrics").text
                    code, _, err = command("invite", "--home", tmp_path / "hub", "--party", "clinic")
                    assert (code, "cannot open the database" in err) == (1, True)  # a person is told at once
                    postgres.start()
                    eventually(lambda: http.get("/readyz").status_code == 200, what="not ready", seconds=60)
                    assert http.get("/v1/parties").json() == {"items": [], "next": None}
                    command.json("invite", "--home", tmp_path / "hub", "--party", "clinic")
                    postgres.stop()
                    assert problem(http.get("/readyz")) == (503, "storage")
                    postgres.start()
                    eventually(lambda: http.get("/readyz").status_code == 200, what="not ready", seconds=60)
            finally:
                process.terminate()
                log = process.stderr.read()
            assert process.wait(60) in {0, -signal.SIGTERM}
        assert "it is tried again until it does" in log
        assert "publisher works again" in log
        assert postgres.url not in log


def test_sqlite_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnreachableDatabaseError):
        open_store(f"sqlite:///{tmp_path / 'missing' / 'coordinator.sqlite'}", patient=True)
