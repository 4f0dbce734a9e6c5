"""Attributes: public bounds and levels, how they encode (docs/design/encoding.md#attributes), a public whitening."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints, TypeAdapter, ValidationError, WithJsonSchema, model_validator

from commingle.shared.documents.model import LEFT_OUT, WireModel, as_written, explain, tagged_by
from commingle.shared.dp.fixed_point import IntegerMap, quantise, within_unit
from commingle.shared.dp.sensitivity import Geometry, contrast_geometry
from commingle.shared.errors import ParameterError, SpecError

AttributeName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f=\[\]]{1,80}$")]
Level = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]
Unit = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{0,80}$")]
_LEAST_WIDTH = 1e-300
_MOST_LEVELS = 256
Missing = Literal["error", "midpoint", "indicator"]
"""Missing cells are refused, lie at the midpoint, or are 0 beside a column that marks them."""
GAP = "missing"  # the name of the column that marks missing cells, as if it were a level


class Weighted(WireModel):
    """The attribute of a member that matters most: its sums with other columns get less noise, and all others more.

    Attributes:
        attribute: its name.
        weight: its columns are multiplied by this before products are summed.
    """

    attribute: AttributeName
    weight: Annotated[int, Field(ge=2, le=4)]


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One column of the released matrix and how it reads in original units.

    original value = offset + scale * encoded value; for a level's indicator the original value is the indicator.
    """

    name: str  # unique in the release
    label: str  # what a coefficient table prints, for example `sex[male]`
    offset: float  # original value at encoded 0
    scale: float  # original units per encoded unit, positive


_FACTORS = {  # flat: generators of clients cannot use a description that contains itself
    "anyOf": [{"type": "array", "items": {}, "minItems": 2, "maxItems": 3}, {"type": "null"}],
    "description": "numbers and binary attributes that the table holds, each as an attribute",
    "title": "Product",
}


