"""Linear fits of second moments, with errors that count the noise: pure, no I/O (docs/design/estimation.md)."""

from commingle.services.fit.fitting import ESTIMATORS, fit_prepared
from commingle.services.fit.result import Fit
from commingle.shared.estimation.prepared import PreparedMoments

__all__ = ["ESTIMATORS", "Fit", "PreparedMoments", "fit_prepared"]
