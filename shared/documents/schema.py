"""Attribute schemas: public bounds and levels, the affine encoding they define, and a public whitening of it.

See docs/design/encoding.md#attributes.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.model import WireModel, explain
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.sensitivity import Geometry
from commingle.shared.dp.whitening import IntegerMap

AttributeName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f=\[\]]{1,80}$")]
Level = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]
Unit = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,80}$")]
_LEAST_WIDTH = 1e-300
Missing = Literal["error", "midpoint", "indicator"]
"""What becomes of missing cells: they are refused, lie at the midpoint, or are 0 beside a column that marks them."""
GAP = "missing"
"""How the column that marks missing cells is called, as if it were a level."""


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column of the released matrix and how it reads in original units.

    original value = offset + scale * encoded value; for a level's indicator the original value is the indicator.

    Attributes:
        name: unique in the release.
        label: what a coefficient table prints, for example `sex[male]`.
        offset: original value at encoded 0.
        scale: original units per encoded unit, positive.
    """

    name: str
    label: str
    offset: float
    scale: float


class NumericAttribute(WireModel):
    """A number, clipped to [lower, upper] and mapped onto [-1, 1].

    Attributes:
        name: of the column; without `=` and brackets.
        lower: the least value, from public knowledge; lower ones count as this.
        upper: the largest, likewise.
        unit: of the values, for people.
        missing: whether missing cells are refused (`error`), count as the midpoint, or are marked in a column more.
    """

    kind: Literal["numeric"] = "numeric"
    name: AttributeName
    lower: float
    upper: float
    unit: Unit | None = None
    missing: Missing = "error"

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        if not (self.upper - self.lower) < float("inf"):
            raise ValueError("the bounds are too far apart")
        if (self.upper - self.lower) < _LEAST_WIDTH:
            raise ValueError("the bounds are too close together")
        return self

    @property
    def geometry(self) -> Geometry:
        """R = 1, D = 2, with and without marks: a missing cell's value is 0."""
        return Geometry(radius_squared=1, diameter_squared=4)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """One column, and another where missing cells are marked."""
        half = self.upper / 2 - self.lower / 2
        return (EncodedColumn(self.name, self.name, self.lower + half, half), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        """What a missing cell counts as where it is not marked."""
        unit = f" {self.unit}" if self.unit else ""
        return f"the midpoint {self.columns[0].offset:.6g}{unit}"


class BinaryAttribute(WireModel):
    """Two levels, encoded -1 and +1. A coefficient is for the second level against the first.

    Attributes:
        name: of the column; without `=` and brackets.
        levels: the two, as the table writes them.
        missing: whether missing cells are refused (`error`), count as the midpoint, or are marked in a column more.
    """

    kind: Literal["binary"] = "binary"
    name: AttributeName
    levels: tuple[Level, Level]
    missing: Missing = "error"

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _require_distinct(self.levels)
        _require_no_gap(self)
        return self

    @property
    def geometry(self) -> Geometry:
        """R = 1, D = 2."""
        return Geometry(radius_squared=1, diameter_squared=4)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """One column, whose original value is the indicator of the second level, and another for marks."""
        return (EncodedColumn(self.name, f"{self.name}[{self.levels[1]}]", 0.5, 0.5), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        """What a missing cell counts as where it is not marked."""
        return f"halfway between {self.levels[0]} and {self.levels[1]}"


class CategoricalAttribute(WireModel):
    """Three levels or more, one-hot against the first, the reference; missing cells as another level, if marked.

    Attributes:
        name: of the column; without `=` and brackets.
        levels: all of them, as the table writes them; the first is the reference.
        missing: whether missing cells are refused (`error`) or marked in a column more.
    """

    kind: Literal["categorical"] = "categorical"
    name: AttributeName
    levels: Annotated[tuple[Level, ...], Field(min_length=3, max_length=256, fail_fast=True)]
    missing: Annotated[Literal["error", "indicator"], Field(exclude_if=lambda rule: rule == "error")] = "error"

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _require_distinct(self.levels)
        _require_no_gap(self)
        return self

    @property
    def geometry(self) -> Geometry:
        """R = 1, D^2 = 2."""
        return Geometry(radius_squared=1, diameter_squared=2)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """One indicator per level after the reference."""
        return (*(_indicator(self.name, level) for level in self.levels[1:]), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        """What a missing cell counts as where it is not marked."""
        return f"the reference level {self.levels[0]}"


Attribute = Annotated[NumericAttribute | BinaryAttribute | CategoricalAttribute, Field(discriminator="kind")]
_ATTRIBUTES: TypeAdapter[tuple[Attribute, ...]] = TypeAdapter(tuple[Attribute, ...])


def parse_attributes(data: bytes) -> tuple[Attribute, ...]:
    """A schema file: a JSON array of attributes.

    Raises:
        SpecError: it is not one.
    """
    try:
        return _ATTRIBUTES.validate_json(data)
    except ValidationError as error:
        raise SpecError(
            f"not a valid attribute schema: {explain(error)}",
            remedy="See docs/quickstart.md for the three kinds of attributes.",
        ) from None


def encoded_columns(attributes: tuple[Attribute, ...]) -> tuple[EncodedColumn, ...]:
    """All columns of these attributes, in order."""
    return tuple(column for attribute in attributes for column in attribute.columns)


def party_columns(
    attributes: tuple[Attribute, ...], *, whitened: bool = False, scaled: bool = False
) -> tuple[EncodedColumn, ...]:
    """A party's published columns: encoded ones, or mixtures or multiples of them, named after those in their place.

    A name of an attribute has no bracket, so no other column has such a name.
    """
    encoded = encoded_columns(attributes)
    if not (whitened or scaled):
        return encoded
    word = "whitened" if whitened else "scaled"
    return tuple(EncodedColumn(f"{word}[{c.name}]", f"{word}[{c.label}]", 0.0, 1.0) for c in encoded)


def presence_column(party: str) -> EncodedColumn:
    """What says of each row of a party whose subjects are keyed that there is one."""
    return EncodedColumn(f"present[{party}]", f"present[{party}]", 0.0, 1.0)


def words_for_missing(attribute: Attribute, count: int | None = None) -> str | None:
    """What becomes of an attribute's missing cells, in a sentence; None where there are none, or none are accepted.

    Args:
        attribute: of a spec, public.
        count: how many there are, for their owner only.
    """
    if count == 0 or (attribute.missing == "error" and count is None):
        return None
    cells = "missing cells" if count is None else f"{count:,} missing cells"
    if attribute.missing == "error":
        who = f"keyed subjects without a value are left out, listed ones count as {attribute.stand_in}"
        return f"{attribute.name}: {cells}: {who}"
    if attribute.missing == "indicator":
        return f"{attribute.name}: {cells} are marked in a column of their own, {attribute.name}[{GAP}]"
    return f"{attribute.name}: {cells} count as {attribute.stand_in}"


def _indicator(name: str, level: str) -> EncodedColumn:
    return EncodedColumn(f"{name}={level}", f"{name}[{level}]", 0.0, 1.0)


def _gap_column(attribute: NumericAttribute | BinaryAttribute | CategoricalAttribute) -> tuple[EncodedColumn, ...]:
    return (_indicator(attribute.name, GAP),) if attribute.missing == "indicator" else ()


def _require_no_gap(attribute: BinaryAttribute | CategoricalAttribute) -> None:
    if attribute.missing == "indicator" and GAP in attribute.levels:
        raise ValueError(f"a level is called {GAP}, as the column is that marks missing cells")


def _require_distinct(levels: tuple[str, ...]) -> None:
    if len(set(levels)) != len(levels):
        raise ValueError("levels must differ")


class Whitening(WireModel):
    """z = matrix (x - centre) of a party's encoded columns x, made from public rows.

    Attributes:
        centre: d encoded values.
        matrix: d rows of d.
    """

    centre: Annotated[tuple[Annotated[float, Field(ge=-1, le=1)], ...], Field(min_length=1, max_length=256)]
    matrix: Annotated[
        tuple[Annotated[tuple[float, ...], Field(max_length=256, fail_fast=True)], ...],
        Field(max_length=256, fail_fast=True),
    ]

    @model_validator(mode="after")
    def _can_be_applied_and_undone(self) -> Self:
        try:
            self.integer_map()
        except ParameterError as error:
            raise ValueError(error.diagnostics()) from None
        return self

    def integer_map(self) -> IntegerMap:
        """The exact map that agents apply and learners undo."""
        return IntegerMap.of(self.matrix, self.centre)
