"""A backup holds what a party is restored from, whatever goes on meanwhile, and nothing of an exchange."""

import shutil
import sqlite3
import stat
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from commingle.coordinator.home import CoordinatorHome
from commingle.coordinator.upkeep_cli import restore_backup as restore_coordinator
from commingle.party_agent.cli import party
from commingle.party_agent.errors import ConflictError, LedgerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.backup import restore_backup, write_backup
from commingle.party_agent.operate.compose import compose_agents
from commingle.shared.dp.accounting import ZERO
from commingle.shared.runtime.errors import KeyFileError, SettingsError
from tests.hostile.actors import LocalUser
from tests.party_agent.exchanging import columned, replied
from tests.world.consortium import Consortium, strictly
from tests.world.disks import mounted


def names_in(path: Path) -> set[str]:
    with tarfile.open(path) as tar:
        return set(tar.getnames())


def end_of_each_file(path: Path) -> list[int]:
    with tarfile.open(path) as tar:
        return [one.offset_data + -(-one.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE for one in tar.getmembers()]


def kept_by_exchanges(home: Home) -> dict[str, bytes]:
    """Secret, rows and messages, by file name."""
    return {path.name: path.read_bytes().strip() for path in home.exchanges.glob("*/*")}


def test_backup_of_a_running_exchange_holds_everything_but_what_the_exchange_keeps(
    pair: Consortium, tmp_path: Path
) -> None:
    replied(pair, "proved")
    home = pair.homes["insurer"]
    kept = kept_by_exchanges(home)
    assert set(kept) == {"exchange.key", "rows", "columns", "columns.clinic", "reply"}
    assert kept.pop("columns") == b"", "of the last party, which encrypts nothing"
    assert all(kept.values())
    with pair.agent("insurer"):  # which holds the ledger
        write_backup(home, tmp_path / "backup.tar")
    held = (tmp_path / "backup.tar").read_bytes()
    for data in (*kept.values(), bytes.fromhex(kept["exchange.key"].decode())):
        assert data[:32] not in held
        assert data[-32:] not in held
    consortium = {f"consortia/trial/{name}" for name in ("coordinator.json", "pins.json", "linkage.key")}
    keys = {f"keys/{name}.key" for name in ("signing", "sealing")}
    assert names_in(tmp_path / "backup.tar") == {"settings.json", "policy.json", "ledger.sqlite"} | consortium | keys
    assert stat.S_IMODE((tmp_path / "backup.tar").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob(".backup-*")) == []


def test_party_goes_on_from_its_backup(pair: Consortium, tmp_path: Path) -> None:
    release = pair.propose()
    pair.step("clinic")
    home = pair.homes["clinic"]
    write_backup(home, tmp_path / "backup.tar")
    with pytest.raises(SettingsError, match="something at"):
        restore_backup(tmp_path / "backup.tar", home)
    shutil.rmtree(home.root)
    assert "and 1 charge" in restore_backup(tmp_path / "backup.tar", home)
    assert all(not path.stat().st_mode & 0o077 for path in [home.root, *home.root.rglob("*")])
    with pair.agent("clinic") as agent:
        agent.ledger.verify()
        assert agent.ledger.spent() > ZERO
        agent.step(strictly)
        assert agent.proposals.get(release).decision == "approved"


def test_backup_overwrites_nothing(pair: Consortium, tmp_path: Path) -> None:
    (tmp_path / "backup.tar").write_bytes(b"the one of yesterday")
    done = CliRunner().invoke(party, ["backup", str(tmp_path / "backup.tar"), "--home", str(pair.homes["clinic"].root)])
    assert isinstance(done.exception, ConflictError)
    assert (tmp_path / "backup.tar").read_bytes() == b"the one of yesterday"


def test_backup_of_what_is_no_home_or_to_nowhere_is_refused(pair: Consortium, tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        write_backup(Home(tmp_path / "none"), tmp_path / "backup.tar")
    with pytest.raises(SettingsError, match="cannot write"):
        write_backup(pair.homes["clinic"], tmp_path / "none" / "backup.tar")
    pair.homes["clinic"].database.write_bytes(b"not a ledger" * 1000)
    with pytest.raises(LedgerError, match="cannot be copied"):
        write_backup(pair.homes["clinic"], tmp_path / "backup.tar")
    assert not (tmp_path / "backup.tar").exists()


def test_backup_onto_a_full_disk_names_its_folder_and_not_the_home(pair: Consortium, tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "disk", kibibytes=16) as disk,
        pytest.raises(SettingsError, match=r"cannot write .*w.tar \(No space") as refused,
    ):
        write_backup(pair.homes["clinic"], disk / "w.tar")
    assert refused.value.remedy.startswith(f"Free space in {disk}")


def test_command_says_what_it_wrote_and_that_it_holds_keys(pair: Consortium, tmp_path: Path) -> None:
    home = str(pair.homes["clinic"].root)
    done = CliRunner().invoke(party, ["backup", str(tmp_path / "backup.tar"), "--home", home])
    assert done.exit_code == 0, done.output
    assert "It holds private keys" in done.output


ADOPTED = "UPDATE entries SET body = replace(body, 'reserved', 'adopted')"


def altered(backup: Path) -> Path:
    """A backup in which every charge is next to nothing."""
    folder, out = backup.with_suffix(".files"), backup.with_suffix(".altered")
    with tarfile.open(backup) as tar:
        tar.extractall(folder, filter="data")
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as db, db:
        db.execute(ADOPTED)
    with tarfile.open(out, "w") as tar:
        for path in folder.iterdir():
            tar.add(path, path.name)
    return out


@pytest.mark.parametrize("damage", [ADOPTED, "DELETE FROM entries", "DROP TABLE to_read"])
def test_damaged_ledger_makes_no_backup(pair: Consortium, tmp_path: Path, damage: str) -> None:
    pair.propose()
    pair.step("clinic")
    LocalUser(pair).edit(damage)
    with pytest.raises(LedgerError) as refused:
        write_backup(pair.homes["clinic"], tmp_path / "backup.tar")
    assert refused.value.remedy
    assert not (tmp_path / "backup.tar").exists()


def test_damaged_or_foreign_backup_makes_no_home(pair: Consortium, tmp_path: Path) -> None:
    pair.propose()
    pair.step("clinic")
    write_backup(pair.homes["clinic"], tmp_path / "backup.tar")
    with pytest.raises(LedgerError):
        restore_backup(altered(tmp_path / "backup.tar"), Home(tmp_path / "new"))
    (tmp_path / "other.tar").write_bytes(b"no archive at all")
    for size in (0, 5000, 9000, *end_of_each_file(tmp_path / "backup.tar")):
        (tmp_path / "half.tar").write_bytes((tmp_path / "backup.tar").read_bytes()[:size])
        with pytest.raises(SettingsError, match="not a whole backup"):
            restore_backup(tmp_path / "half.tar", Home(tmp_path / "new"))
    with pytest.raises(SettingsError, match="not a whole backup"):
        restore_backup(tmp_path / "other.tar", Home(tmp_path / "new"))
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name or "restore" in path.name] == []


