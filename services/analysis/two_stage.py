"""Two-stage least squares: coefficients of features that are correlated with the error, by instruments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commingle.services.analysis.errors import InstrumentsError
from commingle.services.analysis.nested import Comparison, compare
from commingle.services.fit.fitting import fit_prepared
from commingle.services.fit.missing import usable
from commingle.services.fit.result import Fit
from commingle.services.fit.subjects import about_subjects
from commingle.services.results import Result, ResultTable
from commingle.shared.estimation.estimator import inverse
from commingle.shared.estimation.method import Diagnostics, residual
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import FitRequest, IntervalFor, names_of
from commingle.shared.estimation.system import System, build_system
from commingle.shared.mechanisms.registry import mechanism_of

_STRONG = 10  # of the first stage's F (Staiger and Stock 1997)
_UNKNOWN = Diagnostics(
    signal_to_noise=None,
    root=None,
    feature_root=None,
    condition_number=None,
    f_statistic=None,
    f_p_value=None,
    r_squared=None,
    r_squared_error=None,
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TwoStageFit(Result):
    """What the instruments say.

    Attributes:
        fit: coefficients of endogenous and exogenous features; its diagnostics are empty.
        endogenous: attributes.
        instruments: attributes.
        first_stages: for each endogenous feature, whether the instruments explain it.
    """

    fit: Fit
    endogenous: tuple[str, ...]
    instruments: tuple[str, ...]
    first_stages: tuple[Comparison, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the fit."""
        return self.fit.warnings

    def table(self) -> ResultTable:
        """That of the fit, with the first stages below."""
        stages = [f"First stage of {s.target}: F = {s.statistic:.4g}." for s in self.first_stages]
        shown = self.fit.table()
        return replace(shown, notes=(*shown.notes, f"Instruments: {', '.join(self.instruments)}.", *stages))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: the fit's fields and the first stages."""
        return {
            **self.fit.to_dict(),
            "endogenous": list(self.endogenous),
            "instruments": list(self.instruments),
            "first_stages": [stage.to_dict() for stage in self.first_stages],
        }


def two_stage(
    prepared: PreparedMoments,
    target: str,
    *,
    endogenous: str | Sequence[str],
    instruments: str | Sequence[str],
    exogenous: str | Sequence[str] = (),
    confidence_level: float = 0.95,
    interval_for: IntervalFor = "table",
) -> TwoStageFit:
    """Fit `target` on endogenous and exogenous features and an intercept, the former by the instruments.

    Raises:
        InstrumentsError: none, or fewer columns of them than of endogenous features.
        EstimationError: as a fit of all attributes named.
    """
    endogenous, instruments, exogenous = map(names_of, (endogenous, instruments, exogenous))
    features = (*endogenous, *exogenous)
    _require_enough(prepared, endogenous, instruments)
    request = FitRequest(
        target=target,
        features=(*features, *instruments),
        confidence_level=confidence_level,
        interval_for=interval_for,
    )
    fit_prepared(prepared, request)  # refuses whatever cannot be asked
    outside = (*exogenous, *instruments)
    stages = tuple(compare(prepared, name, outside, exogenous) for name in endogenous)
    fit = _second_stage(prepared, request, features, outside, _cautions(stages))
    return TwoStageFit(fit=fit, endogenous=endogenous, instruments=instruments, first_stages=stages)


def _require_enough(prepared: PreparedMoments, endogenous: Sequence[str], instruments: Sequence[str]) -> None:
    endogenous_columns, instrument_columns = (
        sum(len(prepared.attribute(name).columns) for name in names) for names in (endogenous, instruments)
    )
    if not endogenous or instrument_columns < endogenous_columns:
        raise InstrumentsError(
            f"{instrument_columns} instruments for {endogenous_columns} endogenous features",
            remedy="Name at least one endogenous feature and as many instruments, levels counted one by one.",
        )


def _second_stage(
    prepared: PreparedMoments,
    request: FitRequest,
    features: tuple[str, ...],
    outside: tuple[str, ...],
    warnings: tuple[str, ...],
) -> Fit:
    given = usable(prepared, request.target, request.features or ())
    prepared = given.prepared
    used = [i for name in request.features or () for i in prepared.columns[name]]
    target = prepared.columns[request.target][0]
    system = build_system(prepared, target, tuple(used), intercept=True)
    x, z = (
        np.array([0, *(1 + used.index(i) for name in names for i in prepared.columns[name])])
        for names in (features, outside)
    )
    b, cov = solve(system, x, z, request.interval_for)
    subjects = about_subjects(prepared, np.array((*used, target), np.intp) - 1)
    return Fit(
        estimator="two_stage",
        target=request.target,
        features=features,
        intercept=True,
        terms=tuple(system.terms[i] for i in x),
        coefficients=(system.to_original @ b + system.shift)[x],
        covariance=(system.to_original @ cov @ system.to_original.T)[np.ix_(x, x)],
        degrees_of_freedom=system.rows - len(x),
        confidence_level=request.confidence_level,
        interval_for=request.interval_for,
        n=prepared.shared((*used, target)),
        rows=prepared.rows,
        mechanism=prepared.mechanism,
        diagnostics=_UNKNOWN,
        warnings=(*warnings, *subjects.doubts),
        schema=tuple(prepared.attributes[name] for name in features),
        response=prepared.attributes[request.target],
        imputed=given.notes,
        subjects=subjects.notes,
        counts=subjects.counts,
    )


def solve(system: System, x: NDArray[np.intp], z: NDArray[np.intp], interval_for: IntervalFor) -> tuple[Array, Array]:
    """Coefficients b (p_x,) of all terms of the system, 0 for those not in x, and their covariance.

    b = J S_zy,  J = (B^T W B)^-1 B^T W,  B = S_zx,  W = G_zz^-1: consistent because S_hat = G - k V is, and efficient
    because the moments S_z. c vary as G_zz does (Hansen 1982). Without noise that is two-stage least squares.
    Cov(b) = J Omega_zz J^T with the mechanism's Omega; a population that is not in it yet adds sigma^2 J S_zz J^T.
    """
    S = system.xx - system.rows * system.V_xx
    B, within = S[np.ix_(z, x)], np.ix_(z, z)
    BW = B.T @ inverse(system.xx[within])
    J = inverse(BW @ B) @ BW
    b, cov = np.zeros(len(system.xy)), np.zeros_like(S)
    b[x] = J @ (system.xy - system.rows * system.v_xy)[z]
    r = residual(system, b)
    # the Omega of rows divides by the rows less all terms, instruments included
    freedom = system.degrees_of_freedom / (system.rows - len(x))
    method = mechanism_of(system).fit
    Omega = method.meat(system, replace(r, total=r.total * freedom), "noisy_regressors", interval_for)[within]
    if interval_for == "population":
        added = method.sampling(rows=system.rows, n=system.n, interval_for=interval_for)
        Omega = Omega + max(0.0, r.signal) * added * S[within]
    cov[np.ix_(x, x)] = J @ Omega @ J.T
    return b, cov


def _cautions(stages: tuple[Comparison, ...]) -> tuple[str, ...]:
    return tuple(
        f"The instruments hardly explain {stage.target} (first stage F = {stage.statistic:.3g}, {_STRONG} is needed): "
        "its coefficient and its interval are unreliable."
        for stage in stages
        if not stage.statistic >= _STRONG  # NaN included
    )
