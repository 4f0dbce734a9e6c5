"""Every single-holder method with a proved calibration, outside peers, and what needs no privacy, on equal terms.

All private ones: replace_one neighbours, the same (epsilon, delta), the same public numbers. Methods proved for
add/remove go by groups of two, as in the product.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.random import Generator

from benchmarks.central_peers import Asked, Fit
from benchmarks.methods.dp_olse import dp_olse, radii_from_public
from benchmarks.methods.in_parts import IN_PARTS
from benchmarks.wang2018_data import FOLDS, Table
from benchmarks.wang2018_methods import product_fit
from commingle.party_agent.private.regression.calibration import NoiseCalibration, Privacy
from commingle.party_agent.private.regression.measuring import FloatingPoint
from commingle.party_agent.private.regression.posterior import ridge_fit
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.public_moment import PublicMoments, dp_pmtolse, transform
from commingle.shared.dp.calibration import rho_of_epsilon

PUBLIC_FOLD = 0
PRODUCT: Mapping[str, tuple[str, NoiseCalibration]] = {
    "SSP, analytic": ("ssp", NoiseCalibration.ANALYTIC),
    "SSP, zCDP": ("ssp", NoiseCalibration.ZCDP),
    "AdaSSP, analytic": ("adassp", NoiseCalibration.ANALYTIC),
    "AdaSSP, zCDP": ("adassp", NoiseCalibration.ZCDP),
    "BoostedAdaSSP, zCDP": ("boosted_adassp", NoiseCalibration.ZCDP),
    "AdaOPS": ("adaops", NoiseCalibration.ANALYTIC),
    "OPS": ("ops", NoiseCalibration.CLASSICAL),
    "ObjPert": ("objpert", NoiseCalibration.PUBLISHED),
    "NoisySGD": ("noisysgd", NoiseCalibration.ZCDP),
    "Sub-Agg": ("subagg", NoiseCalibration.PUBLISHED),
}
TESTED = range(PUBLIC_FOLD + 1, FOLDS)


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


def row_bound(d: int) -> float:
    """Standardised rows have a norm of about sqrt(d); a single column is cut at two deviations."""
    return max(sqrt(d), 2.0)


def one_column(table: Table) -> Table:
    """The column with the largest correlation with the label in the public fold, alone."""
    public = table.fold == PUBLIC_FOLD
    x, y = _standardised(table)
    best = int(np.argmax(np.abs(x[public].T @ y[public])))
    return Table(table.name, table.x[:, [best]], table.y, table.fold)


def _standardised(table: Table) -> tuple[Floats, Floats]:
    """Columns by mean and deviation, the label by mean and largest size, all of the public rows."""
    public = table.fold == PUBLIC_FOLD
    means, sds = table.x[public].mean(axis=0), table.x[public].std(axis=0)
    y = table.y - table.y[public].mean()
    return (table.x - means) / np.where(sds > 0, sds, 1.0), y / np.abs(y[public]).max()


def split(table: Table, fold: int) -> Split:
    """Fold 0 is public, `fold` is tested, the others are private."""
    public, test = table.fold == PUBLIC_FOLD, table.fold == fold
    x, y = _standardised(table)
    rest = ~(public | test)
    return Split(x[public], y[public], x[rest], y[rest], x[test], y[test])


def asked(table: Table, *, epsilons: Sequence[float], runs: int) -> Asked:
    """What outside peers are to fit; they get the same rows, bounds and budgets."""
    x, y = _standardised(table)
    return Asked(
        x=x,
        y=y,
        fold=table.fold,
        sizes=np.abs(x[table.fold == PUBLIC_FOLD]).max(axis=0) + 1e-9,
        row_bound=row_bound(x.shape[1]),
        epsilons=epsilons,
        rhos=[rho_of_epsilon(epsilon, table.delta) for epsilon in epsilons],
        public=PUBLIC_FOLD,
        tests=TESTED,
        runs=runs,
    )


def fitted(data: Split, privacy: Privacy, draw: Generator) -> dict[str, Floats]:
    """Slopes of all methods for the standardised columns; no intercept, since all is centred by public means."""
    scale, moments = row_bound(data.x.shape[1]), data.moments
    sample = clip_sample(data.x / scale, data.y, row_bound=1.0, label_bound=1.0)
    found = {
        "not private": ridge_fit(clip_sample(data.x, data.y, row_bound=1e9, label_bound=1e9), 1e-6),
        "public rows only": ridge_fit(clip_sample(data.public_x, data.public_y, row_bound=1e9, label_bound=1e9), 1.0),
    }
    for name, (method, calibration) in PRODUCT.items():
        calibrated = replace(privacy, calibration=calibration)
        found[name] = product_fit(method)(sample, calibrated, draw) / scale
    rho, measure = rho_of_epsilon(privacy.epsilon, privacy.delta) / 2, FloatingPoint(draw)
    classical = replace(privacy, calibration=NoiseCalibration.CLASSICAL)
    found["AdaSSP in thirds, classical"] = IN_PARTS["adassp"].run(sample, classical, measure).coefficients / scale
    radii = radii_from_public(moments, len(data.y))
    bounded = clip_sample(data.x, data.y, row_bound=radii.row, label_bound=radii.label)
    found["DP-OLSE, public radii"] = dp_olse(bounded, rho, measure).coefficients
    whitened = transform(data.x, data.y, moments, make=clip_sample)
    found["DP-PMTOLSE"] = dp_pmtolse(whitened, moments, privacy, measure).coefficients
    return found


def ratios(
    table: Table, epsilon: float, *, folds: Sequence[int] = TESTED, runs: int, others: Sequence[Fit] = ()
) -> dict[str, Floats]:
    """Test MSE over that of predicting the public mean, one per run and fold; below 1 something was learnt."""
    found: dict[str, list[float]] = {}
    for fold in folds:
        data = split(table, fold)
        nothing = float(np.mean(data.test_y**2))
        for run in range(runs):
            fits = fitted(data, Privacy(epsilon, table.delta), np.random.default_rng([fold, run]))
            lines = [(name, theta, 0.0) for name, theta in fits.items()]
            here = [each for each in others if (each.epsilon, each.fold, each.run) == (epsilon, fold, run)]
            for name, slopes, intercept in [*lines, *((each.peer, each.slopes, each.intercept) for each in here)]:
                error = float(np.mean((data.test_y - intercept - data.test_x @ slopes) ** 2))
                found.setdefault(name, []).append(error / nothing)
    return {name: np.array(values) for name, values in found.items()}
