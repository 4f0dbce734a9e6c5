"""What a mechanism says about fits of its releases: all that the common code of this package asks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commingle.shared.estimation.covariance import Residual
from commingle.shared.estimation.diagnostics import Diagnostics
from commingle.shared.estimation.estimator import Errors, Estimator, Signal
from commingle.shared.estimation.likelihood import Likelihood
from commingle.shared.estimation.prepared import Array, PreparedMoments
from commingle.shared.estimation.request import IntervalFor
from commingle.shared.estimation.system import Centred, System


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
    def likelihood(self, prepared: PreparedMoments) -> Likelihood:
        """That of the private table's moments, given a release with noise."""

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
