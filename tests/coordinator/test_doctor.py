"""A coordinator's doctor, and backups that are really restored."""

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from commingle.coordinator.doctor import examine_home
from commingle.coordinator.home import CoordinatorHome, open_coordinator
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.settings import system_clock
from tests.world.command import Command
from tests.world.coordinator import Honest, Hub, Proposed, key_of


def failed(home: Path) -> dict[str, str]:
    checks = list(examine_home(CoordinatorHome(home), url=None, ca_file=None, now=system_clock()))
    assert all(bool(check.remedy) is not check.ok for check in checks)
    return {check.name: check.found for check in checks if not check.ok}


@pytest.fixture
def home(command: Command, tmp_path: Path) -> Path:
    """A home whose coordinator has been started once."""
    command.json("init", "--home", tmp_path / "hub")
    command.json("invite", "--home", tmp_path / "hub", "--party", "clinic")
    (tmp_path / "hub" / "blobs").mkdir()
    return tmp_path / "hub"


def opened(home: Path) -> Hub:
    return Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home)


def publish(home: Path) -> tuple[Hub, Proposed]:
    hub = opened(home)
    parties: tuple[Honest, Honest] = hub.enrolled("clinic"), hub.enrolled("registry")
    proposed = hub.complete(parties)
    hub.publisher.run_once()
    assert hub.state(proposed) == "published"
    return hub, proposed


def test_home_in_order_passes(home: Path) -> None:
    hub, _ = publish(home)
    assert failed(home) == {}
    hub.close()


def rewrite(home: Path) -> None:
    with sqlite3.connect(home / "coordinator.sqlite") as db:
        db.execute("UPDATE events SET kind = 'rejection' WHERE seq = 4")
    db.close()


def lose_blob(home: Path) -> None:
    for path in (home / "blobs").glob("*/*"):
        path.unlink()


BREAKAGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "key others can read": (lambda home: (home / "keys" / "signing.key").chmod(0o644), {"keys"}),
    "no database": (
        lambda home: (home / "coordinator.sqlite").unlink(), {"database", "event chain", "published files"}
    ),
    "rewritten events": (rewrite, {"event chain"}),
    "lost blobs": (lose_blob, {"published files"}),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKAGES)
def test_what_is_broken_is_found_and_nothing_else(home: Path, what: str) -> None:
    publish(home)[0].close()
    breaks, expected = BREAKAGES[what]
    breaks(home)
    assert set(failed(home)) == expected
    assert what != "no database" or not (home / "coordinator.sqlite").exists()  # looking makes none


def test_command_fails_on_a_home_that_is_none(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("doctor", "--home", tmp_path)
    assert (code, "settings" in out) == (1, True)


def test_restored_backup_serves_what_was_published(home: Path, tmp_path: Path) -> None:
    """As docs/operations.md says: `.backup` of the database while it runs, then the blobs and the key."""
    hub, proposed = publish(home)
    backup = tmp_path / "backup"
    backup.mkdir()
    source, target = sqlite3.connect(home / "coordinator.sqlite"), sqlite3.connect(backup / "coordinator.sqlite")
    source.backup(target)
    source.close()
    target.close()
    shutil.copytree(home / "blobs", backup / "blobs")
    shutil.copytree(home / "keys", backup / "keys")
    shutil.copy(home / "settings.json", backup / "settings.json")
    files = [hub.http.get(f"/v1/releases/{proposed.id}/{n}").content for n in ("manifest", "matrix", "moments")]
    hub.close()
    shutil.rmtree(home)
    assert failed(backup) == {}
    restored = opened(backup)
    served = [restored.http.get(f"/v1/releases/{proposed.id}/{n}").content for n in ("manifest", "matrix", "moments")]
    assert served == files
    assert verify_release(*served, trusted_coordinator=restored.key.fingerprint).release == proposed.id
    again = restored.proposed((Honest("clinic", key_of("clinic")), Honest("registry", key_of("registry"))), study="b")
    assert restored.state(again) == "proposed"
    restored.close()


@pytest.mark.parametrize("folder", ["", "keys", "blobs"])
def test_folder_of_a_home_that_others_can_enter_is_closed_when_it_is_opened(home: Path, folder: str) -> None:
    (home / folder).chmod(0o755)
    with open_coordinator(home):
        assert (home / folder).stat().st_mode & 0o777 == 0o700
