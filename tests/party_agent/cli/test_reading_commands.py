"""What `commingle --schema` lists by itself only reads: it changes no file, and asks a coordinator for nothing else."""

import json
import shlex
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from commingle.__main__ import main
from commingle.shared.documents.schema import Attribute
from commingle.shared.runtime.files import write_durably
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.releasing import publish
from tests.world.command import run_command
from tests.world.consortium import SCHEMAS, Consortium
from tests.world.released import published_survival, published_tables
from tests.world.tampering import URL
from tests.world.transport import on_a_socket

# each with what it needs: as it stands in a folder with a member's home and a coordinator's, their histories, a
# release, and a study
READING = {
    "config show": "coordinator --home coordinator",
    "coordinator audit verify": "audit-hub.json",
    "coordinator doctor": "--home coordinator --coordinator {url}",
    "coordinator releases": "--home coordinator --coordinator {url}",
    "coordinator token list": "--home coordinator",
    "describe": "tables stage",
    "fit": "tables --target readmitted[no] --features stage --family binomial",
    "members": "{url}",
    "party audit verify": "audit-clinic.json",
    "party datasets list": "--home clinic",
    "party doctor": "--home clinic",
    "party ledger": "--home clinic",
    "party proposals": "--home clinic",
    "party regressions": "--home clinic",
    "party status": "--home clinic",
    "party token list": "--home clinic",
    "plan": "--n 1000",
    "study check": "study.json --home clinic",
    "survival": "survival outcome",
    "table": "tables stage readmitted",
    "verify": "tables",
}

FOUND_WANTING = {"party doctor", "study check"}  # they say of this member that it has no disk or pins to spare


def schema(capsys: pytest.CaptureFixture[str], *which: str) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        main(["--schema", *which])
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def ends(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The commands that have none below them."""
    for one in told["commands"]:
        yield from ends(one) if one["commands"] else (one,)


def test_only_what_reads_is_listed_without_the_options_that_write_and_all_is_listed_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told, all_of_them = schema(capsys), schema(capsys, "all")
    reading = {one["command"].removeprefix("commingle "): one for one in ends(told)}
    everything = {one["command"].removeprefix("commingle "): one for one in ends(all_of_them)}
    assert reading.keys() == READING.keys() == {name for name, one in everything.items() if one["reads"]}
    for name in ("party approve", "party reject", "party serve", "coordinator revoke", "simulate", "demo"):
        assert everything[name]["reads"] is False, name
    for name, one in everything.items():
        options = {option for taken in one["takes"] for option in taken["names"]}
        assert set(one["unless"]) <= options, name
        assert ("--json" in options) is (one["prints"] is not None), name
        if one["reads"]:
            offered = {option for taken in reading[name]["takes"] for option in taken["names"]}
            assert offered == options - {*one["unless"]}, name
    shapes = all_of_them["$defs"]
    assert shapes["ProposalView"]["properties"]["outlook"]["description"]
    (pinned,) = (one["prints"] for name, one in everything.items() if name == "party pin")
    assert shapes[pinned["$ref"].rpartition("/")[2]]["required"] == ["pinned"]


def files(folder: Path) -> dict[str, str]:
    """A digest of every file; of a database, what stands in it, but for the forecasts that an agent keeps."""
    found = {}
    for path in folder.rglob("*"):
        if path.name.endswith(("-wal", "-shm")) or not path.is_file():
            continue
        data = path.read_bytes()
        if data.startswith(b"SQLite format 3"):
            with closing(sqlite3.connect(path)) as db:
                data = "\n".join(line for line in db.iterdump() if 'INTO "forecasts"' not in line).encode()
        found[str(path.relative_to(folder))] = f"{path.stat().st_mode:o} {sha256(data).hexdigest()}"
    return found


@pytest.mark.slow
def test_command_that_reads_changes_no_file_and_asks_a_coordinator_only_to_be_shown_something(
    pair: Consortium, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(pair)
    pair.propose(title="waits")
    pair.step("clinic")
    folder, hub = pair.root, pair.coordinator
    monkeypatch.chdir(folder)
    write_durably(hub.root / "keys" / "signing.key", pair.key.hex().encode())
    write_durably(hub.root / "settings.json", b'{"name": "hub", "public_reads": true}')
    for name, made in (("tables", published_tables()), ("survival", published_survival())):
        made[1].write(folder / name)
    write_durably(folder / "ages.json", encode_attributes(SCHEMAS["clinic"]))
    write_durably(folder / "charges.json", encode_attributes(SCHEMAS["insurer"]))
    with on_a_socket(hub.handle) as url:
        for home in pair.homes.values():
            file = home.consortium().coordinator_file
            file.write_text(file.read_text().replace(URL, url))
        hub.clock.now = system_clock()
        for line in (
            "study new --member clinic=ages.json --member insurer=charges.json --title T --n 90 --target charges",
            "party audit export --home clinic --out audit-clinic.json",
            "coordinator audit export --home coordinator --out audit-hub.json",
        ):
            assert run_command(capsys, *line.split())[0] == 0, line
        before, asked = files(folder), len(hub.requests)
        for name, takes in READING.items():
            code, out, err = run_command(capsys, *name.split(), *shlex.split(takes.format(url=url)), "--json")
            assert "error" not in json.loads(out), (name, err)
            assert code == 0 or name in FOUND_WANTING, (name, out)
            assert files(folder) == before, name
    assert {request.split()[0] for request in hub.requests[asked:]} == {"GET"}


def encode_attributes(attributes: Sequence[Attribute]) -> bytes:
    return json.dumps([attribute.model_dump(mode="json") for attribute in attributes]).encode()
