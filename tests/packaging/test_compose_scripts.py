"""The scripts of the demonstration: its tables, the health check of its clinics, and starting over.

One starts over after an interrupted start, or after `down -v`, which leaves volumes of a `run` that goes on.
"""

import csv
import os
import runpy
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from commingle.party_agent.edge.api import LocalApi
from commingle.party_agent.edge.app import create_app
from commingle.party_agent.edge.loop import Loops
from commingle.shared.documents.model import decode
from commingle.shared.documents.schema import parse_attributes
from commingle.shared.documents.study import Study
from commingle.shared.runtime.errors import UnreachableError
from tests.world.consortium import consortium_of
from tests.world.local_api import serving_at

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


@pytest.mark.slow
def test_agent_of_a_new_home_makes_keys_although_the_last_ones_token_is_left(home: Path) -> None:
    (home / "access" / "ward" / "token").write_text("of another home")
    (home / "ward" / "settings.json").write_text("signing_key")  # enrolled
    run(home, "clinic.sh", "ward")
    assert (home / "ward" / "api.key").exists()
    assert (home / "access" / "ward" / "token").read_text() == "token\n"


@pytest.mark.slow
def test_tables_are_written_although_the_studies_of_the_last_ones_are_left(home: Path) -> None:
    (home / "study" / "moments.json").touch()
    run(home, "keys.sh")
    assert (home / "tables" / "written").exists()


@pytest.mark.slow
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


@pytest.mark.slow
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


def ready(folder: Path) -> bool:
    done = subprocess.run([sys.executable, _SCRIPTS / "ready.py", folder], check=False, capture_output=True)
    return done.returncode == 0


@pytest.mark.slow
def test_clinic_is_ready_while_its_agent_is(tmp_path: Path) -> None:
    consortium = consortium_of(tmp_path, "clinic")
    assert not ready(tmp_path)
    with consortium.agents("clinic") as agents:
        loops = Loops(agents)
        with serving_at(agents.home.socket, create_app(LocalApi(agents, loops, peer_is_operator=True))):
            assert ready(tmp_path)
            loops.all[0].trouble = UnreachableError("no answer", remedy="Check the network.")
            assert not ready(tmp_path)


def test_demonstration_tables_fit_their_schemas_and_the_studies_and_hold_overlapping_people(tmp_path: Path) -> None:
    runpy.run_path(str(_SCRIPTS / "tables.py"))["write"](tmp_path, tmp_path)
    people: dict[str, dict[str, str]] = {}
    for mechanism in ("rmgm", "moments"):
        study = decode(Study, (tmp_path / f"{mechanism}.json").read_bytes())
        assert (study.mechanism, study.subjects) == (mechanism, "keyed")
        for party in study.parties:
            schema = parse_attributes((tmp_path / party.name / "schema.json").read_bytes())
            assert schema == party.attributes
            with (tmp_path / party.name / "table.csv").open(newline="") as file:
                rows = csv.DictReader(file)
                assert set(rows.fieldnames or ()) == {"subject_id", *(attribute.name for attribute in schema)}
                people[party.name] = {row["subject_id"]: row.get("age", "") for row in rows}
            assert len(people[party.name]) == pytest.approx(study.n, rel=0.01)
    for one, other in combinations(people.values(), 2):
        assert len(one.keys() & other.keys()) / len(one) == pytest.approx(0.8, abs=0.01)
    ages = [float(age) for age in people["registration"].values()]
    assert sum(ages) / len(ages) == pytest.approx(55, abs=0.5)  # as of everybody: who is known does not depend on it
