"""Each thing that can be wrong around an agent is found, named and given a remedy."""

import errno
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from ssl import SSLCertVerificationError
from threading import Event

import httpx
import pytest
from structlog.testing import capture_logs

from commingle.coordinator.members import revoke
from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.loop import Loops
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.backup import adopt_branch, find_lost_branch
from commingle.party_agent.operate.doctor import examine_home, open_addresses
from commingle.party_agent.wire.local_socket import listen
from commingle.services.testing.nodes import self_signed
from commingle.shared import loops
from commingle.shared.runtime.doctor import UnhealthyError, clock_skew
from commingle.shared.runtime.server import Served, serving
from commingle.shared.runtime.server import listen as listen_on
from commingle.shared.runtime.settings import system_clock
from tests.hostile.actors import LocalUser
from tests.party_agent.releasing import look, proposed_and_lost, publish
from tests.world.command import Command
from tests.world.consortium import Consortium
from tests.world.local_api import operator_app, serving_at
from tests.world.tampering import URL
from tests.world.transport import on_a_socket


def failed(home: Home) -> dict[str, str]:
    checks = list(examine_home(home, now=system_clock()))
    assert all(check.found for check in checks)
    assert all(bool(check.remedy) is not check.ok for check in checks)
    return {check.name: check.found for check in checks if not check.ok}


def moved(pair: Consortium, url: str) -> Home:
    home = pair.homes["clinic"]
    file = home.consortium().coordinator_file
    file.write_text(file.read_text().replace(URL, url))
    pair.coordinator.clock.now = system_clock()  # as of the socket
    return home


def test_home_in_order_passes_while_the_agent_runs_and_while_it_does_not(pair: Consortium) -> None:
    publish(pair)
    with on_a_socket(pair.coordinator.handle) as url:
        home = moved(pair, url)
        assert failed(home) == {}
        with pair.agent("clinic"):
            assert failed(home) == {}


def test_block_of_a_release_that_goes_on_is_no_leftover(pair: Consortium) -> None:
    pair.propose()
    look(pair, "clinic", "insurer", "clinic")
    home = pair.homes["clinic"]
    assert len(list(home.outbox.iterdir())) == 1
    (said,) = (check.found for check in examine_home(home, now=system_clock()) if check.name == "outbox")
    assert said == "files of 1 release are kept until the end of each, blocks some days longer"
    assert set(failed(home)) == {"coordinator"}


def test_package_without_loops_is_found(pair: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "missing", lambda: "libloops.so.1: no such file")
    assert failed(pair.homes["clinic"])["loops"] == "compiled arithmetic is not available: libloops.so.1: no such file"


def unlock(home: Home) -> None:
    (home.root / "keys" / "signing.key").chmod(0o644)


