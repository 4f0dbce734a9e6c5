"""Ridge, lasso and elastic net over several penalties, from second moments."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from commingle.services.analysis.covariance import Covariance, estimate
from commingle.services.errors import PenaltyError
from commingle.services.fit.fitting import fit_prepared
from commingle.services.fit.predicting import Predictor, Values, public_ranges
from commingle.services.fit.subjects import cut_words, usable
from commingle.services.intervals import standard_errors
from commingle.services.plotting import COLOURS, GRID, INK, OTHERS, Axes, axes_on, entitle, plain_label, tidy
from commingle.services.results import Result, ResultColumn, ResultTable
from commingle.shared.documents.schema import Attribute
from commingle.shared.estimation.diagnostics import expected_r_squared
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.method import Signal, residual
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.estimation.system import System, build_system
from commingle.shared.mechanisms import mechanism_of
from commingle.shared.ring.residues import loops

MAX_PENALTIES = 200
_PLOT_ROWS, _PLOT_INCHES = 9, 8.0
_COUNT = 50
_FAILURE = 0.05
_UPDATES = 1e9  # of coordinate descent, each of one product: about a second
_MOST_SWEEPS, _BATCH, _BATCH_UPDATES = 100_000, 10, 1e5  # of one call, which costs some 20 microseconds besides
_CONVERGED, _NEAR = 1e-8, 1e-6  # duality gap over the target's variance
_SINGULAR = 1e-15  # of the largest eigenvalue


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CoefficientPath(Result):
    """Coefficients for m penalties, the largest first. Their unit is the target's per unit of the attribute, or level.

    Attributes:
        penalties: (m,), on features and a target of variance 1: 1/2 |y - x b|^2 / n + penalty (l1_ratio |b|_1 +
            (1 - l1_ratio) |b|^2 / 2), as scikit-learn's ElasticNet has it; `ridge` has l1_ratio 0.
        coefficients: (m, p_x), the unpenalised intercept first.
        r_squared: (m,) expected on the private table, less what the fit owes to noise; NaN if unknown.
        best: index of the penalty with the highest expected R^2.
        noise_penalty: the penalty of lasso at which every slope stays at 0 with probability 0.95 if no feature is
            related to the target; None for ridge.
        warnings: of the path and of the unpenalised fit.
    """

    method: Literal["ridge", "elastic_net"]
    l1_ratio: float
    target: str
    features: tuple[str, ...]
    terms: tuple[str, ...]
    penalties: Array
    coefficients: Array
    r_squared: Array
    best: int
    noise_penalty: float | None
    n: int
    rows: int
    warnings: tuple[str, ...]
    schema: tuple[Attribute, ...] = field(repr=False)
    response: Attribute = field(repr=False)
    subjects: tuple[str, ...] = ()

    def predict(self, rows: Mapping[str, Values], *, at: int | None = None, extrapolate: bool = False) -> Array:
        """Expected target, (m,), by the coefficients of penalty number `at`, or of the best.

        Clips numbers and predictions as `Fit.predict` does, unless `extrapolate`. Raises RowsError; PenaltyError:
        the path has no such number.
        """
        count, at = len(self.penalties), self.best if at is None else at
        if at not in range(count):
            raise PenaltyError(f"the path has no penalty number {at!r}", remedy=f"Give a number from 0 to {count - 1}.")
        return Predictor(self.coefficients[int(at)], self.schema, self.response).warned(rows, extrapolate=extrapolate)

    @property
    def _called(self) -> str:
        return "Ridge" if self.method == "ridge" else "Lasso" if self.l1_ratio == 1 else "Elastic net"

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw, by penalty, how each term changes the target over its public range, on `ax` or a new figure.

        A line marks the best penalty. Shading marks the penalties of lasso at which noise alone stays at 0.
        """
        ax = axes_on(ax, rows=_PLOT_ROWS, width_inches=_PLOT_INCHES)
        effects = self.coefficients[:, 1:] * public_ranges(self.schema)
        order = np.argsort(-np.abs(effects[self.best]), kind="stable")
        for place, i in enumerate(order):
            named = place < len(COLOURS)
            label = plain_label(self.terms[1 + i]) if named else None
            ax.plot(self.penalties, effects[:, i], color=COLOURS[place] if named else OTHERS, label=label)
        if len(order) > len(COLOURS):
            ax.plot([], [], color=OTHERS, label=f"{len(order) - len(COLOURS)} others")
        ax.axvline(self.penalties[self.best], color=INK, linewidth=0.9, linestyle="--", label="best penalty")
        said = "penalty"
        if self.noise_penalty is not None:
            ax.axvspan(self.noise_penalty, max(self.penalties[0], self.noise_penalty), color=GRID, zorder=0)
            said = "penalty (shaded: noise alone stays at 0)"
        ax.set_xscale("log")
        ax.invert_xaxis()  # the smallest model at the left
        tidy(ax)
        y = f"change of {self.target} over a feature's public range"
        entitle(ax, f"{self._called} path of {self.target}", said, y)
        ax.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        return ax

    def table(self) -> ResultTable:
        noise = () if self.noise_penalty is None else (("noise alone stays below", f"{self.noise_penalty:.3g}"),)
        return ResultTable(
            title=f"{self._called} path of {self.target}",
            facts=(("best penalty", f"{self.penalties[self.best]:.3g}"), *noise),
            heading="penalty",
            labels=tuple(self.penalties.tolist()),
            columns=(
                ResultColumn("expected R²", self.r_squared, ".3f"),
                *(ResultColumn(term, self.coefficients[:, i]) for i, term in enumerate(self.terms)),
            ),
            notes=self.subjects,
            warnings=self.warnings,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """A regression on columns of variance 1, without their noise.

    `rows` (q + 1, q + 1) are made up so that rows^T rows is the correlation matrix, the target last. `units` (q,) are
    the standard deviations of the features over the target's, in encoded units. `roots` (q,) and `axes` (q, q) are the
    eigenvalues and eigenvectors of the features' correlations.
    """

    system: System
    signal: Signal
    covariance: Covariance
    rows: Array
    units: Array
    roots: Array
    axes: Array


Solver = Callable[[Array, Array, Array], tuple[Array, int]]
"""From rows x and y of a problem and m penalties to slopes (m, q), and how many of these rows are not exact."""


def ridge_path(
    prepared: PreparedMoments,
    target: str,
    features: str | Sequence[str] | None = None,
    *,
    penalties: Sequence[float] | None = None,
) -> CoefficientPath:
    """Ridge: (R + penalty I)^-1 r on the correlations without noise; by default for penalties from 100 to 1e-4.

    Raises EstimationError: as a fit does; NoSignalError: noise hides a column.
    """
    given = np.geomspace(1e2, 1e-4, _COUNT) if penalties is None else _in_order(penalties)
    return _path(prepared, target, features, given, l1_ratio=0.0, solver=_ridge)


def lasso_path(
    prepared: PreparedMoments,
    target: str,
    features: str | Sequence[str] | None = None,
    *,
    l1_ratio: float = 1.0,
    penalties: Sequence[float] | None = None,
) -> CoefficientPath:
    """Lasso, or elastic net where l1_ratio is below 1; by default from the penalty that keeps all slopes at 0.

    Raises:
        KernelsError: the package was built without loops.
        EstimationError: as a fit does; NoSignalError: noise hides a column.
    """
    if not 0 < l1_ratio <= 1:
        raise PenaltyError(f"an l1_ratio of {l1_ratio} is not in (0, 1]", remedy="Use ridge_path for 0.")

    def solver(x: Array, y: Array, penalties: Array) -> tuple[Array, int]:
        return _elastic_net(x, y, penalties, l1_ratio)

    given = None if penalties is None else _in_order(penalties)
    return _path(prepared, target, features, given, l1_ratio=l1_ratio, solver=solver)


def _ridge(x: Array, y: Array, penalties: Array) -> tuple[Array, int]:
    """V diag(d / (d^2 + penalty)) U^T y; it exists for every x."""
    U, d, Vt = np.linalg.svd(x, full_matrices=False)
    slopes: Array = (d / (d**2 + penalties[:, None]) * (U.T @ y)) @ Vt
    return slopes, 0


def _elastic_net(x: Array, y: Array, penalties: Array, l1_ratio: float) -> tuple[Array, int]:
    """Coordinate descent from each penalty's slopes to the next's, with a bound on the number of updates for all."""
    R, r, yy = x.T @ x, x.T @ y, float(y @ y)
    sweeps = min(_MOST_SWEEPS, max(1, int(_UPDATES / (len(penalties) * len(r) ** 2))))
    at_once = max(_BATCH, int(_BATCH_UPDATES / len(r) ** 2))
    b, left = np.zeros_like(r), r.copy()
    slopes, far = np.empty((len(penalties), len(r))), 0
    for i, penalty in enumerate(penalties):
        terms = np.array([l1_ratio, 1 - l1_ratio]) * penalty
        gap, done = np.inf, 0
        while gap > _CONVERGED * yy and done < sweeps:
            batch = min(at_once, sweeps - done)
            loops("estimation").descend(R, b, left, terms, batch)
            gap, done = _gap(r, yy, b, left, terms), done + batch
        slopes[i] = b
        far += gap > _NEAR * yy
    return slopes, far


def _gap(r: Array, yy: float, b: Array, left: Array, terms: Array) -> float:
    """The duality gap of 1/2 |y - x b|^2 + l |b|_1 + d |b|^2 / 2: its distance to the least value is at most this.

    It is a lasso on rows x, sqrt(d) I and y, 0, whose residuals e have x^T e = left - d b. s e is dual for
    s = min(1, l / max |x^T e|), and the gap is (1 + s^2) |e|^2 / 2 + l |b|_1 - s y^T e. Where l is below what
    x^T e is rounded by, that much is added to it: features have norm 1, so it is of the size of |y| and |b|_1.
    """
    lasso, ridge = float(terms[0]), float(terms[1])
    along = yy - float(r @ b)  # y^T e
    residuals = along - float(left @ b) + ridge * float(b @ b)
    most = float(np.abs(left - ridge * b).max())
    rounding = float(np.finfo(float).eps) * (yy**0.5 + float(np.abs(b).sum()))
    s = min(1.0, (lasso + rounding) / most) if most else 1.0
    return (1 + s**2) / 2 * residuals + lasso * float(np.abs(b).sum()) - s * along


def _path(
    prepared: PreparedMoments,
    target: str,
    features: str | Sequence[str] | None,
    penalties: Array | None,
    *,
    l1_ratio: float,
    solver: Solver,
) -> CoefficientPath:
    plain = fit_prepared(replace(prepared, cut=(), lost=None), target, features)  # a path has no intervals
    prepared, _ = usable(prepared, target, plain.features)
    problem = _problem(prepared, target, plain.features)
    x, y = problem.rows[:, :-1], problem.rows[:, -1]
    if penalties is None:
        top = max(float(np.abs(x.T @ y).max()), 1e-6) / l1_ratio
        penalties = np.geomspace(top, 1e-3 * top, _COUNT)
    slopes, inexact = solver(x, y, penalties)
    inside = [_with_intercept(problem, row) for row in slopes]
    r_squared = np.array(
        [
            _expected_r_squared(problem, penalty, l1_ratio, row, b)
            for penalty, row, b in zip(penalties, slopes, inside, strict=True)
        ]
    )
    system = problem.system
    used = [*(i for name in plain.features for i in prepared.columns[name]), prepared.columns[target][0]]
    cut = cut_words(prepared, used, intervals=False)
    return CoefficientPath(
        method="elastic_net" if l1_ratio else "ridge",
        l1_ratio=l1_ratio,
        target=target,
        features=plain.features,
        terms=plain.terms,
        penalties=penalties,
        coefficients=np.array(inside) @ system.to_original.T + system.shift,
        r_squared=r_squared,
        best=int(np.argmax(np.where(np.isnan(r_squared), -np.inf, r_squared))),
        noise_penalty=_noise_penalty(problem) / l1_ratio if l1_ratio else None,
        n=problem.covariance.n,
        rows=prepared.rows,
        warnings=tuple(
            dict.fromkeys((*problem.covariance.warnings, *_unfinished(inexact, len(penalties)), *cut, *plain.warnings))
        ),
        schema=plain.schema,
        response=plain.response,
        subjects=plain.subjects,
    )


def _unfinished(inexact: int, count: int) -> tuple[str, ...]:
    warning = (
        f"For {inexact} of {count} penalties the coefficients are not exact: the features are too many or too much "
        "alike for the time there is. Name fewer features, or larger penalties."
    )
    return (warning,) if inexact else ()


def _problem(prepared: PreparedMoments, target: str, features: tuple[str, ...]) -> _Problem:
    label = prepared.columns[target][0]
    chosen = tuple(i for name in features for i in prepared.columns[name])
    system = build_system(prepared, label, chosen, intercept=True)
    covariance = estimate(prepared, (*chosen, label))
    deviations = covariance.deviations
    units = deviations[:-1] / deviations[-1]
    rows = covariance.root / deviations
    roots, axes = np.linalg.eigh(rows[:, :-1].T @ rows[:, :-1])
    return _Problem(system, mechanism_of(prepared).fit.measure(system), covariance, rows, units, roots, axes)


def _with_intercept(problem: _Problem, slopes: Array) -> Array:
    c = problem.signal.centred
    b = c.centring.T @ (slopes / problem.units)
    b[0] += c.label_mean
    return b


def _expected_r_squared(problem: _Problem, penalty: float, l1_ratio: float, slopes: Array, b: Array) -> float:
    """Expected R^2 with the slopes' derivative H = (R + (1 - l1_ratio) penalty I)^-1 on the slopes that are not 0.

    For lasso H gives its degrees of freedom (Zou, Hastie and Tibshirani 2007).
    """
    c, deviations = problem.signal.centred, problem.covariance.deviations[:-1]
    H = _inverse(problem, (1 - l1_ratio) * penalty, slopes != 0)
    # G - m V sums m rows, each of which has n / rows times the covariance of a subject
    H /= np.outer(deviations, deviations) * c.rows * problem.system.n / problem.system.rows
    method, operator = mechanism_of(problem.system.prepared).fit, c.with_intercept(H)
    value, _ = expected_r_squared(method, problem.system, problem.signal, operator, b, errors="noisy_regressors")
    return value


def _inverse(problem: _Problem, ridge: float, active: NDArray[np.bool_]) -> Array:
    """(R + ridge I)^-1 of the active features' correlations R; 0 for other features and along axes without variance."""
    roots, axes = problem.roots, problem.axes
    if not active.all():
        x = problem.rows[:, :-1][:, active]
        roots, axes = np.linalg.eigh(x.T @ x)
    damped = roots + ridge
    inverse = np.divide(1, damped, out=np.zeros_like(damped), where=damped > _SINGULAR * damped.max(initial=0))
    H = np.zeros_like(problem.axes)
    H[np.ix_(active, active)] = axes * inverse @ axes.T
    return H


def _noise_penalty(problem: _Problem) -> float:
    """The largest of q correlations of noise is below this with probability 0.95: z of their standard deviations.

    The moments G_x. c of the constant fit, c = (-mean, 0, ..., 0, 1), have the mechanism's covariance Omega.
    """
    c, deviations = problem.signal.centred, problem.covariance.deviations
    system = problem.system
    r = residual(system, -c.about_mean[:-1])
    Omega = mechanism_of(system.prepared).fit.meat(system, r, "noisy_regressors", "table")
    errors = standard_errors(c.centring @ Omega @ c.centring.T) / (c.rows * system.n / system.rows)
    z = float(ndtri(1 - _FAILURE / 2 / len(errors)))
    return z * float((errors / (deviations[:-1] * deviations[-1])).max())


def _in_order(penalties: Sequence[float]) -> Array:
    given = np.array(penalties, dtype=np.float64)
    if given.ndim != 1 or not 0 < len(given) <= MAX_PENALTIES or not (np.isfinite(given) & (given > 0)).all():
        raise PenaltyError(
            "the penalties are not positive numbers", remedy=f"Give 1 to {MAX_PENALTIES} positive, finite numbers."
        )
    return np.sort(given)[::-1]
