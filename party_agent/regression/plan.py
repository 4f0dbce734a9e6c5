"""From a request and a public schema to what will be computed, what it costs and what it will be worth; pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

import numpy as np

from commingle.party_agent.private.regression.bridge import Task
from commingle.party_agent.private.regression.calibration import Calibration, Privacy
from commingle.party_agent.private.regression.methods import (
    METHODS,
    WITH_PUBLIC_ROWS,
    ExactMethod,
    FloatingMethod,
    PublicMethod,
)
from commingle.party_agent.private.regression.pmt import PublicMoments
from commingle.party_agent.regression.outlook import Choice, Design, Outlook, assumed_moment, choose, predict
from commingle.shared.documents.errors import SpecError
from commingle.shared.documents.regression import RegressionMethod, RegressionPrivacy, RegressionRequest
from commingle.shared.documents.schema import Attribute
from commingle.shared.dp.errors import ParameterError

_EVERY: Mapping[str, ExactMethod | FloatingMethod | PublicMethod] = {**METHODS, **WITH_PUBLIC_ROWS}
_UNIFORM = 1 / 3
_MOST_ROWS = 1 << 23
_WORST_CONDITION = 1e8


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request comes to.

    Attributes:
        name: the method's.
        reason: why this method.
        outlook: None for methods that are not predicted.
    """

    task: Task
    name: RegressionMethod
    reason: str
    outlook: Outlook | None

    @property
    def exact_noise(self) -> bool:
        """Whether noise is drawn exactly."""
        return not isinstance(self.task.method, FloatingMethod)

    @property
    def promise(self) -> RegressionPrivacy:
        """What it costs and guarantees: by its rho, or by the method's own proof at what was asked for."""
        task, privacy = self.task, self.task.privacy
        by_rho = privacy.calibration in {Calibration.ZCDP, Calibration.CLASSICAL} and not task.loss.delta
        return RegressionPrivacy(
            rho_units=str(task.loss.rho.units),
            loss_delta=task.loss.delta,
            epsilon=task.loss.epsilon(privacy.delta) if by_rho else privacy.epsilon,
            delta=privacy.delta,
            guarantee=task.method.guarantee,
            exact_noise=self.exact_noise,
        )


def attributes_of(
    request: RegressionRequest, attributes: Iterable[Attribute]
) -> tuple[Attribute, tuple[Attribute, ...]]:
    """Target and features of a request among a data set's attributes. Raises SpecError where one is not there."""
    known = {attribute.name: attribute for attribute in attributes}
    if missing := [name for name in (request.target, *request.features) if name not in known]:
        raise SpecError(
            f"the data set has no attribute {missing[0]!r}", remedy="List them: commingle party datasets list"
        )
    return known[request.target], tuple(known[name] for name in request.features)


def plan_regression(
    request: RegressionRequest,
    attributes: Iterable[Attribute],
    n: int,
    *,
    among: Collection[RegressionMethod] = get_args(RegressionMethod),
) -> Plan:
    """What this request comes to on a data set of `n` rows with these attributes; auto chooses `among` methods.

    Raises:
        SpecError: an attribute that is not there, a target of several columns, moments of another shape, too many rows,
            or no method to choose from.
        ParameterError: epsilon or delta outside their domains, or a calibration that the method is not proved with.
    """
    target, features = attributes_of(request, attributes)
    if len(target.columns) > 1:
        raise SpecError(f"{target.name} has three levels or more", remedy="Choose a numeric or two-valued target.")
    if n >= _MOST_ROWS:
        raise SpecError(f"{n} rows are too many for exact sums", remedy="Use fewer than 2^23 rows.")
    public = _public(request, columns=1 + sum(len(f.columns) for f in features))
    rough = Privacy(request.epsilon, request.delta)
    design = _design(request, features, public, n)
    choice = choose(design, rough, among=among) if request.method == "auto" else Choice(request.method, "asked for")
    method = _EVERY[choice.method]
    if isinstance(method, PublicMethod) and public is None:
        raise SpecError(f"{method.name} needs public rows", remedy="Give --public FILE, or choose another method.")
    privacy = Privacy(request.epsilon, request.delta, calibration=_calibration(method, request.calibration))
    task = Task(
        method=method,
        privacy=privacy,
        loss=method.loss(privacy),
        target=target,
        features=features,
        row_norm=request.row_norm,
        label_bound=request.label_bound,
        public=public if isinstance(method, PublicMethod) else None,
        n=n,
    )
    return Plan(task, choice.method, choice.reason, predict(choice.method, design, rough))


def _calibration(method: ExactMethod | FloatingMethod | PublicMethod, asked: str | None) -> Calibration:
    """Under analytic the guarantee is one of continuous noise, and ours is discrete: not offered where zcdp is."""
    offered = method.calibrations
    if Calibration.ZCDP in offered:
        offered -= {Calibration.ANALYTIC}
    if asked is None:
        return Calibration.ZCDP if Calibration.ZCDP in offered else min(offered)
    if asked not in offered:
        raise ParameterError(
            f"{method.name} is not offered with calibration {asked}, under which its guarantee is not proved here",
            remedy=f"Use one of: {', '.join(sorted(offered))}.",
        )
    return Calibration(asked)


def _public(request: RegressionRequest, *, columns: int) -> PublicMoments | None:
    if request.public is None:
        return None
    if [len(row) for row in request.public.features] != [columns] * columns:
        raise SpecError(f"the public moments are not {columns} x {columns}", remedy="Make them by --public FILE.")
    moments = np.array(request.public.features, np.float64)
    ones, symmetric = bool(np.isclose(moments[0, 0], 1)), np.array_equal(moments, moments.T)
    if not (ones and symmetric and np.linalg.cond(moments) <= _WORST_CONDITION):
        raise SpecError(
            "the public moments have no intercept of ones, are not symmetric, or have a condition number above "
            f"{_WORST_CONDITION:g}",
            remedy="Use more public rows than columns, or leave out a column that follows from others.",
        )
    return PublicMoments(moments, request.public.label)


def _design(
    request: RegressionRequest, features: tuple[Attribute, ...], public: PublicMoments | None, n: int
) -> Design:
    bound = Task.bound_of(len(features), request.row_norm)
    if public is None or request.public is None:
        moment = assumed_moment(features, request.row_norm)
        return Design(moment, _UNIFORM * request.label_bound**2, n, bound, request.label_bound)
    return Design(public.features, public.label, n, bound, request.label_bound, request.public.rows)
