"""Damage to the ledger's file, byte by byte and row by row: it is refused, or it is of no consequence; never unnoticed.

`refused`: the agent does not start, in clear words. `harmless`: it starts, and every row is as it was written, as the
byte is in unused space or in a counter of SQLite's own. `unnoticed`: it starts with another row.
"""
# ruff: noqa: S608 - tables and columns of ours

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from commingle.party_agent.edge.views import ledger_view
from commingle.party_agent.errors import LedgerError
from commingle.party_agent.home.home import Home
from commingle.party_agent.operate.compose import compose_agents
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.regression.service import Regressions
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.regression.asking import GENEROUS
from tests.party_agent.releasing import look
from tests.world.consortium import AUTOMATIC, Consortium

TABLES = ("entries", "to_read", "signatures", "datasets", "proposals", "regressions", "heads", "checks")
TRIES = 60


@pytest.fixture
def home(pair: Consortium) -> Home:
    """A ledger with one of everything, and nothing beside the one file."""
    pair.homes["clinic"].save_policy(AUTOMATIC.model_copy(update={"regressions": GENEROUS.regressions}))
    pair.propose()
    look(pair, *3 * ("clinic", "insurer"))
    pair.propose(title="approved")
    pair.step("clinic")
    with pair.agent("clinic") as agent:
        (dataset,) = agent.datasets.all()
        target, *features = (attribute.name for attribute in dataset.attributes)
        asked = RegressionRequest(
            dataset="main",
            target=target,
            features=tuple(features),
            method="ssp",
            epsilon=1.0,
            delta=1e-6,
            nonce="1" * 64,
        )
        Regressions(agent).ask(asked)
    found = contents(pair.homes["clinic"].database)
    assert all(found.values())
    return pair.homes["clinic"]


def contents(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    with closing(sqlite3.connect(database)) as db:
        return {table: sorted(db.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in TABLES}


def start(home: Home) -> None:
    """Everything that reads the ledger, and nothing that asks the network."""
    with compose_agents(home) as agents:
        ledger_view(agents.ledger), agents.ledger.history(), agents.ledger.summit()
        agents.proposals.all(), agents.datasets.all(), Regressions(agents.consortia[0]).all()
        assert not agents.witnesses.covers(agents.ledger.length + 1)


def outcome(home: Home, before: dict[str, list[tuple[Any, ...]]]) -> str:
    try:
        start(home)
    except LedgerError:
        checks = list(examine_home(home, now=system_clock()))
        assert not all(check.ok for check in checks if check.name.startswith("ledger"))
        return "refused"
    return "harmless" if contents(home.database) == before else "unnoticed"


def tally_of(home: Home, damages: Iterator[Callable[[Path], None]]) -> Counter[str]:
    whole, before = home.database.read_bytes(), contents(home.database)
    tally = Counter[str]()
    for damage in damages:
        for beside in home.root.glob("ledger.sqlite-*"):
            beside.unlink()
        home.database.write_bytes(whole)
        damage(home.database)
        tally[outcome(home, before)] += 1
    return tally


def random_bytes(count: int, *, seed: int) -> Iterator[Callable[[Path], None]]:
    draw = Random(seed)

    def change(database: Path) -> None:
        data = bytearray(database.read_bytes())
        place = draw.choice([at for at, byte in enumerate(data) if byte])  # where something is
        data[place] ^= draw.randrange(1, 256)
        database.write_bytes(data)

    yield from (change for _ in range(count))


def random_rows(count: int, *, seed: int) -> Iterator[Callable[[Path], None]]:
    draw = Random(seed)

    def change(database: Path) -> None:
        with closing(sqlite3.connect(database)) as db, db:
            table = draw.choice(TABLES)
            (row,) = draw.choice(db.execute(f"SELECT rowid FROM {table}").fetchall())
            if draw.random() < 1 / 4:
                db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
                return
            name = draw.choice([found[1] for found in db.execute(f"PRAGMA table_info({table})")])
            (value,) = db.execute(f"SELECT {name} FROM {table} WHERE rowid = ?", (row,)).fetchone()
            for (index,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql <> ''").fetchall():
                db.execute(f"DROP INDEX {index}")  # they would refuse text that is no JSON
            db.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (other(value), row))

    def other(value: Any) -> Any:
        match value:
            case str():
                place = draw.randrange(len(value) + 1)
                return f"{value[:place]}0{value[place:]}"
            case bytes():
                place = draw.randrange(len(value) + 1)
                return value[:place] + b"0" + value[place:]
        return 7 if value is None else value + 1000

    yield from (change for _ in range(count))


@pytest.mark.slow
def test_random_bytes_are_refused_or_harmless_and_never_unnoticed(home: Home) -> None:
    tally = tally_of(home, random_bytes(TRIES, seed=1))
    assert tally["unnoticed"] == 0
    assert tally["refused"] > TRIES / 4
    assert tally.total() == TRIES


@pytest.mark.parametrize("tries", [20, pytest.param(TRIES, marks=pytest.mark.slow)])
def test_random_rows_are_refused_every_one(home: Home, tries: int) -> None:
    assert tally_of(home, random_rows(tries, seed=1)) == {"refused": tries}
