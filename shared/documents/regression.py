"""A regression one party publishes by itself: what was asked, what came out, what it cost, under its signature.

A request is named by the digest of its bytes, with a nonce in them, and that digest names the charge in the party's
ledger: the same request again is the same regression, and asking twice takes two nonces. Nothing in either document
comes from a private row but through the noise that the charge paid for.
"""

from fractions import Fraction
from hashlib import sha256
from math import isnan, isqrt
from sys import float_info
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from commingle.shared.documents.manifest import PROTECTS
from commingle.shared.documents.model import Count, Digest, Hex32, Name, Version, WireModel, encode
from commingle.shared.documents.schema import Attribute, AttributeName, EncodedColumn, encoded_columns
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.documents.statements import ChargedLoss
from commingle.shared.dp.accounting import Cost
from commingle.shared.dp.first_stage import Kind, MeasuredAttribute
from commingle.shared.dp.sensitivity import Adjacency, unit_of

RegressionMethod = Literal[
    "two_stage",
    "ssp",
    "adassp",
    "boosted_adassp",
    "dp_pmtolse",
    "dp_pmtse",
    "adaops",
    "ops",
    "objpert",
    "noisysgd",
    "subagg",
]
CalibrationName = Literal["zcdp", "classical", "analytic", "published"]
AdjacencyName = Literal["replace_one", "add_remove"]
RowMapping = Literal["maximum", "per_row", "per_row_with_label"]
Positive = Annotated[float, Field(gt=0)]
Proportion = Annotated[float, Field(gt=0, lt=1)]
_Encoded = Annotated[float, Field(ge=-1, le=1)]
PROTECTS_PRESENCE = (
    "Whether a person's row is there is protected, and with it its values and how many rows there are. Neighbouring"
    " data sets differ by one row; the number of rows that is stated is a public figure, given with the request."
)


class PublicSecondMoments(WireModel):
    """Second moments about zero of PUBLIC rows, encoded as the private ones are.

    Attributes:
        rows: how many public rows.
        features: D x D, the intercept's column of ones first where there is one.
        label: the mean square of the encoded target.
    """

    rows: Annotated[Count, Field(ge=1)]
    features: Annotated[tuple[tuple[_Encoded, ...], ...], Field(min_length=1, max_length=257)]
    label: Annotated[float, Field(gt=0, le=1)]


class RegressionRequest(WireModel):
    """What is asked of a member's agent, by its own people or systems.

    Attributes:
        dataset: a registered data set of this member.
        target: the attribute that is explained: numeric or binary.
        features: the attributes it is explained by.
        method: how; `auto` chooses by what is public.
        calibration: None for the method's own.
        epsilon, delta: of the whole regression, in the unit of the data set; below a millionth all would be noise.
        bounds: of some numeric attributes in their own units, within those they were registered with; they are clipped
            to these and encoded by these.
        mapping: `maximum` leaves rows within one bound; `per_row` divides each by its norm, `per_row_with_label` its
            label too.
        intercept: whether a column of ones is fitted; else the target is at its midpoint where all features are.
        row_norm: encoded features of a row are scaled down to this Euclidean norm; None where their bounds do.
        label_bound: the encoded target is cut to it; 1 are the bounds of its schema.
        public: needed by dp_pmtolse and dp_pmtse, and looked at by auto.
        n: about how many rows there are, as everybody may know it; given of a keyed data set, where the exact number
            is private, and only of one.
        nonce: tells two equal questions apart.
    """

    type: Literal["commingle/regression-request"] = "commingle/regression-request"
    version: Version = 1
    dataset: Name
    target: AttributeName
    features: Annotated[tuple[AttributeName, ...], Field(min_length=1, max_length=256)]
    method: RegressionMethod | Literal["auto"] = "auto"
    calibration: CalibrationName | None = None
    epsilon: Annotated[float, Field(ge=1e-6, le=1e6)]
    delta: Proportion
    bounds: dict[AttributeName, tuple[float, float]] = Field(default_factory=dict)
    mapping: RowMapping = "maximum"
    intercept: bool = True
    row_norm: Annotated[float, Field(ge=1e-3, le=1e3)] | None = None
    label_bound: Annotated[float, Field(ge=1e-3, le=1)] = 1.0
    public: PublicSecondMoments | None = None
    n: Annotated[Count, Field(ge=1)] | None = None
    nonce: Hex32

    @model_validator(mode="after")
    def _explains_one_attribute_by_others(self) -> Self:
        if len({self.target, *self.features}) != len(self.features) + 1:
            raise ValueError("name the target and every feature once")
        return self

    @model_validator(mode="after")
    def _bounds_what_it_names(self) -> Self:
        if not self.bounds.keys() <= {self.target, *self.features}:
            raise ValueError("bounds are for the target and the features only")
        return self

    @property
    def keyed(self) -> bool:
        """Whether it is asked of a keyed data set."""
        return self.n is not None

    @property
    def adjacency(self) -> Adjacency:
        """In which epsilon and delta are meant."""
        return unit_of(keyed=self.keyed)

    @property
    def maps_rows(self) -> bool:
        """Whether it says how rows are divided or cut, which a method in two stages decides itself."""
        return (self.mapping, self.row_norm, self.label_bound) != ("maximum", None, 1.0)

    @property
    def id(self) -> str:
        """SHA-256 of the request's bytes, hex."""
        return sha256(encode(self)).hexdigest()


