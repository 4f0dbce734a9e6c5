"""From a request and a public schema to what will be computed, what it costs, and what speaks against it; pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

import numpy as np
from pydantic import ValidationError

from commingle.party_agent.home.policy import Finding, Policy, Usage, outside_hours, over_cap
from commingle.party_agent.private.regression.measuring import GAUSSIAN, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import EXACT_ROWS, RowMap
from commingle.party_agent.private.regression.regress import (
    METHODS,
    STAGED,
    WITH_PUBLIC_ROWS,
    ExactMethod,
    FloatingMethod,
    PrivateRegression,
    PublicMethod,
    StagedMethod,
)
from commingle.party_agent.private.regression.sums import PublicMoments, stages_of
from commingle.party_agent.regression.forecasts import Outlook, RegressionDesign, assumed_moment, choose, predict
from commingle.shared.documents.manifest import PROTECTS
from commingle.shared.documents.model import explain
from commingle.shared.documents.regression import (
    PROTECTS_PRESENCE,
    RegressionMethod,
    RegressionPrivacy,
    RegressionRequest,
)
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.documents.statements import ChargedLoss
from commingle.shared.dp.calibration import stated_epsilon
from commingle.shared.dp.sensitivity import Adjacency
from commingle.shared.errors import ParameterError, SpecError
from commingle.shared.text import counted

Method = ExactMethod | FloatingMethod | PublicMethod | StagedMethod
_EVERY: Mapping[str, Method] = {**STAGED, **METHODS, **WITH_PUBLIC_ROWS}
_UNIFORM = 1 / 3
_WORST_CONDITION = 1e8


@dataclass(frozen=True, slots=True)
class RegressionPlan:
    """What a request comes to; without an outlook for methods that are not predicted."""

    task: PrivateRegression
    name: RegressionMethod
    reason: str
    outlook: Outlook | None

    @property
    def exact_noise(self) -> bool:
        return not isinstance(self.task.method, FloatingMethod)

    @property
    def promise(self) -> RegressionPrivacy:
        """What it costs and guarantees: by its rho, or by the method's own proof at what was asked for."""
        task, privacy = self.task, self.task.privacy
        own, other = task.cost.loss, task.cost.replacement
        by_rho = privacy.calibration in GAUSSIAN and not own.delta
        stated = stated_epsilon(privacy.calibration, float(own.rho), privacy.delta)
        return RegressionPrivacy(
            adjacency="replace_one" if privacy.replaces else "add_remove",
            protects=PROTECTS[privacy.adjacency] if privacy.replaces else PROTECTS_PRESENCE,
            rho_units=str(own.rho.units),
            loss_delta=own.delta,
            epsilon=stated if by_rho else privacy.epsilon,
            delta=privacy.delta,
            guarantee=task.method.guarantee,
            exact_noise=self.exact_noise,
            replacement=None if other is None else ChargedLoss.of(other),
        )

    def epsilons(self, *, replacement: bool) -> tuple[tuple[Adjacency, float], ...]:
        """What it costs at its delta as caps count it, each with its unit."""
        privacy, other = self.task.privacy, self.task.cost.replacement
        own = (self.task.cost.unit, privacy.epsilon)
        if not replacement or other in {None, self.task.cost.loss}:
            return (own,)
        return (own, (Adjacency.REPLACE_ONE, self.replacement_epsilon))

    @property
    def replacement_epsilon(self) -> float:
        """Under replace_one, at its delta: of groups of two, or by its rho."""
        privacy, other = self.task.privacy, self.task.cost.replaced
        if other == self.task.cost.loss:
            return privacy.epsilon
        return 2 * privacy.epsilon if other.delta else other.epsilon(privacy.delta)


def require_unit(request: RegressionRequest, dataset: str, subjects: str) -> None:
    """Raise SpecError if a data set of such subjects is not regressed as it is asked for."""
    if request.keyed is not (subjects == "keyed"):
        raise SpecError(
            f"data set {dataset} has {subjects} people, "
            + ("whose number everybody knows" if request.keyed else "whose number is private"),
            remedy="Leave n out." if request.keyed else "Give n, a public figure of about how many there are: --n.",
        )


