"""What ADR 32 promises: this version reads the whole artefacts that were kept, and goes on from them."""

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from commingle.coordinator.coordinator import export_audit
from commingle.coordinator.store.database import Database
from commingle.coordinator.store.store import open_store
from commingle.coordinator.store.tables import metadata
from commingle.party_agent.edge.webhook import webhook_of
from commingle.party_agent.home.home import Home
from commingle.party_agent.home.tokens import local_tokens
from commingle.party_agent.ledger.store import AgentStore
from commingle.party_agent.operate.backup import restore_backup
from commingle.party_agent.operate.compose import compose_agents
from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.manifest import Manifest
from commingle.shared.documents.model import decode
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.errors import CommingleError
from commingle.shared.release.ledger_fold import LedgerFold, fold
from commingle.shared.release.rounds import State
from commingle.shared.release.verification import verify_release
from commingle.shared.runtime.errors import SettingsError
from tests.golden.make import COORDINATOR, HOME, KEPT, TOLD, told_of
from tests.world.consortium import Consortium
from tests.world.coordinator import Hub
from tests.world.tampering import NOW

told: dict[str, Any] = json.loads((KEPT / TOLD).read_text())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    restored = Home(tmp_path / "home")
    restore_backup(KEPT / HOME, restored)
    return restored


@pytest.fixture
def coordinator(tmp_path: Path) -> Path:
    folder = tmp_path / "coordinator"
    with tarfile.open(KEPT / COORDINATOR) as tar:
        tar.extractall(folder, filter="data")
    return folder


def database(coordinator: Path) -> str:
    (found,) = coordinator.rglob("*.sqlite")
    return f"sqlite:///{found}"


def test_kept_home_tells_what_it_told_and_its_ledger_goes_on(home: Home) -> None:
    with compose_agents(home) as agents:
        ledger = agents.ledger
        assert told_of(ledger) == {name: told[name] for name in ("charges", "length", "head")}
        entries, documents = ledger.history()
        read = fold(entries)
        assert isinstance(read, LedgerFold)
        assert (read.lost, len(documents)) == (ledger.lost(), 4)
        assert agents.proposals.get(told["reserved"]).state == State.PROPOSED
        with agents.store.transaction() as db:
            assert ledger.withdraw(db, told["reserved"])
        ledger.verify()
        assert ledger.length == told["length"] + 1


def test_kept_coordinator_has_its_chain_and_a_release_that_verifies(coordinator: Path) -> None:
    hub = Hub(database(coordinator), coordinator, key=SigningKey(Consortium.key))
    places = (f"/v1/releases/{told['published']}/{name}" for name in ("manifest", "matrix", "moments"))
    files = [hub.http.get(place).content for place in places]
    assert verify_release(*files, trusted_coordinator=told["coordinator"]).release == told["published"]
    export_audit(hub.coordinator)  # raises where an event is not what it was
    assert hub.http.get(f"/v1/releases/{told['reserved']}").json()["state"] == "proposed"
    hub.close()


def test_kept_database_has_the_tables_of_this_version_once_it_is_brought_up_to_date(coordinator: Path) -> None:
    open_store(database(coordinator)).close()
    with closing(Database(database(coordinator))) as kept, kept.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def said(document: SignedDocument, **changes: object) -> bytes:
    """Its payload otherwise, as another version could have signed it."""
    return json.dumps({**json.loads(document.envelope.payload_bytes), **changes}).encode()


def of_format(path: Path, number: int) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {number}")
    return path


def moved_to(url: str, revision: str) -> str:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db, db:
        db.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    return url


def changed(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def setting(home: Home, **changes: object) -> Home:
    changed(home.root / "settings.json", **changes)
    return home


@pytest.fixture
def manifest(coordinator: Path) -> SignedDocument:
    hub = Hub(database(coordinator), coordinator, key=SigningKey(Consortium.key))
    signed = hub.http.get(f"/v1/releases/{told['published']}/manifest").content
    hub.close()
    return decode(SignedDocument, signed)


OTHERWISE: dict[str, Callable[[Home, Path, SignedDocument], object]] = {
    "ledger of a later format": lambda home, *_: AgentStore(of_format(home.database, 2)),
    "ledger of no format": lambda home, *_: AgentStore(of_format(home.database, 0)),
    "home of a later version": lambda home, *_: setting(home, invented=1).settings(),
    "home of an earlier version": lambda home, *_: setting(home, coordinator={"url": "http://hub"}).settings(),
    "database of a later version": lambda _, folder, __: open_store(moved_to(database(folder), "9999")),
    "database of an earlier version": lambda _, folder, __: open_store(moved_to(database(folder), "first")),
    "manifest of a later version": lambda _, __, manifest: decode(Manifest, said(manifest, version=2)),
    "spec of a later version": lambda _, __, manifest: decode(
        ReleaseSpec,
        said(SignedDocument(signing_key="0" * 64, envelope=decode(Manifest, said(manifest)).spec), version=2),
    ),
}


FILES: dict[str, Callable[[Home], object]] = {
    "settings.json": Home.settings,
    "policy.json": Home.policy,
    "webhook.json": webhook_of,
    "tokens.json": lambda home: local_tokens(home, NOW),
    "consortia/trial/coordinator.json": lambda home: home.consortium().coordinator(),
    "consortia/trial/pins.json": lambda home: home.consortium().pins(),
}


def test_every_file_of_kept_home_says_its_format_and_is_refused_with_a_later_one(home: Home) -> None:
    assert {str(path.relative_to(home.root)) for path in home.root.rglob("*.json")} == FILES.keys()
    for name, read in FILES.items():
        assert read(home)
        changed(home.root / name, version=2, invented=1)
        with pytest.raises(SettingsError, match=f"{name} is of format 2, and this version reads format 1$") as refused:
            read(home)
        assert "commingle --version" in (refused.value.remedy or "")
        changed(home.root / name, version=1)


@pytest.mark.parametrize("what", OTHERWISE)
def test_artefact_of_another_version_is_refused_in_a_sentence_with_a_remedy(
    home: Home, coordinator: Path, manifest: SignedDocument, what: str
) -> None:
    with pytest.raises(CommingleError) as refused:
        OTHERWISE[what](home, coordinator, manifest)
    assert str(refused.value).count("\n") == 0
    assert refused.value.remedy