class Coefficient(WireModel):
    """One coefficient; `encoded` per encoded unit of column and target, `original` per unit of both.

    After `per_row` the target is no linear function of the features in their own units: `original` is None.
    """

    name: str
    label: str
    encoded: float
    original: float | None


class RegressionPrivacy(ChargedLoss):
    """What the regression cost and promises.

    Attributes:
        adjacency: of guarantee and charge, the unit of the data set.
        rho_units, loss_delta: in that unit; the guarantee follows from rho.
        epsilon, delta: the guarantee.
        guarantee: the method's own sentence, with its source.
        exact_noise: whether noise was drawn exactly; otherwise it is floating point, which no proof covers.
        replacement: of keyed data sets, what the charge keeps besides: the loss under replace_one.
    """

    rho_units: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,60}$")]
    adjacency: AdjacencyName = "replace_one"
    protects: str = PROTECTS[Adjacency.REPLACE_ONE]
    epsilon: Positive
    delta: Proportion
    guarantee: str
    exact_noise: bool
    replacement: ChargedLoss | None = None

    @property
    def cost(self) -> Cost:
        return Cost(self.loss, None if self.replacement is None else self.replacement.loss)


class RegressionResult(WireModel):
    """What a member publishes.

    Attributes:
        method, calibration, reason: what was used, and why where `auto` was asked for.
        target, features: public schemas, in the order of the request.
        n: how many rows there are; of a keyed data set, where that is private, the public figure of the request.
        coefficients: the intercept first.
        published: further privatised quantities that the same charge paid for; of `two_stage` the noisy sums of both
            stages, whole numbers, and the scales of their noise.
        ledger_head: of the member's chain when it signed.
    """

    largest_bytes: ClassVar[int] = 4 << 20  # with public second moments of 257 columns
    type: Literal["commingle/regression"] = "commingle/regression"
    version: Version = 1
    party: Name
    request: RegressionRequest
    method: RegressionMethod
    calibration: CalibrationName
    reason: str
    target: Attribute
    features: tuple[Attribute, ...]
    n: Count
    coefficients: tuple[Coefficient, ...]
    published: dict[str, tuple[float, ...]]
    privacy: RegressionPrivacy
    created: AwareDatetime
    ledger_head: Digest
    software: str

    @property
    def spec(self) -> str:
        """What the ledger's chain calls it: the request's digest."""
        return self.request.id


def regression_columns(features: tuple[Attribute, ...]) -> tuple[EncodedColumn, ...]:
    """What each coefficient belongs to: the intercept, then the encoded columns of the features."""
    return (EncodedColumn(INTERCEPT, INTERCEPT, 0.0, 1.0), *encoded_columns(features))


def measured_attributes(target: Attribute, features: tuple[Attribute, ...]) -> tuple[MeasuredAttribute, ...]:
    """The attributes of a regression in two stages, the target last.

    The target weighs as much as the root of the number of columns of the features: each of these is measured once with
    it and with as many others.
    """
    columns = sum(len(attribute.columns) for attribute in features)
    weight = Fraction(isqrt(16 * columns), 4)
    others = [MeasuredAttribute(Kind(feature.kind), len(feature.columns)) for feature in features]
    return (*others, MeasuredAttribute(Kind(target.kind), len(target.columns), weight))


def coefficients_of(
    encoded: tuple[float, ...], target: Attribute, features: tuple[Attribute, ...], *, mapping: RowMapping = "maximum"
) -> tuple[Coefficient, ...]:
    """Coefficients with their counterparts in original units; post-processing.

    With y = o + s y~ and x_j = o_j + s_j x~_j:  b_j = s b~_j / s_j,  b_0 = o + s b~_0 - sum_j b_j o_j. Where a row and
    its target are divided alike these are the same (Kalaja 2020, 3.3 and 3.4). What leaves the range of floats is the
    nearest end of it, and 0 where there is none: a result is never refused for its size.
    """
    columns, (label,) = regression_columns(features), target.columns
    slopes = [label.scale * b / c.scale for b, c in zip(encoded[1:], columns[1:], strict=True)]
    shift = sum(b * c.offset for b, c in zip(slopes, columns[1:], strict=True))
    original = (label.offset + label.scale * encoded[0] - shift, *slopes)
    return tuple(
        Coefficient(name=c.name, label=c.label, encoded=b, original=None if mapping == "per_row" else _within_floats(o))
        for c, b, o in zip(columns, encoded, original, strict=True)
    )


def _within_floats(value: float) -> float:
    return 0.0 if isnan(value) else max(-float_info.max, min(float_info.max, value))
