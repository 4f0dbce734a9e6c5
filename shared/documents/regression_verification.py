"""Checking a regression that one party publishes: offline, by anybody."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import isclose
from types import MappingProxyType

from commingle.shared.documents.errors import require
from commingle.shared.documents.keys import Fingerprint, parse_fingerprint
from commingle.shared.documents.model import decode
from commingle.shared.documents.regression import (
    PROTECTS_PRESENCE,
    RegressionPrivacy,
    RegressionResult,
    coefficients_of,
    measured_attributes,
    regression_columns,
)
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.statements import SignedDocument
from commingle.shared.dp.accounting import Cost, Loss
from commingle.shared.dp.calibration import stated_epsilon
from commingle.shared.dp.errors import ParameterError
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import plan_two_stages, two_stage_loss

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

    Args:
        data: JSON of a signed document.
        trusted_party: fingerprint of the key it must be signed with; None accepts any.

    Raises:
        DocumentError, SignatureError, VerificationError: naming the first thing that does not hold.
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
    """Gaussian noise promises what its rho implies; a method with a proof of its own what was asked for."""
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
    """Replacing a row is removing one and adding one: no cheaper, and in rho at most four times as dear."""
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
    """Whether a ledger's charge is what a result states; of an adopted charge it is not known to be Gaussian."""
    return cost.approximate() == result.privacy.cost.approximate()
