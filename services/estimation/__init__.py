"""From second moments to coefficients with honest errors: pure, no I/O (estimation.md)."""

from services.estimation.estimators import ESTIMATORS
from services.estimation.fitting import fit, fit_prepared
from services.estimation.prepared import PreparedMoments
from services.estimation.request import FitRequest
from services.estimation.result import Fit

__all__ = ["ESTIMATORS", "Fit", "FitRequest", "PreparedMoments", "fit", "fit_prepared"]
