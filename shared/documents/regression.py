"""A regression one party publishes by itself: what was asked, what came out, what it cost, under its signature.

A request is named by the digest of its bytes, with a nonce in them, and that digest names the charge in the party's
ledger: the same request again is the same regression, and asking twice takes two nonces. Nothing in either document
comes from a private row but through the noise that the charge paid for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from hashlib import sha256
from math import ceil, isclose, isnan
from sys import float_info
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from commingle.shared.documents.errors import require
from commingle.shared.documents.keys import Fingerprint, parse_fingerprint
from commingle.shared.documents.manifest import PROTECTS
from commingle.shared.documents.model import Count, Digest, Hex32, Name, Version, WireModel, decode, encode
from commingle.shared.documents.schema import Attribute, AttributeName, EncodedColumn, encoded_columns
from commingle.shared.documents.spec import INTERCEPT
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.accounting import RHO_UNITS, Loss, Rho
from commingle.shared.dp.gaussian import stated_epsilon

RegressionMethod = Literal[
    "ssp", "adassp", "boosted_adassp", "dp_pmtolse", "adaops", "ops", "objpert", "noisysgd", "subagg"
]
CalibrationName = Literal["zcdp", "classical", "analytic", "published"]
_BY_PROOF: Mapping[str, bool] = MappingProxyType({"adaops": True, "ops": True, "objpert": True, "subagg": False})
"""Methods that are (epsilon, delta)-DP by a proof of their own, and whether they are charged a delta."""
Positive = Annotated[float, Field(gt=0)]
Proportion = Annotated[float, Field(gt=0, lt=1)]
_Encoded = Annotated[float, Field(ge=-1, le=1)]
KIND = "regression"
_TOLERANCE = 1e-9
_REMEDY = "Do not use it; ask the party for the document again."
_require = partial(require, remedy=_REMEDY)


class PublicSecondMoments(WireModel):
    """Second moments about zero of PUBLIC rows, encoded as the private ones are.

    Attributes:
        rows: how many public rows.
        features: D x D, the intercept's column of ones first.
        label: the mean square of the encoded target.
    """

    rows: Annotated[Count, Field(ge=1)]
    features: Annotated[tuple[tuple[_Encoded, ...], ...], Field(min_length=2, max_length=257)]
    label: Annotated[float, Field(gt=0, le=1)]


class RegressionRequest(WireModel):
    """What is asked of a party's agent, by its own people or systems.

    Attributes:
        calibration: None for the method's own.
        epsilon, delta: of the whole regression, under replace_one.
        row_norm: encoded features of a row are scaled down to this Euclidean norm; None where their bounds do.
        label_bound: the encoded target is cut to it; 1 are the bounds of its schema.
        public: needed by dp_pmtolse, and looked at by auto.
        nonce: tells two equal questions apart.
    """

    type: Literal["commingle/regression-request"] = "commingle/regression-request"
    version: Version = 1
    dataset: Name
    target: AttributeName
    features: Annotated[tuple[AttributeName, ...], Field(min_length=1, max_length=256)]
    method: RegressionMethod | Literal["auto"] = "auto"
    calibration: CalibrationName | None = None
    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Proportion
    adjacency: Literal["replace_one"] = "replace_one"
    row_norm: Annotated[float, Field(ge=1e-3, le=1e3)] | None = None
    label_bound: Annotated[float, Field(ge=1e-3, le=1)] = 1.0
    public: PublicSecondMoments | None = None
    nonce: Hex32

    @model_validator(mode="after")
    def _explains_one_attribute_by_others(self) -> Self:
        if len({self.target, *self.features}) != len(self.features) + 1:
            raise ValueError("name the target and every feature once")
        return self

    @property
    def id(self) -> str:
        """SHA-256 of the request's bytes, hex."""
        return sha256(encode(self)).hexdigest()


class Coefficient(WireModel):
    """One coefficient; `encoded` per encoded unit of column and target, `original` per unit of both."""

    name: str
    label: str
    encoded: float
    original: float


class RegressionPrivacy(WireModel):
    """What the regression cost and promises.

    Attributes:
        rho_units: rho times 2^64, the ledger's unit.
        loss_delta: delta of the delta-approximate rho-zCDP loss that was charged; 0 for Gaussian noise.
        epsilon, delta: the guarantee.
        guarantee: the method's own sentence, with its source.
        exact_noise: whether noise was drawn exactly; otherwise it is floating point, which no proof covers.
    """

    adjacency: Literal["replace_one"] = "replace_one"
    protects: str = PROTECTS
    rho_units: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,60}$")]
    loss_delta: Annotated[float, Field(ge=0, lt=1)]
    epsilon: Positive
    delta: Proportion
    guarantee: str
    exact_noise: bool

    @property
    def loss(self) -> Loss:
        """The charge."""
        return Loss(Rho(int(self.rho_units)), self.loss_delta)


