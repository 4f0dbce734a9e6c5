"""What a mechanism says about fits of its releases: all that the common code of this package asks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from commingle.shared.estimation.estimator import Errors, Estimator, Signal
from commingle.shared.estimation.prepared import Array
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.estimation.system import Centred, System


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """The quadratic forms of c = (-b, 1).

    Attributes:
        total: c^T G c.
        noise: c^T V c.
        signal: c^T S_hat c = c^T (G - k V) c, possibly negative.
        spread: (p_x,) V_xx b - v_xy, which is -V_x. c.
        direction: (p_x + 1,) c.
    """

    total: float
    noise: float
    signal: float
    spread: Array
    direction: Array


def residual(system: System, b: Array) -> Residual:
    """The quadratic forms of one fit."""
    total = system.yy - 2 * float(b @ system.xy) + float(b @ system.xx @ b)
    spread = system.V_xx @ b - system.v_xy
    noise = system.v_yy + float(b @ (spread - system.v_xy))
    return Residual(max(total, 0.0), noise, total - system.rows * noise, spread, np.append(-b, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """None where a number cannot be computed.

    Attributes:
        signal_to_noise: lambda_min(S_hat_xx), intercept partialled out, over what the mechanism holds it
            against: lambda_max(V_xx) of noisy rows, the bound t on the noise of noisy moments.
        root: the l of docs/design/estimation.md#measurement_error over features and target; None (infinite) without
            noise.
        feature_root: the same over the features alone: near 1 some direction is buried in noise.
        condition_number: of S_hat_xx; None if it is not positive definite.
        f_statistic, f_p_value: test of the release's own least squares against the constant.
        r_squared: what these coefficients are expected to explain of the private table's label; may be negative.
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

    def to_dict(self) -> dict[str, float | None]:
        """Ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FitMethod(ABC):
    """How releases of one mechanism are fitted.

    Attributes:
        estimators: by name; a name of another mechanism that is missing cannot be had.
        inference: the estimator where none is named: it has standard errors.
        measure: the facts about a system; a SingularError where one term is a linear combination of the others.
    """

    estimators: Mapping[str, Estimator]
    inference: str
    measure: Callable[[System], Signal]

    @abstractmethod
    def meat(self, system: System, r: Residual, errors: Errors, interval_for: IntervalFor) -> Array:
        """Omega, (p_x, p_x), the covariance of G_x. c; Cov(b) = H Omega H (docs/design/estimation.md#covariance)."""

    @abstractmethod
    def population(self, system: System, r: Residual, H: Array, omega: Array) -> Array:
        """What the population adds to Cov(b), (p_x, p_x); 0 where Omega has it already."""

    @abstractmethod
    def sampling(self, *, rows: int, n: int, interval_for: IntervalFor) -> float:
        """What n draws from the population add to a variance, over that of one draw; published rows are counted."""

    @abstractmethod
    def noise_level(self, system: System, signal: Signal) -> float:
        """What the smallest eigenvalue of S_hat_xx is held against."""

    @abstractmethod
    def label_moment(self, system: System, c: Centred) -> float:
        """D, S_hat_yy about its mean."""

    @abstractmethod
    def loss_variance(self, system: System, c: Centred, r: Residual, *, ratio: float, cross: float) -> float:
        """Var(N - ratio D) for N = c^T S_hat c; `cross` is c^T G d with d the centred label."""

    @abstractmethod
    def cautions(
        self, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
    ) -> tuple[str, ...]:
        """Warnings about one fit; `determined` says whether the estimator's operator is positive definite."""
