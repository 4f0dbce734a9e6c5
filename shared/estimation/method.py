"""The questions to a release, what an estimator is, and what a mechanism says about fits of its releases.

Most estimators are linear in the cross moments given G_xx, V, k and n: b = H (G_xy - a k v_xy). There v_xy is the noise
that the terms and the label share: 0 unless one party whitened both. For one that reads the posterior mode, H is the
derivative of its coefficients. Their covariance and the expected loss follow from H in the same way for all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from commingle.shared.errors import ConfidenceError, FeaturesError, SingularError
from commingle.shared.estimation.entry_noise import Array
from commingle.shared.estimation.system import Centred, System

IntervalFor = Literal["table", "population"]
Coverage = Literal["table", "population", "release", "none"]
Errors = Literal["noisy_regressors", "plain", "none"]
FAILURE = 0.05  # of every bound on noise


def names_of(given: str | Iterable[str]) -> tuple[str, ...]:
    """Names of attributes; a text alone is one name. Raises FeaturesError: they are no names."""
    if isinstance(given, str):
        return (given,)
    try:
        return tuple(given)
    except TypeError:
        raise FeaturesError(f"{given!r} names no attributes", remedy="Give a name, or a list of names.") from None


def require_interval(interval_for: str) -> None:
    """Raises ConfidenceError unless it is one of `IntervalFor`."""
    if interval_for not in get_args(IntervalFor):
        raise ConfidenceError(f"no interval is for {interval_for!r}", remedy="Use 'table' or 'population'.")


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """Facts about a system that no estimator changes."""

    centred: Centred  # the system with the intercept partialled out, q features
    inverse: Array  # (q, q) X^-1
    root: float  # l, the smallest root of det(G - l k V) = 0 over (x, y); infinite without noise
    feature_root: float  # l_x, the smallest root of X against its degrees of freedom times V_xx; infinite without noise
    # smallest, largest: eigenvalues of S_hat_xx; NaN without features
    smallest: float
    largest: float
    # of the release's own least squares against the mean (against 0 without intercept), what noise shared by label and
    # features explains taken off
    f_statistic: float
    f_p_value: float  # its tail probability; 1 without features


@dataclass(frozen=True, slots=True)
class Estimator:
    """An estimator and what can be said about its errors."""

    solve: Callable[[System, Signal], tuple[Array, Array]]  # H, (p_x, p_x), of a system, and the coefficients b, (p_x,)
    # `noisy_regressors`: standard errors around the private table or the population; `plain`: those of a regression on
    # the noisy release; `none`: it is biased on purpose, so none
    errors: Errors
    uses_features: bool = True  # False for the label mean
    # how much it damped the features, if it damps only where it must: a damped fit is biased, without standard errors
    damping: Callable[[System, Signal], float] | None = None


def linear(
    operator: Callable[[System, Signal], Array], subtracted: Callable[[System, Signal], float] = lambda *_: 1.0
) -> Callable[[System, Signal], tuple[Array, Array]]:
    """H of `operator` and b = H (G_xy - a k v_xy).

    `subtracted` is a, the share of the shared noise that is taken off: the estimator's own share of V_xx if its
    coefficients are to be exact, all of it if they are damped towards 0.
    """

    def solve(system: System, signal: Signal) -> tuple[Array, Array]:
        H = operator(system, signal)
        return H, H @ (system.xy - subtracted(system, signal) * system.rows * system.v_xy)

    return solve


def _label_mean(system: System, signal: Signal) -> Array:  # noqa: ARG001 - all estimators have one signature
    """H = 1 / G_11, the intercept being the only term."""
    return np.reciprocal(system.xx)


def damped(bound: Callable[[System, Signal], float], errors: Errors) -> Estimator:
    """H of (S_hat_xx + l I)^-1, the features centred, with the intercept it implies, which is not damped itself.

    l = max(0, t - lambda_min(S_hat_xx)), t a `bound` on noise: least squares damped no more than the noise requires, as
    in AdaSSP (Wang 2018), but after the release.
    """

    def damping(system: System, signal: Signal) -> float:
        return max(0.0, bound(system, signal) - signal.smallest)

    def operator(system: System, signal: Signal) -> Array:
        c = signal.centred
        return c.with_intercept(inverse(c.X + damping(system, signal) * np.eye(len(c.X)) - c.rows * c.V))

    return Estimator(linear(operator), errors, damping=damping)


CONSTANT = Estimator(linear(_label_mean), "noisy_regressors", uses_features=False)
"""The label mean: the baseline every private fit is compared with."""


def inverse(matrix: Array) -> Array:
    """The inverse of a symmetric matrix, definite or not, (p, p). Raises SingularError: it has none."""
    try:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    except np.linalg.LinAlgError:
        raise SingularError("the moments cannot be inverted", remedy="Name fewer features.") from None


def largest_eigenvalue(V: Array) -> float:
    return float(np.linalg.eigvalsh(V)[-1]) if V.size else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The quadratic forms of c = (-b, 1)."""

    total: float  # c^T G c
    noise: float  # c^T V c
    signal: float  # c^T S_hat c = c^T (G - k V) c, possibly negative
    spread: Array  # (p_x,) V_xx b - v_xy, which is -V_x. c.
    direction: Array  # (p_x + 1,) c


