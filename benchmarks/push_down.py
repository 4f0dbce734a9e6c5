"""What asking a database for a first stage's sums would save an agent, whose table is a query.

python -m benchmarks.push_down [--subjects N] [--database-url URL]

Makes a table of ten columns of doubles there (SQLite in a temporary file by default), reads it as an agent does when it
is registered, works on its snapshot as for a release of two stages (sums, rows mixed with k = 1000), and asks for the
same sums in SQL: CPU seconds of the agent, seconds in the database for the SQL, and whether both are the same integers.
"""

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
from sqlalchemy import create_engine, text

from benchmarks.engines import ATTRIBUTES, spec_of
from benchmarks.reporting import heading, row
from commingle.party_agent.private.engine import IN_PROCESS
from commingle.party_agent.private.mixing import Mixing, SummingColumns
from commingle.party_agent.private.snapshot import write_snapshot
from commingle.party_agent.private.sources import open_table
from commingle.party_agent.private.sql_store import SqlSource
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.dp.first_stage import FirstStage, Kind, MeasuredAttribute

_NAMES = [attribute.name for attribute in ATTRIBUTES]
_STAGE = tuple(MeasuredAttribute(Kind.NUMERIC) for _ in ATTRIBUTES)


def fill(url: str, subjects: int) -> None:
    """A table of normal numbers."""
    draw = np.random.default_rng(0)
    columns = ", ".join(f"{name} double precision" for name in _NAMES)
    values = ", ".join(f":{name}" for name in _NAMES)
    with create_engine(url).begin() as db:
        db.execute(text("DROP TABLE IF EXISTS push_down"))
        db.execute(text(f"CREATE TABLE push_down (id bigint primary key, {columns})"))
        for ids in np.array_split(draw.permutation(subjects), max(1, subjects // 10_000)):
            rows = draw.normal(size=(len(ids), len(_NAMES))).tolist()
            cells = [
                {"id": i, **dict(zip(_NAMES, one, strict=True))} for i, one in zip(ids.tolist(), rows, strict=True)
            ]
            db.execute(text(f"INSERT INTO push_down VALUES (:id, {values})"), cells)  # noqa: S608 - own names


def pushed_down() -> str:
    """The sums in SQL: clipped to the bounds, mapped to [-1, 1], cut there and truncated to 15 bits, as the encoder."""

    def sums(power: int) -> Iterator[str]:
        for a in ATTRIBUTES:
            name, low, high = a.name, float(a.lower), float(a.upper)
            bounded = f"CASE WHEN {name} > {high} THEN {high} WHEN {name} < {low} THEN {low} ELSE {name} END"
            q = f"CAST(trunc((2 * (({bounded} - ({low})) / {high - low}) - 1) * 32768.0) AS bigint)"
            yield f"sum({' * '.join([q] * power)})"

    return f"SELECT {', '.join([*sums(1), *sums(2)])} FROM push_down"  # noqa: S608 - own names


@click.command()
@click.option("--subjects", default=200_000, show_default=True)
@click.option("--database-url")
def main(*, subjects: int, database_url: str | None) -> None:
    """Print one row."""
    with tempfile.TemporaryDirectory() as folder:
        url = database_url or f"sqlite:///{Path(folder) / 'push_down.db'}"
        fill(url, subjects)
        source = SqlSource(url=url, query="SELECT * FROM push_down")
        table = open_table(source, SubjectKey.of("id"), ATTRIBUTES, engine=IN_PROCESS)
        laps = [time.process_time()]
        records = iter(table.scan().sorter)
        parts = write_snapshot(Path(folder, "snapshots"), secrets.token_bytes(32), ATTRIBUTES, records).parts()
        laps.append(time.process_time())
        read = sum(
            part
            for _, part in IN_PROCESS.run(
                SummingColumns(FirstStage(_STAGE, subjects, sigma=1, square_sigma=1)), parts, lambda _: None
            )
        )
        laps.append(time.process_time())
        mixing = Mixing(spec_of(subjects, k=1000), "p", None)
        mixing.total(part for _, part in IN_PROCESS.run(mixing, parts, lambda _: None))
        laps.append(time.process_time())
        with create_engine(url).connect() as db:
            start = time.perf_counter()
            asked = np.array([int(value) for value in db.execute(text(pushed_down())).one()])
            seconds = time.perf_counter() - start
    reading, sums, mixed = np.diff(laps)
    print("\n".join(heading("read", "sums", "mixed", "sums in SQL", "same integers", "share of a release saved")))
    same = np.array_equal(asked, read)
    print(row(*(f"{s:.1f}" for s in (reading, sums, mixed, seconds)), str(same), f"{sums / (sums + mixed):.0%}"))


if __name__ == "__main__":
    main()
