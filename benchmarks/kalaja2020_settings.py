"""What Kalaja 2020 varies: pre-processing and noise of AdaSSP, one dataclass for a line of a figure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.wang2018_data import FOLDS, Table
from party_agent.private.regression.calibration import Calibration, Privacy
from party_agent.private.regression.mapping import (
    Mapped,
    Scales,
    ceilings_from_rows,
    clip_above,
    map_rows,
    scales_from_rows,
    unstandardised,
)
from party_agent.private.regression.mapping import Mapping as Into
from party_agent.private.regression.measuring import FloatingPoint
from party_agent.private.regression.methods import METHODS, ExactMethod
from party_agent.private.regression.problem import Adjacency, Floats, clipped


@dataclass(frozen=True, slots=True)
class Setting:
    """How rows are treated and what is fitted.

    Attributes:
        c: columns are cut above mean + c sd; None leaves them.
        clip_test: whether test rows are cut too.
        split_first: whether scales come from the training rows alone, or from all rows before the split.
        method: "adassp", "ssp", or "ridge" without privacy.
    """

    into: Into = Into.MAXIMUM
    intercept: bool = True
    c: float | None = None
    clip_test: bool = False
    split_first: bool = True
    calibration: Calibration = Calibration.CLASSICAL
    method: str = "adassp"


_PLAIN, _PER_ROW, _LABEL = Setting(), Setting(Into.PER_ROW), Setting(Into.PER_ROW_WITH_LABEL)
FIGURES: Mapping[str, Mapping[str, Setting]] = {
    "4.1 noise of AdaSSP": {str(k): Setting(calibration=k) for k in Calibration},
    "4.2 mapping, no intercept": {str(into): Setting(into, intercept=False) for into in Into},
    "4.3 mapping, intercept": {"maximum": _PLAIN, "per_row": _PER_ROW, "per_row_with_label": _LABEL},
    "4.4 clipping at mean + c sd": {"none": _PLAIN, **{f"c = {c:g}": Setting(c=c) for c in (1.0, 1.3, 1.6, 2.0)}},
    "4.5 test rows clipped or not, c = 1.6": {
        "none": _PLAIN,
        "training rows": Setting(c=1.6),
        "all rows": Setting(c=1.6, clip_test=True),
    },
    "4.6 normalising before the split or after": {
        "after, maximum": _PLAIN,
        "before, maximum": Setting(split_first=False),
        "after, per_row": _PER_ROW,
        "before, per_row": Setting(Into.PER_ROW, split_first=False),
    },
    "4.7 unstandardised coefficients": {
        "maximum": _PLAIN,
        "maximum, c = 1.6": Setting(c=1.6),
        "per_row_with_label": _LABEL,
    },
    "4.8 SSP and AdaSSP": {
        "SSP, published": Setting(method="ssp", calibration=Calibration.PUBLISHED),
        "SSP, analytic": Setting(method="ssp", calibration=Calibration.ANALYTIC),
        "AdaSSP, published": Setting(calibration=Calibration.PUBLISHED),
        "AdaSSP, analytic, c = 1.6": Setting(c=1.6, calibration=Calibration.ANALYTIC),
    },
}
REFERENCE = Setting(method="ridge")


@dataclass(frozen=True, slots=True)
class Prepared:
    """One fold under one setting."""

    train: Mapped
    scales: Scales
    test_x: Floats
    test_y: Floats
    mapped_test: Floats


def prepared(table: Table, setting: Setting, fold: int) -> Prepared:
    """As in the thesis: means, deviations, maxima and ceilings are read from private rows."""
    x, test = table.x, table.fold == fold
    if setting.c is not None:
        cut = clip_above(x, ceilings_from_rows(x[~test] if setting.split_first else x, setting.c))
        x = np.where(test[:, None] & (not setting.clip_test), x, cut)
    seen = ~test if setting.split_first else np.full(len(test), fill_value=True)
    scales = scales_from_rows(x[seen], table.y[seen], mapping=setting.into, intercept=setting.intercept)
    mapped = map_rows(x, table.y, mapping=setting.into, scales=scales, intercept=setting.intercept)
    train = Mapped(mapped.x[~test], mapped.y[~test], mapped.row_bound, reads_private_rows=True)
    return Prepared(train, scales, x[test], table.y[test], mapped.x[test])


def coefficients(part: Prepared, setting: Setting, privacy: Privacy, draw: np.random.Generator) -> Floats:
    """Theta in the units of the mapped rows."""
    sample = clipped(part.train.x, part.train.y, row_bound=part.train.row_bound, label_bound=1.0)
    method = METHODS.get(setting.method)
    if isinstance(method, ExactMethod):
        return method.run(sample, privacy, FloatingPoint(draw)).coefficients
    return np.linalg.lstsq(sample.x, sample.y)[0].astype(np.float64)


def in_units(theta: Floats, part: Prepared, setting: Setting) -> tuple[float, Floats]:
    """Intercept and slopes in the units of the data."""
    whole = theta if setting.intercept else np.concatenate([[0.0], theta])
    return unstandardised(whole, mapping=setting.into, scales=part.scales)


def predicted(theta: Floats, part: Prepared, setting: Setting) -> Floats:
    """Labels of the test rows in the units of the data."""
    if setting.into is Into.PER_ROW:
        return part.scales.label_mean + part.scales.label_max * (part.mapped_test @ theta)
    start, slopes = in_units(theta, part, setting)
    return start + part.test_x @ slopes


def fits(
    table: Table, setting: Setting, *, epsilons: Sequence[float], runs: int, folds: Sequence[int] = range(FOLDS)
) -> Iterator[tuple[float, Prepared, Floats]]:
    """(epsilon, fold as prepared, theta), add/remove neighbours, delta of the table."""
    for fold in folds:
        part = prepared(table, setting, fold)
        for epsilon, run in product(epsilons, range(runs)):
            privacy = Privacy(epsilon, table.delta, Adjacency.ADD_REMOVE, setting.calibration)
            yield epsilon, part, coefficients(part, setting, privacy, np.random.default_rng([fold, run]))
