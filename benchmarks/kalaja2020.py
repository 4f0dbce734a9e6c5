"""Kalaja 2020, pre-processing for AdaSSP: its figures 4.1 to 4.8, on the tables at hand.

Add/remove neighbours, delta = min(1e-6, 1/n^2). The thesis takes means, deviations, maxima and ceilings from private
rows, and so does this: benchmark only. Figures have the numbers of the thesis.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, Experiment, Panel, Report, draw_panels, generator, heading, row
from benchmarks.methods import IN_PARTS, SSP_PARTS, Scales
from benchmarks.wang2018_methods import FOLDS, Table, at_defaults, chosen
from commingle.party_agent.private.regression.measuring import FloatingPoint, NoiseCalibration, Privacy
from commingle.party_agent.private.regression.problem import Floats, Sample, clip_sample
from commingle.shared.documents.regression import RowMapping
from commingle.shared.dp.sensitivity import Adjacency


@dataclass(frozen=True, slots=True)
class Setting:
    """The treatment of rows and the method.

    Attributes:
        c: columns are cut above mean + c sd; None leaves them.
        clip_test: whether test rows are cut too.
        split_first: whether scales come from the training rows alone, or from all rows before the split.
        centre_label: whether the label's mean is taken off first, which the thesis's equations do not.
        method: "adassp", "ssp", or "ridge" without privacy; "auto" is the product's choice, with its own noise.
    """

    into: RowMapping = "maximum"
    intercept: bool = True
    c: float | None = None
    clip_test: bool = False
    split_first: bool = True
    centre_label: bool = True
    calibration: NoiseCalibration = NoiseCalibration.CLASSICAL
    method: str = "adassp"

    @property
    def rows(self) -> "Setting":
        """The part about rows; equal for settings that fit the same rows."""
        return replace(self, calibration=NoiseCalibration.CLASSICAL, method="")

    def allows(self, epsilon: float) -> bool:
        """SSP's two classical parts are proved for epsilon up to 2, AdaSSP's three for up to 3."""
        return not (self.method == "ssp" and self.calibration is NoiseCalibration.CLASSICAL and epsilon > SSP_PARTS)


_WANG = Setting("per_row", intercept=False, split_first=False)
"""Figures 4.1 to 4.4: rows, and the moment at which they are normalised, as in Wang 2018."""
_LARGEST = Setting(intercept=False)
"""From figure 4.5 on: divided by the largest norm."""
_WITH_LABEL = replace(_WANG, into="per_row_with_label")
_BEFORE = replace(_LARGEST, split_first=False)
_CS = (1.0, 1.3, 1.6, 2.0)


def _methods(lines: Mapping[str, Setting]) -> dict[str, Setting]:
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
        "per_row_with_label": Setting("per_row_with_label"),
    },
    "At our defaults": {
        "AdaSSP, row": _WANG,
        "Commingle, row": replace(_WANG, method="auto"),
        "AdaSSP, largest, c = 1.3": replace(_LARGEST, c=1.3),
        "Commingle, largest, c = 1.3": replace(_LARGEST, c=1.3, method="auto"),
    },
}
"""The figures of the thesis by their numbers; its section 3.3.3 has none, and the last is ours."""
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
        read = x[~test] if setting.split_first else x
        cut = np.minimum(x, read.mean(axis=0) + setting.c * read.std(axis=0))
        x = np.where(test[:, None] & (not setting.clip_test), x, cut)
    seen = ~test if setting.split_first else np.full(len(test), fill_value=True)
    options = {"intercept": setting.intercept, "centre_label": setting.centre_label}
    scales = Scales.of(x[seen], table.y[seen], mapping=setting.into, **options)
    mapped = scales.applied(x, table.y)
    train = clip_sample(mapped.x[~test], mapped.y[~test], row_bound=mapped.row_bound, label_bound=1.0)
    return Prepared(
        fold, train, _with_its_sums(train), scales, float(table.y[seen].mean()), x[test], table.y[test], mapped.x[test]
    )


def _with_its_sums(sample: Sample) -> Sample:
    """X = Q R: R has X's Gram matrix, and Q^T y with it X^T y. All that most methods here read, and quick."""
    q, r = np.linalg.qr(sample.x)
    return replace(sample, x=r.astype(np.float64), y=(q.T @ sample.y).astype(np.float64))


def all_folds(table: Table, setting: Setting, *, folds: int = FOLDS) -> list[Prepared]:
    return [prepared(table, setting, fold) for fold in range(folds)]


def coefficients(part: Prepared, setting: Setting, privacy: Privacy, draw: np.random.Generator) -> Floats:
    if setting.method == "auto":
        return at_defaults(part.train, privacy, draw)
    method = IN_PARTS.get(setting.method)
    if method is not None:
        return method.run(part.sums, privacy, FloatingPoint(draw)).coefficients
    return np.linalg.lstsq(part.sums.x, part.sums.y)[0].astype(np.float64)


def in_units(theta: Floats, part: Prepared) -> tuple[float, Floats]:
    return part.scales.undone(theta if part.scales.intercept else np.append(0.0, theta))


def predicted(theta: Floats, part: Prepared) -> Floats:
    if part.scales.mapping == "per_row":
        return part.scales.label_mean + part.scales.label_max * (part.mapped_test @ theta)
    # per_row_with_label: the row's norm divides row and label alike, so it cancels
    start, slopes = in_units(theta, part)
    return start + part.test_x @ slopes


