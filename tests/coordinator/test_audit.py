"""The chain of events and the coordinator's export."""

import json
from pathlib import Path

import pytest
from alembic import command as alembic
from alembic.config import Config

from coordinator.audit import export_audit
from coordinator.errors import StorageError
from coordinator.store import migrate
from coordinator.store.database import Database
from coordinator.store.store import open_store
from shared.protocol.audit import confirm_by_coordinator, verify_coordinator_audit
from shared.protocol.documents import decode, encode
from shared.protocol.dsse import seal
from shared.protocol.errors import VerificationError
from shared.protocol.statements import SignedDocument
from shared.protocol.verification import PublishedRelease, verify_release
from tests.coordinator.command import Command
from tests.coordinator.honest import Honest, Hub, Proposed, key_of


def published(hub: Hub, parties: tuple[Honest, Honest]) -> tuple[Proposed, PublishedRelease, bytes]:
    proposed = hub.complete(parties)
    hub.publisher.run_once()
    manifest, matrix, moments = (
        hub.http.get(f"/v1/releases/{proposed.id}/{name}").content for name in ("manifest", "matrix", "moments")
    )
    return proposed, verify_release(manifest, matrix, moments, trusted_coordinator=hub.key.fingerprint), manifest


def test_export_confirms_a_published_release(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    proposed, release, manifest = published(hub, parties)
    history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
    assert history.signer == hub.key.fingerprint
    kinds = ["proposal", "approval", "approval", "block", "block", "published"]
    assert [event.kind for event in history.events] == kinds
    assert {event.release for event in history.events} == {proposed.id}
    assert "coordinator's chain" in confirm_by_coordinator(history, release, manifest=manifest)


@pytest.mark.parametrize("missing", range(6))
def test_history_without_one_event_does_not_confirm_the_release(
    hub: Hub, parties: tuple[Honest, Honest], missing: int
) -> None:
    _, release, manifest = published(hub, parties)
    with hub.store._database.writing() as connection:
        connection.exec_driver_sql(f"DELETE FROM events WHERE seq = {missing + 1}")  # noqa: S608 - the test's own figures
        rows = connection.exec_driver_sql("SELECT seq FROM events ORDER BY seq").scalars().all()
    if missing < 5:  # the last one can be cut off without a gap; the release's own files then contradict it
        with pytest.raises(StorageError, match=f"event {missing + 2} does not fit"):
            export_audit(hub.coordinator)
    else:
        assert len(rows) == 5
        history = verify_coordinator_audit(encode(export_audit(hub.coordinator)))
        with pytest.raises(VerificationError, match="does not hold this published"):
            confirm_by_coordinator(history, release, manifest=manifest)


@pytest.mark.parametrize("change", ["party = 'registry'", "kind = 'rejection'", "at = at + 1", "document = NULL"])
def test_event_changed_in_the_database_is_noticed(hub: Hub, parties: tuple[Honest, Honest], change: str) -> None:
    hub.approved(parties)
    with hub.store._database.writing() as connection:
        connection.exec_driver_sql(f"UPDATE events SET {change} WHERE seq = 2")  # noqa: S608 - the test's own figures
    with pytest.raises(StorageError, match="event 2 does not fit"):
        export_audit(hub.coordinator)


def test_history_under_another_key_does_not_confirm(hub: Hub, parties: tuple[Honest, Honest]) -> None:
    _, release, manifest = published(hub, parties)
    audit = verify_coordinator_audit(encode(export_audit(hub.coordinator))).audit
    key = key_of("a stranger")
    envelope = seal(audit, kind="coordinator-audit", key=key)
    data = encode(SignedDocument(signing_key=key.verifying_key.raw.hex(), envelope=envelope))
    with pytest.raises(VerificationError, match="another key"):
        confirm_by_coordinator(verify_coordinator_audit(data), release, manifest=manifest)


def test_events_of_an_older_version_are_chained_when_it_is_upgraded(database_url: str) -> None:
    database = Database(database_url)
    config = Config()
    config.set_main_option("script_location", str(migrate._SCRIPTS))
    with database.writing() as connection:
        config.attributes["connection"] = connection
        alembic.upgrade(config, "0002")
        release = "ab" * 32
        connection.exec_driver_sql(
            "INSERT INTO releases (seq, id, spec, proposer_key, study, mechanism, created, expires, n, epsilon, delta,"  # noqa: S608 - the test's own figures
            f" state) VALUES (1, '{release}', '{{}}', '{release}', 's', 'dgm', 1, 2, 3, 1.0, 0.1, 'expired')"
        )
        for seq, kind in ((1, "proposal"), (2, "expired")):
            connection.exec_driver_sql(
                "INSERT INTO events (seq, release, at, kind, party, state) "  # noqa: S608 - the test's own figures
                f"VALUES ({seq}, '{release}', {seq}000001, '{kind}', NULL, '{kind}')"
            )
    database.close()
    store = open_store(database_url)
    with store.read() as tx:
        bodies, _ = tx.events.chain()
    store.close()
    assert [json.loads(body)["at"] for body in bodies] == [
        "1970-01-01T00:00:01.000001+00:00", "1970-01-01T00:00:02.000001+00:00",
    ]  # fmt: skip


def test_operator_exports_and_anyone_verifies(command: Command, tmp_path: Path) -> None:
    made = command.json("init", "--home", tmp_path / "hub")
    file = tmp_path / "audit-hub.json"
    exported = command.json("audit", "export", "--home", tmp_path / "hub", "--out", file)
    said = command.json("audit", "verify", file, "--key", made["fingerprint"])
    assert (said["head"], said["signer"], said["entries"]) == (exported["head"], made["fingerprint"], 0)
    code, _, err = command("audit", "verify", file, "--key", "0" * 64)
    assert (code, "not with the one expected" in err) == (1, True)
    document = decode(SignedDocument, file.read_bytes())
    assert document.signing_key
