"""A coordinator's doctor, and backups that are really restored."""

import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest

from commingle.__main__ import main
from commingle.coordinator.errors import DamagedDatabaseError
from commingle.coordinator.home import CoordinatorHome, open_coordinator
from commingle.coordinator.upkeep_cli import examine_home
from commingle.shared.runtime.settings import system_clock
from tests.world.command import Command
from tests.world.coordinator import Honest, Hub, Proposed, key_of, problem


def found(home: Path, *, ok: bool) -> dict[str, str]:
    """What the checks say that pass, or those that do not."""
    checks = list(examine_home(CoordinatorHome(home), url=None, ca_file=None, now=system_clock()))
    assert all(bool(check.remedy) is not check.ok for check in checks)
    return {check.name: check.found for check in checks if check.ok is ok}


def failed(home: Path) -> dict[str, str]:
    return found(home, ok=False)


@pytest.fixture
def home(command: Command, home: Path) -> Path:
    command.json("invite", "--home", home, "--party", "clinic")
    (home / "blobs").mkdir()
    return home


def opened(home: Path) -> Hub:
    return Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home)


def publish(home: Path) -> tuple[Hub, Proposed]:
    hub = opened(home)
    proposed = hub.complete([hub.enrolled("clinic"), hub.enrolled("registry")])
    hub.publisher.run_once()
    assert hub.state(proposed) == "published"
    return hub, proposed


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Proposed]:
    home = tmp_path_factory.mktemp("original") / "hub"
    with redirect_stdout(StringIO()), suppress(SystemExit):
        main(["coordinator", "init", "--home", str(home)])
    (home / "blobs").mkdir()
    hub, proposed = publish(home)
    hub.close()
    return home, proposed


@pytest.fixture
def published(original: tuple[Path, Proposed], tmp_path: Path) -> Path:
    return Path(shutil.copytree(original[0], tmp_path / "published"))


def edit(home: Path, *, statement: str) -> None:
    with closing(sqlite3.connect(home / "coordinator.sqlite")) as db, db:
        db.execute(statement)


def lose_blob(home: Path) -> None:
    for path in (home / "blobs").glob("*/*"):
        path.unlink()


def flip_blob(home: Path) -> None:
    path = max((home / "blobs").glob("*/*"), key=lambda one: one.stat().st_mtime_ns)
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])


BREAKAGES: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "key others can read": (lambda home: (home / "keys" / "signing.key").chmod(0o644), {"keys"}),
    "no database": (lambda home: (home / "coordinator.sqlite").unlink(), {"database"}),
    "rewritten events": (
        partial(edit, statement="UPDATE events SET kind = 'rejection' WHERE seq = 4"),
        {"event chain", "recorded documents"},
    ),
    **{
        statement: (partial(edit, statement=statement), {"recorded documents"})
        for statement in (
            "UPDATE shares SET approval = statement",
            "UPDATE releases SET state = 'expired'",
            "UPDATE shares SET body = '" + "0" * 64 + "' WHERE party = 'clinic'",
            "UPDATE parties SET fingerprint = '" + "0" * 64 + "' WHERE name = 'clinic'",
            "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)",
            "UPDATE shares SET approval = NULL",
            "UPDATE shares SET alignment_digest = '" + "0" * 64 + "'",
            "DELETE FROM shares WHERE party = 'clinic'",
            "UPDATE releases SET delta = delta * 2",
            "UPDATE releases SET proposer_key = '" + "0" * 64 + "'",
            "UPDATE releases SET manifest = NULL",
            "UPDATE parties SET signing_key = '" + "0" * 64 + "'",
            "UPDATE parties SET revoked = enrolled",
            "UPDATE party_keys SET signing_key = '" + "0" * 64 + "'",
            "DELETE FROM party_keys",
        )
    },
    "matrix of another release": (
        partial(edit, statement="UPDATE releases SET matrix = moments"),
        {"published files"},
    ),
    "lost blobs": (lose_blob, {"published files"}),
    "flipped bit of a published file": (flip_blob, {"published files"}),
}  # fmt: skip


