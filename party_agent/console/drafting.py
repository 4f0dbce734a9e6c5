"""A schema that its owner writes column by column, beginning with what is public knowledge of columns of these names.

No row is looked at: bounds that were read off the rows would tell of them, without noise and without a charge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from commingle.party_agent.data.ranges import Range, draft_schema, known_ranges
from commingle.party_agent.private.sources import FileSource, other_format, source_columns
from commingle.shared.documents.spec import MAX_COLUMNS
from commingle.shared.runtime.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Line:
    """One column as it stands in the form: text, until it is an attribute.

    Attributes:
        use: "yes" where it is to be registered.
        levels: separated by `|`; empty for numbers.
        missing: what becomes of missing cells, as schemas call it.
        known: what the proposal is public knowledge of; empty where nothing is known.
    """

    name: str
    use: str = ""
    lower: str = ""
    upper: str = ""
    unit: str = ""
    levels: str = ""
    missing: str = "error"
    known: str = ""

    @property
    def attribute(self) -> dict[str, Any]:
        """As schema files have it. Raises SettingsError, naming the column."""
        levels = tuple(level.strip() for level in self.levels.split("|")) if self.levels else ()
        said = Range(self.name, self.unit, self.lower, self.upper, levels, given=True).attribute(self.name)
        return {**said.model_dump(mode="json"), "missing": self.missing or "error"}

    @classmethod
    def of(cls, name: str, known: Range) -> Self:
        """What is known of a column."""
        levels = "|".join(known.levels)
        return cls(name, "yes", known.lower, known.upper, known.unit, levels, known=known.name)


_FIELDS = tuple(each.name for each in fields(Line))
MAX_FIELDS = len(_FIELDS) * MAX_COLUMNS
"""The most fields that a form has."""


def lines_of(form: Mapping[str, str]) -> list[Line]:
    """The columns that a form was sent with."""
    lines: list[Line] = []
    while f"name-{len(lines)}" in form:
        lines.append(Line(**{field: form.get(f"{field}-{len(lines)}", "").strip() for field in _FIELDS}))
    return lines


def propose(source: FileSource, subject_id: str, typed: Sequence[Line], *, made: Sequence[str] = ()) -> list[Line]:
    """A line for each column of a file, or made of it, but the one that identifies subjects: as typed, or as known."""
    columns = source_columns(source)
    if subject_id not in columns:
        raise SettingsError(
            "the file has no column of the name that says who a row is about",
            remedy=other_format(source) or "Check the name.",
        )
    others = [name for name in dict.fromkeys((*columns, *made)) if name != subject_id]
    if len(others) > MAX_COLUMNS:
        raise SettingsError(f"{len(others)} columns are more than a form holds", remedy="Give the schema as JSON.")
    before = {line.name: line for line in typed}
    units = {line.name: line.unit for line in typed if line.unit}
    known = {attribute.name: found for attribute, found in draft_schema(others, known_ranges(), units)[0]}
    if not known and before.keys().isdisjoint(others):  # no name is repeated: it may be a cell
        raise SettingsError(
            f"nothing is known of any of the {len(others)} columns",
            remedy="A CSV needs a header line. Otherwise give the schema as JSON.",
        )

    def line(name: str) -> Line:
        kept = before.get(name, Line(name))
        blank = not (kept.lower or kept.upper or kept.levels)
        return Line.of(name, known[name]) if blank and name in known else kept

    return [line(name) for name in others]


def schema_of(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The columns that are used, as schema files have them. Raises SettingsError."""
    if not any(line.use for line in lines):
        raise SettingsError("no column is chosen", remedy="Choose the columns that studies may ask for.")
    return [line.attribute for line in lines if line.use]
