"""Two linear models compared, and two-stage least squares by instruments."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from commingle.services.errors import InstrumentsError, NestedError
from commingle.services.fit.fitting import fit_prepared
from commingle.services.fit.result import Fit
from commingle.services.fit.subjects import about_subjects, usable
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.estimation.diagnostics import bent_by_cutting, cut_rows
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import Coverage, Diagnostics, IntervalFor, inverse, names_of, residual
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import System, build_system
from commingle.shared.mechanisms import mechanism_of

_TESTED: dict[Coverage, str] = {
    "table": "p asks whether they are 0 in these very rows, not in the population.",
    "population": "p asks whether they are 0 in the population the table was drawn from.",
    "release": "p asks about the noisy release itself, not about the private table.",
    "none": "There is no test, as the larger model has no standard errors.",
}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Comparison(Result):
    """Wald's test that all terms which only the larger model has are zero.

    Attributes:
        statistic: F; NaN where the larger model has no standard errors.
        degrees_of_freedom: the first and the second of F.
        r_squared_larger, r_squared_smaller: expected on the private table; None where noise hides it.
        interval_for: whether coefficients of the private table or of the population are tested.
    """

    target: str
    larger: tuple[str, ...]
    smaller: tuple[str, ...]
    terms: tuple[str, ...]
    statistic: float
    degrees_of_freedom: tuple[int, int]
    p_value: float
    r_squared_larger: float | None
    r_squared_smaller: float | None
    interval_for: Coverage
    warnings: tuple[str, ...]

    def table(self) -> ResultTable:
        known = [np.nan if value is None else value for value in (self.r_squared_smaller, self.r_squared_larger)]
        first, second = self.degrees_of_freedom
        return ResultTable(
            title=f"Two models of {self.target}",
            facts=(("larger", ", ".join(self.larger)), ("smaller", ", ".join(self.smaller) or "the mean alone")),
            heading="model",
            labels=("smaller", "larger"),
            columns=(
                ResultColumn("expected R²", np.array(known), ".3f"),
                ResultColumn(f"F({first}, {second})", np.array([np.nan, self.statistic])),
                ResultColumn("p", np.array([np.nan, self.p_value]), "p"),
            ),
            notes=(f"Tested to be zero: {', '.join(self.terms)}.", _TESTED[self.interval_for]),
            warnings=self.warnings,
        )


def compare(
    prepared: PreparedMoments,
    target: str,
    larger: str | Sequence[str] | None,
    smaller: str | Sequence[str] | None,
    *,
    interval_for: IntervalFor = "population",
) -> Comparison:
    """Test the features of `larger` (None for all attributes) that `smaller` lacks, where () is the mean alone.

    F = b^T Cov(b)^-1 b / d over the d tested coefficients, with the covariance of the fit, which knows the noise.

    Raises NestedError: `smaller` is not a part of `larger`, or is all of it; EstimationError: as a fit does.
    """
    big = fit_prepared(prepared, target, larger, interval_for=interval_for)
    smaller = big.features if smaller is None else names_of(smaller)
    if not set(smaller) < set(big.features):
        raise NestedError(
            "the smaller model must use some but not all features of the larger and no others",
            remedy=f"Choose it among: {', '.join(big.features)}.",
        )
    small = fit_prepared(prepared, target, smaller, estimator=None if smaller else "constant")
    index = np.array([i for i, term in enumerate(big.terms) if term not in small.terms])
    statistic = wald(big.coefficients[index], big.covariance[np.ix_(index, index)])
    degrees = (len(index), big.degrees_of_freedom)
    return Comparison(
        target=target,
        larger=big.features,
        smaller=small.features,
        terms=tuple(big.terms[i] for i in index),
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=float(fdtrc(*degrees, statistic)),
        r_squared_larger=None if big.diagnostics.hides_r_squared else big.diagnostics.r_squared,
        r_squared_smaller=None if small.diagnostics.hides_r_squared else small.diagnostics.r_squared,
        interval_for=big.interval_for,
        warnings=big.warnings,
    )


def wald(b: Array, covariance: Array) -> float:
    """b^T Cov^-1 b / d of b (d,), NaN without errors; solved in units of standard errors, which scales it well."""
    errors = np.sqrt(np.diag(covariance))
    if not (errors > 0).all():  # NaN included
        return float("nan")
    t = b / errors
    return float(t @ np.linalg.solve(covariance / np.outer(errors, errors), t)) / len(b)


_STRONG = 10  # of the first stage's F (Staiger and Stock 1997)
_UNKNOWN = Diagnostics(**dict.fromkeys((each.name for each in fields(Diagnostics)), None))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TwoStageFit(Result):
    """A fit by instruments.

    Attributes:
        fit: coefficients of endogenous and exogenous features; its diagnostics are empty.
        first_stages: for each endogenous feature, the test whether the instruments explain it.
    """

    computed: ClassVar = ("warnings",)

    fit: Fit
    endogenous: tuple[str, ...]
    instruments: tuple[str, ...]
    first_stages: tuple[Comparison, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.fit.warnings

    def table(self) -> ResultTable:
        stages = [f"First stage of {s.target}: F = {s.statistic:.4g}." for s in self.first_stages]
        shown = self.fit.table()
        return replace(shown, notes=(*shown.notes, f"Instruments: {', '.join(self.instruments)}.", *stages))


def two_stage(
    prepared: PreparedMoments,
    target: str,
    *,
    endogenous: str | Sequence[str],
    instruments: str | Sequence[str],
    exogenous: str | Sequence[str] = (),
    confidence_level: float = 0.95,
    interval_for: IntervalFor = "population",
) -> TwoStageFit:
    """Fit `target` on endogenous features, for which the instruments stand in, exogenous features and an intercept.

    Raises:
        InstrumentsError: there is no instrument, or instruments have fewer columns than endogenous features.
        EstimationError: as a fit of all attributes named does.
    """
    endogenous, instruments, exogenous = map(names_of, (endogenous, instruments, exogenous))
    features = (*endogenous, *exogenous)
    _require_enough(prepared, endogenous, instruments)
    everything = (*features, *instruments)
    # this fit also refuses what cannot be asked
    plain = fit_prepared(prepared, target, everything, confidence_level=confidence_level, interval_for=interval_for)
    outside = (*exogenous, *instruments)
    stages = tuple(compare(prepared, name, outside, exogenous) for name in endogenous)
    fit = _second_stage(prepared, plain, features, outside, interval_for=interval_for, warnings=_cautions(stages))
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
    plain: Fit,
    features: tuple[str, ...],
    outside: tuple[str, ...],
    *,
    interval_for: IntervalFor,
    warnings: tuple[str, ...],
) -> Fit:
    prepared, _ = usable(prepared, plain.target, plain.features)
    used = [i for name in plain.features for i in prepared.columns[name]]
    target = prepared.columns[plain.target][0]
    system = build_system(prepared, target, tuple(used), intercept=True)
    x, z = (
        np.array([0, *(1 + used.index(i) for name in names for i in prepared.columns[name])])
        for names in (features, outside)
    )
    b, cov = solve(system, x, z, interval_for)
    whose = about_subjects(prepared, np.array((*used, target), np.intp) - 1)
    return replace(
        plain,
        estimator="two_stage",
        features=features,
        terms=tuple(system.terms[i] for i in x),
        coefficients=(system.to_original @ b + system.shift)[x],
        covariance=(system.to_original @ cov @ system.to_original.T)[np.ix_(x, x)],
        degrees_of_freedom=system.rows - len(x),
        interval_for=interval_for,
        counts_spread=False,
        diagnostics=_UNKNOWN,
        subjects=whose.notes,
        warnings=(*warnings, *cut_rows(prepared.cut, system.lost), *whose.doubts),
        schema=plain.schema[: len(features)],
    )


def solve(system: System, x: NDArray[np.intp], z: NDArray[np.intp], interval_for: IntervalFor) -> tuple[Array, Array]:
    """Coefficients b (p_x,) of all terms of the system, 0 for those not in x, and their covariance.

    b = J S_zy,  J = (B^T W B)^-1 B^T W,  B = S_zx,  W = G_zz^-1: consistent because S_hat = G - k V is, and efficient
    because the moments S_z. c vary as G_zz does (Hansen 1982). Without noise this is two-stage least squares. What
    cutting may bend of S_zy counts as in other fits.
    Cov(b) = J Omega_zz J^T with the mechanism's Omega. Drawing from a population adds sigma^2 J S_zz J^T to it.
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
    method = mechanism_of(system.prepared).fit
    Omega = method.meat(system, replace(r, total=r.total * freedom), "noisy_regressors", interval_for)[within]
    if interval_for == "population":
        added = method.sampling(rows=system.rows, n=system.n, interval_for=interval_for)
        Omega = Omega + max(0.0, r.signal) * added * S[within]
    through = np.zeros_like(S)  # b = through S_.y, whose entries cutting may bend
    through[np.ix_(x, z)] = J
    cov[np.ix_(x, x)] = J @ Omega @ J.T
    return b, cov + bent_by_cutting(system, through)


def _cautions(stages: tuple[Comparison, ...]) -> tuple[str, ...]:
    return tuple(
        f"The instruments hardly explain {stage.target} (first stage F = {stage.statistic:.3g}, {_STRONG} is needed): "
        "its coefficient and its interval are unreliable."
        for stage in stages
        if not stage.statistic >= _STRONG  # NaN included
    )