class NumericAttribute(WireModel):
    """A number, clipped to [lower, upper] and mapped onto [-1, 1].

    Attributes:
        name: of the column; without `=` and brackets.
        lower: the least value, from public knowledge; lower values count as this.
        upper: the largest, likewise.
        unit: of the values, for people.
        missing: whether missing cells are refused (`error`), count as the midpoint, or are marked in an extra column.
        product: the attributes whose product this is; the agent multiplies them. Left out, the table holds it.
    """

    model_config = tagged_by("kind")
    kind: Literal["numeric"] = "numeric"
    name: AttributeName
    lower: float
    upper: float
    unit: Unit | None = None
    missing: Missing = "error"
    product: Annotated[
        tuple["Factor", ...] | None, LEFT_OUT, Field(min_length=2, max_length=3), WithJsonSchema(_FACTORS)
    ] = None

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        _require_bounds(self.lower, self.upper)
        if self.product is not None:
            _require_factors(self, self.product)
        return self

    @property
    def geometry(self) -> Geometry:
        """R = 1, D = 2, with and without marks: a missing cell's value is 0."""
        return Geometry(radius_squared=1, diameter_squared=4)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        half = self.upper / 2 - self.lower / 2
        return (EncodedColumn(self.name, self.name, self.lower + half, half), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        """The value of a missing cell that is not marked."""
        if self.product is not None:
            return f"what follows from the midpoint of {' or '.join(dict.fromkeys(f.name for f in self.product))}"
        unit = f" {self.unit}" if self.unit else ""
        return f"the midpoint {self.columns[0].offset:.6g}{unit}"


class Intervals(WireModel):
    """The intervals of a number that are levels of an attribute. A cut belongs to the interval that it begins.

    Attributes:
        lower: the least value of the number, as in the agent's attribute of the same name.
        upper: the largest, likewise.
        unit: of the values, likewise.
        cuts: public numbers at which an interval ends and the next begins.
    """

    lower: float
    upper: float
    unit: Annotated[Unit | None, LEFT_OUT] = None
    cuts: Annotated[tuple[float, ...], Field(min_length=1, max_length=255, fail_fast=True)]

    @model_validator(mode="after")
    def _apart(self) -> Self:
        _require_bounds(self.lower, self.upper)
        ends = (self.lower, *self.cuts, self.upper)
        if not all(one < other for one, other in pairwise(ends)):
            raise ValueError("cuts must increase, and lie between lower and upper")
        if len(set(self.limits)) != len(self.cuts):
            raise ValueError("two cuts lie less than a step of 2^-15 of half of the bounds' width apart")
        return self

    @property
    def limits(self) -> tuple[int, ...]:
        """The cuts as encoded integers. The number of cuts that are at most a value's integer is its interval."""
        return tuple(quantise(within_unit(np.array(self.cuts), self.lower, self.upper)).tolist())

    def places(self, encoded: NDArray[np.int64]) -> NDArray[np.intp]:
        """The interval of each number, from its integer within the bounds (docs/proofs/sensitivity.md 1.5)."""
        return np.searchsorted(self.limits, encoded, side="right")

    def places_of(self, numbers: NDArray[np.float64]) -> NDArray[np.intp]:
        """The interval of each number as it is, without NaN; numbers beyond the bounds are in an outermost one."""
        return self.places(quantise(within_unit(numbers, self.lower, self.upper)))

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the intervals: [0, 40), [40, 60), [60, 90]."""
        ends = [repr(end).removesuffix(".0") for end in (self.lower, *self.cuts, self.upper)]
        *others, last = (f"[{one}, {other}" for one, other in pairwise(ends))
        return (*(f"{interval})" for interval in others), f"{last}]")

    @property
    def middle(self) -> str:
        """The interval of the bounds' midpoint: a missing cell that is not marked counts as this."""
        return self.levels[int(self.places(np.zeros(1, np.int64))[0])]


class BinaryAttribute(WireModel):
    """Two levels, encoded -1 and +1. A coefficient is for the second level against the first.

    Attributes:
        name: of the column; without `=` and brackets.
        levels: the two, as the table writes them.
        missing: whether missing cells are refused (`error`), count as the midpoint, or are marked in an extra column.
        intervals: the number whose intervals these levels are; left out, the table holds the levels.
    """

    model_config = tagged_by("kind")
    kind: Literal["binary"] = "binary"
    name: AttributeName
    levels: tuple[Level, Level]
    missing: Missing = "error"
    intervals: Annotated[Intervals | None, LEFT_OUT] = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _require_levels(self)
        return self

    @property
    def geometry(self) -> Geometry:
        return Geometry(radius_squared=1, diameter_squared=4)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        """One column, whose original value is the indicator of the second level; and one for marks."""
        return (EncodedColumn(self.name, f"{self.name}[{self.levels[1]}]", 0.5, 0.5), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        return f"halfway between {self.levels[0]} and {self.levels[1]}" if not self.intervals else self.intervals.middle


class CategoricalAttribute(WireModel):
    """Three levels or more, one-hot against the first, the reference; marked missing cells are another level.

    A release holds contrasts in their place, unless it maps a member's rows (`shared.dp.sensitivity`).

    Attributes:
        name: of the column; without `=` and brackets.
        levels: all of them, as the table writes them; the first is the reference.
        missing: whether missing cells are refused (`error`) or marked in an extra column; for intervals they may also
            count as the midpoint of the number, and for pairs their parts decide.
        intervals: the number whose intervals these levels are; left out, the table holds the levels.
        cross: the two attributes whose pairs of levels these are, as the agent has them; left out, none.
    """

    model_config = tagged_by("kind")
    kind: Literal["categorical"] = "categorical"
    name: AttributeName
    levels: Annotated[tuple[Level, ...], Field(min_length=3, max_length=_MOST_LEVELS, fail_fast=True)]
    missing: Annotated[Missing, Field(exclude_if=lambda rule: rule == "error")] = "error"
    intervals: Annotated[Intervals | None, LEFT_OUT] = None
    cross: Annotated[tuple["Levelled", "Levelled"] | None, LEFT_OUT] = None

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _require_levels(self)
        if self.cross is not None:
            _require_pairs(self, self.cross)
        elif self.missing == "midpoint" and self.intervals is None:
            raise ValueError("three levels or more have no midpoint: missing is error or indicator")
        return self

    @property
    def geometry(self) -> Geometry:
        """Contrasts have R^2 = 1 - 1/L, D^2 = 2, a mark being a level."""
        return contrast_geometry(len(self.columns) + 1)

    @property
    def columns(self) -> tuple[EncodedColumn, ...]:
        return (*(_indicator(self.name, level) for level in self.levels[1:]), *_gap_column(self))

    @property
    def stand_in(self) -> str:
        if self.cross is not None:
            return ", ".join(map(_counted_as, self.cross))
        return f"the reference level {self.levels[0]}" if not self.intervals else self.intervals.middle


Levelled = Annotated[BinaryAttribute | CategoricalAttribute, Field(discriminator="kind")]

Factor = Annotated[NumericAttribute | BinaryAttribute, Field(discriminator="kind")]
"""A factor of a product; each is mapped from its bounds onto [-1, 1] first."""

NumericAttribute.model_rebuild()
CategoricalAttribute.model_rebuild()

Attribute = Annotated[NumericAttribute | BinaryAttribute | CategoricalAttribute, Field(discriminator="kind")]

_WRITTEN = """Write a list of attributes such as
  [{"kind": "numeric", "name": "age", "lower": 18, "upper": 100, "unit": "years"},
   {"kind": "binary", "name": "emergency", "levels": ["no", "yes"]},
   {"kind": "categorical", "name": "smoker", "levels": ["never", "former", "current"]}]"""
_ATTRIBUTES: TypeAdapter[tuple[Attribute, ...]] = TypeAdapter(tuple[Attribute, ...])


def parse_attributes(data: bytes) -> tuple[Attribute, ...]:
    """A schema file: a JSON array of attributes. Raises SpecError: it is not one."""
    try:
        return _ATTRIBUTES.validate_json(data)
    except ValidationError as error:
        raise SpecError(
            f"not a valid attribute schema: {explain(error, as_written(data), NumericAttribute)}",
            remedy=_WRITTEN,
        ) from None


def parts_of(attribute: Attribute) -> tuple[Attribute, ...]:
    """The two parts of pairs, or each factor of a product once; none for other attributes."""
    if isinstance(attribute, CategoricalAttribute):
        return attribute.cross or ()
    return tuple(dict.fromkeys(attribute.product or ())) if isinstance(attribute, NumericAttribute) else ()


def as_registered(attribute: Attribute) -> tuple[Attribute, ...]:
    """The agent's attributes behind this one: the number behind intervals, the parts of pairs and products."""
    if parts := parts_of(attribute):
        return tuple(registered for part in parts for registered in as_registered(part))
    if isinstance(attribute, NumericAttribute) or (of := attribute.intervals) is None:
        return (attribute,)
    return (
        NumericAttribute(name=attribute.name, lower=of.lower, upper=of.upper, unit=of.unit, missing=attribute.missing),
    )


def asked_as(attribute: Attribute) -> str:
    """Its name; for pairs and products also the names of the parts, which the agent has."""
    if isinstance(attribute, NumericAttribute) and attribute.product is not None:
        return f"{attribute.name} ({' times '.join(factor.name for factor in attribute.product)})"
    parts = parts_of(attribute)
    return f"{attribute.name} ({' by '.join(part.name for part in parts)})" if parts else attribute.name


def pairs(one: Levelled, other: Levelled) -> tuple[str, ...]:
    """Names of pairs of levels, those with the first level of `one` first. Raises ValueError: too many."""
    if (count := len(one.levels) * len(other.levels)) > _MOST_LEVELS:  # counted before they are made
        raise ValueError(f"{count} pairs of levels, and at most {_MOST_LEVELS} fit an attribute")
    return tuple(f"{first}, {second}" for first in one.levels for second in other.levels)


def missing_in_parts(*parts: Attribute) -> Missing:
    """The common rule for missing cells. Raises ValueError: one rule would hide what the other marks."""
    rules = {part.missing for part in parts} - {"error"}
    if len(rules) > 1:
        names = " and ".join(dict.fromkeys(part.name for part in parts))
        raise ValueError(f"missing cells of {names} are not treated alike: register them so")
    return rules.pop() if rules else "error"


def encoded_columns(attributes: tuple[Attribute, ...]) -> tuple[EncodedColumn, ...]:
    return tuple(column for attribute in attributes for column in attribute.columns)


def party_columns(
    attributes: tuple[Attribute, ...], *, whitened: bool = False, scaled: bool = False, weighted: str | None = None
) -> tuple[EncodedColumn, ...]:
    """A member's published columns, named after the encoded ones in their place: these, mixtures or multiples of them.

    Levels have contrasts, unless rows are mapped. `weighted` is the attribute whose columns are multiplied. A name of
    an attribute has no bracket, so no other column has such a name.
    """

    def word(attribute: Attribute) -> str | None:
        if whitened or scaled:
            return "whitened" if whitened else "scaled"
        if isinstance(attribute, CategoricalAttribute):
            return "contrast"
        return "scaled" if attribute.name == weighted else None

    return tuple(
        c if (said := word(a)) is None else EncodedColumn(f"{said}[{c.name}]", f"{said}[{c.label}]", 0.0, 1.0)
        for a in attributes
        for c in a.columns
    )


def weight_problems(
    party: str, heavy: Weighted | None, attributes: tuple[Attribute, ...], *, whitened: bool
) -> list[str]:
    """Why no attribute of that member can have this weight: a sentence, or none."""
    if heavy is None:
        return []
    if whitened:
        return [f"the whitening of {party} decides what its columns weigh; leave weighted out"]
    known = any(a.name == heavy.attribute for a in attributes)
    return [] if known else [f"{party} is not asked for {heavy.attribute!r}, which is weighted there"]


def presence_column(party: str) -> EncodedColumn:
    """For each row of a keyed member: whether there is one."""
    return EncodedColumn(f"present[{party}]", f"present[{party}]", 0.0, 1.0)


def words_for_missing(attribute: Attribute, count: int | None = None) -> str | None:
    """What happens to an attribute's missing cells, in a sentence; None if there are none, or none are accepted.

    The attribute is of a spec, public; `count` says how many there are, for their owner only.
    """
    if count == 0 or (attribute.missing == "error" and count is None):
        return None
    cells = "missing cells" if count is None else f"{count:,} missing cells"
    if attribute.missing == "error":
        who = f"keyed data sets without a value are left out, listed ones count as {attribute.stand_in}"
        return f"{attribute.name}: {cells}: {who}"
    if attribute.missing == "indicator":
        return f"{attribute.name}: {cells} are marked in a column of their own, {attribute.name}[{GAP}]"
    return f"{attribute.name}: {cells} count as {attribute.stand_in}"


def _indicator(name: str, level: str) -> EncodedColumn:
    return EncodedColumn(f"{name}={level}", f"{name}[{level}]", 0.0, 1.0)


def _gap_column(attribute: NumericAttribute | BinaryAttribute | CategoricalAttribute) -> tuple[EncodedColumn, ...]:
    return (_indicator(attribute.name, GAP),) if attribute.missing == "indicator" else ()


def _require_bounds(lower: float, upper: float) -> None:
    if not lower < upper:
        raise ValueError(f"lower ({lower}) must be below upper ({upper})")
    if not (upper - lower) < float("inf"):
        raise ValueError("the bounds are too far apart")
    if (upper - lower) < _LEAST_WIDTH:
        raise ValueError("the bounds are too close together")


def _require_levels(attribute: BinaryAttribute | CategoricalAttribute) -> None:
    if len(set(attribute.levels)) != len(attribute.levels):
        raise ValueError("levels must differ")
    if GAP in attribute.levels:
        raise ValueError(
            f"a level is called {GAP}, as cells without a value are; leave it out: cells that say so count as missing, "
            'which "missing": "indicator" allows'
        )
    if attribute.intervals is not None and attribute.levels != attribute.intervals.levels:
        raise ValueError("the levels are not the names of its intervals")


def _require_pairs(attribute: CategoricalAttribute, parts: tuple[Levelled, Levelled]) -> None:
    if attribute.intervals is not None or any(isinstance(p, CategoricalAttribute) and p.cross for p in parts):
        raise ValueError("the levels of a pair are neither pairs nor intervals")
    if len({attribute.name, *(part.name for part in parts)}) < 3:  # noqa: PLR2004 - itself and both parts
        raise ValueError("a crossed attribute and its two parts need three different names")
    if attribute.levels != pairs(*parts):
        raise ValueError("the levels are not the names of the pairs of its parts' levels")
    if attribute.missing != missing_in_parts(*parts):
        raise ValueError("missing does not follow from its parts")


def _require_factors(attribute: NumericAttribute, factors: tuple[Factor, ...]) -> None:
    if any(f.product if isinstance(f, NumericAttribute) else f.intervals for f in factors):
        raise ValueError("a factor is a number or a binary attribute that the table holds")
    if attribute.name in {factor.name for factor in factors}:
        raise ValueError("a product has a name that none of its factors has")
    if len({factor.name for factor in factors}) != len(set(factors)):
        raise ValueError("factors of one name differ")
    if any(isinstance(f, BinaryAttribute) and factors.count(f) > 1 for f in factors):
        raise ValueError("a binary attribute times itself is the same for everybody")
    if (attribute.lower, attribute.upper, attribute.unit) != (-1, 1, None):
        raise ValueError("a product lies between -1 and 1 and has no unit")
    if attribute.missing != missing_in_parts(*factors):
        raise ValueError("missing does not follow from its factors")


def _counted_as(part: Levelled) -> str:
    return part.levels[0] if part.intervals is None else part.intervals.middle


class Whitening(WireModel):
    """z = matrix (x - centre) of a member's encoded columns x, made from public rows.

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
        return IntegerMap.of(self.matrix, self.centre)