def fits(
    parts: Sequence[Prepared], setting: Setting, delta: float, *, epsilons: Sequence[float], runs: int
) -> Iterator[tuple[float, Prepared, Floats]]:
    """(epsilon, fold as prepared, theta), add/remove neighbours; only epsilons the calibration allows."""
    allowed = [epsilon for epsilon in epsilons if setting.allows(epsilon)]
    for part, epsilon, run in product(parts, allowed, range(runs)):
        privacy = Privacy(epsilon, delta, Adjacency.ADD_REMOVE, setting.calibration)
        yield epsilon, part, coefficients(part, setting, privacy, generator(part.fold, run))


DRAWN = ("airfoil", "bike", "made-up")
EPSILONS = (0.1, 0.3, 1.0, 2.0, 3.0)
WARNING = (
    "Benchmark only: means, deviations, maxima and ceilings are read from private rows. 'published' noise gives each\n"
    "of AdaSSP's thirds up to 2.65 times its delta, SSP's halves up to 5.5 times; classical, analytic and zcdp keep\n"
    "theirs."
)
_COEFFICIENTS = "Section 3.3.3"


def label_errors(table: Table, setting: Setting, parts: Sequence[Prepared], *, runs: int) -> dict[float, float]:
    """Median over folds and runs of test MSE over the mean square around the training mean, per epsilon."""
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(parts, setting, table.delta, epsilons=EPSILONS, runs=runs):
        missed = part.test_y - predicted(theta, part)
        spread = np.mean((part.test_y - part.label_mean) ** 2)
        found.setdefault(epsilon, []).append(float(np.mean(missed**2) / spread))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def coefficient_errors(table: Table, setting: Setting, parts: Sequence[Prepared], *, runs: int) -> dict[float, float]:
    """Median relative error of the slopes in standard deviations of the columns, against least squares on all rows."""
    sds = table.x.std(axis=0)
    varying = sds > 0
    design = np.column_stack([np.ones(len(table.y)), (table.x - table.x.mean(axis=0))[:, varying] / sds[varying]])
    truth: Floats = np.linalg.lstsq(design, table.y)[0][1:].astype(np.float64)
    found: dict[float, list[float]] = {}
    for epsilon, part, theta in fits(parts, setting, table.delta, epsilons=EPSILONS, runs=runs):
        slopes = (in_units(theta, part)[1] * sds)[varying]
        found.setdefault(epsilon, []).append(float(np.linalg.norm(slopes - truth) / np.linalg.norm(truth)))
    return {epsilon: float(np.median(values)) for epsilon, values in found.items()}


def of_table(table: Table, *, runs: int, folds: int) -> dict[str, Any]:
    kinds = {title: coefficient_errors if title.startswith(_COEFFICIENTS) else label_errors for title in FIGURES}
    figures: dict[str, dict[str, list[tuple[float, float]]]] = {title: {} for title in FIGURES}
    wanted = [(title, name, setting) for title, found in FIGURES.items() for name, setting in found.items()]
    for rows in dict.fromkeys(setting.rows for _, _, setting in wanted):
        parts = all_folds(table, rows, folds=folds)
        for title, name, setting in (each for each in wanted if each[2].rows == rows):
            figures[title][name] = list(kinds[title](table, setting, parts, runs=runs).items())
    plain = label_errors(table, REFERENCE, all_folds(table, REFERENCE, folds=folds), runs=1)[EPSILONS[0]]
    head = {"table": table.name, "n": len(table.y), "d": table.x.shape[1], "not_private": plain}
    return {**head, "figures": figures}


def measure(asked: Asked) -> Report:
    runs, folds = asked.times(1, 10), 3 if asked.quick else FOLDS
    tables = chosen("kalaja2020", asked.data, quick=asked.quick)
    return {"runs": runs, "tables": [of_table(table, runs=runs, folds=folds) for table in tables]}


def lines(report: Report) -> list[str]:
    shown = [""]
    for title, settings in FIGURES.items():
        shown += [f"### {title}", "", *heading("table", "ε", *settings)]
        for table in report["tables"]:
            found = {name: dict(points) for name, points in table["figures"][title].items()}
            for epsilon in EPSILONS:
                values = (f"{found[name][epsilon]:.3g}" if epsilon in found[name] else "-" for name in settings)
                shown.append(row(table["table"], f"{epsilon:g}", *values))
        shown.append("")
    plain = ", ".join(f"{table['table']} {table['not_private']:.3g}" for table in report["tables"])
    return [*shown, f"Least squares without privacy: {plain}."]


def draw(report: Report, folder: Path) -> None:
    for table in (each for each in report["tables"] if each["table"] in DRAWN):
        panels = []
        for title, found in table["figures"].items():
            coefficient = title.startswith(_COEFFICIENTS)
            references = {} if coefficient else {"no privacy": [(e, table["not_private"]) for e in EPSILONS]}
            label = "relative error of slopes" if coefficient else "MSE / variance of label"
            panels.append(Panel(title, "ε", label, found, references))
        draw_panels(folder / f"kalaja2020_{table['table']}.png", panels, legend_each=True)


EXPERIMENT = Experiment("kalaja2020", __doc__, measure, lines, draw, warning=WARNING)

if __name__ == "__main__":
    EXPERIMENT.command()