def test_backup_of_the_other_role_is_told_to_be_that(pair: Consortium, tmp_path: Path) -> None:
    home = pair.homes["clinic"]
    write_backup(home, tmp_path / "member.tar")
    with pytest.raises(SettingsError, match="is not a coordinator's backup: it has no database"):
        restore_coordinator(tmp_path / "member.tar", CoordinatorHome(tmp_path / "new"))
    home.database.unlink()
    with pytest.raises(SettingsError, match="is not a member's home: it has no ledger"):
        write_backup(home, tmp_path / "other.tar")
    with tarfile.open(tmp_path / "hub.tar", "x") as tar:
        tar.add(home.root / "settings.json", "settings.json")
    with pytest.raises(SettingsError, match="is not a member's backup: it has no ledger"):
        restore_backup(tmp_path / "hub.tar", Home(tmp_path / "new"))


def test_restore_command_says_what_comes_next(pair: Consortium, tmp_path: Path) -> None:
    write_backup(pair.homes["clinic"], tmp_path / "backup.tar")
    new = tmp_path / "new"
    done = CliRunner().invoke(party, ["restore", str(tmp_path / "backup.tar"), "--home", str(new)])
    assert done.exit_code == 0, done.output
    for step in ("doctor", "adopt", "datasets read NAME", "serve"):
        assert f"commingle party {step} --home {new}" in done.output
    assert Home(new).settings() == pair.homes["clinic"].settings()


@pytest.mark.slow
def test_copy_by_a_program_that_honours_the_tag_holds_nothing_of_an_exchange(pair: Consortium, tmp_path: Path) -> None:
    columned(pair)
    home = pair.homes["clinic"]
    kept = set(kept_by_exchanges(home))
    assert kept == {"exchange.key", "rows", "columns"}
    copy = tmp_path / "copy.tar"
    tar = shutil.which("tar")
    assert tar is not None
    subprocess.run([tar, "--exclude-caches", "-cf", copy, "-C", home.root, "."], check=True)
    assert not kept & {Path(name).name for name in names_in(copy) if "exchanges" in Path(name).parts}
    assert "./keys/signing.key" in names_in(copy)


@pytest.mark.parametrize("folder", ["", "keys", "outbox", "exchanges", "consortia", "consortia/trial"])
def test_folder_of_a_home_that_others_can_enter_is_closed_when_the_agent_opens_it(
    pair: Consortium, folder: str
) -> None:
    at = pair.homes["clinic"].root / folder
    at.chmod(0o755)
    nobody = httpx.MockTransport(lambda _: httpx.Response(503))
    with compose_agents(pair.homes["clinic"], transport=nobody):
        assert stat.S_IMODE(at.stat().st_mode) == 0o700


def test_home_of_somebody_else_that_others_can_enter_is_refused(pair: Consortium) -> None:
    class Foreign(type(pair.root)):  # type: ignore[misc] # the class of this system's paths
        def chmod(self, mode: int, **_: object) -> None:
            raise PermissionError(1, f"not the owner: {mode:o}")

    home = pair.homes["clinic"]
    home.root.chmod(0o750)
    with pytest.raises(KeyFileError, match="open to others"):
        Home(Foreign(home.root)).secure()
