"""A regression one party publishes by itself: the request, the result and its cost, under its signature.

The digest of a request's bytes, which hold a nonce, names the request, and the charge in the party's ledger: the same
request again is the same regression, and asking twice takes two nonces. Private rows reach both documents only through
the noise that the charge paid for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from math import isclose, isnan, isqrt
from sys import float_info
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from commingle.shared.documents.dsse import Fingerprint, parse_fingerprint
from commingle.shared.documents.manifest import PROTECTS
from commingle.shared.documents.model import Count, Digest, Hex32, Name, Version, WireModel, decode, encode
from commingle.shared.documents.schema import (
    Attribute,
    AttributeName,
    BinaryAttribute,
    EncodedColumn,
    NumericAttribute,
    encoded_columns,
)
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.documents.statements import ChargedLoss, SignedDocument
from commingle.shared.dp.accounting import Cost, Loss
from commingle.shared.dp.calibration import stated_epsilon
from commingle.shared.dp.sensitivity import Adjacency, unit_of
from commingle.shared.dp.two_stages import Kind, MeasuredAttribute, plan_two_stages, two_stage_loss
from commingle.shared.errors import ParameterError, require

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
        features: D x D, the intercept's column of ones first if there is one.
        label: the mean square of the encoded target.
    """

    rows: Annotated[Count, Field(ge=1)]
    features: Annotated[tuple[tuple[_Encoded, ...], ...], Field(min_length=1, max_length=257)]
    label: Annotated[float, Field(gt=0, le=1)]


class RegressionRequest(WireModel):
    """What a member's own people or systems ask of its agent.

    Attributes:
        dataset: a registered data set of this member.
        target: the attribute that is explained: numeric or binary.
        features: the attributes that explain the target.
        method: how; `auto` chooses by what is public.
        calibration: None for the method's own.
        epsilon, delta: of the whole regression, in the unit of the data set; below a millionth all would be noise.
        bounds: of some numeric attributes in their own units, within those they were registered with; values are
            clipped to these and encoded by these.
        mapping: `maximum` leaves rows within one bound; `per_row` divides each by its norm, `per_row_with_label` its
            label too.
        intercept: whether a column of ones is fitted; else the target is at its midpoint where all features are.
        row_norm: encoded features of a row are scaled down to this Euclidean norm; None if only their bounds limit
            them.
        label_bound: the encoded target is cut to it; 1 stands for the bounds of its schema.
        public: public second moments; dp_pmtolse and dp_pmtse need them, and auto looks at them.
        n: about how many rows there are, as everybody may know; a keyed data set, where the exact number is private,
            needs it, and no other has it.
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
        return self.n is not None

    @property
    def adjacency(self) -> Adjacency:
        return unit_of(keyed=self.keyed)

    @property
    def maps_rows(self) -> bool:
        """Whether it says how rows are divided or cut; a method in two stages decides that itself."""
        return (self.mapping, self.row_norm, self.label_bound) != ("maximum", None, 1.0)

    @property
    def id(self) -> str:
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
        replacement: for keyed data sets the charge also keeps the loss under replace_one.
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
        method, calibration, reason: what was used, and why if the request said `auto`.
        target, features: public schemas, in the order of the request.
        n: how many rows there are; for a keyed data set, where that is private, the public figure of the request.
        coefficients: the intercept first.
        published: further privatised quantities that the same charge paid for; for `two_stage` the noisy sums of both
            stages, whole numbers, and the scales of their noise.
        ledger_head: of the member's chain when it signed.
    """

    largest_bytes: ClassVar[int] = 8 << 20  # with three matrices of 257 columns, one of them public
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
        """The ledger's chain names it so: by the request's digest."""
        return self.request.id


