"""Columns that are made of cells of the same row: what each function makes of whatever a cell holds, and a data set."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commingle.party_agent.errors import ConflictError, DataError, SourceError
from commingle.party_agent.home.datasets import DatasetRequest
from commingle.party_agent.operate.doctor import examine_home
from commingle.party_agent.private.derived import parse_derived
from commingle.party_agent.private.sources import FileSource, PushedSource
from commingle.party_agent.wire.answers import ARROW, CSV, JSON_LINES
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.errors import DocumentError, SpecError
from commingle.shared.runtime.settings import system_clock
from tests.party_agent.private.tables import rows_of as rows_in
from tests.world.command import Command
from tests.world.consortium import Consortium, write_csv
from tests.world.local_api import arrow_of, csv_of, declare, operator

AGE, STAY, LOG, RATIO, SEX, FEE, PREIS = WRITTEN = (
    "age = age_at(born, 2026-01-01)",
    "stay = days_between(admitted, left)",
    "log_crp = log(crp)",
    "ratio = ratio(waist, hip)",
    "sex = recode(gender, m=male, w=female, 1=male)",
    "fee = number(fee, thousands=comma, below=half)",
    "preis = number(preis, thousands=point, decimal=comma)",
)
DATES = st.dates() | st.datetimes()
ODD = st.sampled_from(
    [
        b"\xff",
        b"2021-02-29",
        b"0000-00-00",
        b"2021-01-01T24:00",
        b"01.02.2021",
        b"20210101",
        b"-1",
        b"0",
        b"1e999",
        b"nan",
        b"1,234.5",
        b"1.234,5",
        b"<=9",
        b"<1e999",
    ]
)
CELLS = (
    st.none()
    | ODD
    | st.binary(max_size=12)
    | st.one_of(DATES, st.floats(), st.text(max_size=8)).map(lambda value: str(value).encode("utf-8", "replace"))
)


def made(text: str, *columns: Sequence[Any]) -> list[Any]:
    cells: list[Any] = parse_derived(text).cells(*map(pa.array, columns)).to_pylist()
    return cells


@pytest.mark.parametrize("text", WRITTEN)
@settings(max_examples=30)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), instead=st.tuples(CELLS, CELLS), at=st.integers(0)
)
@example(rows=[(b"31.01.1980", b"29.2.2020"), (b"1", b"2")], instead=(b"31.02.2021", b"31.01.1980\n"), at=0)
@example(rows=[(b"1980-01-31", b"2020-02-29"), (b"1", b"2")], instead=(b"2021-02-30", b"\xff"), at=0)
def test_cell_that_is_made_follows_from_its_own_row_whatever_others_hold(
    text: str, rows: list[tuple[bytes | None, ...]], instead: tuple[bytes | None, ...], at: int
) -> None:
    width = len(parse_derived(text).of)

    def of(table: Sequence[tuple[bytes | None, ...]]) -> list[Any]:
        cells: list[Any] = (
            parse_derived(text)
            .cells(*(pa.array([row[place] for row in table], pa.binary()) for place in range(width)))
            .to_pylist()
        )
        return cells

    alone = [of([row])[0] for row in rows]
    assert of(rows) == alone
    assert all(cell is None or isinstance(cell, str) or math.isfinite(cell) for cell in alone)
    place = at % len(rows)
    moved = of([*rows[:place], instead, *rows[place + 1 :]])
    assert moved[:place] + moved[place + 1 :] == alone[:place] + alone[place + 1 :]


@settings(max_examples=30)
@given(born=DATES, at=st.dates())
@example(born=date(2000, 2, 29), at=date(2021, 2, 28))
def test_age_is_completed_years_of_the_calendar(born: date, at: date) -> None:
    day = born.date() if isinstance(born, datetime) else born
    expected = at.year - day.year - ((at.month, at.day) < (day.month, day.day))
    assert made(f"age = age_at(born, {at})", [str(born)]) == [expected]


@settings(max_examples=30)
@given(first=DATES, second=st.dates())
def test_days_are_those_between_the_dates_as_written(first: date, second: date) -> None:
    day = first.date() if isinstance(first, datetime) else first
    assert made(STAY, [first.isoformat()], [str(second)]) == [(second - day) / timedelta(1)]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        (AGE, [[date(1990, 1, 1), date(1990, 1, 2), None]], [36, 35, None]),
        (AGE, [[datetime(1990, 1, 1, 23, 59, tzinfo=UTC), None]], [36, None]),
        (
            AGE,
            [["1990-01-01 23:59:59.5+02:00", " 1990-01-01T00:00Z", "1990-02-30", "1990-01-01 25:00"]],
            [36, 36, None, None],
        ),
        (AGE, [["01.01.1990", "1.1.1990 08:30", "31.12.1989", "02.01.1990"]], [36, 36, 36, 35]),
        (AGE, [["30.02.1990", "01.13.1990", "1.1.90", "01/01/1990", "01-01-1990"]], [None] * 5),
        (AGE, [["19900101", "1990", "", "1990-01-01 at night"]], [None] * 4),
        (STAY, [["2020-02-28"] * 2, ["2020-03-01", "2020-02-27"]], [2, -1]),
        (LOG, [["1", "0", "-1", "inf", "none"]], [0, None, None, None, None]),
        (LOG, [[1, 0, -1]], [0, None, None]),
        (RATIO, [["1", "1", "0", "1e300", "x"], ["4", "0", "0", "1e-300", "1"]], [0.25, None, None, None, None]),
        (SEX, [["m", " w ", "M", None, "1"]], ["male", "female", None, None, "male"]),
        (SEX, [[1.0, 2.0]], ["male", None]),
        (FEE, [["186,572", "-1,000.5", " 12 ", ".5", "5.", "1e3"]], [186_572, -1000.5, 12, 0.5, 5, 1000]),
        (FEE, [["<0.5", "< 1,000", "≤3", "<=4"]], [0.25, 500, 1.5, 2]),
        (
            FEE,
            [["1,23", "1234,567", "1,2345", "1.234,5", "1,,000", ">9", "<-1", "<", ".", "", "e5", "1e999"]],
            [None] * 12,
        ),
        (FEE, [["nan", "inf", "true", "9" * 400, "<" + "9" * 400, "\u0661"]], [None] * 6),
        (FEE, [[1.5, None, math.inf]], [1.5, None, None]),
        (PREIS, [["1.234,5", "1.234", "0,5", "1,234.5", "<1"]], [1234.5, 1234, 0.5, None, None]),
        (
            "x = number(x, thousands=blank, below=zero)",
            [["1 234", "1\u202f234\u00a0567", "1  234", "<7"]],
            [1234, 1234567, None, 0],
        ),
        ("x = number(x, thousands=apostrophe, below=limit)", [["1'234", "1\u2019234", "<7"]], [1234, 1234, 7]),
    ],
)
def test_what_is_undefined_is_missing(text: str, columns: list[list[Any]], expected: list[Any]) -> None:
    assert made(text, *columns) == expected


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_reads_as_itself_and_as_its_record(text: str) -> None:
    one = parse_derived(text)
    assert str(one) == text
    request = DatasetRequest(name="d", source=PushedSource(), subject_id="id", attributes=(), derived=(one,))
    assert decode(DatasetRequest, encode(request)).derived == (one,)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age", "'age' is not a derived column"),
        ("age = years(born)", "is not a derived column"),
        ("age = age_at(born)", "column age: age_at takes 2, and is given 1"),
        ("age = age_at(born, 1.1.2026)", "column age: '1.1.2026' is no date, with its year first"),
        ("age = age_at(born, 2026-13-01)", "column age: '2026-13-01' is no date"),
        ("r = ratio(a, b, c)", "column r: ratio takes 2, and is given 3"),
        ("l = log()", "column l: of number 1: is empty"),
        ("s = recode(g)", "column s: to: is empty"),
        ("s = recode(g, m)", "column s: recode wants old=new"),
        ("s = recode(g, m=a, m=b)", "recode wants old=new, each once"),
        ("n = number(x, half)", "column n: number wants term=new"),
        ("n = number(x, by=log)", "its terms are thousands, decimal and below"),
        ("n = number(x, below=third)", "below: is to be 'half', 'limit' or 'zero'"),
        ("n = number(x, thousands=comma, decimal=comma)", "a comma cannot stand both between thousands and before"),
        ("[s] = log(a)", "without = and brackets"),
    ],
)
def test_what_cannot_be_derived_is_refused_by_its_name_and_with_an_example(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said) as refused:
        parse_derived(text)
    assert "Write it like" in refused.value.remedy


def test_record_of_no_known_function_is_refused_with_those_there_are() -> None:
    body = {"name": "d", "source": {"kind": "pushed"}, "subject_id": "id", "attributes": []}
    with pytest.raises(
        DocumentError, match='has a "by" that is none: age_at, days_between, log, number, ratio, recode'
    ):
        decode(DatasetRequest, json.dumps({**body, "derived": [{"name": "a", "by": "eval", "of": ["b"]}]}).encode())


SCHEMA: tuple[Attribute, ...] = (
    NumericAttribute(name="age", lower=0, upper=100),
    NumericAttribute(name="log_stay", lower=0, upper=5, missing="indicator"),
    BinaryAttribute(name="gender", levels=("female", "male"), missing="indicator"),
)
DERIVE = (
    AGE,
    "stay = days_between(admitted, left)",
    "log_stay = log(stay)",
    "gender = recode(gender, m=male, w=female)",
)
ROWS = [
    {"id": "1", "born": "1976-01-01", "admitted": "2020-02-28", "left": "2020-02-29", "gender": "w"},
    {"id": "2", "born": "1876-01-01", "admitted": "2020-02-28", "left": "2020-02-28", "gender": "m"},
    {"id": "3", "born": "2001-01-01", "admitted": "", "left": "2020-02-28", "gender": "other"},
]
ENCODED = {b"1": [50, -1, 0, -1, 0], b"2": [100, 0, 1, 1, 0], b"3": [25, 0, 1, 0, 1]}
"""Age in years; what is missing is 0, with a mark beside it."""


def test_csv_with_dates_of_birth_becomes_a_snapshot_of_ages(pair: Consortium, tmp_path: Path, run: Command) -> None:
    home, table, schema = pair.homes["clinic"], tmp_path / "stays.csv", tmp_path / "schema.json"
    schema.write_text(json.dumps([attribute.model_dump(mode="json") for attribute in SCHEMA]))
    write_csv(table, ROWS)
    derive = [part for text in DERIVE for part in ("--derive", text)]
    add = ["party", "datasets", "add", "stays", "--home", home.root, "--source", table, "--subject-id", "id"]
    options = ["--schema", schema, "--people", "others", "--replace"]
    said = run.out(*add, *options, *derive)
    assert all(text in said for text in ("3 people, keyed", *DERIVE))
    with pair.agent("clinic") as agent:
        dataset = agent.datasets.get("stays")
        assert decoded(rows_in(agent.datasets.snapshot(dataset.snapshot))) == ENCODED
        assert dataset.clipped["age"] == 1
        assert dataset.declared.derived == tuple(map(parse_derived, DERIVE))
        assert agent.datasets.read_again("stays", strict=False).n == 3
    (check,) = (check for check in examine_home(home, now=system_clock()) if check.name == "data sets")
    assert AGE in check.found
    write_csv(table, [{**row, "born": "1/1/1980"} for row in ROWS])
    said = run.refused(*add, *options, *derive)
    assert f"column age: 3 missing values in {AGE}" in said
    assert "a date is written like 1980-01-31 or 31.01.1980" in said
    unknown = ("--derive", "age = age_at(birth, 2026-01-01)")
    assert "the source has no column birth among" in run.refused(*add, *options, *derive[2:], *unknown)


def decoded(rows: dict[bytes, list[int]]) -> dict[bytes, list[int]]:
    scale = max(map(abs, rows[b"2"]))
    return {one: [50 + 50 * row[0] // scale, *(entry // scale for entry in row[1:])] for one, row in rows.items()}


@pytest.mark.parametrize(
    ("derived", "said"),
    [
        ((AGE, AGE), "age is derived twice"),
        (("id = log(born)", AGE), "id identifies people, and is derived"),
        ((AGE, "agf = log(age)"), "derived column agf is no attribute"),
    ],
)
def test_derivations_that_are_of_no_use_are_refused(pair: Consortium, derived: tuple[str, ...], said: str) -> None:
    request = DatasetRequest(
        name="stays",
        source=PushedSource(),
        subject_id="id",
        people="others",
        attributes=SCHEMA[:1],
        derived=tuple(map(parse_derived, derived)),
    )
    with pair.agent("clinic") as agent, pytest.raises(ConflictError, match=said):
        agent.datasets.register(request, replace=True)


def test_level_that_a_csv_spells_as_missing_is_refused_unless_the_file_is_another_or_it_is_made(
    pair: Consortium,
) -> None:
    country = CategoricalAttribute(name="country", levels=("BW", "n/a", "ZA"))
    table = pair.table("clinic").with_name("countries.csv")
    write_csv(table, [{"id": f"{i}", "code": "12"[i % 2]} for i in range(100)])
    asked = DatasetRequest(
        name="stays", source=FileSource(path=str(table)), subject_id="id", people="others", attributes=(country,)
    )
    made = asked.model_copy(update={"derived": (parse_derived("country = recode(code, 1=n/a, 2=ZA)"),)})
    workbook = asked.model_copy(update={"source": FileSource(path="/no/such.xlsx")})
    with pair.agent("clinic") as agent:
        with pytest.raises(ConflictError, match="a CSV spells missing cells n/a"):
            agent.datasets.register(asked, replace=True)
        with pytest.raises(SourceError, match="file"):
            agent.datasets.register(workbook, replace=True)
        assert agent.datasets.register(made, replace=True).n == 100


def test_numbers_with_signs_are_read_from_a_csv_and_a_refusal_of_such_names_how(
    pair: Consortium, tmp_path: Path
) -> None:
    table, fee = tmp_path / "fees.csv", NumericAttribute(name="fee", lower=0, upper=200_000)
    write_csv(table, [{"id": "1", "fee": "186,572"}, {"id": "2", "fee": "<0.5"}])
    asked = DatasetRequest(
        name="stays", source=FileSource(path=str(table)), subject_id="id", people="others", attributes=(fee,)
    )
    made = asked.model_copy(update={"derived": (parse_derived(FEE),)})
    german = asked.model_copy(update={"derived": (parse_derived("fee = number(fee, decimal=comma)"),)})
    with_commas = FileSource(path=str(table), decimal=",")
    with pair.agent("clinic") as agent:
        with pytest.raises(DataError, match="fee: 2 values are not numbers") as refused:
            agent.datasets.register(asked, replace=True)
        assert f"--derive '{FEE}'" in refused.value.remedy
        assert "have the owner of the data set declare it anew: decimal commas by --decimal ','" in refused.value.remedy
        assert agent.datasets.register(made, replace=True).filled == {"fee": 94}  # 0.25 to 186,572
        with pytest.raises(
            ConflictError, match="fee: --decimal ',' changes cells before number reads them"
        ) as rewritten:
            agent.datasets.register(made.model_copy(update={"source": with_commas}), replace=True)
        assert "number(COLUMN, decimal=comma)" in rewritten.value.remedy
        for source in (PushedSource(), FileSource(path="/no/such.xlsx")):
            with pytest.raises(ConflictError, match="fee: only in a CSV do numbers have a decimal comma"):
                agent.datasets.register(german.model_copy(update={"source": source}), replace=True)
        with pytest.raises(DataError, match="1 missing value in fee = number") as refused:
            agent.datasets.register(german, replace=True)
        assert "For number, a cell holds digits" in refused.value.remedy


PUSHED = {
    CSV: csv_of(ROWS),
    JSON_LINES: "\n".join(json.dumps({name: cell or None for name, cell in row.items()}) for row in ROWS).encode(),
    ARROW: arrow_of([{**row, "born": date.fromisoformat(row["born"])} for row in ROWS]),
}


def test_rows_that_are_pushed_are_held_against_what_is_made_of_them(pair: Consortium) -> None:
    derived = [parse_derived(text).model_dump(mode="json") for text in DERIVE]
    with pair.agent("clinic") as agent:
        declare(agent, "stays", SCHEMA, subject_id="id", subjects="keyed", people="others", derived=derived)
        with operator(agent) as http:
            for number, (media, body) in enumerate(PUSHED.items()):
                upload = f"/v1/datasets/stays/uploads/{number}"
                http.put(upload)
                odd, kind = csv_of([{**ROWS[0], "born": "?"}]), {"content-type": media}
                refused = http.put(f"{upload}/pieces/1", content=odd, headers={"content-type": CSV})
                assert f"row 1, column age: 1 missing value in {AGE}" in refused.json()["detail"]
                assert http.put(f"{upload}/pieces/1", content=body, headers=kind).status_code == 200
                assert http.post(f"{upload}/close", json={"pieces": 1}).json()["derived"] == list(DERIVE)
                dataset = agent.datasets.get("stays")
                assert decoded(rows_in(agent.datasets.snapshot(dataset.snapshot))) == ENCODED