class RegressionResult(WireModel):
    """What a party publishes.

    Attributes:
        method, calibration, reason: what was used, and why where `auto` was asked for.
        target, features: public schemas, in the order of the request.
        coefficients: the intercept first.
        published: further privatised quantities that the same charge paid for.
        ledger_head: of the party's chain when it signed.
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


@dataclass(frozen=True, slots=True)
class VerifiedRegression:
    """A result whose signature holds and whose parts fit together."""

    document: RegressionResult
    signer: Fingerprint
    findings: tuple[str, ...]


def regression_columns(features: tuple[Attribute, ...]) -> tuple[EncodedColumn, ...]:
    """What each coefficient belongs to: the intercept, then the encoded columns of the features."""
    return (EncodedColumn(INTERCEPT, INTERCEPT, 0.0, 1.0), *encoded_columns(features))


def coefficients_of(
    encoded: tuple[float, ...], target: Attribute, features: tuple[Attribute, ...]
) -> tuple[Coefficient, ...]:
    """Coefficients with their counterparts in original units; post-processing.

    With y = o + s y~ and x_j = o_j + s_j x~_j:  b_j = s b~_j / s_j,  b_0 = o + s b~_0 - sum_j b_j o_j. What leaves the
    range of floats is the nearest end of it, and 0 where there is none: a result is never refused for its size.
    """
    columns, (label,) = regression_columns(features), target.columns
    slopes = [label.scale * b / c.scale for b, c in zip(encoded[1:], columns[1:], strict=True)]
    shift = sum(b * c.offset for b, c in zip(slopes, columns[1:], strict=True))
    original = (label.offset + label.scale * encoded[0] - shift, *slopes)
    return tuple(
        Coefficient(name=c.name, label=c.label, encoded=b, original=_within_floats(o))
        for c, b, o in zip(columns, encoded, original, strict=True)
    )


def _within_floats(value: float) -> float:
    return 0.0 if isnan(value) else max(-float_info.max, min(float_info.max, value))


def verify_regression(data: bytes, *, trusted_party: str | None = None) -> VerifiedRegression:
    """Check a party's regression offline: signature, units, and that the promise follows from the charge.

    Args:
        data: JSON of a signed document.
        trusted_party: fingerprint of the key it must be signed with; None accepts any.

    Raises:
        DocumentError, SignatureError, VerificationError: naming the first thing that does not hold.
    """
    opened = decode(SignedDocument, data).open(RegressionResult, kind=KIND)
    result, signer = opened.document, opened.signer
    known = trusted_party is None or signer == parse_fingerprint(trusted_party)
    _require(known, f"it is signed with key {signer[:16]}, not with the one expected")
    names = (result.target.name, *(a.name for a in result.features))
    _require(names == (result.request.target, *result.request.features), "the schemas are not those of the request")
    _require(result.request.method in {"auto", result.method}, "another method was used than was asked for")
    _require(result.request.calibration in {None, result.calibration}, "another calibration was used than asked for")
    _require_units(result)
    _require_promise(result)
    whose = "the party you named:" if trusted_party else "a key that calls itself"
    return VerifiedRegression(
        result,
        signer,
        (
            f"signed by {whose} {result.party}, key {signer}",
            "method, schemas and calibration are those of the request",
            "coefficients in original units follow from those in encoded units",
            "the guarantee follows from the loss that was charged",
        ),
    )


def _require_units(result: RegressionResult) -> None:
    _require(len(result.target.columns) == 1, "the target has several columns")
    expected = len(regression_columns(result.features))
    _require(len(result.coefficients) == expected, "the coefficients are not those of the features")
    computed = coefficients_of(tuple(c.encoded for c in result.coefficients), result.target, result.features)
    scale = max(abs(c.original) for c in computed)
    for claimed, right in zip(result.coefficients, computed, strict=True):
        same = (claimed.name, claimed.label) == (right.name, right.label)
        close = isclose(claimed.original, right.original, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE * scale)
        _require(same and close, f"the coefficient of {claimed.name} does not follow from its encoded value")


def _require_promise(result: RegressionResult) -> None:
    """Gaussian noise promises what its rho implies; a method with a proof of its own what was asked for."""
    privacy, request = result.privacy, result.request
    _require(privacy.delta == request.delta, "the guarantee is at another delta than was asked for")
    if result.method in _BY_PROOF:
        own = {Loss.approximate(request.epsilon).rho, _formerly_approximate(request.epsilon)}
        delta = request.delta if _BY_PROOF[result.method] else 0.0
        follows = privacy.loss.rho in own and (privacy.loss_delta, privacy.epsilon) == (delta, request.epsilon)
    else:
        stated = stated_epsilon(result.calibration, float(privacy.loss.rho), request.delta)
        follows = not privacy.loss_delta and isclose(privacy.epsilon, stated, rel_tol=_TOLERANCE)
    _require(follows, "the guarantee does not follow from the loss")
    _require(privacy.epsilon <= request.epsilon * (1 + _TOLERANCE), "it cost more epsilon than was asked for")


def is_charged(result: RegressionResult, loss: Loss) -> bool:
    """Whether a ledger's charge is what a result states, a charge that counts as Gaussian by what that takes."""
    privacy = result.privacy
    formerly = result.method in _BY_PROOF and privacy.loss.rho != Loss.approximate(result.request.epsilon).rho
    same = (loss.rho, loss.delta) == (privacy.loss.rho, privacy.loss_delta)
    return same and not (formerly and loss.gaussian)


def _formerly_approximate(epsilon: float) -> Rho:
    """What an (epsilon, delta)-DP method was charged as long as losses were only known to be rho-zCDP."""
    return Rho(ceil(Fraction(epsilon) ** 2 * RHO_UNITS / 2))
