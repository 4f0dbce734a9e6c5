"""Columns that are made of cells of the same row, as the owner of a source declares them: no code, no other row.

Adversary: a person who writes any bytes into a record. So a function takes cells of one row and public terms, its cell
is missing where it is undefined, and what a cell holds raises nothing (docs/proofs/records.md, 1.4).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from commingle.party_agent.errors import DataError
from commingle.party_agent.private.rows import RawBatch, RawReader
from commingle.shared.documents.model import LEFT_OUT, WireModel, explain, tagged_by
from commingle.shared.documents.schema import Attribute, AttributeName, Level, NumericAttribute
from commingle.shared.errors import SpecError
from commingle.shared.runtime.csv_format import CsvFormat
from commingle.shared.values import Cells, as_text, readable_numbers, spelled_missing

Column = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_Numbers = NDArray[np.float64]
_TIME = r"(?:[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d{2}(?::?\d{2})?))?)?$"
_DATES = (
    rf"^(?P<year>\d{{4}})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12]\d|3[01]){_TIME}",
    rf"^(?P<day>0?[1-9]|[12]\d|3[01])\.(?P<month>0?[1-9]|1[0-2])\.(?P<year>\d{{4}}){_TIME}",
)
"""A date of ISO 8601, or written with points and its day first; a time behind it is ignored."""


class _Made(WireModel):
    by: str
    name: AttributeName
    of: tuple[Column, ...]

    def __str__(self) -> str:
        return f"{self.name} = {self.by}({', '.join((*self.of, *self.terms))})"

    @property
    def terms(self) -> tuple[str, ...]:
        return ()


class AgeAt(_Made):
    """Completed years from a date to a public one: who was born on 29 February is a year older on 1 March.

    Attributes:
        name: the column that is made.
        of: the column that holds dates.
        at: the public date.
    """

    model_config = tagged_by("by")
    by: Literal["age_at"] = "age_at"
    of: tuple[Column]
    at: date

    @property
    def terms(self) -> tuple[str, ...]:
        return (self.at.isoformat(),)

    def cells(self, born: Cells) -> Cells:
        year, month, day, _ = _dates(self.of[0], born)
        not_yet = (month > self.at.month) | ((month == self.at.month) & (day > self.at.day))
        return _known(self.at.year - year - not_yet)


class DaysBetween(_Made):
    """Days from one date to another; negative where the second is earlier.

    Attributes:
        name: the column that is made.
        of: the columns that hold the first and the second date.
    """

    model_config = tagged_by("by")
    by: Literal["days_between"] = "days_between"
    of: tuple[Column, Column]

    def cells(self, first: Cells, second: Cells) -> Cells:
        return _known(_dates(self.of[1], second)[-1] - _dates(self.of[0], first)[-1])


class Log(_Made):
    """Natural logarithm of a positive number.

    Attributes:
        name: the column that is made.
        of: the column that holds numbers.
    """

    model_config = tagged_by("by")
    by: Literal["log"] = "log"
    of: tuple[Column]

    def cells(self, of: Cells) -> Cells:
        with np.errstate(divide="ignore", invalid="ignore"):
            return _known(np.log(readable_numbers(of)))


class Ratio(_Made):
    """One number divided by another.

    Attributes:
        name: the column that is made.
        of: the columns that hold the dividend and the divisor.
    """

    model_config = tagged_by("by")
    by: Literal["ratio"] = "ratio"
    of: tuple[Column, Column]

    def cells(self, dividend: Cells, divisor: Cells) -> Cells:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            return _known(readable_numbers(dividend) / readable_numbers(divisor))


class Recode(_Made):
    """Another text for each text that is named, and none for all others.

    Attributes:
        name: the column that is made.
        of: the column that holds texts, or numbers as they are written.
        to: the text that stands for each.
    """

    model_config = tagged_by("by")
    by: Literal["recode"] = "recode"
    of: tuple[Column]
    to: Annotated[dict[Level, Level], Field(min_length=1, max_length=1024)]

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(f"{old}={new}" for old, new in self.to.items())

    def cells(self, of: Cells) -> Cells:
        texts = as_text(self.of[0], of)
        place = pc.index_in(texts, value_set=pa.array(list(self.to), texts.type))
        made: Cells = pa.array(list(self.to.values()), texts.type).take(place)
        return made


_SIGNS = {"comma": ",", "point": r"\.", "blank": "[ \u00a0\u2009\u202f]", "apostrophe": "['\u2019]"}
_BELOW = {"half": 0.5, "limit": 1.0, "zero": 0.0}


class Number(_Made):
    """A number as people write it, like 186,572 or, below a limit of detection, <0.5.

    Attributes:
        name: of the column that is made.
        of: the column that holds such numbers.
        thousands: what stands between groups of three digits, where there is something.
        decimal: what stands before a fraction.
        below: what a number behind < or ≤ counts as: half of it, itself, or zero; nothing where left out.
    """

    model_config = tagged_by("by")
    by: Literal["number"] = "number"
    of: tuple[Column]
    thousands: Annotated[Literal["comma", "point", "blank", "apostrophe"] | None, LEFT_OUT] = None
    decimal: Literal["point", "comma"] = "point"
    below: Annotated[Literal["half", "limit", "zero"] | None, LEFT_OUT] = None

    @model_validator(mode="after")
    def _require_two_signs(self) -> Self:
        if self.thousands == self.decimal:
            raise ValueError(f"a {self.decimal} cannot stand both between thousands and before a fraction")
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        said = {"thousands": self.thousands, "decimal": self.decimal.replace("point", ""), "below": self.below}
        return tuple(f"{name}={value}" for name, value in said.items() if value)

    def cells(self, of: Cells) -> Cells:
        if pa.types.is_floating(of.type):  # of a column that was made
            return _known(readable_numbers(of))
        apart, point = _SIGNS.get(self.thousands or ""), _SIGNS[self.decimal]
        whole = r"\d*" if apart is None else rf"\d{{1,3}}(?:{apart}\d{{3}})+|\d*"
        behind = rf"(?:{point}(?P<part>\d*))?(?P<power>[eE][+-]?\d{{1,4}})?"
        pattern = rf"^(?:(?P<below><=?|≤)\s*|(?P<sign>[+-]))?(?P<whole>{whole}){behind}$"
        below, sign, digits, part, power = pc.extract_regex(as_text(self.of[0], of), pattern=pattern).flatten()
        if apart is not None:
            digits = pc.replace_substring_regex(digits, apart, "")
        zero, dot, nothing = (pa.scalar(text, digits.type) for text in ("0", ".", ""))
        some = pc.if_else(pc.equal(pc.binary_join_element_wise(digits, part, nothing), nothing), None, digits)
        values = readable_numbers(pc.binary_join_element_wise(sign, zero, some, dot, part, zero, power, nothing))
        counts_as = np.nan if self.below is None else _BELOW[self.below]
        is_below = pc.not_equal(below, nothing).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        return _known(np.where(is_below & np.isfinite(values), counts_as, 1.0) * values)


Derived = Annotated[AgeAt | DaysBetween | Log | Number | Ratio | Recode, Field(discriminator="by")]
"""A column that is made of columns of the source, or of columns that were made before it."""

_ONE: TypeAdapter[Derived] = TypeAdapter(Derived)
_WRITTEN = re.compile(r"\s*([^=]*?)\s*=\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_EXAMPLES: Mapping[str, str] = {
    "age_at": "age = age_at(born, 2026-01-01)",
    "days_between": "stay = days_between(admitted, discharged)",
    "log": "log_crp = log(crp)",
    "number": "crp = number(crp, thousands=comma, below=half)",
    "ratio": "ratio = ratio(waist, hip)",
    "recode": "sex = recode(gender, m=male, f=female)",
}
_TERMS = {"age_at": 2, "days_between": 2, "log": 1, "ratio": 2}
_UNDEFINED: Mapping[str, str] = {
    "age_at": "a date is written like 1980-01-31 or 31.01.1980",
    "days_between": "a date is written like 1980-01-31 or 31.01.1980",
    "log": "only a number above 0 has a logarithm",
    "number": "a cell holds digits, with thousands=comma, point, blank or apostrophe between groups of three, with "
    "decimal=comma where that is before a fraction, and with below=half, limit or zero behind a <",
    "ratio": "both cells hold numbers, and the second is not 0",
    "recode": "name each text that the column holds",
}


def parse_derived(text: str) -> Derived:
    """A derived column as people write it, like `age = age_at(born, 2026-01-01)`. Raises SpecError."""
    if (found := _WRITTEN.fullmatch(text)) is None or found[2] not in _EXAMPLES:
        examples = "; ".join(_EXAMPLES.values())
        raise SpecError(f"{text!r} is not a derived column", remedy=f"Write it like one of these: {examples}")
    name, by, given = found[1], found[2], [part.strip() for part in found[3].split(",")]
    said: dict[str, Any] = {"name": name, "by": by, "of": given}

    def refused(why: str) -> SpecError:
        return SpecError(f"derived column {name}: {why}", remedy=f"Write it like this: {_EXAMPLES[by]}")

    if len(given) != _TERMS.get(by, len(given)):
        raise refused(f"{by} takes {_TERMS[by]}, and is given {len(given)}")
    if by == "age_at":
        if not _is_date(given[1]):
            raise refused(f"{given[1]!r} is no date, with its year first")
        said |= {"of": given[:1], "at": given[1]}
    if by in {"recode", "number"}:
        pairs = [[side.strip() for side in one.split("=", 1)] for one in given[1:]]
        if any(len(pair) == 1 for pair in pairs) or len({pair[0] for pair in pairs}) < len(pairs):
            raise refused(f"{by} wants {'old' if by == 'recode' else 'term'}=new, each once")
        terms = {"to": dict(pairs)} if by == "recode" else dict(pairs)
        if by == "number" and not terms.keys() <= {"thousands", "decimal", "below"}:
            raise refused("its terms are thousands, decimal and below")
        said |= {"of": given[:1], **terms}
    try:
        return _ONE.validate_json(json.dumps(said))
    except ValidationError as error:
        raise refused(explain(error, said)) from None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def source_columns(wanted: Sequence[str], derived: Sequence[Derived]) -> list[str]:
    """The columns of a source to read for the wanted ones: those that exist, and those that others are made of."""
    made, needed = set[str](), list[str]()
    for one in derived:
        needed += [name for name in one.of if name not in made]
        made.add(one.name)
    return list(dict.fromkeys([*(name for name in wanted if name not in made), *needed]))


def with_derived(columns: Mapping[str, Cells], derived: Sequence[Derived]) -> dict[str, Cells]:
    """Columns of some rows with those that are made of them; one that is made hides one of the source."""
    found = dict(columns)
    for one in derived:
        found[one.name] = one.cells(*(found[name] for name in one.of))
    return found


@dataclass(frozen=True, slots=True)
class DerivingReader:
    """Reads columns that are made as if the source had them."""

    read: RawReader
    derived: tuple[Derived, ...]

    def __call__(self, columns: Sequence[str]) -> Iterator[RawBatch]:
        for batch in self.read(source_columns(columns, self.derived)):
            yield replace(batch, columns=with_derived(batch.columns, self.derived))


def levels_spelled_missing(attributes: Sequence[Attribute], derived: Sequence[Derived]) -> Iterator[tuple[str, str]]:
    """Levels of CSV columns that read as missing, so that nobody has them: each as a sentence and a remedy."""
    made = {one.name for one in derived}
    for attribute in attributes:
        if not isinstance(attribute, NumericAttribute) and attribute.name not in made:
            yield from filter(None, [spelled_missing(attribute.name, attribute.levels)])


def numbers_among(attributes: Sequence[Attribute], derived: Sequence[Derived]) -> frozenset[str]:
    """The columns of a source that are read as numbers: for an attribute, or to make a column of them."""
    made = {one.name for one in derived}
    read = {a.name for a in attributes if isinstance(a, NumericAttribute) and a.name not in made}
    return frozenset(read.union(*(one.of for one in derived if isinstance(one, Log | Ratio))))


def misread(derived: Sequence[Derived], csv: CsvFormat | None) -> Iterator[tuple[str, str]]:
    """Ways in which numbers would be read other than the source writes them: each as a sentence and a remedy."""
    for one in derived:
        if not isinstance(one, Number):
            continue
        if csv is not None and csv.decimal == ",":
            said = f"{one.name}: --decimal ',' changes cells before number reads them"
            yield said, "Leave --decimal out, and make each number with a decimal comma: number(COLUMN, decimal=comma)"
        elif one.decimal == "comma" and csv is None:
            said = f"{one.name}: only in a CSV do numbers have a decimal comma"
            yield said, f"Leave decimal=comma out of {one}; texts with one are read where the source writes a point"


def explained(error: DataError, derived: Sequence[Derived], column: str) -> DataError:
    """A refusal of a column's cells, with how the column is made: for the person who may correct them."""
    made = next((one for one in derived if one.name == column), None)
    if made is None:
        return error
    return DataError(f"{error} in {made}", remedy=f"For {made.by}, {_UNDEFINED[made.by]}. {error.remedy}")


def _known(values: _Numbers) -> Cells:
    found: Cells = pa.array(values, pa.float64(), mask=~np.isfinite(values))
    return found


def _dates(name: str, cells: Cells) -> _Numbers:
    """(4 x m) the year, month, day and day number of each date, NaN for a cell that is no date."""
    texts = as_text(name, cells)
    ways = [pc.extract_regex(texts, pattern=pattern) for pattern in _DATES]
    year, month, day = (
        _whole(pc.coalesce(*(pc.struct_field(parts, part) for parts in ways))) for part in ("year", "month", "day")
    )
    months = 12 * (year - 1970) + month - 1
    number = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    is_one = number.astype("M8[D]").astype("M8[M]").astype(np.int64) == months  # not of 30 February, nor of day 0
    return np.where(is_one, np.array([year, month, day, number], np.float64), np.nan)


def _whole(digits: Cells) -> NDArray[np.int64]:
    found: NDArray[np.int64] = digits.cast(pa.int64()).fill_null(0).to_numpy()
    return found
