"""What three earlier versions left on the disk, under this version; and migrations that stay as they were."""

import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from commingle.coordinator.store.store import _MIGRATIONS
from commingle.party_agent.home import Home
from commingle.party_agent.store import _UPGRADES, AgentStore
from commingle.shared.release.verification import verify_release
from tests.world.consortium import Consortium, rows_of, write_csv

ARCHIVES = sorted(Path(__file__).parent.glob("*.tar.xz"))
MIGRATIONS = {
    "exchange.py": "a75fa7ab8181a7d1661022e37ff8f6f52dca01081f272bd2c14be00655a6661e",
    "first.py": "126ee90edf7acf6cc07ab7ab2f8398dd4a4a34d1611b3995f4a2cb4844dca8a1",
    "ledger_heads.py": "8b1f2dcb7a57d4dba115a8bd62fe7ebb5f16e5a1e4fab2665b495f8f16422de6",
}

UPGRADES = {
    3: "cfe02c565b7366c754505a383e7090554033ba944d302edaa1f98858724f18c8",
    4: "1de535d2041b5ae892a2cb93ecd90baaaf4e50e9cb807e5d13b1697174d17d5e",
    5: "d04b8fbfe9557ca88ad6047c4e911d3af79a0c4e66b48834b87bc013b8bf2187",
}


@pytest.fixture(params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Consortium:
    """The consortium of an archive, with the tables of its parties where this machine can find them."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    consortium = Consortium(tmp_path)
    consortium.homes |= {name: Home(tmp_path / name) for name in ("clinic", "insurer")}
    for name in consortium.homes:
        write_csv(consortium.table(name), rows_of(name))
        with consortium.agent(name) as agent:
            agent.ledger.verify()
            consortium.register(agent, replace=True)
    return consortium


def test_there_are_three() -> None:
    assert len(ARCHIVES) == 3


def test_published_release_of_an_earlier_version_verifies(earlier: Consortium) -> None:
    (release,) = (one for one in earlier.coordinator.releases() if earlier.state(one) == "published")
    paths = (f"/v1/releases/{release}/{name}" for name in ("manifest", "matrix", "moments"))
    files = [earlier.coordinator.hub.http.get(path).content for path in paths]
    assert verify_release(*files, trusted_coordinator=earlier.coordinator.key.fingerprint).release == release


def test_release_that_an_earlier_version_began_is_published(earlier: Consortium) -> None:
    (release,) = (one for one in earlier.coordinator.releases() if earlier.state(one) == "collecting")
    before = {name: earlier.charge(name, release) for name in earlier.homes}
    for name in [*earlier.homes] * 2:
        earlier.step(name)
    assert earlier.state(release) == "published"
    after = {name: earlier.charge(name, release) for name in earlier.homes}
    assert all(after[n].loss == before[n].loss for n in before)  # type: ignore[union-attr]


def test_new_release_follows_those_of_an_earlier_version(earlier: Consortium) -> None:
    release = earlier.propose(title="new")
    for name in [*earlier.homes] * 3:
        earlier.step(name)
    assert earlier.state(release) == "published"
    for name in earlier.homes:
        with earlier.agent(name) as agent:
            agent.ledger.verify()
            assert len(agent.ledger.charges()) == 3


def test_ledger_of_an_earlier_version_is_upgraded_once(earlier: Consortium) -> None:
    home = earlier.homes["clinic"]
    before = home.database.read_bytes()
    AgentStore(home.database).close()
    assert home.database.read_bytes() == before


def test_migrations_that_databases_have_been_through_are_not_edited() -> None:
    """A database that was upgraded by the former text would differ from one upgraded by the new one: add another."""
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in (_MIGRATIONS / "versions").glob("*.py")}
    assert found == MIGRATIONS
    assert {version: sha256(text.encode()).hexdigest() for version, text in _UPGRADES.items()} == UPGRADES
