"""A study as a person writes it down; `release.checks.build_spec` makes a release spec of it."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, StringConstraints, Tag, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from commingle.shared.documents.model import LEFT_OUT, Name, WireModel, explain
from commingle.shared.documents.schema import (
    Attribute,
    AttributeName,
    BinaryAttribute,
    CategoricalAttribute,
    Factor,
    Intervals,
    Level,
    Levelled,
    NumericAttribute,
    missing_in_parts,
    pairs,
    weight_problems,
)
from commingle.shared.documents.spec import MAX_COLUMNS, MAX_PARTIES, Asked
from commingle.shared.documents.subsets import Subset, require_people
from commingle.shared.documents.terms import AUTO, AskedShare, MechanismName, PartyShare

Subjects = Literal["keyed", "listed"]
_ROUNDING = 1e-9
RECOMMENDED_MECHANISM = "moments"  # it is written into a first study, and shown first


class CutNumber(NumericAttribute):
    """A number that is released as the interval that it lies in.

    Attributes:
        cuts: public numbers between the bounds, increasing, at which intervals begin; or "every 10", the multiples of
            10 between them.
    """

    cuts: tuple[float, ...] | Annotated[str, StringConstraints(pattern=r"^every [0-9]{1,9}(\.[0-9]{1,9})?$")]

    @property
    def as_levels(self) -> BinaryAttribute | CategoricalAttribute:
        """As a spec has it. Raises ValueError for impossible cuts, and for those of a product."""
        if self.product is not None:
            raise ValueError("a product has no cuts: cut its factors, or leave the cuts out")
        cuts = self.cuts if not isinstance(self.cuts, str) else self._every(Decimal(self.cuts.removeprefix("every ")))
        intervals = Intervals(lower=self.lower, upper=self.upper, unit=self.unit, cuts=cuts)
        said = {"name": self.name, "levels": intervals.levels, "missing": self.missing, "intervals": intervals}
        kind = BinaryAttribute if len(cuts) == 1 else CategoricalAttribute
        return kind.model_validate(said)

    def _every(self, step: Decimal) -> tuple[float, ...]:
        if not step:
            raise ValueError(f"cuts {self.cuts}: the step is to be above 0")
        if (self.upper - self.lower) / float(step) > MAX_COLUMNS:
            raise ValueError(f"cuts {self.cuts} are more than {MAX_COLUMNS}")
        first = int(Decimal(repr(self.lower)) // step)  # rounded towards zero: one more may be below the bounds
        each = (float(number * step) for number in range(first, first + MAX_COLUMNS + 3))
        apart = _ROUNDING * (self.upper - self.lower)  # from bounds such as 0.1 + 0.2
        return tuple(cut for cut in each if self.lower + apart < cut < self.upper - apart)


_SHORT = (("cuts", "cut", "levels"), ("cross", "crossed", "levels"), ("product", "product", "lower"))
"""Short forms of a study: the field, its tag here, and a field that the long form has."""


def _said(attribute: object) -> object:
    if isinstance(attribute, dict):
        short = (tag for word, tag, whole in _SHORT if word in attribute and whole not in attribute)
        return next(short, attribute.get("kind"))
    return getattr(attribute, "kind", None)


def _released(attribute: "Attribute | Crossed | Product") -> Attribute:
    try:
        if isinstance(attribute, Product):
            return attribute.as_number
        return attribute.as_levels if isinstance(attribute, CutNumber | Crossed) else attribute
    except ValidationError as error:
        raise ValueError(explain(error)) from None


def _levelled(attribute: "Attribute | Crossed | Product") -> Attribute:
    if type(attribute) is NumericAttribute:  # and no cut one
        raise ValueError(f'{attribute.name!r} is a number and has no levels: give it "cuts"')
    return _released(attribute)


if TYPE_CHECKING:  # once they are read
    AskedPart: TypeAlias = Levelled
else:
    AskedPart = Annotated[
        Annotated[CutNumber, Tag("cut")]
        | Annotated[NumericAttribute, Tag("numeric"), SkipJsonSchema()]
        | Annotated[BinaryAttribute, Tag("binary")]
        | Annotated[CategoricalAttribute, Tag("categorical")],
        Discriminator(_said),
        AfterValidator(_levelled),
    ]


class Crossed(WireModel):
    """Two attributes of one member that are released as one, whose levels are the pairs of theirs.

    Attributes:
        name: of the pairs; neither part has it.
        cross: the two, as a study asks for attributes with levels: numbers with cuts.
    """

    name: AttributeName
    cross: tuple[AskedPart, AskedPart]

    @property
    def as_levels(self) -> CategoricalAttribute:
        """As a spec has it. Raises ValueError for parts that make no pairs."""
        said = {"name": self.name, "levels": pairs(*self.cross), "missing": missing_in_parts(*self.cross)}
        return CategoricalAttribute.model_validate(said | {"cross": self.cross})


class Product(WireModel):
    """Two or three numbers or binary attributes of one member, released as their product.

    A number that stands twice is its square, as 2 x^2 - 1 of what lies between -1 and 1, and three times its cube.

    Attributes:
        name: of the product; no factor has it.
        product: the factors, as the agents have them.
    """

    name: AttributeName
    product: tuple[Factor, ...]

    @property
    def as_number(self) -> NumericAttribute:
        """As a spec has it. Raises ValueError for factors that make no product."""
        said = {"name": self.name, "lower": -1, "upper": 1, "missing": missing_in_parts(*self.product)}
        return NumericAttribute.model_validate(said | {"product": self.product})


if TYPE_CHECKING:  # as above
    AskedAttribute: TypeAlias = Attribute
else:
    AskedAttribute = Annotated[
        Annotated[CutNumber, Tag("cut")]
        | Annotated[Crossed, Tag("crossed")]
        | Annotated[Product, Tag("product")]
        | Annotated[NumericAttribute, Tag("numeric")]
        | Annotated[BinaryAttribute, Tag("binary")]
        | Annotated[CategoricalAttribute, Tag("categorical")],
        Discriminator(_said),
        AfterValidator(_released),
    ]
"""An attribute as a study asks for it. Reading turns cut and crossed ones into levels, and products into numbers."""


class ChosenSubset(WireModel):
    """As `Subset`, of an attribute as a study asks for one with levels.

    Attributes:
        attribute: as a member registered it: with levels, or a number with cuts.
        levels: those of the people who count.
    """

    attribute: AskedPart
    levels: tuple[Level, ...]


def _subset(chosen: "Subset | ChosenSubset") -> Subset:
    try:
        return Subset(attribute=chosen.attribute, levels=chosen.levels)
    except ValidationError as error:
        raise ValueError(explain(error)) from None


if TYPE_CHECKING:  # as above
    AskedSubset: TypeAlias = Subset
else:
    AskedSubset = Annotated[
        Annotated[Subset, Tag("whole"), SkipJsonSchema()] | Annotated[ChosenSubset, Tag("asked")],
        Discriminator(lambda value: "whole" if isinstance(value, Subset) else "asked"),
        AfterValidator(_subset),
        Field(json_schema_extra=lambda schema: schema.update(schema.pop("oneOf")[0])),
    ]


class StudyParty(PartyShare):
    """What one member is asked to contribute.

    Attributes:
        dataset: the name of one of its data sets.
        first_stage_share: of its rho for sums of its columns; null for none. Left out, it is what suits the mechanism,
            n and epsilon, and none beside a row norm or a whitening.
    """

    dataset: Name
    attributes: Annotated[tuple[AskedAttribute, ...], Field(max_length=MAX_COLUMNS)]
    first_stage_share: Annotated[AskedShare, Field(exclude_if=lambda share: share == AUTO)] = AUTO
    where: Annotated[
        tuple[AskedSubset, ...] | None, Field(min_length=1, max_length=8), AfterValidator(require_people), LEFT_OUT
    ] = None

    @model_validator(mode="after")
    def _weighs_what_it_has(self) -> Self:
        whitened = self.whitening is not None
        if problems := weight_problems(self.name, self.weighted, self.attributes, whitened=whitened):
            raise ValueError(problems[0])
        return self


class Study(Asked):
    """A study file. Its purpose is optional, and so is `k`: the planner chooses one if the mechanism needs it.

    Attributes:
        lifetime_hours: how long members may take to approve.
        parties: all members that are asked, and for what.
        bounds: where members exchange, whether members prove that they keep theirs (the default) or are trusted to.
        subjects: "listed" if all members hold the same people, and their list is public to them; "keyed" if each holds
            people of its own, and who they are is protected. Left out, keyed for rmgm and moments, and listed for dgm
            and for a sparse projection.
        buckets: of keyed rows that are exchanged; left out, as many as the planner finds worth their seconds.
    """

    mechanism: MechanismName = RECOMMENDED_MECHANISM
    subjects: Annotated[Subjects | None, LEFT_OUT] = None
    lifetime_hours: Annotated[float, Field(gt=0, le=24 * 90)] = 72.0
    parties: Annotated[tuple[StudyParty, ...], Field(min_length=1, max_length=MAX_PARTIES)]