def regression_columns(features: tuple[Attribute, ...]) -> tuple[EncodedColumn, ...]:
    """The columns of the coefficients: the intercept, then the encoded columns of the features."""
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

    With y = o + s y~ and x_j = o_j + s_j x~_j: b_j = s b~_j / s_j, b_0 = o + s b~_0 - sum_j b_j o_j. These stay the
    same if a row and its target are divided alike (Kalaja 2020, 3.3 and 3.4). A binary feature is o_j where its cell is
    missing; o_j b_j is added to the coefficient of its mark, which is then against the first level, as other marks are.
    A value outside the range of floats becomes the nearest end of it, and NaN becomes 0: a result is never refused for
    its size.
    """
    columns, (label,) = regression_columns(features), target.columns
    slopes = [label.scale * b / c.scale for b, c in zip(encoded[1:], columns[1:], strict=True)]
    shift = sum(b * c.offset for b, c in zip(slopes, columns[1:], strict=True))
    for level, mark in _marked_binaries(features):
        slopes[mark] += columns[1 + level].offset * slopes[level]
    original = (label.offset + label.scale * encoded[0] - shift, *slopes)
    return tuple(
        Coefficient(name=c.name, label=c.label, encoded=b, original=None if mapping == "per_row" else _within_floats(o))
        for c, b, o in zip(columns, encoded, original, strict=True)
    )


def _marked_binaries(features: tuple[Attribute, ...]) -> Iterator[tuple[int, int]]:
    place = 0
    for feature in features:
        if isinstance(feature, BinaryAttribute) and feature.missing == "indicator":
            yield place, place + 1
        place += len(feature.columns)


def _within_floats(value: float) -> float:
    return 0.0 if isnan(value) else max(-float_info.max, min(float_info.max, value))


_BY_PROOF: Mapping[str, bool] = MappingProxyType({"adaops": True, "ops": True, "objpert": True, "subagg": False})
"""Methods that are (epsilon, delta)-DP by a proof of their own, and whether they are charged a delta."""
_GROUP_OF_TWO = 4
_TOLERANCE = 1e-9
_REMEDY = "Do not use it; ask the member for the document again."
_require = partial(require, remedy=_REMEDY)


@dataclass(frozen=True, slots=True)
class VerifiedRegression:
    """A result whose signature holds and whose parts fit together."""

    document: RegressionResult
    signer: Fingerprint
    findings: tuple[str, ...]


def verify_regression(data: bytes, *, trusted_party: str | None = None) -> VerifiedRegression:
    """Check a party's regression offline: signature, units, and that the promise follows from the charge.

    `data` is the JSON of a signed document. It must be signed with the key of the fingerprint `trusted_party`; None
    accepts any. Raises DocumentError, SignatureError, VerificationError: naming the first thing that does not hold.
    """
    opened = decode(SignedDocument, data).open(RegressionResult)
    result, signer = opened.document, opened.signer
    known = trusted_party is None or signer == parse_fingerprint(trusted_party)
    _require(known, f"it is signed with key {signer[:16]}, not with the one expected")
    names = (result.target.name, *(a.name for a in result.features))
    _require(names == (result.request.target, *result.request.features), "the schemas are not those of the request")
    _require(result.request.method in {"auto", result.method}, "another method was used than was asked for")
    _require(result.request.calibration in {None, result.calibration}, "another calibration was used than asked for")
    _require(result.request.n in {None, result.n}, "it states another number of rows than the request")
    _require_bounds(result)
    _require_units(result)
    _require_promise(result)
    _require_stages(result)
    whose = "the member you named:" if trusted_party else "a key that calls itself"
    return VerifiedRegression(
        result,
        signer,
        (
            f"signed by {whose} {result.party}, key {signer}",
            "method, schemas and calibration are those of the request",
            "coefficients in original units follow from those in encoded units",
            "the guarantee follows from the loss that was charged",
            *(("the noise and the cost of both stages follow from that loss",) if result.method == "two_stage" else ()),
        ),
    )


def _require_bounds(result: RegressionResult) -> None:
    schemas = {a.name: a for a in (result.target, *result.features)}
    for name, asked in result.request.bounds.items():
        schema = schemas[name]
        same = isinstance(schema, NumericAttribute) and (schema.lower, schema.upper) == asked
        _require(same, f"the bounds of {name} are not those of the request")


def _require_units(result: RegressionResult) -> None:
    _require(len(result.target.columns) == 1, "the target has several columns")
    expected = len(regression_columns(result.features))
    _require(len(result.coefficients) == expected, "the coefficients are not those of the features")
    fitted = result.request.intercept or result.coefficients[0].encoded == 0
    _require(fitted, "it has an intercept, and none was asked for")
    encoded = tuple(c.encoded for c in result.coefficients)
    computed = coefficients_of(encoded, result.target, result.features, mapping=result.request.mapping)
    scale = max(abs(c.original or 0.0) for c in computed)
    for claimed, right in zip(result.coefficients, computed, strict=True):
        same = (claimed.name, claimed.label) == (right.name, right.label)
        close = claimed.original == right.original or (
            claimed.original is not None
            and right.original is not None
            and isclose(claimed.original, right.original, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE * scale)
        )
        _require(same and close, f"the coefficient of {claimed.name} does not follow from its encoded value")


def _require_promise(result: RegressionResult) -> None:
    """Gaussian noise promises what its rho implies; a method with a proof of its own promises what was asked for."""
    privacy, request = result.privacy, result.request
    _require(privacy.adjacency == request.adjacency, "the guarantee is under another adjacency than was asked for")
    told = privacy.adjacency == "replace_one" or privacy.protects == PROTECTS_PRESENCE
    _require(told, "it does not say what its adjacency protects")
    _require(privacy.delta == request.delta, "the guarantee is at another delta than was asked for")
    loss = privacy.loss
    if result.method in _BY_PROOF:
        delta = request.delta if _BY_PROOF[result.method] else 0.0
        follows = loss.rho == Loss.approximate(request.epsilon).rho and (loss.delta, privacy.epsilon) == (
            delta,
            request.epsilon,
        )
    else:
        stated = stated_epsilon(result.calibration, float(loss.rho), request.delta)
        follows = not loss.delta and isclose(privacy.epsilon, stated, rel_tol=_TOLERANCE)
    _require(follows, "the guarantee does not follow from the loss")
    _require(privacy.epsilon <= request.epsilon * (1 + _TOLERANCE), "it cost more epsilon than was asked for")
    _require_replacement(privacy)


def _require_replacement(privacy: RegressionPrivacy) -> None:
    """Replacing a row is removing one and adding one: never cheaper, and in rho at most four times as expensive."""
    if privacy.adjacency == "replace_one":
        _require(privacy.replacement is None, "it states two losses under one adjacency")
        return
    loss, other = privacy.loss, privacy.cost.replaced
    fair = loss.rho <= other.rho and other.rho.units <= _GROUP_OF_TWO * loss.rho.units and other.delta >= loss.delta
    _require(privacy.replacement is not None and fair, "its loss under replace_one is not one of what was charged")


def _require_stages(result: RegressionResult) -> None:
    """The noise is the least that the loss allows, and both stages cost no more than is stated."""
    if result.method != "two_stage":
        return
    request, privacy = result.request, result.privacy
    _require(not request.maps_rows, "it maps rows itself, and was asked for with a mapping")
    attributes = measured_attributes(result.target, result.features)
    counted = request.keyed  # with noise, before the sums of columns
    try:
        stages = plan_two_stages(attributes, n=result.n, rho=privacy.loss.rho, adjacency=result.request.adjacency)
    except ParameterError:
        stages = None
    figures = {name: len(values) for name, values in result.published.items()}
    d = sum(attribute.columns for attribute in attributes)
    numbers = sum(attribute.kind == "numeric" for attribute in attributes)
    whole = figures == {"sigmas": 3, "sums": counted + d + numbers, "moments": d + d * (d + 1) // 2}
    _require(whole, "it does not state the figures of both stages")
    noise = stages is not None and result.published["sigmas"] == stages.sigmas
    _require(noise, "the noise of its stages is not that of its loss")
    if stages is not None:
        stated = two_stage_loss(stages, Adjacency.REPLACE_ONE) <= privacy.cost.replaced.rho
        _require(stated, "both stages cost more under replace_one than is stated")


def is_charged(result: RegressionResult, cost: Cost) -> bool:
    """Whether a ledger's charge is what a result states; an adopted charge is not known to be Gaussian."""
    return cost.approximate() == result.privacy.cost.approximate()
