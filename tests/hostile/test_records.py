"""No record moves the encoded row of another person, nor an outcome that others can see, in any kind of source.

`COMMINGLE_NEIGHBOURS=5000 .venv/bin/pytest tests/hostile/test_records.py` tries that many more of each source, and all
that are listed. `tests/hostile/records/search.py` says what neighbours are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from pydantic import ValidationError

from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.home.home import EngineSettings
from commingle.party_agent.private.engine import Engine, own_processes
from commingle.shared.errors import CommingleError
from tests.hostile.records import kinds
from tests.hostile.records.kinds import (
    ODD,
    PLAIN,
    RAW,
    TEXT,
    Csv,
    DuckDb,
    Excel,
    Folder,
    Kind,
    Parquet,
    Piece,
    Row,
    Source,
)
from tests.hostile.records.search import ATTRIBUTES, PEOPLE, Found, image, image_of_piece, neighbours, people, search
from tests.party_agent.releasing import rejection_of
from tests.world.consortium import SCHEMAS, consortium_of, rows_of, write_csv
from tests.world.local_api import declare, operator_app
from tests.world.postgres import PostgresServer
from tests.world.transport import InProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Cell .* is marked as a date"),  # of openpyxl, which an agent writes nowhere
]

HALVES = ("SELECT * FROM t WHERE age < 50", "SELECT * FROM t WHERE NOT age < 50 OR age IS NULL")
KINDS: Mapping[str, tuple[Kind[Source], int]] = {  # with the number of neighbours one of which is tried
    "csv": (Csv(), 6),
    "csv, CR LF": (Csv(end="\r\n"), 11),
    "csv, semicolons": (Csv(separator=";", decimal=","), 11),
    "csv, utf-16": (Csv(encoding="utf-16"), 11),
    "csv, windows-1252": (Csv(encoding="windows-1252", separator="\t"), 11),
    "csv.gz": (Csv(suffix=".csv.gz"), 11),
    "parquet": (Parquet(PLAIN), 3),
    "parquet of text": (Parquet(TEXT), 5),
    "parquet of bytes": (Parquet(RAW), 5),
    "parquet of other types": (Parquet(ODD), 5),
    "folder": (Folder(PLAIN), 3),
    "folder of bytes": (Folder(RAW), 8),
    "folder of folders": (Folder(PLAIN, named=True), 6),
    "excel": (Excel(), 8),
    "sqlite": (kinds.Sqlite(texts=False), 4),
    "sqlite, bytes as text": (kinds.Sqlite(texts=True), 8),
    "sqlite, two queries": (kinds.Sqlite(texts=False, query=HALVES), 8),
    "duckdb": (DuckDb(PLAIN), 8),
    "duckdb of text": (DuckDb(TEXT), 11),
    "duckdb of bytes": (DuckDb(RAW), 11),
}
OTHER_ROWS: Mapping[str, Kind[Source]] = {  # queries of which a row of the result is not of one row of the table
    "types are guessed": kinds.SniffedCsv(),
    "a window": DuckDb(PLAIN, query="SELECT * REPLACE (age - avg(age) OVER () AS age) FROM t"),
    "a limit": DuckDb(PLAIN, query="SELECT * FROM t ORDER BY age LIMIT 70"),
}
PIECES: Mapping[str, Kind[Piece]] = {
    "csv": kinds.CsvPiece(),
    "json lines": kinds.JsonPiece(),
    "arrow": kinds.ArrowPiece(kinds.NUMBERED),
    "arrow of bytes": kinds.ArrowPiece(RAW),
}
SERVER = {
    "plain": ("text", "double precision", "bigint", "boolean", "text", "date"),
    "odd": ("bytea", "numeric", "integer", "boolean", "bytea", "timestamp"),
}
Property = Callable[[str, object], None]
Count = Callable[[Found], None]


@pytest.fixture
def count(record_property: Property) -> Count:
    """Tell how many neighbours were tried, and fail unless none of them did anything."""

    def tell(found: Found) -> None:
        record_property("neighbours", found.tried)
        assert found.tried > 30
        assert not found.moved and not found.outcomes, str(found)  # noqa: PT018 - both in one message

    return tell


@pytest.mark.parametrize("name", KINDS)
def test_no_record_of_a_file_or_database_moves_others(tmp_path: Path, name: str, count: Count) -> None:
    kind, every = KINDS[name]
    count(search(kind, tmp_path, image, every=every))


@pytest.mark.parametrize("types", SERVER.values(), ids=SERVER)
def test_no_record_of_a_server_moves_others(
    tmp_path: Path, postgres: PostgresServer, types: tuple[str, ...], count: Count
) -> None:
    kind = kinds.Postgres(postgres.url, types)
    with kind.connection:
        count(search(kind, tmp_path, image, every=8))


@pytest.fixture
def workers() -> Iterator[Engine]:
    yield EngineSettings(kind="dask", workers=2).open()
    own_processes(2).close()
    own_processes.cache_clear()


def test_no_record_that_workers_read_moves_others(tmp_path: Path, workers: Engine, count: Count) -> None:
    count(search(Folder(RAW), tmp_path, partial(image, engine=workers), every=16))


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_query_that_looks_at_other_rows_is_refused_or_moves_nobody(tmp_path: Path, name: str, count: Count) -> None:
    try:
        found = search(OTHER_ROWS[name], tmp_path, image, every=11 if name != "types are guessed" else 46)
    except (CommingleError, ValidationError):
        return  # of the query, whatever the rows are
    count(found)


@pytest.mark.parametrize("name", PIECES)
def test_row_that_is_pushed_is_refused_or_moves_no_other_of_its_piece(
    tmp_path: Path, name: str, record_property: Property
) -> None:
    found = search(PIECES[name], tmp_path, image_of_piece, every=4, rows=people(twice=False))
    record_property("neighbours", found.tried)
    assert found.tried > 30
    assert not found.moved, str(found)
    assert set(found.outcomes.values()) <= {"DataError", "PieceError"}, str(found)


def test_answer_to_a_piece_depends_on_no_row_of_an_earlier_one(tmp_path: Path, record_property: Property) -> None:
    consortium, kind, tried, number = consortium_of(tmp_path, "clinic"), kinds.CsvPiece(), 0, 2
    rows = people(twice=False)
    earlier: Mapping[str, Sequence[Row]] = {
        "monday": rows[:5],
        "tuesday": [(row[0], 1, 2, True, "A", None) for row in rows[30:35]],
    }
    with consortium.agent("clinic") as agent, httpx.Client(transport=InProcess(operator_app(agent))) as http:

        def put(upload: str, number: int, records: Sequence[Any]) -> httpx.Response:
            body, media = kind.write(tmp_path, records)
            at = f"http://agent/v1/datasets/stays/uploads/{upload}/pieces/{number}"
            return http.put(at, content=body, headers={"Content-Type": media})

        declare(agent, "stays", ATTRIBUTES, subject_id="id")
        for upload, first in earlier.items():
            assert http.put(f"http://agent/v1/datasets/stays/uploads/{upload}").status_code == 201
            assert put(upload, 1, list(map(kind.honest, first))).is_success
        for one in neighbours(kind, rows[28:34], every=23):
            if sum(map(len, one.records)) < 1_000_000:
                answers = [put(upload, number, one.records) for upload in earlier]
                assert len({(answer.status_code, answer.content) for answer in answers}) == 1, one.name
                number, tried = number + answers[0].is_success, tried + 1
    record_property("neighbours", tried)
    assert (number > 2, tried > 30) == (True, True)


@dataclass
class Releases:
    """Releases of an insurer and a clinic, whose table is of that kind of source."""

    root: Path
    kind: Kind[Source]
    keyed: bool

    def __post_init__(self) -> None:
        self.world, self.rows = consortium_of(self.root, "clinic", "insurer"), people(twice=False)
        charges = [{**row, "subject": f"s{int(row['subject'][1:]):03}"} for row in rows_of("insurer", PEOPLE)]
        write_csv(self.world.table("insurer"), charges)
        with self.world.agent("insurer") as agent:
            self.world.register(agent, replace=True, subjects="keyed" if self.keyed else "listed")

    def declare(self) -> None:
        """As the operator does, while nothing is odd."""
        source = self.kind.write(self.root, list(map(self.kind.honest, self.rows)))
        subjects: Literal["keyed", "listed"] = "keyed" if self.keyed else "listed"
        asked = DatasetRequest(name="main", source=source, subject_id="id", subjects=subjects, attributes=ATTRIBUTES)
        with self.world.agent("clinic") as agent:
            agent.datasets.register(asked, replace=True)

    def read_again(self, records: Sequence[Any]) -> None:
        """As a token has it read."""
        self.kind.write(self.root, records)
        with self.world.agent("clinic") as agent:
            agent.datasets.try_again("main")

    def outcome(self, title: str, before: Sequence[Any], after: Sequence[Any]) -> tuple[str, dict[str, str]]:
        """How a release ends whose clinic has one table when it is read, and another from then on."""
        self.declare()
        self.read_again(before)
        release = self.world.propose(
            title=title, epsilon=0.1, n=PEOPLE, keyed=self.keyed, schemas={**SCHEMAS, "clinic": ATTRIBUTES}
        )
        self.kind.write(self.root, after)
        for name in ("clinic", "insurer") * 3:
            if self.world.state(release).final:
                break
            with suppress(Exception):  # an agent says so and tries again
                self.world.step(name)
        rejections = self.world.coordinator.found(release).rejections
        return str(self.world.state(release)), {
            who: rejection_of(self.world, release, who).reason for who in rejections
        }


TELLING = [
    "no record",
    "two of it",
    "column 0 is b'\\xff'",
    "column 1 is '\"a'",
    'column 2 is <c t="s"><v>INF',
    "at random",
]


def _telling() -> Callable[[str], bool]:
    """The first neighbour of each."""
    wanted = list(TELLING)

    def take(name: str) -> bool:
        told = [text for text in wanted if text in name]
        wanted[:] = [text for text in wanted if text not in told]
        return bool(told)

    return take


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "listed"])
@pytest.mark.parametrize("name", ["csv", "parquet of bytes", "excel", "sqlite"])
def test_release_ends_in_public_as_it_does_without_the_record(
    tmp_path: Path, name: str, record_property: Property, *, keyed: bool
) -> None:
    releases = Releases(tmp_path, KINDS[name][0], keyed)
    honest, otherwise, tried = list(map(releases.kind.honest, releases.rows)), dict[str, object](), 0
    expected = releases.outcome("as it is", honest, honest)
    assert expected == ("published", {})
    for one in neighbours(releases.kind, releases.rows, wanted=_telling()):
        tables = [(honest, one.records), *([(one.records, one.records)] if keyed else [])]
        for number, (before, after) in enumerate(tables):
            try:
                found = releases.outcome(f"{one.name[:60].encode().hex()}-{number}", before, after)
            except kinds.ImpossibleError:
                continue
            tried += 1
            if found != expected:
                otherwise[f"{one.name}, {('later', 'from the beginning')[number]}"] = found
    record_property("neighbours", tried)
    assert tried > 2
    assert not otherwise, f"{len(otherwise)} of {tried}: {otherwise}"
