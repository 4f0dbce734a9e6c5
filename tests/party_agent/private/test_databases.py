"""One table in several databases: the block before noise is the same to the last bit, whatever a database makes of it.

`COMMINGLE_TEST_DATABASE_URLS`, separated by blanks, adds servers that a developer has, such as MariaDB.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.privatise import privatise
from commingle.party_agent.private.sources import open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.party_agent.private.table import SourceTable
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.subject_ids import SubjectKey
from tests.party_agent.private.tables import column, reader_of, snapshot_from
from tests.party_agent.private.test_privatise import Charge, request_of
from tests.world.consortium import Noise
from tests.world.postgres import PostgresServer

Rows = Sequence[dict[str, Any]]

DAYS = (date(2020, 2, 28), date(2020, 2, 29), date(1000, 1, 1))
LEVELS = ("r", "é", "日本")
ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="real", lower=-3, upper=7, missing="indicator"),
    NumericAttribute(name="whole", lower=-(2**40), upper=2**60, missing="indicator"),
    NumericAttribute(name="decimal", lower=-1000, upper=1000, missing="midpoint"),
    NumericAttribute(name="written", lower=-10, upper=10, missing="midpoint"),
    BinaryAttribute(name="flag", levels=("0", "1"), missing="midpoint"),
    CategoricalAttribute(name="level", levels=LEVELS, missing="indicator"),
    CategoricalAttribute(name="day", levels=tuple(map(str, DAYS)), missing="indicator"),
)
TABLE = sa.Table(
    "cells",
    sa.MetaData(),
    sa.Column("id", sa.Unicode(60)),
    sa.Column("born", sa.Date),
    sa.Column("real", sa.Double),
    sa.Column("whole", sa.BigInteger),
    sa.Column("decimal", sa.Numeric(12, 3, asdecimal=True)),
    sa.Column("written", sa.Unicode(40)),
    sa.Column("flag", sa.SmallInteger),
    sa.Column("level", sa.Unicode(20)),
    sa.Column("day", sa.Date),
)
KEY = SubjectKey.of(("id", "born"), ("exact/1", "date/1"))

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
_ID = _TEXT.filter(str.strip)
_BORN = st.dates(date(1900, 1, 1), date(2026, 1, 1))
_CELLS = {
    "real": st.none() | st.floats(-4, 8, allow_subnormal=False) | st.sampled_from([1e-300, -1e300, 0.1 + 0.2, 1 / 3]),
    "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
    "decimal": st.none() | st.decimals(-999, 999, places=3),
    "written": st.none()
    | st.floats(-11, 11).map(repr)
    | _TEXT
    | st.sampled_from(["NaN", "inf", " 1.5 ", "1e1", "\u0661"]),
    "flag": st.none() | st.integers(0, 2),
    "level": st.none() | st.sampled_from([*LEVELS, " r ", "e\u0301", ""]),
    "day": st.none() | st.sampled_from([*DAYS, date(2020, 3, 1)]),
}


def _canonical(row: dict[str, Any]) -> tuple[str, date]:
    return normalize("NFC", row["id"]).strip(), row["born"]


_ROW = st.fixed_dictionaries({"id": _ID, "born": _BORN, **_CELLS})
ROWS = st.lists(_ROW, min_size=2, max_size=12, unique_by=_canonical)
OWN = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def filled(url: str, rows: Rows) -> Iterator[SqlSource]:
    """The table, as the database's own types have it, while it is there."""
    engine = sa.create_engine(url)
    try:
        TABLE.drop(engine, checkfirst=True)
        TABLE.create(engine)
        with engine.begin() as db:
            db.execute(TABLE.insert(), list(rows))
        yield SqlSource(url=url, query="SELECT * FROM cells")
    finally:
        TABLE.drop(engine, checkfirst=True)
        engine.dispose()


def block(table: SourceTable, n: int) -> NDArray[np.int64]:
    """Of dgm, so the rows themselves, by rank; whatever their cells are, as for an agent that is bound to them."""
    request, noise = request_of("dgm", *ATTRIBUTES, n=n), Noise()
    with TemporaryDirectory() as folder:
        snapshot = snapshot_from(Path(folder), table, strict=False)
        charge = Charge("r", request.plan.loss.units, snapshot.digest)
        made = privatise(snapshot, request, charge=charge, draw=noise).integers
    return made - noise.drawn[-1].reshape(made.shape)


def in_plain_python(rows: Rows) -> NDArray[np.int64]:
    """The same of cells as Arrow has them, without any database."""
    texts: dict[str, Callable[[Any], Any]] = {
        "decimal": lambda v: None if v is None else str(v),
        "day": str,
        "born": str,
    }
    columns = {}
    for name in rows[0]:
        written = texts.get(name, lambda v: v)
        columns[name] = column([None if row[name] is None else written(row[name]) for row in rows])
    return block(SourceTable([reader_of(columns)], KEY, ATTRIBUTES), len(rows))


def read_back(url: str, rows: Rows) -> NDArray[np.int64]:
    with filled(url, rows) as source:
        return block(open_table(source, KEY, ATTRIBUTES, engine=IN_PROCESS), len(rows))


@OWN
@given(rows=ROWS)
def test_block_from_a_file_is_that_of_the_cells(tmp_path_factory: pytest.TempPathFactory, rows: Rows) -> None:
    folder = tmp_path_factory.mktemp("databases")
    expected = in_plain_python(rows)
    assert np.array_equal(read_back(f"sqlite:///{folder}/t.db", rows), expected)
    assert np.array_equal(read_back(f"duckdb:///{folder}/t.duckdb", rows), expected)


@pytest.mark.slow
def test_block_from_a_server_is_that_of_the_cells(postgres: PostgresServer) -> None:
    urls = [postgres.url, *os.environ.get("COMMINGLE_TEST_DATABASE_URLS", "").split()]

    @OWN
    @given(rows=ROWS)
    def hold(rows: Rows) -> None:
        expected = in_plain_python(rows)
        for url in urls:
            assert np.array_equal(read_back(url, rows), expected)

    hold()
