"""Databases of earlier versions, brought up to date."""

from alembic import command
from alembic.config import Config
from sqlalchemy import text

from coordinator.store.database import Database
from coordinator.store.migrate import _SCRIPTS
from coordinator.store.store import open_store
from tests.coordinator.honest import START, key_of


def test_members_of_the_first_version_keep_their_keys_and_begin_their_history(database_url: str) -> None:
    key, at = key_of("clinic"), int(START.timestamp()) * 1_000_000
    database = Database(database_url)
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text("INSERT INTO invites VALUES (:digest, 'clinic', :at, :at)"), {"digest": "0" * 64, "at": at}
        )
        connection.execute(
            text(
                "INSERT INTO parties (name, signing_key, sealing_key, fingerprint, invite, enrolled) "
                "VALUES ('clinic', :raw, :sealing, :fingerprint, :invite, :at)"
            ),
            {
                "raw": key.verifying_key.raw.hex(),
                "sealing": "1" * 64,
                "fingerprint": key.fingerprint,
                "invite": "0" * 64,
                "at": at,
            },
        )
    database.close()
    store = open_store(database_url)
    try:
        with store.read() as tx:
            member = tx.members.with_key(key.fingerprint)
            assert member is not None
            assert (member.name, member.revoked) == ("clinic", None)
            (known,) = tx.members.keys("clinic")
        assert (known.fingerprint, known.since, known.rotation) == (key.fingerprint, START, None)
    finally:
        store.close()
