"""Fuzzing of regressions: what an agent is asked, and what it published, as anybody verifies it."""

from collections.abc import Mapping
from datetime import UTC, datetime

from commingle.party_agent.regression.plan import plan_regression
from commingle.shared.documents.keys import SigningKey
from commingle.shared.documents.model import decode, encode
from commingle.shared.documents.regression import (
    PublicSecondMoments,
    RegressionRequest,
    RegressionResult,
    coefficients_of,
    verify_regression,
)
from commingle.shared.documents.schema import Attribute, BinaryAttribute, CategoricalAttribute, NumericAttribute
from commingle.shared.documents.statements import SignedDocument
from tests.tools.fuzz_mutations import Target
from tests.world.documents import sign_bytes

_N = 1000
_ATTRIBUTES: tuple[Attribute, ...] = (
    NumericAttribute(name="charges", lower=0, upper=100),
    NumericAttribute(name="age", lower=20, upper=80),
    BinaryAttribute(name="smoker", levels=("no", "yes")),
    CategoricalAttribute(name="blood", levels=("0", "A", "B")),
)
_PUBLIC = PublicSecondMoments(rows=50, features=((1.0, 0.1, 0.2), (0.1, 0.4, 0.0), (0.2, 0.0, 1.0)), label=0.3)
_ASKED = RegressionRequest(
    dataset="main", target="charges", features=("age", "smoker"), epsilon=1.0, delta=1e-6, nonce="0" * 64
)


def targets(key: SigningKey) -> Mapping[str, Target]:
    """By name."""
    choices: tuple[dict[str, object], ...] = (
        {"method": "auto"},
        {"method": "two_stage", "adjacency": "add_remove", "n": _N},
        {"method": "dp_pmtolse", "public": _PUBLIC},
        {"method": "adassp", "row_norm": 0.5},
        {"adjacency": "add_remove", "n": _N, "bounds": {"age": (30.0, 70.0)}, "mapping": "per_row_with_label"},
    )
    requests = [_ASKED.model_copy(update=choice) for choice in choices]
    raw = key.verifying_key.raw.hex()

    def verify(data: bytes) -> None:
        verify_regression(
            encode(SignedDocument(signing_key=raw, envelope=sign_bytes(data, kind="regression", key=key)))
        )

    return {
        "regression asked": Target([encode(request) for request in requests], _plan),
        "regression shown": Target([encode(_result(request)) for request in requests], verify),
    }


def _plan(data: bytes) -> None:
    """As the agent does before it looks at policy and budget."""
    request = decode(RegressionRequest, data)
    plan = plan_regression(request, _ATTRIBUTES, _N)
    _ = request.id, plan.promise


def _result(request: RegressionRequest) -> RegressionResult:
    plan = plan_regression(request, _ATTRIBUTES, _N)
    task = plan.task
    published: dict[str, tuple[float, ...]] = {"gram": (1.0, 0.5)}
    if task.stages is not None:
        published = {
            "sigmas": task.stages.sigmas,
            "sums": (1.0,) * (5 if request.n is None else 6),
            "moments": (1.0,) * 9,
        }
    return RegressionResult(
        party="clinic",
        request=request,
        method=plan.name,
        calibration=task.privacy.calibration.value,
        reason=plan.reason,
        target=task.target,
        features=task.features,
        n=_N,
        coefficients=coefficients_of((0.1, 0.5, -0.2), task.target, task.features),
        published=published,
        privacy=plan.promise,
        created=datetime(2026, 1, 2, tzinfo=UTC),
        ledger_head="0" * 64,
        software="fuzz",
    )
