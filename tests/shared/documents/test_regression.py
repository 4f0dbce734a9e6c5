"""A party's regression document: what verification accepts, and what it finds."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from commingle.shared.documents.dsse import SigningKey
from commingle.shared.documents.model import decode, decode_canonical, encode
from commingle.shared.documents.regression import (
    PROTECTS_PRESENCE,
    Coefficient,
    PublicSecondMoments,
    RegressionPrivacy,
    RegressionRequest,
    RegressionResult,
    RowMapping,
    coefficients_of,
    is_charged,
    measured_attributes,
    verify_regression,
)
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.statements import ChargedLoss, SignedDocument
from commingle.shared.dp.accounting import Cost, Loss, Rho
from commingle.shared.dp.calibration import epsilon_of_rho, gaussian_rho, rho_of_epsilon
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.dp.two_stages import WIDER, plan_two_stages
from commingle.shared.errors import DocumentError, SignatureError, VerificationError
from tests.world.documents import sign_bytes

LONGEST = -1.2345678901234567e-105
KEY, OTHER = SigningKey(b"\x01" * 32), SigningKey(b"\x02" * 32)
TARGET = NumericAttribute(name="charges", lower=0, upper=100)
FEATURES: tuple[Attribute, ...] = (
    NumericAttribute(name="age", lower=20, upper=80),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
    CategoricalAttribute(name="blood", levels=("0", "A", "B")),
)
ASKED = RegressionRequest(
    dataset="main", target="charges", features=("age", "smoker", "blood"), epsilon=1.0, delta=1e-6, nonce="0" * 64
)
RHO = Rho(int(gaussian_rho(1.0, 1e-6) * 2**64))
PRIVACY = RegressionPrivacy(
    rho_units=str(RHO.units),
    loss_delta=0.0,
    epsilon=RHO.epsilon(1e-6),
    delta=1e-6,
    guarantee="Gaussian.",
    exact_noise=True,
)
ENCODED = (0.1, 0.5, -0.2, 0.05, 0.3)
RESULT = RegressionResult(
    party="ward",
    request=ASKED,
    method="ssp",
    calibration="analytic",
    reason="asked for",
    target=TARGET,
    features=FEATURES,
    n=100,
    coefficients=coefficients_of(ENCODED, TARGET, FEATURES),
    published={},
    privacy=PRIVACY,
    created=datetime(2026, 1, 2, tzinfo=UTC),
    ledger_head="0" * 64,
    software="commingle",
)
ZCDP_RHO = Rho(int(rho_of_epsilon(1.0, 1e-6) * 2**64))
BY_ZCDP = PRIVACY.model_copy(
    update={"rho_units": str(ZCDP_RHO.units), "epsilon": epsilon_of_rho(float(ZCDP_RHO), 1e-6)}
)
LOSS = Loss.approximate(1.0, 1e-6)
SUBAGG = PRIVACY.model_copy(update={"rho_units": str(LOSS.rho.units), "epsilon": 1.0})
PROVED = PRIVACY.model_copy(update={"rho_units": str(LOSS.rho.units), "loss_delta": 1e-6, "epsilon": 1.0})


CHEAPER = PROVED.model_copy(update={"rho_units": str(1 << 63)})


def signed(result: RegressionResult) -> bytes:
    return encode(SignedDocument.of(result, KEY))


def test_original_units_predict_what_encoded_units_predict() -> None:
    age, smoker, blood = 35.0, "yes", "B"
    row = (1.0, (age - 50) / 30, 1.0 if smoker == "yes" else -1.0, 0.0, 1.0 if blood == "B" else 0.0)
    encoded = 50 + 50 * sum(b * x for b, x in zip(ENCODED, row, strict=True))
    plain = (1.0, age, 1.0, 0.0, 1.0)
    assert sum((c.original or 0) * x for c, x in zip(RESULT.coefficients, plain, strict=True)) == pytest.approx(encoded)
    assert [c.label for c in RESULT.coefficients] == ["(intercept)", "age", "smoker[yes]", "blood[A]", "blood[B]"]


@pytest.mark.parametrize(
    ("method", "privacy", "calibration"),
    [
        ("ssp", PRIVACY, "analytic"),
        ("adaops", PROVED, "analytic"),
        ("objpert", PROVED, "published"),
        ("subagg", SUBAGG, "published"),
        ("ssp", BY_ZCDP, "zcdp"),
    ],
)
def test_honest_document_is_accepted_with_its_signer(method: str, privacy: RegressionPrivacy, calibration: str) -> None:
    result = RESULT.model_copy(update={"method": method, "privacy": privacy, "calibration": calibration})
    found = verify_regression(signed(result), trusted_party=KEY.fingerprint.upper())
    assert (found.document, found.signer) == (result, KEY.fingerprint)
    assert "signed by the member you named: ward" in found.findings[0]
    assert "signed by a key that calls itself ward" in verify_regression(signed(result)).findings[0]


def with_coefficient(place: int, **changes: object) -> Callable[[], RegressionResult]:
    changed: list[Coefficient] = list(RESULT.coefficients)
    changed[place] = changed[place].model_copy(update=changes)
    return lambda: RESULT.model_copy(update={"coefficients": tuple(changed)})


def with_privacy(**changes: object) -> Callable[[], RegressionResult]:
    return lambda: RESULT.model_copy(update={"privacy": PRIVACY.model_copy(update=changes)})


def with_changes(**changes: object) -> Callable[[], RegressionResult]:
    return lambda: RESULT.model_copy(update=changes)


REPLACED = ChargedLoss(rho_units=str(RHO.units * 9 // 4), loss_delta=0.0)
ADDED = PRIVACY.model_copy(update={"adjacency": "add_remove", "protects": PROTECTS_PRESENCE, "replacement": REPLACED})
ADD_REMOVE = RESULT.model_copy(update={"request": ASKED.model_copy(update={"n": RESULT.n}), "privacy": ADDED})


def replaced(units: int) -> ChargedLoss:
    return ChargedLoss(rho_units=str(units), loss_delta=0.0)


def add_remove(**changes: object) -> Callable[[], RegressionResult]:
    return lambda: ADD_REMOVE.model_copy(update={"privacy": ADDED.model_copy(update=changes)})


def test_result_under_add_remove_states_both_losses_and_is_accepted() -> None:
    found = verify_regression(signed(ADD_REMOVE)).document
    assert found.privacy.cost == Cost(Loss(RHO), Loss(Rho(RHO.units * 9 // 4)))
    assert RESULT.privacy.cost == Cost(RESULT.privacy.loss)


def staged(adjacency: Adjacency = Adjacency.REPLACE_ONE) -> RegressionResult:
    """Five columns, of which two are numbers: the age and the charges."""
    stages = plan_two_stages(measured_attributes(TARGET, FEATURES), n=RESULT.n, rho=RHO, adjacency=adjacency)
    figures = {"sigmas": tuple(map(float, stages.sigmas)), "sums": (1.0,) * stages.first.size, "moments": (1.0,) * 20}
    whole = RESULT if adjacency is Adjacency.REPLACE_ONE else ADD_REMOVE
    return whole.model_copy(update={"method": "two_stage", "published": figures})


def staged_with(**changes: object) -> Callable[[], RegressionResult]:
    return lambda: staged().model_copy(update=changes)


def published_with(name: str, *values: float) -> Callable[[], RegressionResult]:
    return lambda: staged().model_copy(update={"published": {**staged().published, name: values}})


def charged_in_stages(units: int) -> RegressionResult:
    added = ADDED.model_copy(update={"replacement": replaced(units)})
    return staged(Adjacency.ADD_REMOVE).model_copy(update={"privacy": added})


def test_two_stages_with_the_noise_of_their_loss_are_accepted_under_either_adjacency() -> None:
    found = verify_regression(signed(staged()))
    assert found.document == staged()
    assert "noise and the cost of both stages" in found.findings[-1]
    charge = -(-RHO.units * WIDER.numerator // WIDER.denominator)
    assert verify_regression(signed(charged_in_stages(charge))).document.privacy.loss.rho == RHO


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        (with_coefficient(1, original=9.0), "coefficient of age"),
        (with_coefficient(0, original=9.0), "intercept"),
        (with_coefficient(2, label="smoker[no]"), "coefficient of smoker"),
        (with_changes(coefficients=RESULT.coefficients[:4]), "not those of the features"),
        (with_changes(features=FEATURES[:2]), "schemas"),
        (with_changes(target=FEATURES[0]), "schemas"),
        (with_changes(request=ASKED.model_copy(update={"method": "adassp"})), "another method"),
        (with_changes(request=ASKED.model_copy(update={"calibration": "classical"})), "another calibration"),
        (with_privacy(epsilon=0.5), "does not follow from the loss"),
        (with_changes(privacy=BY_ZCDP), "does not follow from the loss"),
        (with_changes(calibration="zcdp"), "does not follow from the loss"),
        (with_changes(privacy=PROVED), "does not follow from the loss"),
        (with_changes(privacy=SUBAGG), "does not follow from the loss"),
        (with_changes(privacy=CHEAPER), "does not follow from the loss"),
        (with_changes(method="adaops", privacy=CHEAPER), "does not follow from the loss"),
        (with_changes(method="objpert", privacy=SUBAGG), "does not follow from the loss"),
        (with_changes(method="objpert"), "does not follow from the loss"),
        (with_privacy(rho_units="1"), "does not follow from the loss"),
        (with_privacy(loss_delta=1e-7), "does not follow from the loss"),
        (with_privacy(delta=1e-5), "another delta"),
        (with_changes(request=ASKED.model_copy(update={"epsilon": 0.9})), "more epsilon than was asked"),
        (add_remove(replacement=None), "its loss under replace_one is not one"),
        (add_remove(replacement=replaced(RHO.units - 1)), "its loss under replace_one is not one"),
        (add_remove(replacement=replaced(RHO.units * 4 + 1)), "its loss under replace_one is not one"),
        (add_remove(rho_units=str(RHO.units * 9 // 4)), "does not follow from the loss"),
        (add_remove(protects=PRIVACY.protects), "what its adjacency protects"),
        (add_remove(adjacency="replace_one"), "another adjacency"),
        (lambda: ADD_REMOVE.model_copy(update={"n": RESULT.n + 1}), "another number of rows"),
        (with_privacy(replacement=REPLACED), "two losses"),
        (with_privacy(adjacency="add_remove"), "another adjacency"),
        (lambda: asked_for(bounds={"age": (30.0, 70.0)}), "the bounds of age"),
        (lambda: asked_for(bounds={"smoker": (0.0, 1.0)}), "the bounds of smoker"),
        (lambda: asked_for(intercept=False), "it has an intercept"),
        (lambda: asked_for(mapping="per_row"), "coefficient of"),
        (staged_with(published={}), "figures of both stages"),
        (published_with("sums", *[1.0] * 6), "figures of both stages"),
        (published_with("moments", *[1.0] * 21), "figures of both stages"),
        (published_with("more", 1.0), "figures of both stages"),
        (published_with("sigmas", *(s - 1 for s in staged().published["sigmas"])), "noise of its stages"),
        (staged_with(privacy=BY_ZCDP, calibration="zcdp"), "noise of its stages"),
        (staged_with(n=1 << 24), "noise of its stages"),
        (staged_with(request=ASKED.model_copy(update={"mapping": "per_row_with_label"})), "with a mapping"),
        (staged_with(request=ASKED.model_copy(update={"row_norm": 1.0})), "with a mapping"),
        (staged_with(request=ASKED.model_copy(update={"label_bound": 0.5})), "with a mapping"),
        (lambda: charged_in_stages(2 * RHO.units), "both stages cost more under replace_one"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(forged: Callable[[], RegressionResult], said: str) -> None:
    with pytest.raises(VerificationError, match=said):
        verify_regression(signed(forged()))


def asked_for(**changes: object) -> RegressionResult:
    return RESULT.model_copy(update={"request": ASKED.model_copy(update=changes)})


def test_bounds_no_intercept_and_mappings_are_accepted_where_the_result_has_them() -> None:
    narrow = (NumericAttribute(name="age", lower=30, upper=70), *FEATURES[1:])
    for mapping in get_args(RowMapping):
        result = asked_for(bounds={"age": (30.0, 70.0)}, intercept=False, mapping=mapping).model_copy(
            update={
                "features": narrow,
                "coefficients": coefficients_of((0.0, *ENCODED[1:]), TARGET, narrow, mapping=mapping),
            }
        )
        found = verify_regression(signed(result)).document
        assert (found.coefficients[0].original is None) == (mapping == "per_row")
    halved = coefficients_of(ENCODED, TARGET, narrow)[1].original
    whole = coefficients_of(ENCODED, TARGET, FEATURES)[1].original
    assert halved is not None
    assert whole is not None
    assert halved == pytest.approx(whole * 30 / 20)


def test_coefficients_in_original_units_predict_what_the_encoded_ones_do_also_where_a_cell_is_missing() -> None:
    marked, [y] = tuple(feature.model_copy(update={"missing": "indicator"}) for feature in FEATURES), TARGET.columns
    encoded = (0.1, 0.5, -0.7, -0.2, 0.4, 0.05, 0.3, 0.2)
    original = [one.original or 0.0 for one in coefficients_of(encoded, TARGET, marked)]
    # age, its mark; smoker, its mark; blood A, B and its mark, encoded and in original units: first levels, and gaps
    for rows in (((1, 0, -1, 0, 0, 0, 0), (80, 0, 0, 0, 0, 0, 0)), ((0, 1, 0, 1, 0, 0, 1), (50, 1, 0, 1, 0, 0, 1))):
        inside, outside = (np.dot(b, (1, *row)) for b, row in zip((encoded, original), rows, strict=True))
        assert outside == pytest.approx(y.offset + y.scale * inside)


def test_question_is_the_same_whether_options_are_left_out_or_said_as_they_are() -> None:
    asked = json.loads(encode(ASKED))
    short = {name: value for name, value in asked.items() if name not in {"bounds", "mapping", "intercept"}}
    assert decode(RegressionRequest, json.dumps(short).encode()).id == ASKED.id
    other = ASKED.model_copy(update={"mapping": "per_row"})
    assert decode_canonical(RegressionRequest, encode(other)) == other


def test_document_of_another_kind_key_or_signature_is_refused() -> None:
    other = sign_bytes(encode(RESULT), kind="block", key=KEY)
    with pytest.raises(DocumentError, match="expected a document"):
        verify_regression(encode(SignedDocument(signing_key=KEY.verifying_key.raw.hex(), envelope=other)))
    with pytest.raises(VerificationError, match="not with the one expected"):
        verify_regression(signed(RESULT), trusted_party=OTHER.fingerprint)
    with pytest.raises(SignatureError):
        verify_regression(
            signed(RESULT).replace(KEY.verifying_key.raw.hex().encode(), OTHER.verifying_key.raw.hex().encode())
        )


OUTSIDE: dict[str, tuple[object, ...]] = {
    "features": (("age", "age"), ("charges",), ()),
    "epsilon": (0.0, float("inf"), 1e154),
    "delta": (1.0,),
    "row_norm": (-1.0, 5e299, 1e-320),  # whose square is no float, nor what it is divided by
    "label_bound": (1.5, 1e-320),
    "bounds": ({"height": (0.0, 1.0)}, {"age": (0.0, float("inf"))}, {"age": (0.0,)}),
    "mapping": ("largest",),
    "intercept": (1,),
    "nonce": ("0",),
    "adjacency": ("add_remove",),
    "n": (0,),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, each in OUTSIDE.items() for value in each])
def test_request_outside_its_domain_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        RegressionRequest.model_validate({**ASKED.model_dump(), field: value})


def test_request_is_named_by_all_of_its_fields() -> None:
    others: tuple[dict[str, object], ...] = (
        {"nonce": "1" * 64},
        {"epsilon": 0.9},
        {"features": ("smoker", "age", "blood")},
        {"row_norm": 1.0},
        {"n": 100},
        {"n": 101},
        {"bounds": {"age": (30.0, 70.0)}},
        {"mapping": "per_row"},
        {"intercept": False},
    )
    names = {ASKED.id, *(ASKED.model_copy(update=changes).id for changes in others)}
    assert len(names) == 1 + len(others)


def test_charge_covers_a_result_that_states_the_same_loss_also_where_it_was_adopted() -> None:
    result = RESULT.model_copy(update={"method": "adaops", "privacy": PROVED})
    assert is_charged(result, PROVED.cost)
    assert is_charged(result, PROVED.cost.approximate())
    assert not is_charged(result, Cost(replace(PROVED.loss, delta=0.0)))
    assert not is_charged(result, Cost(PROVED.loss, PROVED.loss))


def test_longest_result_that_can_be_asked_for_is_no_longer_than_its_kind_may_be() -> None:
    names = tuple(f"laboratory value {i:03} ".ljust(80, "x") for i in range(256))
    features = tuple(NumericAttribute(name=name, lower=0, upper=100, unit="millimoles per litre") for name in names)
    row = (LONGEST,) * 257
    public = PublicSecondMoments.model_construct(rows=4000, features=(row,) * 257, label=0.3)
    longest = RESULT.model_copy(
        update={
            "request": ASKED.model_copy(update={"features": names, "public": public}),
            "features": features,
            "coefficients": tuple(
                Coefficient(name=name, label=name, encoded=LONGEST, original=LONGEST) for name in (names[0], *names)
            ),
            "published": {"second_moment": row * 257, "restored_moment": row * 257, "cross_moment": row},
        }
    )
    assert len(encode(longest)) < RegressionResult.largest_bytes
