"""A database that an earlier version wrote, with all that was in it, under this version."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import MetaData, Table, inspect

from commingle.coordinator.coordinator import export_audit, record
from commingle.coordinator.store.database import Database
from commingle.coordinator.store.store import _MIGRATIONS, open_store
from commingle.coordinator.store.tables import metadata
from commingle.shared.documents.ledger_head import LedgerHead, sign_head
from commingle.shared.documents.model import encode
from commingle.shared.release.verification import verify_release
from tests.world.coordinator import Honest, Hub, Proposed
from tests.world.documents import START
from tests.world.exchange import Exchanging, approved

Rows = Mapping[str, Sequence[Mapping[str, Any]]]
"""What is in each table, as the database has it."""
FORMER = {"first": "first", "heads": "ledger_heads"}
"""The name of each former revision in a database of its time, and its name now."""
SIGNED = '{"signed by": "an earlier version"}'


@dataclass(frozen=True)
class World:
    """What a coordinator had."""

    parties: Sequence[Honest]
    published: Proposed
    running: Proposed
    rows: Rows


def filled(home: Path, *, at: str) -> World:
    """Members, a published release, and one with an exchange that everybody has approved."""
    hub = Hub(f"sqlite:///{home / 'filled.sqlite'}", home)
    parties = [hub.enrolled("clinic"), hub.enrolled("registry")]
    published = hub.complete(parties)
    hub.publisher.run_once()
    running = hub.approved(parties, mechanism="moments")
    with hub.store.write() as tx:  # what the version of the time recorded of an exchange
        found = tx.releases.get(running.id)
        assert found is not None
        for kind, party in (("deal", None), ("mask", "clinic"), ("countersignature", "clinic")):
            record(tx, hub.coordinator, running.id, found.round, kind=kind, party=party, document="ab" * 32)
    if at == "heads":
        head = LedgerHead(
            party="clinic",
            height=3,
            head="cd" * 32,
            rho_units="0",
            delta=0.0,
            replacement_units="0",
            replacement_delta=0.0,
            created=START,
        )
        path, auth = "/v1/parties/clinic/ledger-heads", hub.auth(parties[0].key)
        assert hub.http.put(path, content=encode(sign_head(head, parties[0].key)), auth=auth).status_code == 201
    rows = contents(hub)
    hub.close()
    return World(parties, published, running, rows)


def contents(hub: Hub) -> Rows:
    """All that is in the tables of this version."""
    with hub.store._database.reading() as connection:
        return {
            table.name: [
                dict(row)
                for row in connection.exec_driver_sql(f'SELECT * FROM "{table.name}"').mappings()  # noqa: S608 - ours
            ]
            for table in metadata.sorted_tables
        }


def as_of_old(url: str, revision: str, rows: Rows, running: str) -> None:
    """A database of that revision with those rows, and what only it had of the release that is running."""
    database = Database(url)
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, FORMER[revision])
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{revision}'")  # noqa: S608 - ours
        old = MetaData()
        old.reflect(connection)
        for table in old.sorted_tables:
            for row in rows.get(table.name, ()):
                kept = {name: value for name, value in row.items() if name in table.columns}
                connection.execute(table.insert().values(kept | _only_of_old(table, row, running)))
            if connection.dialect.name == "postgresql" and "seq" in table.columns:  # go on counting where they end
                newest = f"SELECT max(seq) FROM {table.name}"  # noqa: S608 - ours
                connection.exec_driver_sql(f"SELECT setval(pg_get_serial_sequence('{table.name}', 'seq'), ({newest}))")
        if running:
            packages = old.tables["packages"]
            connection.execute(packages.insert().values(release=running, party="clinic", package=b"sealed"))
    database.close()


def _only_of_old(table: Table, row: Mapping[str, Any], running: str) -> dict[str, str]:
    if table.name == "releases" and row["id"] == running:
        return {"deal": SIGNED}
    if table.name == "shares" and (row["release"], row["party"]) == (running, "clinic"):
        return {"mask": SIGNED, "countersignature": SIGNED}
    return {}


def test_databases_of_old_were_otherwise(tmp_path: Path) -> None:
    """The test below starts from what earlier versions made, not from today's tables."""
    for revision in FORMER:
        url = f"sqlite:///{tmp_path / revision}"
        as_of_old(url, revision, {}, "")
        database = Database(url)
        with database.reading() as connection:
            tables = set(inspect(connection).get_table_names())
            shares = {column["name"] for column in inspect(connection).get_columns("shares")}
        database.close()
        assert {"packages"} <= tables
        assert ("ledger_heads" in tables) == (revision == "heads")
        assert {"mask", "countersignature"} <= shares
        assert not {"columns", "reply"} & shares


@pytest.mark.parametrize("revision", FORMER)
def test_upgrade_keeps_everything_but_what_was_of_the_former_exchange(
    database_url: str, tmp_path: Path, revision: str
) -> None:
    world = filled(tmp_path, at=revision)
    as_of_old(database_url, revision, world.rows, world.running.id)
    hub = Hub(database_url, tmp_path)
    with hub.store._database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    found = contents(hub)
    for name, rows in world.rows.items():
        unknown = {"exchanged_bytes", "kept_bytes"} if name == "releases" else set()  # of what was there: nothing
        assert _sorted(found[name]) == _sorted([{**row, **dict.fromkeys(unknown, 0)} for row in rows]), name
    hub.close()
    open_store(database_url).close()  # a second start finds nothing to do


@pytest.mark.parametrize("revision", FORMER)
def test_published_releases_verify_and_running_ones_go_on_after_an_upgrade(
    database_url: str, tmp_path: Path, revision: str
) -> None:
    world = filled(tmp_path, at=revision)
    as_of_old(database_url, revision, world.rows, world.running.id)
    hub = Hub(database_url, tmp_path)
    paths = (f"/v1/releases/{world.published.id}/{name}" for name in ("manifest", "matrix", "moments"))
    files = [hub.http.get(path).content for path in paths]
    assert verify_release(*files, trusted_coordinator=hub.key.fingerprint).release == world.published.id
    kinds = [event["kind"] for event in hub.http.get("/v1/events").json()["items"]]
    assert kinds.count("deal") == kinds.count("mask") == kinds.count("countersignature") == 1
    export_audit(hub.coordinator)  # the chain holds: raises where an event is not what it was
    exchanging = Exchanging(hub, world.running, world.parties)
    assert exchanging.signed("columns") == exchanging.signed("reply") == {}
    exchanging.upload_all()
    approved(hub, world.parties, epsilon=0.5).upload_all()
    hub.publisher.run_once()
    assert hub.state(world.running) == "published"
    hub.close()


def _sorted(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)
