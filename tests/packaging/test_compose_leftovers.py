"""Starting over after `docker compose down -v`, which leaves the volumes of a `docker compose run` that is over."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
_SCRIPTS = Path(__file__).parents[2] / "deploy" / "compose"
_TOOLS = {
    "commingle": 'case "$*" in *--json*) echo \'{"fingerprint": "f"}\' ;; *token*create*) echo token ;; esac',
    "openssl": 'for file; do case "$file" in *.key | *.pem) touch "$file" ;; esac; done',
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
    for folder in (
        "study",
        "secrets",
        "coordinator",
        "tables/ward",
        "access/ward",
        "ward",
        "registration",
        "laboratory",
    ):
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
    (home / "coordinator" / "settings.json").touch()
    run(home, "keys.sh")
    assert (home / "tables" / "written").exists()
