"""`report.json` (architecture.md, commands)."""

from collections.abc import Mapping
from typing import Any

from commingle.services.simulation.dataset import Dataset
from commingle.services.simulation.evaluate import Reference, Score
from commingle.services.simulation.fitting import Judged, Unfit
from commingle.services.simulation.rounds import Outcome
from commingle.shared.documents.schema import encoded_columns


def release_report(
    outcome: Outcome, judged: tuple[Judged, ...], unfit: list[Unfit], reference: Reference
) -> dict[str, Any]:
    """One entry of `releases`. `rho_subject` and `epsilon_subject` are the sums over all parties, under replace_one."""
    spec, privacy = outcome.release.spec, outcome.release.privacy
    subject = privacy.per_subject.replace_one
    return {
        "mechanism": spec.mechanism,
        "epsilon": spec.epsilon,
        "delta": spec.delta,
        "rho_subject": subject.rho,
        "epsilon_subject": subject.epsilon,
        "adjacency": spec.adjacency,
        "row_norm": spec.parties[0].row_norm,
        "k": spec.k,
        "rows": outcome.release.prepared.rows,
        "id": outcome.release.id,
        "folder": outcome.planned.folder,
        "estimators": [_estimator(fit) for fit in judged],
        "left_out": {entry.name: entry.reason for entry in unfit},
        "verdict": verdict(
            f"{spec.mechanism} at epsilon {spec.epsilon:g}",
            {fit.name: fit.score for fit in judged if fit.name != "constant"},
            reference.constant.test_mse,
        ),
        "seconds": {name: round(seconds, 3) for name, seconds in outcome.seconds.items()},
    }


def full_report(
    dataset: Dataset,
    releases: list[dict[str, Any]],
    reference: Reference,
    *,
    n: int,
    seconds: dict[str, float],
    warnings: list[str],
) -> dict[str, Any]:
    """The whole report. `n` counts training rows, `k` is that of the first release that has one."""
    ols, constant = reference.score(reference.coefficients), reference.constant
    return {
        "n": n,
        "k": next((release["k"] for release in releases if release["k"] is not None), None),
        "parties": [
            {
                "name": party.name,
                "attributes": [attribute.name for attribute in party.attributes],
                "columns": len(encoded_columns(party.attributes)),
            }
            for party in dataset.parties
        ],
        "target": dataset.target,
        "releases": releases,
        "reference": {
            "ols_test_mse": ols.test_mse,
            "ols_test_r2": ols.test_r2,
            "constant_test_mse": constant.test_mse,
            "constant_test_r2": constant.test_r2,
            "ols_coefficients": reference.coefficients,
            "n_test": len(reference.test_y),
        },
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "warnings": warnings,
    }


def verdict(what: str, scores: Mapping[str, Score], mean_mse: float) -> str:
    """A plain sentence: which fits beat predicting the mean, and which do not."""
    losing = [name for name, score in scores.items() if score.test_mse >= mean_mse]
    winning = [name for name in scores if name not in losing]
    mean = f"predicting the mean (test MSE {mean_mse:.4g})"
    if not winning:
        return f"{what} does not beat {mean}, whatever the estimator: too much noise for so few people."
    if not losing:
        return f"{what} beats {mean} with every estimator."
    verb = "does" if len(losing) == 1 else "do"
    return f"{what}: {', '.join(losing)} {verb} not beat {mean}; {', '.join(winning)} did this time."


def _estimator(fit: Judged) -> dict[str, Any]:
    return {
        "name": fit.name,
        "coefficients": fit.coefficients,
        "standard_errors": fit.standard_errors,
        "intervals": fit.intervals,
        "relative_error": fit.score.relative_error,
        "test_mse": fit.score.test_mse,
        "test_r2": fit.score.test_r2,
        "warnings": list(fit.warnings),
    }
