"""Starting over after an interrupted start, or after `down -v`, which leaves volumes of a `run` that goes on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
_SCRIPTS = Path(__file__).parents[2] / "deploy" / "compose"
_CLINICS = ("ward", "registration", "laboratory")
_COMMINGLE = """
for home; do case "$before" in --home) break ;; esac; before=$home; done
case "$*" in
*init*) [ ! -f "$home/keys/signing.key" ] || exit 1 # keys are never overwritten
    mkdir -p "$home/keys"; touch "$home/keys/signing.key" "$home/settings.json" ;;
*pin*) touch "$home/pins.json" ;;
*token*create*) echo token ;;
*invite*) [ ! -f "$home/refuses" ] || { cat "$home/refuses"; exit 1; }; echo '{"invite": "fresh"}' ;;
*--json*) echo '{}' ;;
esac
"""
_TOOLS = {
    "commingle": _COMMINGLE,
    "openssl": 'for file; do case "$file" in *.key | *.pem) touch "$file" ;; esac; done',
    "python": f'case "$*" in *signing.key*) echo f ;; *) exec {sys.executable} "$@" ;; esac',
}
_TABLES = """
import pathlib, sys
for clinic in ("registration", "laboratory", "ward"):
    folder = pathlib.Path(sys.argv[1], clinic)
    folder.mkdir(exist_ok=True)
    (folder / "schema.json").write_text("[]")
pathlib.Path(sys.argv[1], "written").touch()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Empty volumes, and tools that do nothing but leave their files."""
    for name, text in _TOOLS.items():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "tables.py").write_text(_TABLES)
    for folder in ("study", "secrets", "coordinator", "tables/ward", "access/ward", *_CLINICS):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def run(home: Path, script: str, *arguments: str) -> None:
    text = (_SCRIPTS / script).read_text()
    for folder in ("/usr/local/lib/commingle", "/var/lib/commingle", "/run/invites"):
        text = text.replace(folder, str(home))
    path = f"{home / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {"PATH": path, "COMMINGLE_COORDINATOR": "http://hub"}
    subprocess.run(["/bin/sh", "-c", text, script, *arguments], env=environment, check=True, capture_output=True)


def test_agent_of_a_new_home_makes_keys_although_the_last_ones_token_is_left(home: Path) -> None:
    (home / "access" / "ward" / "token").write_text("of another home")
    (home / "ward" / "settings.json").write_text("signing_key")  # enrolled
    run(home, "clinic.sh", "ward")
    assert (home / "ward" / "api.key").exists()
    assert (home / "access" / "ward" / "token").read_text() == "token\n"


def test_tables_are_written_although_the_studies_of_the_last_ones_are_left(home: Path) -> None:
    (home / "study" / "moments.json").touch()
    run(home, "keys.sh")
    assert (home / "tables" / "written").exists()


def test_interrupted_start_is_finished_by_the_next_one(home: Path) -> None:
    (home / "registration" / "keys").mkdir()
    (home / "registration" / "keys" / "signing.key").touch()  # its settings would have come last
    (home / "secrets" / "postgres_password").touch()
    (home / "study" / "coordinator_fingerprint").touch()
    for _ in range(2):
        run(home, "keys.sh")
        assert all((home / clinic / "pins.json").exists() for clinic in _CLINICS)
    assert (home / "secrets" / "database_url").stat().st_size
    assert (home / "study" / "coordinator_fingerprint").read_text() == "f\n"


def test_invite_that_was_not_written_is_written_and_that_of_a_member_is_kept(home: Path) -> None:
    (home / "ward").rmdir()
    (home / "ward").touch()
    run(home, "invites.sh")
    assert (home / "ward").read_text() == "fresh\n"
    (home / "ward").write_text("of its enrolment")
    os.utime(home / "ward", (0, 0))
    (home / "coordinator" / "refuses").write_text('{"error": {"code": "name-taken"}}')
    run(home, "invites.sh")
    assert (home / "ward").read_text() == "of its enrolment"
    (home / "coordinator" / "refuses").write_text('{"error": {"code": "storage"}}')
    with pytest.raises(subprocess.CalledProcessError):
        run(home, "invites.sh")