@pytest.mark.parametrize("what", BREAKAGES)
def test_what_is_broken_is_found_and_nothing_else(published: Path, what: str) -> None:
    breaks, expected = BREAKAGES[what]
    breaks(published)
    assert set(failed(published)) == expected
    assert what != "no database" or not (published / "coordinator.sqlite").exists()  # looking makes none


@pytest.mark.parametrize("gone", [False, True], ids=["empty", "gone"])
def test_database_that_was_emptied_is_no_new_one_where_files_are_beside_it(
    command: Command, published: Path, gone: bool
) -> None:
    files = sorted((published / "blobs").glob("*/*"))
    for path in published.glob("coordinator.sqlite*"):
        path.unlink()
    if not gone:
        (published / "coordinator.sqlite").touch()
    assert set(failed(published)) == {"database"}
    assert "Restore its backup" in command.refused("invite", "--home", published, "--party", "registry")
    assert sorted((published / "blobs").glob("*/*")) == files


@pytest.mark.parametrize(
    ("statement", "path"),
    [
        ("UPDATE parties SET signing_key = sealing_key", "/v1/parties"),
        ("UPDATE parties SET sealing_key = 'none'", "/v1/parties/clinic"),
        ("UPDATE party_keys SET signing_key = 'none'", "/v1/parties/clinic/keys"),
        ("UPDATE releases SET state = 'none'", "/v1/releases"),
        ("UPDATE shares SET approval = '{}'", "/v1/releases/{release}"),
        ("UPDATE releases SET created = 1 << 62", "/v1/releases/{release}/manifest"),
        ("UPDATE events SET state = 'none' WHERE release IS NOT NULL", "/v1/events"),
    ],
)
def test_altered_row_is_a_storage_fault_of_whoever_reads_it(
    original: tuple[Path, Proposed], published: Path, statement: str, path: str
) -> None:
    hub = opened(published)
    edit(published, statement=statement)
    assert problem(hub.http.get(path.format(release=original[1].id))) == (503, "storage")
    hub.close()


def test_tables_that_are_still_to_be_made_are_said_and_not_made(home: Path) -> None:
    Hub(f"sqlite:///{home / 'coordinator.sqlite'}", home).close()
    edit(home, statement="DELETE FROM alembic_version")
    assert "migration pending: the tables have revision None" in found(home, ok=True)["database"]
    with closing(sqlite3.connect(home / "coordinator.sqlite")) as db:
        assert db.execute("SELECT count(*) FROM alembic_version").fetchone() == (0,)


@pytest.mark.parametrize("revision", ["first", "sizes", "of another version"])
def test_database_of_another_version_is_told_with_a_remedy(published: Path, revision: str) -> None:
    edit(published, statement=f"UPDATE alembic_version SET version_num = '{revision}'")  # noqa: S608 - ours
    assert "written by another version" in failed(published)["database"]


def test_database_that_is_down_is_said_once_with_its_remedy_and_json_stays_json(
    command: Command, tmp_path: Path
) -> None:
    home, url = tmp_path / "hub", "postgresql://hub:secret@127.0.0.1:1/hub"
    command.json("init", "--home", home, "--database-url", url)
    (home / "blobs").mkdir(mode=0o700)
    code, out, err = command("doctor", "--home", home)
    assert (code, err) == (1, "")
    assert all(line.startswith(("✓ ", "✗ database: ", "    Nothing was recorded. ")) for line in out.splitlines())
    assert out.count("✗") == 1
    code, out, err = command("doctor", "--home", home, "--json")
    assert (code, err) == (1, "")
    assert [check["name"] for check in json.loads(out)["checks"] if not check["ok"]] == ["database"]
    assert "secret" not in out


