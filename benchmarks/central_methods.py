"""Every single-holder method with a proved calibration, one outside peer, and what needs no privacy, on equal terms.

All private ones: replace_one neighbours, the same (epsilon, delta), the same public numbers. Methods proved for
add/remove go by groups of two, as in the product.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from math import sqrt
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.wang2018_data import FOLDS, Table
from benchmarks.wang2018_methods import product_fit
from party_agent.private.regression.calibration import Calibration, Privacy
from party_agent.private.regression.dp_olse import dp_olse, radii_from_public
from party_agent.private.regression.dp_pmtolse import dp_pmtolse
from party_agent.private.regression.measuring import FloatingPoint
from party_agent.private.regression.pmt import PublicMoments, transformed
from party_agent.private.regression.posterior import ridge_fit
from party_agent.private.regression.problem import Floats, clipped
from shared.privacy.calibration import rho_of_epsilon

PUBLIC_FOLD = 0
PRODUCT: Mapping[str, tuple[str, Calibration]] = {
    "SSP, analytic": ("ssp", Calibration.ANALYTIC),
    "SSP, zCDP": ("ssp", Calibration.ZCDP),
    "AdaSSP, classical": ("adassp", Calibration.CLASSICAL),
    "AdaSSP, analytic": ("adassp", Calibration.ANALYTIC),
    "AdaSSP, zCDP": ("adassp", Calibration.ZCDP),
    "BoostedAdaSSP, zCDP": ("boosted_adassp", Calibration.ZCDP),
    "AdaOPS": ("adaops", Calibration.ANALYTIC),
    "OPS": ("ops", Calibration.CLASSICAL),
    "ObjPert": ("objpert", Calibration.PUBLISHED),
    "NoisySGD": ("noisysgd", Calibration.ZCDP),
    "Sub-Agg": ("subagg", Calibration.PUBLISHED),
}
DIFFPRIVLIB = "diffprivlib"


@dataclass(frozen=True, slots=True)
class Split:
    """Public rows and the private ones, columns standardised and labels brought into [-1, 1] by the public rows."""

    public_x: Floats
    public_y: Floats
    x: Floats
    y: Floats
    test_x: Floats
    test_y: Floats

    @property
    def moments(self) -> PublicMoments:
        """Of the public rows; a thousandth on the diagonal, since columns may follow from each other."""
        d = self.x.shape[1]
        second = self.public_x.T @ self.public_x / len(self.public_x) + 1e-3 * np.eye(d)
        return PublicMoments(second.astype(np.float64), float(np.mean(self.public_y**2)))


def split(table: Table, fold: int) -> Split:
    """Fold 0 is public, `fold` is tested, the others are private."""
    public, test = table.fold == PUBLIC_FOLD, table.fold == fold
    means, sds = table.x[public].mean(axis=0), table.x[public].std(axis=0)
    x = (table.x - means) / np.where(sds > 0, sds, 1.0)
    y = table.y - table.y[public].mean()
    y = y / np.abs(y[public]).max()
    rest = ~(public | test)
    return Split(x[public], y[public], x[rest], y[rest], x[test], y[test])


def peer() -> Any | None:  # noqa: ANN401 - an untyped class of a library that may be absent
    """LinearRegression of diffprivlib, or None where it is absent or does not fit the scikit-learn beside it."""
    with suppress(ImportError):
        return import_module("diffprivlib.models").LinearRegression
    return None


def fitted(data: Split, privacy: Privacy, draw: Generator) -> dict[str, Floats]:
    """Slopes of all methods for the standardised columns; no intercept, since all is centred by public means."""
    scale, moments = sqrt(data.x.shape[1]), data.moments
    # standardised rows have a norm of about sqrt(d)
    sample = clipped(data.x / scale, data.y, row_bound=1.0, label_bound=1.0)
    found = {
        "not private": ridge_fit(clipped(data.x, data.y, row_bound=1e9, label_bound=1e9), 1e-6),
        "public rows only": ridge_fit(clipped(data.public_x, data.public_y, row_bound=1e9, label_bound=1e9), 1.0),
    }
    for name, (method, calibration) in PRODUCT.items():
        asked = Privacy(privacy.epsilon, privacy.delta, privacy.adjacency, calibration)
        found[name] = product_fit(method)(sample, asked, draw) / scale
    rho, measure = rho_of_epsilon(privacy.epsilon, privacy.delta) / 2, FloatingPoint(draw)
    radii = radii_from_public(moments, len(data.y))
    bounded = clipped(data.x, data.y, row_bound=radii.row, label_bound=radii.label)
    found["DP-OLSE, public radii"] = dp_olse(bounded, rho, measure).coefficients
    whitened = transformed(data.x, data.y, moments, make=clipped)
    found["DP-PMTOLSE"] = dp_pmtolse(whitened, moments, rho, measure).coefficients
    if (model := peer()) is not None:
        found[DIFFPRIVLIB] = _peer_fit(model, data, privacy.epsilon, draw)
    return found


def _peer_fit(model: Any, data: Split, epsilon: float, draw: Generator) -> Floats:  # noqa: ANN401 - see peer
    """The functional mechanism, pure epsilon; bounds of a column are its largest public size."""
    sizes = np.abs(data.public_x).max(axis=0) + 1e-9
    settings = {"epsilon": epsilon, "bounds_X": (-sizes, sizes), "bounds_y": (-1.0, 1.0), "fit_intercept": False}
    x, y = np.clip(data.x, -sizes, sizes), np.clip(data.y, -1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where noise left no minimum
        found = model(**settings, random_state=int(draw.integers(2**31))).fit(x, y).coef_
    return np.asarray(found, np.float64)


def ratios(table: Table, epsilon: float, *, folds: Sequence[int] = range(1, FOLDS), runs: int) -> dict[str, Floats]:
    """Test MSE over that of predicting the public mean, one per run and fold; below 1 something was learnt."""
    found: dict[str, list[float]] = {}
    for fold in folds:
        data = split(table, fold)
        nothing = float(np.mean(data.test_y**2))
        for run in range(runs):
            fits = fitted(data, Privacy(epsilon, table.delta), np.random.default_rng([fold, run]))
            for name, theta in fits.items():
                error = float(np.mean((data.test_y - data.test_x @ theta) ** 2))
                found.setdefault(name, []).append(error / nothing)
    return {name: np.array(values) for name, values in found.items()}