def damage(home: Home) -> None:
    data = bytearray(home.database.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    home.database.write_bytes(data)


def rewrite(home: Home) -> None:
    with sqlite3.connect(home.database) as db:
        db.execute("UPDATE entries SET body = replace(body, 'reserved', 'released') WHERE seq = 1")
    db.close()


def misread(home: Home, *, version: int) -> None:
    with sqlite3.connect(home.database) as db:
        db.execute(f"PRAGMA user_version = {version}")
    db.close()


def leave(home: Home) -> None:
    (home.exchanges / ("ab" * 32)).mkdir(parents=True)


def lose_snapshot(home: Home) -> None:
    for path in home.snapshots.iterdir():
        path.unlink()


BREAKAGES: dict[str, tuple[Callable[[Home], object], set[str]]] = {
    "key others can read": (unlock, {"keys"}),
    "no linkage key": (lambda home: home.consortium().linkage_file.unlink(), {"linkage key"}),
    "policy": (lambda home: (home.root / "policy.json").write_text('{"max_n": 3}'), {"policy"}),
    "pins": (lambda home: home.consortium().pins_file.write_text("[]"), {"pins"}),
    "no ledger": (
        lambda home: home.database.unlink(),
        {"ledger file", "ledger chain", "data sets", "n of proposals", "proposals", "outbox"},
    ),
    "rewritten ledger": (rewrite, {"ledger chain"}),
    "version that never was": (partial(misread, version=-7), {"ledger file", "ledger chain"}),
    "newer version": (partial(misread, version=9), {"ledger file", "ledger chain"}),
    "leftover": (leave, {"outbox"}),
    "snapshot away": (lose_snapshot, {"data sets"}),
    "socket of a killed agent": (lambda home: listen(home.socket).close(), {"agent"}),
}


def test_what_is_broken_is_found_and_nothing_else(pair: Consortium) -> None:
    publish(pair)
    with on_a_socket(pair.coordinator.handle) as url:
        home = moved(pair, url)
        whole = shutil.copytree(home.root, pair.root / "whole")
        for what, (breaks, expected) in BREAKAGES.items():
            shutil.rmtree(home.root)
            shutil.copytree(whole, home.root)
            breaks(home)
            assert set(failed(home)) == expected, what


def test_release_that_the_coordinator_lost_is_found_once_the_agent_has_asked(pair: Consortium) -> None:
    release = proposed_and_lost(pair, "clinic")
    look(pair, "clinic")
    assert failed(pair.homes["clinic"])["proposals"] == f"its coordinator does not know 1 release: {release[:16]}"


def test_old_ledger_is_found_by_its_witness_until_it_has_adopted_what_was_lost(pair: Consortium) -> None:
    backup = LocalUser(pair).back_up()
    publish(pair)
    LocalUser(pair).restore(backup)
    with on_a_socket(pair.coordinator.handle) as url:
        home = moved(pair, url)
        found = next(check for check in examine_home(home, now=system_clock()) if check.name == "witnessed head")
        assert not found.ok
        assert "a later head of this ledger" in found.found
        assert found.remedy.endswith("commingle party adopt")
        with pair.agents("clinic") as agents:
            adopt_branch(agents, find_lost_branch(agents))
        assert "witnessed head" not in failed(home)


def test_damaged_ledger_is_found(pair: Consortium) -> None:
    publish(pair)
    home = pair.homes["clinic"]
    damage(home)
    assert "ledger file" in failed(home)


def test_every_address_that_the_agent_listens_on_is_told(pair: Consortium) -> None:
    home = pair.homes["clinic"]
    with (
        pair.agent("clinic") as agent,
        serving_at(home.socket, operator_app(agent)),
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        (said,) = (check.found for check in examine_home(home, now=system_clock()) if check.name == "agent")
        assert f"running at {home.socket}, for its user and root alone; it listens on " in said
        assert f"127.0.0.1:{listener.getsockname()[1]} (process {os.getpid()})" in said


@pytest.mark.parametrize(("days", "said"), [(-0.5, "has expired on"), (13.0, "expires on"), (15.0, None)])
def test_certificate_that_has_expired_or_soon_will_is_found(
    pair: Consortium, tmp_path: Path, days: float, said: str | None
) -> None:
    home, tls = pair.homes["clinic"], self_signed(tmp_path, days=days)
    with pair.agent("clinic") as agent, serving_at(home.socket, operator_app(agent)), capture_logs() as logged:
        service = Served(operator_app(agent), listen_on(host="127.0.0.1", port=0), tls)
        at = service.url.removeprefix("https://")
        with serving([service]):
            found = next(check for check in examine_home(home, now=system_clock()) if check.name == "agent")
    warned = [line["event"] for line in logged if line["log_level"] == "warning"]
    assert found.ok is (said is None)
    if said is not None:
        assert f"{at} (process {os.getpid()}): the certificate {said}" in found.found
        assert any(said in line for line in warned)
    else:
        assert not any("certificate" in line for line in warned)


class OnePause(Event):
    """A wait on it is the last."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.set()
        return True


def expired() -> Exception:
    refused = SSLCertVerificationError("as of OpenSSL")
    refused.verify_code, refused.verify_message = 10, "certificate has expired"
    return refused


def unreachable(cause: Exception) -> Callable[[Consortium], None]:
    def fail(_: Consortium) -> None:
        raise httpx.ConnectError("as of httpx") from cause

    return fail


def full(_: Consortium) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def an_hour_later(pair: Consortium) -> None:
    pair.coordinator.clock.move(hours=1)  # since the request was signed


NOT_RESOLVED = socket.gaierror(-3, "Temporary failure in name resolution")
KEEPS_FROM_WORK: dict[str, tuple[Callable[[Consortium], None], str, str]] = {
    "disk full": (full, "No space left on device", "Free space"),
    "clock wrong by an hour": (an_hour_later, "clock-skew", "Set the clock by NTP"),
    "certificate expired": (unreachable(expired()), "is out of date", "Its operator renews it"),
    "DNS gone": (unreachable(NOT_RESOLVED), "its name cannot be looked up", "DNS"),
}


@pytest.mark.parametrize("what", KEEPS_FROM_WORK)
def test_what_keeps_the_agent_from_its_work_is_one_line_until_it_recovers_by_itself(
    pair: Consortium, what: str
) -> None:
    break_, found, remedy = KEEPS_FROM_WORK[what]
    pair.enrol_everybody()
    pair.coordinator.before = lambda _: break_(pair)
    home = pair.homes["clinic"]
    with pair.agents("clinic") as agents:
        running = Loops(agents)
        loop = running.all[0]
        loop.stop = OnePause()
        loop.run(on_halt=lambda: None)
        with serving_at(home.socket, create_app(LocalApi(agents, running, peer_is_operator=True))):
            (said,) = (check for check in examine_home(home, now=system_clock()) if check.name == "agent")
            assert not said.ok
            assert said.found.startswith("running, and kept from its work: ")
            assert (found in said.found, remedy in said.remedy) == (True, True), said
            pair.coordinator.before = lambda _: None
            loop.turn()
            assert "agent" not in failed(home)


@pytest.mark.slow
def test_addresses_of_the_processes_below_are_told_too_and_none_of_others() -> None:
    program = (
        "import socket, time\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "print(listener.getsockname()[1], flush=True)\n"
        "time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            with socket.create_server(("127.0.0.1", 0)) as other:
                (below,) = open_addresses(process.pid)
                assert (below.host, below.port) == ("127.0.0.1", port)
                assert other.getsockname()[1] in {one.port for one in open_addresses(os.getpid())}
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_coordinator_that_is_away_or_another_is_found(pair: Consortium) -> None:
    home = moved(pair, "http://127.0.0.1:9")
    assert set(failed(home)) == {"coordinator"}
    other = Consortium(pair.root / "other")
    other.coordinator.key = type(other.coordinator.key)(b"\xee" * 32)
    with on_a_socket(other.coordinator.handle) as url:
        file = home.consortium().coordinator_file
        file.write_text(file.read_text().replace("http://127.0.0.1:9", url))
        assert "does not answer with the pinned key" in failed(home)["coordinator"]


def test_member_that_was_revoked_is_told_so_while_its_agent_is_stopped(pair: Consortium) -> None:
    publish(pair)
    with on_a_socket(pair.coordinator.handle) as url:
        home = moved(pair, url)
        assert failed(home) == {}
        revoke(pair.coordinator.hub.coordinator, "clinic")
        (name, said), *others = failed(home).items()
    assert (name, others) == ("membership", [])
    assert "(revoked). It says: “clinic has not been a member since " in said


@pytest.mark.parametrize("name", ["clinic2", "insurer"])
def test_home_with_another_name_is_told_which_it_enrolled_with(pair: Consortium, name: str) -> None:
    publish(pair)
    with on_a_socket(pair.coordinator.handle) as url:
        home = moved(pair, url)
        LocalUser(pair).edit_settings(name=name)
        (check, said), *others = failed(home).items()
    assert (check, others) == ("membership", [])
    assert f"knows this member's key under the name “clinic”, and this home has the name “{name}”" in said


def test_ledger_that_may_not_be_opened_is_not_said_to_need_a_restore(pair: Consortium) -> None:
    home = pair.homes["clinic"]
    log = home.root / "ledger.sqlite-wal"  # SQLite opens it with the ledger; modes do not keep root out
    log.unlink(missing_ok=True)
    log.mkdir()
    check = next(check for check in examine_home(home, now=system_clock()) if check.name == "ledger file")
    assert "SQLITE_CANTOPEN" in check.found
    assert check.remedy.startswith("Run the command as the user that owns the home")


def test_clock_that_is_off_is_told_with_both_times() -> None:
    answer = httpx.Response(200, headers={"Date": "Fri, 02 Jan 2026 12:00:00 GMT"})
    at_noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert clock_skew(answer, at_noon + timedelta(seconds=60)) == "clocks are 60 seconds apart"
    with pytest.raises(UnhealthyError, match="61 seconds apart: 2026-01-02T12:00:00Z there"):
        clock_skew(answer, at_noon - timedelta(seconds=61))
    for headers in ({}, {"Date": "yesterday"}):
        assert "not compared" in clock_skew(httpx.Response(200, headers=headers), at_noon)


def test_command_tells_everything_as_json_and_fails(pair: Consortium, run: Command) -> None:
    home = moved(pair, "http://127.0.0.1:9")
    code, out, _ = run("party", "doctor", "--home", home.root, "--json")
    said = json.loads(out)
    assert (code, said["healthy"]) == (1, False)
    assert [check["name"] for check in said["checks"] if not check["ok"]] == ["coordinator"]
    assert "no answer from" in run("party", "doctor", "--home", home.root)[1]


def test_directory_that_is_no_home_is_told_check_by_check(tmp_path: Path) -> None:
    assert {"settings", "keys", "policy", "ledger file", "coordinator"} <= set(failed(Home(tmp_path / "none")))