def test_command_fails_on_a_home_that_is_none(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("doctor", "--home", tmp_path)
    assert (code, "settings" in out) == (1, True)


def test_backup_of_a_home_in_order_is_one_and_serves_what_was_published(
    command: Command, home: Path, tmp_path: Path
) -> None:
    """As docs/operations.md says, while it runs."""
    hub, proposed = publish(home)
    (home / "blobs" / "running" / proposed.id).mkdir(parents=True)
    (home / "blobs" / "running" / proposed.id / "reply").write_bytes(b"a running reply")
    backup = tmp_path / "backup"
    command.json("backup", tmp_path / "hub.tar", "--home", home)
    assert b"a running reply" not in (tmp_path / "hub.tar").read_bytes()
    files = hub.published(proposed)
    assert failed(home) == {}
    hub.close()
    shutil.rmtree(home)
    restored_home = command.json("restore", tmp_path / "hub.tar", "--home", backup)
    assert restored_home["next"] == [f"commingle coordinator {each} --home {backup}" for each in ("doctor", "serve")]
    assert command("restore", tmp_path / "hub.tar", "--home", backup)[0] == 1  # it overwrites nothing
    with tarfile.open(tmp_path / "hub.tar") as tar:
        last = tar.getmembers()[-1]
    (tmp_path / "half.tar").write_bytes((tmp_path / "hub.tar").read_bytes()[: last.offset])
    code, _, err = command("restore", tmp_path / "half.tar", "--home", tmp_path / "half")
    assert (code, "half.tar is not a whole backup" in err) == (1, True)
    assert failed(backup) == {}
    restored = opened(backup)
    assert restored.published(proposed) == files
    assert restored.verified(proposed).release == proposed.id
    again = restored.proposed((Honest("clinic", key_of("clinic")), Honest("registry", key_of("registry"))), study="b")
    assert restored.state(again) == "proposed"
    restored.close()


def test_backup_of_a_coordinator_on_postgresql_takes_the_dump_that_was_made_before(
    command: Command, tmp_path: Path
) -> None:
    home, dump, out = tmp_path / "hub", tmp_path / "coordinator.dump", tmp_path / "hub.tar"
    (tmp_path / "url").write_text("postgresql://hub:secret@127.0.0.1:1/hub")
    command.json("init", "--home", home, "--database-url-file", tmp_path / "url")
    dump.write_bytes(b"PGDMP")
    code, _, err = command("backup", out, "--home", home)
    assert (code, "pg_dump --format=custom" in err, out.exists()) == (1, True, False)
    assert command.json("backup", out, "--home", home, "--dump", dump)["files"] == 3
    restored = command.json("restore", out, "--home", tmp_path / "new")
    assert "pg_restore --clean" in restored["next"][0]
    assert (tmp_path / "new" / "coordinator.dump").read_bytes() == b"PGDMP"
    assert "secret" not in out.read_bytes().decode("latin-1")


@pytest.mark.parametrize("folder", ["", "keys", "blobs"])
def test_folder_of_a_home_that_others_can_enter_is_closed_when_it_is_opened(home: Path, folder: str) -> None:
    (home / folder).chmod(0o755)
    with open_coordinator(home):
        assert (home / folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("length", [4096, 30000])
@pytest.mark.parametrize("first", [b"", b"not a database"])
def test_database_that_was_cut_or_altered_is_told_to_be_restored(published: Path, length: int, first: bytes) -> None:
    file = published / "coordinator.sqlite"
    file.write_bytes(first + file.read_bytes()[len(first) : length])
    found = examine_home(CoordinatorHome(published), url=None, ca_file=None, now=system_clock())
    check = next(check for check in found if not check.ok)
    assert check.name == "database"
    assert "restore the newest backup" in check.remedy
    with pytest.raises(DamagedDatabaseError) as refused, open_coordinator(published):
        pass
    assert "restore the newest backup" in refused.value.remedy
