"""What Kalaja 2020 varies: pre-processing and noise of AdaSSP and SSP, one dataclass for a line of a figure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks.harness import generator
from benchmarks.methods.in_parts import IN_PARTS, SSP_PARTS
from benchmarks.methods.mapping import Mapping as Into
from benchmarks.methods.mapping import (
    Scales,
    ceilings_from_rows,
    clip_above,
    map_rows,
    scales_from_rows,
    unstandardised,
)
from benchmarks.wang2018_data import FOLDS, Table
from benchmarks.wang2018_methods import at_defaults
from commingle.party_agent.private.regression.measuring import FloatingPoint, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from commingle.shared.dp.sensitivity import Adjacency


@dataclass(frozen=True, slots=True)
class Setting:
    """How rows are treated and what is fitted.

    Attributes:
        c: columns are cut above mean + c sd; None leaves them.
        clip_test: whether test rows are cut too.
        split_first: whether scales come from the training rows alone, or from all rows before the split.
        centre_label: whether the label's mean is taken off first, which the thesis's equations do not.
        method: "adassp", "ssp", or "ridge" without privacy; "auto" is what the product takes, with its own noise.
    """

    into: Into = Into.MAXIMUM
    intercept: bool = True
    c: float | None = None
    clip_test: bool = False
    split_first: bool = True
    centre_label: bool = True
    calibration: NoiseCalibration = NoiseCalibration.CLASSICAL
    method: str = "adassp"

    @property
    def rows(self) -> "Setting":
        """What of it concerns the rows; equal for settings that fit the same ones."""
        return replace(self, calibration=NoiseCalibration.CLASSICAL, method="")

    def allows(self, epsilon: float) -> bool:
        """SSP's two classical parts are proved for epsilon up to 2, AdaSSP's three for up to 3."""
        return not (self.method == "ssp" and self.calibration is NoiseCalibration.CLASSICAL and epsilon > SSP_PARTS)


_WANG = Setting(Into.PER_ROW, intercept=False, split_first=False)
"""Figures 4.1 to 4.4: rows, and the moment at which they are normalised, as in Wang 2018."""
_LARGEST = Setting(intercept=False)
"""From figure 4.5 on: divided by the largest norm."""
_WITH_LABEL = replace(_WANG, into=Into.PER_ROW_WITH_LABEL)
_BEFORE = replace(_LARGEST, split_first=False)
_CS = (1.0, 1.3, 1.6, 2.0)


def _methods(lines: Mapping[str, Setting]) -> dict[str, Setting]:
    """Each of these under AdaSSP, SSP and without privacy."""
    named = {"AdaSSP": "adassp", "SSP": "ssp", "not private": "ridge"}
    return {f"{name}, {line}": replace(s, method=m) for name, m in named.items() for line, s in lines.items()}


FIGURES: Mapping[str, Mapping[str, Setting]] = {
    "4.1 instability of SSP": {
        **{f"SSP, {k}": replace(_WANG, method="ssp", calibration=k) for k in NoiseCalibration},
        "AdaSSP, classical": _WANG,
        "not private": replace(_WANG, method="ridge"),
    },
    "4.2 noise of AdaSSP": {str(k): replace(_WANG, calibration=k) for k in NoiseCalibration},
    "4.3 row norms or the largest norm": _methods({"row": _WANG, "largest": _BEFORE}),
    "4.4 label divided too": _methods({"rows alone": _WANG, "label too": _WITH_LABEL}),
    "4.5 normalising before the split or after": {"before": _BEFORE, "after": _LARGEST},
    "4.6 intercept column": {
        "without": _LARGEST,
        "with": Setting(),
        "label not centred, without": replace(_LARGEST, centre_label=False),
        "label not centred, with": Setting(centre_label=False),
    },
    "4.7 clipping at mean + c sd": {"none": _LARGEST, **{f"c = {c:g}": replace(_LARGEST, c=c) for c in _CS}},
    "4.8 test rows clipped too": {
        "none": _LARGEST,
        **{f"c = {c:g}": replace(_LARGEST, c=c, clip_test=True) for c in _CS},
    },
    "Section 3.3.3, unstandardised coefficients": {
        "maximum": Setting(),
        "maximum, c = 1.6": Setting(c=1.6),
        "per_row_with_label": Setting(Into.PER_ROW_WITH_LABEL),
    },
    "At our defaults": {
        "AdaSSP, row": _WANG,
        "Commingle, row": replace(_WANG, method="auto"),
        "AdaSSP, largest, c = 1.3": replace(_LARGEST, c=1.3),
        "Commingle, largest, c = 1.3": replace(_LARGEST, c=1.3, method="auto"),
    },
}
"""The thesis's figures by its numbers; its section 3.3.3 has none, and the last is ours."""
REFERENCE = Setting(method="ridge")