def attributes_of(
    request: RegressionRequest, attributes: Iterable[Attribute]
) -> tuple[Attribute, tuple[Attribute, ...]]:
    """Target and features of a request among a data set's attributes, with the bounds that the request gives them."""
    known = {attribute.name: attribute for attribute in attributes}
    if missing := [name for name in (request.target, *request.features) if name not in known]:
        raise SpecError(
            f"the data set has no attribute {missing[0]!r}", remedy="List them: commingle party datasets list"
        )
    narrowed = {name: _within(known[name], *bounds) for name, bounds in request.bounds.items()}
    target, *features = ({**known, **narrowed}[name] for name in (request.target, *request.features))
    return target, tuple(features)


def _within(attribute: Attribute, lower: float, upper: float) -> Attribute:
    if not isinstance(attribute, NumericAttribute) or lower < attribute.lower or upper > attribute.upper:
        raise SpecError(
            f"bounds of {attribute.name} that are not within those it was registered with",
            remedy="Give narrower bounds, of numeric attributes only; see commingle party datasets list.",
        )
    try:
        return NumericAttribute.model_validate({**attribute.model_dump(), "lower": lower, "upper": upper})
    except ValidationError as error:
        raise SpecError(f"bounds of {attribute.name}: {explain(error)}", remedy="Give lower, then upper.") from None


def plan_regression(
    request: RegressionRequest,
    attributes: Iterable[Attribute],
    n: int,
    *,
    among: Collection[RegressionMethod] = get_args(RegressionMethod),
) -> RegressionPlan:
    """What this request comes to on a data set of `n` rows with these attributes; auto chooses `among` methods.

    For a keyed data set nothing but a refusal of 2^23 rows depends on `n`: the request's public figure counts instead.

    Raises:
        SpecError: an attribute that is not there, bounds that are not its own, a target of several columns, moments of
            another shape, too many rows, a method that needs their exact number if that is private, or no method to
            choose from.
        ParameterError: epsilon or delta outside their domains, or a calibration that the method is not proved with.
    """
    target, features = attributes_of(request, attributes)
    if target.missing != "error" or len(target.columns) > 1:
        raise SpecError(
            f"{target.name} " + ("has three levels or more" if target.missing == "error" else "may be missing"),
            remedy="Choose a numeric or two-valued target that is never missing; register the rows that have it.",
        )
    if n >= EXACT_ROWS:
        raise SpecError("the data set has too many rows for exact sums", remedy="Use fewer than 2^23 rows.")
    n = n if request.n is None else request.n
    public = _public(request, columns=request.intercept + sum(len(f.columns) for f in features))
    rows, rough = rows_of(request), Privacy(request.epsilon, request.delta, request.adjacency)
    design = _design(request, rows, features, public, n)
    able = [name for name in among if name not in STAGED or not request.maps_rows]
    asked = request.method
    name, reason = choose(design, rough, among=able) if asked == "auto" else (asked, "asked for")
    method = _EVERY[name]
    if isinstance(method, PublicMethod) and public is None:
        raise SpecError(f"{method.name} needs public rows", remedy="Give --public FILE, or choose another method.")
    if isinstance(method, StagedMethod) and request.maps_rows:
        raise SpecError(
            f"{method.name} maps rows itself",
            remedy="Leave out --mapping, --row-norm and --label-bound, and narrow --bounds instead.",
        )
    if method.counted and not rough.replaces:
        raise SpecError(
            f"{method.name} needs the exact number of rows, which a keyed data set keeps private",
            remedy="Choose another method.",
        )
    privacy = replace(rough, calibration=_calibration(method, request.calibration))
    task = PrivateRegression(
        method=method,
        privacy=privacy,
        target=target,
        features=features,
        rows=rows,
        label_bound=request.label_bound,
        public=public if isinstance(method, PublicMethod) else None,
        n=n,
        stages=stages_of(privacy, target, features, n) if isinstance(method, StagedMethod) else None,
    )
    return RegressionPlan(task, name, reason, predict(name, design, rough))


