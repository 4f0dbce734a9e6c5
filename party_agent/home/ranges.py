"""Bounds and levels that are public knowledge, for drafting schemas: no row is looked at for them.

The ranges are wide: what is seen in living adults and children, not what is normal. Narrower ones give better releases.
If a consortium knows its population, it gives them in a table of the same form.
"""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from pydantic import ValidationError

from commingle.shared.documents.model import explain
from commingle.shared.documents.schema import (
    GAP,
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    Missing,
    NumericAttribute,
)
from commingle.shared.runtime.errors import SettingsError
from commingle.shared.runtime.files import read_plain

_BINARY = 2
_KNOWN = Path(__file__).with_name("ranges.csv").read_text("utf-8")
_OTHER_NAMES = {
    "hemoglobin": "haemoglobin", "hb": "haemoglobin", "gender": "sex", "pulse": "heart_rate", "los": "length_of_stay",
    "spo2": "oxygen_saturation", "sbp": "systolic", "dbp": "diastolic", "wbc": "leukocytes", "plt": "platelets",
    "body_mass_index": "bmi", "body_weight": "weight", "body_height": "height",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Range:
    """Public knowledge of a kind of column: levels, or bounds and a unit; `given` by the caller's own table."""

    name: str
    unit: str
    lower: str
    upper: str
    levels: tuple[str, ...]
    given: bool

    def __str__(self) -> str:
        return ", ".join(self.levels) or f"{self.lower} to {self.upper} {self.unit}".strip()

    def attribute(self, column: str) -> Attribute:
        levels = tuple(level for level in self.levels if level != GAP)  # cells that say so are marked
        rule: Missing = "error" if levels == self.levels else "indicator"
        try:
            if len(levels) == _BINARY:
                return BinaryAttribute(name=column, levels=(levels[0], levels[1]), missing=rule)
            if levels:
                return CategoricalAttribute(name=column, levels=levels, missing=rule)
            lower, upper = float(self.lower), float(self.upper)
            return NumericAttribute(name=column, lower=lower, upper=upper, unit=self.unit or None)
        except ValidationError as error:
            raise SettingsError(f"the range {self.name}: {explain(error)}", remedy="Correct the table.") from None
        except ValueError:
            raise SettingsError(f"the range {self.name} has neither bounds nor levels", remedy="Add them.") from None


def known_ranges(table: Path | None = None) -> tuple[Range, ...]:
    """The ranges of a CSV (name, unit, lower, upper, levels separated by `|`), and the public ones after them."""
    given: tuple[Range, ...] = ()
    if table is not None:
        try:
            given = _parse(read_plain(table).decode(), given=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise SettingsError(
                f"{table} is no table of ranges", remedy="A CSV with the header name,unit,lower,upper,levels."
            ) from None
    return (*given, *_parse(_KNOWN, given=False))


def draft_schema(
    columns: Iterable[str], ranges: Iterable[Range], units: Mapping[str, str]
) -> tuple[list[tuple[Attribute, Range]], list[str]]:
    """Attributes of the columns that we know a range for, each with that range; and the other columns.

    A column is known by its name, with or without its unit behind it. If a range is known in several units and neither
    `units` nor the name says which, it is not known.
    """
    known, drafted, unknown = tuple(ranges), list[tuple[Attribute, Range]](), list[str]()
    for column in columns:
        fitting = [one for one in known if _fits(column, one, units.get(column))]
        own = [one for one in fitting if one.given] or fitting
        if len({one.unit for one in own}) == 1:
            drafted.append((own[0].attribute(column), own[0]))
        else:
            unknown.append(column)
    return drafted, unknown


def _fits(column: str, known: Range, unit: str | None) -> bool:
    name, wanted, plain_unit = _plain(column), _plain(known.name), _plain(known.unit)
    named_with_unit = bool(plain_unit) and name == f"{wanted}_{plain_unit}"
    named = _OTHER_NAMES.get(name, name) == wanted
    return (named or named_with_unit) and (unit is None or _plain(unit) == plain_unit)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9%]+", "_", text.lower()).strip("_")


def _parse(text: str, *, given: bool) -> tuple[Range, ...]:
    return tuple(
        Range(
            *(row["name"], row["unit"].strip(), row["lower"], row["upper"]),
            levels=tuple(filter(None, row["levels"].split("|"))),
            given=given,
        )
        for row in csv.DictReader(StringIO(text))
    )