@dataclass(frozen=True, slots=True)
class Prepared:
    """One fold under one setting.

    Attributes:
        train: the training rows; `sums` has their X^T X and X^T y in d rows.
        label_mean: of the rows that the scales come from, whether or not it is taken off.
    """

    fold: int
    train: Sample
    sums: Sample
    scales: Scales
    label_mean: float
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
    options = {"intercept": setting.intercept, "centre_label": setting.centre_label}
    scales = scales_from_rows(x[seen], table.y[seen], mapping=setting.into, **options)
    mapped = map_rows(x, table.y, mapping=setting.into, scales=scales, intercept=setting.intercept)
    train = clip_sample(mapped.x[~test], mapped.y[~test], row_bound=mapped.row_bound, label_bound=1.0)
    return Prepared(
        fold, train, _with_its_sums(train), scales, float(table.y[seen].mean()), x[test], table.y[test], mapped.x[test]
    )


def _with_its_sums(sample: Sample) -> Sample:
    """X = Q R: R has X's Gram matrix, and Q^T y with it X^T y. All that most methods here read, and quick."""
    q, r = np.linalg.qr(sample.x)
    return replace(sample, x=r.astype(np.float64), y=(q.T @ sample.y).astype(np.float64))


def all_folds(table: Table, setting: Setting, *, folds: int = FOLDS) -> list[Prepared]:
    """The first `folds` of them."""
    return [prepared(table, setting, fold) for fold in range(folds)]


def coefficients(part: Prepared, setting: Setting, privacy: Privacy, draw: np.random.Generator) -> Floats:
    """Theta in the units of the mapped rows."""
    if setting.method == "auto":
        return at_defaults(part.train, privacy, draw)
    method = IN_PARTS.get(setting.method)
    if method is not None:
        return method.run(part.sums, privacy, FloatingPoint(draw)).coefficients
    return np.linalg.lstsq(part.sums.x, part.sums.y)[0].astype(np.float64)


def in_units(theta: Floats, part: Prepared, setting: Setting) -> tuple[float, Floats]:
    """Intercept and slopes in the units of the data."""
    whole = theta if setting.intercept else np.concatenate([[0.0], theta])
    return unstandardised(whole, mapping=setting.into, scales=part.scales)


def predicted(theta: Floats, part: Prepared, setting: Setting) -> Floats:
    """Labels of the test rows in the units of the data."""
    if setting.into is Into.PER_ROW:
        return part.scales.label_mean + part.scales.label_max * (part.mapped_test @ theta)
    # per_row_with_label: the row's norm divides row and label alike, so it cancels
    start, slopes = in_units(theta, part, setting)
    return start + part.test_x @ slopes


def fits(
    parts: Sequence[Prepared], setting: Setting, delta: float, *, epsilons: Sequence[float], runs: int
) -> Iterator[tuple[float, Prepared, Floats]]:
    """(epsilon, fold as prepared, theta), add/remove neighbours; only epsilons the calibration allows."""
    allowed = [epsilon for epsilon in epsilons if setting.allows(epsilon)]
    for part, epsilon, run in product(parts, allowed, range(runs)):
        privacy = Privacy(epsilon, delta, Adjacency.ADD_REMOVE, setting.calibration)
        yield epsilon, part, coefficients(part, setting, privacy, generator(part.fold, run))
