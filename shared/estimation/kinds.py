"""What the learner knows of each kind of release; every fit asks here and stays ignorant of which it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from commingle.shared.estimation import cautions, signal
from commingle.shared.estimation.diagnostics import Diagnostics
from commingle.shared.estimation.estimators import ESTIMATORS, Estimator
from commingle.shared.estimation.noisy_moments import cautions as moments_cautions
from commingle.shared.estimation.noisy_moments import estimators as moments_estimators
from commingle.shared.estimation.noisy_moments import signal as moments_signal
from commingle.shared.estimation.signal import Signal
from commingle.shared.estimation.system import System


class Cautions(Protocol):
    """Warnings about one fit."""

    def __call__(
        self, system: System, signal: Signal, estimator: str, diagnostics: Diagnostics, *, determined: bool
    ) -> tuple[str, ...]:
        """Sentences for people; `determined` says whether the estimator's operator is positive definite."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How releases of one kind are fitted.

    Attributes:
        publishes: what, in words.
        measure: the signal of a system.
        estimators: by name; names of `ESTIMATORS` that are missing cannot be had.
        inference: the estimator where none is named: it has standard errors.
        cautions: what a reader must be told.
    """

    publishes: str
    measure: Callable[[System], Signal]
    estimators: Mapping[str, Estimator]
    inference: str
    cautions: Cautions


_ROWS = Kind("noisy rows", signal.measure, ESTIMATORS, "measurement_error", cautions.cautions)
_MOMENTS = Kind(
    "noisy moments", moments_signal.measure, moments_estimators.ESTIMATORS, "ols", moments_cautions.cautions
)
KINDS: Mapping[str, Kind] = {"rmgm": _ROWS, "dgm": _ROWS, "moments": _MOMENTS}
