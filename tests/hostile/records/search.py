"""The search for a record that moves another person's encoded row, or an outcome that others can see.

Two tables are neighbours if they differ in what is one person's: any number of records, whatever bytes they hold,
anywhere among the others, whose records may stand in any order. A record that names another person's id is a record of
that person's, too, so that person is none of the others. A line of a CSV is a record of it: a cell that holds line
ends, of a file whose writer does not quote, is several, each of which may be one person's.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from commingle.party_agent.private.derived import DerivingReader, parse_derived, with_derived
from commingle.party_agent.private.engine import IN_PROCESS, Engine
from commingle.party_agent.private.pieces import read_piece
from commingle.party_agent.private.sources import open_table
from commingle.shared.documents.schema import Attribute, CategoricalAttribute, NumericAttribute, as_registered
from commingle.shared.documents.study import Crossed, CutNumber, Product
from commingle.shared.documents.subject_ids import SubjectKey
from commingle.shared.encoding import as_released, encode_attribute
from commingle.shared.values import subject_ids
from tests.hostile.records.cells import FEW, MORE, OWN
from tests.hostile.records.kinds import ImpossibleError, Kind, Piece, Row, Source, told

PEOPLE = 60
KEY = SubjectKey.of("id")
DAYS = ("2020-02-28", "2020-02-29")
"""As a workbook has them they are followed by midnight."""
_AGE = NumericAttribute(name="age", lower=0, upper=100, missing="indicator")
_DOSE = NumericAttribute(name="dose", lower=0, upper=1000)
_BLOOD = CategoricalAttribute(name="blood", levels=("0", "A", "B", "AB"), missing="indicator")
_SEEN = CategoricalAttribute(name="seen", levels=(*DAYS, *(f"{day} 00:00:00" for day in DAYS)), missing="indicator")
ATTRIBUTES: tuple[Attribute, ...] = (
    _AGE,
    _DOSE,
    NumericAttribute(name="sick", lower=0, upper=1, missing="midpoint"),
    _BLOOD,
    _SEEN,
)
DERIVED = tuple(
    map(
        parse_derived,
        (
            "since = age_at(seen, 2026-01-01)",
            "days = days_between(seen, seen)",
            "log_dose = log(dose)",
            "each = ratio(age, dose)",
            "read = number(blood, thousands=comma, below=half)",
            "other = recode(blood, 0=A, A=B, B=0, 28=AB)",
        ),
    )
)
OF_DERIVED: tuple[Attribute, ...] = (
    *(
        NumericAttribute(name=name, lower=-9, upper=9, missing="indicator")
        for name in ("since", "days", "log_dose", "each", "read")
    ),
    CategoricalAttribute(name="other", levels=("0", "A", "B", "AB"), missing="indicator"),
)
"""What the agent makes of cells of the same row."""
_CUT_AGE, _CUT_DOSE = (
    CutNumber.model_validate({**of.model_dump(), "cuts": at}).as_levels
    for of, at in ((_AGE, (5e-324, 33.3, 50.0)), (_DOSE, (1.0, 500.0)))
)
MADE: tuple[Attribute, ...] = (
    _CUT_DOSE,
    Crossed(name="age by blood", cross=(_CUT_AGE, _BLOOD)).as_levels,
    Crossed(name="seen by age", cross=(_SEEN, _CUT_AGE)).as_levels,
    Product(name="age squared by dose", product=(_AGE, _AGE, _DOSE)).as_number,
)
"""What a study makes of them: intervals of a number, pairs, and a product."""
Image = dict[bytes, tuple[int, ...]]
Written = TypeVar("Written")


def image(
    source: Source, key: SubjectKey = KEY, attributes: Sequence[Attribute] = ATTRIBUTES, *, engine: Engine = IN_PROCESS
) -> Image:
    """Encoded rows by canonical id, as a keyed snapshot has them that a token has asked for: all have a dose in it.

    Behind them what a study makes of them is released as, which an agent makes of the row that its snapshot has.
    """
    made = DERIVED if attributes is ATTRIBUTES else ()
    table = open_table(source, key, (*attributes, *(OF_DERIVED if made else ())), engine=engine)
    table, found = replace(table, partitions=[DerivingReader(one, made) for one in table.partitions]), Image()
    for ids, rows in table.scan(strict=False, complete=True).sorter:
        subjects: list[Any] = ids.to_pylist()
        whole = with_made(rows) if made else rows
        found |= zip(subjects, map(tuple, whole.tolist()), strict=True)
    return found


def with_made(rows: NDArray[np.integer]) -> NDArray[np.int64]:
    """Rows of `ATTRIBUTES` (and others behind them), and `MADE` of them beside."""
    ends = np.cumsum([len(one.columns) for one in ATTRIBUTES])
    places = {one.name: range(end - len(one.columns), end) for one, end in zip(ATTRIBUTES, ends, strict=True)}
    whole, parts = rows.astype(np.int64), [[p for r in as_registered(one) for p in places[r.name]] for one in MADE]
    return np.hstack([whole, *(as_released(one, whole[:, part]) for one, part in zip(MADE, parts, strict=True))])


def image_of_piece(piece: Piece) -> Image:
    """The same of rows that are pushed. Raises DataError, PieceError: whoever pushes them corrects them."""
    table = read_piece(*piece, KEY, (*ATTRIBUTES, *OF_DERIVED), DERIVED)
    columns = with_derived({name: table[name].combine_chunks() for name in table.column_names}, DERIVED)
    own = np.hstack([encode_attribute(a, columns[a.name]).columns for a in (*ATTRIBUTES, *OF_DERIVED)])
    rows = with_made(own).tolist()
    subjects: list[Any] = subject_ids(KEY, columns).ids.to_pylist()
    return dict(zip(subjects, map(tuple, rows), strict=True))


def people(*, twice: bool = True) -> list[Row]:
    """A row of each, and of every third another one."""
    draw = np.random.default_rng(4)
    rows: list[Row] = []
    for number in [*range(PEOPLE), *(range(0, PEOPLE, 3) if twice else ())]:
        numbers = (round(float(draw.uniform(0, 100)), 1), int(draw.integers(1000)), bool(draw.integers(2)))
        levels = (str(draw.choice(["0", "A", "B", "AB"])), date(2020, 2, 28 + int(draw.integers(2))))
        rows.append((f"s{number:03}", *numbers, *levels))
    return rows


@dataclass(frozen=True)
class Neighbour:
    """A table that differs from another in one person's records.

    Attributes:
        name: what is otherwise.
        records: all of them.
        named: others whom that person's records name.
        lines: how many people these may be of.
    """

    name: str
    records: Sequence[Any] = field(repr=False)
    named: frozenset[bytes]
    lines: int


def neighbours(
    kind: Kind[object], rows: Sequence[Row], *, every: int = 1, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Neighbour]:
    """All of a table of that kind of source, or one of so many, whose names are wanted."""
    own = next(row for row in rows if row[0] == OWN)
    others = [kind.honest(row) for row in rows if row[0] != OWN]
    ids = frozenset(str(row[0]).encode() for row in rows if row[0] != OWN)
    for number, (name, made) in enumerate(kind.hostile(own)):
        if number % every or not wanted(name):
            continue
        records, draw = made(), np.random.default_rng((9, number))
        place = (0, len(others), int(draw.integers(len(others))))[number % 3]
        held, moved = [*others[:place], *records, *others[place:]], ""
        if number % 5 == 1:
            held = [held[i] for i in draw.permutation(len(held))]
            moved = ", all shuffled"
        said = b"\n".join(map(told, records))
        named = ids.intersection(re.findall(rb"s\d{3}", said))
        yield Neighbour(name + moved, held, named, 1 + said.count(b"\n") + said.count(b"\r"))


@dataclass
class Found:
    """What a search found.

    Attributes:
        tried: neighbours.
        moved: rows of others that moved, by neighbour, and rows too many.
        outcomes: what reading ended with, by neighbour that ended it.
    """

    tried: int = 0
    moved: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        worst = sorted(self.moved.items(), key=lambda one: -one[1])[:8]
        return (
            f"{self.tried} neighbours, {len(self.moved)} of which moved {sum(self.moved.values())} rows of others and "
            f"{len(self.outcomes)} of which could not be read; {worst}; {list(self.outcomes.items())[:8]}"
        )


def search(
    kind: Kind[Written], where: Path, see: Callable[[Written], Image], *, every: int = 1, rows: Sequence[Row] = ()
) -> Found:
    """Try every neighbour, or one of so many where nobody asked for more."""
    rows, every = rows or people(), every if MORE == FEW else 1
    before, found = see(kind.write(where, [kind.honest(row) for row in rows])), Found()
    others = before.keys() - {OWN.encode()}
    if len(before) != PEOPLE or len(set(before.values())) < PEOPLE // 2:
        raise AssertionError("the table cannot be read, or tells nobody from anybody")
    for one in neighbours(kind, rows, every=every):
        try:
            source = kind.write(where, one.records)
        except ImpossibleError:
            continue
        found.tried += 1
        try:
            after = see(source)
        except Exception as error:  # noqa: BLE001 - whatever it is, others may see it
            found.outcomes[one.name] = type(error).__name__
            continue
        moved = sum(before[who] != after.get(who) for who in others - one.named)
        if too_many := max(0, len(after.keys() - before.keys()) - one.lines):
            moved += too_many
        if moved:
            found.moved[one.name] = moved
    return found
