"""Databases of earlier versions, brought up to date."""

import json

from alembic import command
from alembic.config import Config
from sqlalchemy import MetaData, text

from commingle.coordinator.store.database import Database
from commingle.coordinator.store.migrate import _SCRIPTS
from commingle.coordinator.store.store import open_store
from commingle.shared.release.audit import GENESIS, event_body, link_digest
from tests.world.coordinator import key_of
from tests.world.documents import START


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


def test_memberships_of_the_third_version_are_appended_to_its_chain(database_url: str) -> None:
    first, second, other = (key_of(name).fingerprint for name in ("clinic", "clinic, second key", "registry"))
    release, at = "ab" * 32, int(START.timestamp()) * 1_000_000
    body = event_body(
        previous=GENESIS, release=release, at=START, kind="proposal", party=None, state="proposed", document=release
    )
    party = {"signing_key": "x", "sealing_key": "x"}
    rows: dict[str, list[dict[str, object]]] = {
        "invites": [{"digest": c * 64, "party": "x", "created": at, "expires": at} for c in "12"],
        "parties": [
            {**party, "name": "clinic", "fingerprint": second, "invite": "1" * 64, "enrolled": at, "revoked": None},
            {**party, "name": "registry", "fingerprint": other, "invite": "2" * 64, "enrolled": at + 1}
            | {"revoked": at + 3},
        ],
        "party_keys": [
            {"fingerprint": first, "party": "clinic", "signing_key": "x", "since": at, "rotation": None},
            {"fingerprint": other, "party": "registry", "signing_key": "x", "since": at + 1, "rotation": None},
            {"fingerprint": second, "party": "clinic", "signing_key": "x", "since": at + 2, "rotation": "{}"},
        ],
        "releases": [
            {"id": release, "spec": "{}", "proposer_key": release, "study": "s", "mechanism": "dgm", "created": 1}
            | {"expires": 2, "n": 3, "epsilon": 1.0, "delta": 0.1, "state": "proposed"}
        ],
        "events": [
            {"release": release, "at": at, "kind": "proposal", "state": "proposed", "document": release}
            | {"digest": link_digest(body)}
        ],
    }
    database = Database(database_url)
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0003")
        tables = MetaData()
        tables.reflect(connection)
        for table, values in rows.items():
            connection.execute(tables.tables[table].insert(), values)
    database.close()
    store = open_store(database_url)
    try:
        with store.read() as tx:
            bodies, _ = tx.events.chain()
            assert tx.events.last() == 1
        with store.write() as tx:
            tx.events.add_membership(at=START, kind="enrolment", party="laboratory", key="0" * 64)
    finally:
        store.close()
    assert bodies[0] == body  # what was exported before still is how it begins
    appended = [json.loads(text) for text in bodies[1:]]
    assert [(e["kind"], e["party"], e["document"], e["release"]) for e in appended] == [
        ("enrolment", "clinic", first, None),
        ("enrolment", "registry", other, None),
        ("rotation", "clinic", second, None),
        ("revocation", "registry", other, None),
    ]
    assert appended[3]["at"] == "2026-03-01T12:00:00.000003+00:00"
