"""What speaks against a regression by the party's own policy (`policy.json`); empty: nothing does."""

from dataclasses import dataclass
from datetime import datetime

from commingle.party_agent.policy import Finding, Policy, closed, over_cap
from commingle.party_agent.regression.plan import Plan
from commingle.shared.documents.regression import RegressionRequest
from commingle.shared.dp.accounting import Loss


@dataclass(frozen=True, slots=True)
class Used:
    """What has been spent already.

    Attributes:
        dataset: sum over the data set's charges.
        today: releases approved and regressions paid for within 24 hours.
        delta: of the ledger's cap, at which caps on epsilon are meant.
    """

    dataset: Loss
    today: int
    delta: float


def examine_regression(
    request: RegressionRequest, plan: Plan, policy: Policy, used: Used, *, now: datetime
) -> tuple[Finding, ...]:
    """Findings, each naming its rule."""
    own, name, most = policy.regressions, plan.task.method.name, policy.max_releases_per_day
    epsilon = min(own.max_epsilon, policy.max_epsilon)
    over = over_cap(policy.dataset_caps, request.dataset, used.dataset + plan.task.loss, delta=used.delta)
    checks = (
        ("regressions.methods", name in own.methods, f"method {name} is not allowed"),
        ("adjacencies", request.adjacency in policy.adjacencies, f"adjacency {request.adjacency} is not allowed"),
        (
            "regressions.floating_point_noise",
            plan.exact_noise or own.floating_point_noise,
            f"the noise of {name} is floating point, which no proof covers (Mironov 2012): its digits may tell of rows",
        ),
        ("regressions.max_epsilon", request.epsilon <= epsilon, f"epsilon {request.epsilon:g} > {epsilon:g}"),
        ("max_delta", request.delta <= policy.max_delta, f"delta {request.delta:g} > {policy.max_delta:g}"),
        ("min_n", plan.task.n >= policy.min_n, f"{plan.task.n} subjects are fewer than {policy.min_n}"),
        ("dataset_caps", over is None, over or ""),
        (
            "max_releases_per_day",
            most is None or used.today < most,
            f"{used.today} releases and regressions were paid for within 24 hours, and {most} are allowed",
        ),
    )
    findings = tuple(Finding(rule, message, "policy") for rule, holds, message in checks if not holds)
    return (*findings, *closed(policy, now))