def rows_of(request: RegressionRequest) -> RowMap:
    return RowMap(request.mapping, request.intercept, request.row_norm)


def _calibration(method: Method, asked: str | None) -> NoiseCalibration:
    offered = method.calibrations
    if asked is None:
        return NoiseCalibration.ANALYTIC if NoiseCalibration.ANALYTIC in offered else min(offered)
    if asked not in offered:
        raise ParameterError(
            f"{method.name} is not offered with calibration {asked}, under which its guarantee is not proved here",
            remedy=f"Use one of: {', '.join(sorted(offered))}.",
        )
    return NoiseCalibration(asked)


def _public(request: RegressionRequest, *, columns: int) -> PublicMoments | None:
    if request.public is None:
        return None
    if [len(row) for row in request.public.features] != [columns] * columns:
        raise SpecError(f"the public moments are not {columns} x {columns}", remedy="Make them by --public FILE.")
    moments = np.array(request.public.features, np.float64)
    ones = not request.intercept or request.mapping != "maximum" or bool(np.isclose(moments[0, 0], 1))
    symmetric = np.array_equal(moments, moments.T)
    if not (ones and symmetric and np.linalg.cond(moments) <= _WORST_CONDITION):
        raise SpecError(
            "the public moments have no intercept of ones, are not symmetric, or have a condition number above "
            f"{_WORST_CONDITION:g}",
            remedy="Use more public rows than columns, or leave out a column that follows from others.",
        )
    return PublicMoments(moments, request.public.label)


def _design(
    request: RegressionRequest, rows: RowMap, features: tuple[Attribute, ...], public: PublicMoments | None, n: int
) -> RegressionDesign:
    bound = rows.bound(len(features))
    if public is None or request.public is None:
        moment, shrunk = assumed_moment(features, rows)
        label = _UNIFORM * request.label_bound**2 * (shrunk if request.mapping == "per_row_with_label" else 1.0)
        return RegressionDesign(moment, label, n, bound, request.label_bound, intercept=request.intercept)
    return RegressionDesign(
        public.features, public.label, n, bound, request.label_bound, request.public.rows, request.intercept
    )


def examine_regression(
    request: RegressionRequest, plan: RegressionPlan, policy: Policy, usage: Usage, *, now: datetime
) -> tuple[Finding, ...]:
    own, name, most = policy.regressions, plan.task.method.name, policy.max_releases_per_day
    most_epsilon = min(own.max_epsilon, policy.max_epsilon)
    unit, epsilon = max(plan.epsilons(replacement=policy.replacement), key=lambda one: one[1])
    caps = (
        over_cap(policy.dataset_caps, name, lost + plan.task.cost, delta=usage.delta, policy=policy)
        for name, lost in sorted(usage.datasets.items())
    )
    over = next(filter(None, caps), None)
    checks = (
        ("regressions.methods", name in own.methods, f"method {name} is not allowed"),
        (
            "regressions.floating_point_noise",
            plan.exact_noise or own.floating_point_noise,
            f"the noise of {name} is floating point, which no proof covers (Mironov 2012): its digits may tell of rows",
        ),
        ("regressions.max_epsilon", epsilon <= most_epsilon, f"epsilon {epsilon:.6g} ({unit}) > {most_epsilon:g}"),
        ("max_delta", request.delta <= policy.max_delta, f"delta {request.delta:g} > {policy.max_delta:g}"),
        ("approvals", policy.approvals == 1, "two people have to approve here, and a regression is decided by one"),
        ("min_n", plan.task.n >= policy.min_n, f"there are fewer people than {policy.min_n}"),
        ("dataset_caps", over is None, over or ""),
        (
            "max_releases_per_day",
            most is None or usage.approved_today < most,
            f"{counted(usage.approved_today, 'payment')} within 24 hours, and the policy allows {most}",
        ),
    )
    findings = tuple(Finding(rule, message, "policy") for rule, holds, message in checks if not holds)
    return (*findings, *outside_hours(policy, now))
