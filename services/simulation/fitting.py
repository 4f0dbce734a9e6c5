"""Every estimator's fit of a release, computed by the learner over HTTP and judged on the held-out rows."""

import json
from dataclasses import dataclass
from typing import Any

import httpx

from commingle.services.fit import ESTIMATORS
from commingle.services.simulation.evaluate import Reference, Score
from commingle.shared.runtime.errors import RemoteProblemError
from commingle.shared.runtime.remote import call, json_of

_TIMEOUT_SECONDS = 120.0
_UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True)
class Judged:
    """One fit and what it is worth.

    Attributes:
        coefficients, standard_errors: by term, in original units; None where there is no error.
        intervals: by term, two ends.
    """

    name: str
    coefficients: dict[str, float]
    standard_errors: dict[str, float | None]
    intervals: dict[str, list[float | None]]
    warnings: tuple[str, ...]
    score: Score


@dataclass(frozen=True, slots=True)
class Unfit:
    """An estimator that this release does not allow."""

    name: str
    reason: str


def fit_all(learner: str, release: str, target: str, reference: Reference) -> tuple[tuple[Judged, ...], list[Unfit]]:
    """All estimators that can be computed, and those that cannot.

    Raises:
        RemoteError: the learner does not answer.
    """
    judged, unfit = [], []
    with httpx.Client(base_url=learner, transport=httpx.HTTPTransport(), timeout=_TIMEOUT_SECONDS) as http:
        for name in ESTIMATORS:
            try:
                response = call(
                    http,
                    "POST",
                    f"/v1/releases/{release}/fits",
                    content=json.dumps({"target": target, "estimator": name}).encode(),
                    headers={"content-type": "application/json"},
                )
            except RemoteProblemError as error:
                if error.status != _UNPROCESSABLE:
                    raise
                unfit.append(Unfit(name, str(error)))
            else:
                judged.append(_judged(json_of(response), reference))
    return tuple(judged), unfit


def _judged(fit: Any, reference: Reference) -> Judged:  # noqa: ANN401 - JSON
    def by_term(values: list[Any]) -> dict[str, Any]:
        return dict(zip(fit["terms"], values, strict=True))

    coefficients = by_term(fit["coefficients"])
    return Judged(
        name=fit["estimator"],
        coefficients=coefficients,
        standard_errors=by_term(fit["standard_errors"]),
        intervals=by_term(fit["intervals"]),
        warnings=tuple(fit["warnings"]),
        score=reference.score(coefficients),
    )