def residual(system: System, b: Array) -> Residual:
    total = system.yy - 2 * float(b @ system.xy) + float(b @ system.xx @ b)
    spread = system.V_xx @ b - system.v_xy
    noise = system.v_yy + float(b @ (spread - system.v_xy))
    return Residual(max(total, 0.0), noise, total - system.rows * noise, spread, np.append(-b, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """None stands for a number that cannot be computed.

    Attributes:
        signal_to_noise: lambda_min(S_hat_xx), intercept partialled out, over the mechanism's own measure of noise:
            lambda_max(V_xx) for noisy rows, the bound t on the noise for noisy moments. For mixed rows of keyed data
            sets the least ratio of any combination's moment to a bound on the noise in that moment.
        root: the l of docs/design/estimation.md#measurement_error over features and target; None (infinite) without
            noise.
        feature_root: the same over the features alone: near 1 some direction is buried in noise.
        condition_number: of S_hat_xx; None if it is not positive definite.
        f_statistic, f_p_value: test of the release's own least squares against the constant.
        r_squared: the part of the private table's label that these coefficients are expected to explain; may be
            negative.
        r_squared_error: its standard error.
    """

    signal_to_noise: float | None
    root: float | None
    feature_root: float | None
    condition_number: float | None
    f_statistic: float | None
    f_p_value: float | None
    r_squared: float | None
    r_squared_error: float | None

    @property
    def hides_r_squared(self) -> bool:
        """Whether noise leaves it open, as the number or its error is above 1."""
        return max(self.r_squared or 0.0, self.r_squared_error or 0.0) > 1


@dataclass(frozen=True, slots=True)
class FitMethod(ABC):
    """How releases of one mechanism are fitted."""

    estimators: Mapping[str, Estimator]  # by name; a name of another mechanism that is missing cannot be had
    inference: str  # the estimator where none is named: it has standard errors
    # the facts about a system; a SingularError where one term is a linear combination of the others
    measure: Callable[[System], Signal]

    @abstractmethod
    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
        """Omega, (p_x, p_x), the covariance of G_x. c; Cov(b) = H Omega H (docs/design/estimation.md#covariance)."""

    @abstractmethod
    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:
        """The population's addition to Cov(b), (p_x, p_x); 0 if Omega has it already."""

    @abstractmethod
    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:
        """What n draws from the population add to a variance, over that of one draw; published rows are counted."""

    @abstractmethod
    def noise_level(self, system: System, signal: Signal) -> float:
        """The measure of noise for the smallest eigenvalue of S_hat_xx."""

    @abstractmethod
    def label_moment(self, system: System, c: Centred) -> float:
        """D, S_hat_yy about its mean."""

    @abstractmethod
    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:
        """Var(N - ratio D) for N = c^T S_hat c; `cross` is c^T G d with d the centred label."""

    @abstractmethod
    def cautions(
        self, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
    ) -> Iterable[str]:
        """The mechanism's own among `diagnostics.cautions`."""
