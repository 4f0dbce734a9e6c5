"""Classification, the future work of Wu et al. 2022: AUC of scores from one release of their tables.

The event is a label above the table's median. Parties are those of `wu2022`, four fifths of the rows are released, and
AUC is among the others. Features are numbers in [0, 1], or levels between the table's quartiles; bounds, median and
quartiles count as public. Scores are linear (`shrunken`, and the paper's fits of numbers) or logistic. A logistic fit
reads two-way tables, so it needs levels and `moments`. Without privacy all are fitted to the rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import Asked, Experiment, Report, generator, spread
from benchmarks.labelled import LABEL, Labelled, quarters
from benchmarks.odds_ratios import auc
from benchmarks.panels import Panel, draw_panels
from benchmarks.release_law import Array, Integers, party_sizes, proposed, release, study_of
from benchmarks.tables import at_hand, scaled
from benchmarks.wu2022 import TABLES, published
from commingle.services.fit import fit_prepared
from commingle.services.models import glm
from commingle.shared.documents.schema import Attribute, NumericAttribute
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.encoding import encode_attribute
from commingle.shared.estimation.errors import EstimationError

EPSILONS = (0.3, 1.0, 3.0)
MECHANISMS = ("rmgm", "moments")
_REFERENCES = {"linear on rows": "numbers: not private, linear", "logistic on rows": "levels: not private, logistic"}
_SHOWN = {
    "BGM-OLS": "paper: BGM-OLS",
    "RMGM-OLS best k": "paper: RMGM-OLS best k",
    "rmgm, numbers": "numbers: rmgm, linear",
    "rmgm, levels": "levels: rmgm, linear",
    "moments, numbers": "numbers: moments, linear",
    "moments, levels": "levels: moments, linear",
    "moments, logistic": "levels: moments, logistic",
}


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """A table in one of its two forms.

    Attributes:
        attributes: the event, then d features.
        event: (n,).
        rows: (n, q) fixed-point columns, as agents encode them.
        design: (n, p) ones and features, as coefficients are for.
    """

    attributes: Sequence[Attribute]
    event: NDArray[np.bool_]
    rows: Integers
    design: Array


def as_numbers(x: Array, event: NDArray[np.bool_]) -> People:
    names = (LABEL, *(f"x{j}" for j in range(x.shape[1])))
    attributes = [NumericAttribute(name=name, lower=0, upper=1) for name in names]
    rows = quantise(2 * np.column_stack([event, x]) - 1)
    return People(attributes, event, rows, np.column_stack([np.ones(len(x)), x]))


def as_levels(x: Array, event: NDArray[np.bool_]) -> People:
    people = Labelled("binomial", event.astype(np.int64), np.column_stack([quarters(column) for column in x.T]))
    held = zip(people.attributes, people.cells(np.arange(len(x))), strict=True)
    encoded = np.hstack([encode_attribute(a, pa.array(cells)).exact for a, cells in held])
    return People(people.attributes, event, quantise(encoded), people.design)


def scores(people: People, train: Integers, parties: int, epsilon: float, draw: Generator) -> dict[str, Array]:
    """Scores of everybody, (n,), by every fit of one release of each mechanism; the product's refusals are left out."""
    found = {}
    for mechanism in MECHANISMS:
        sizes = party_sizes(len(people.attributes), parties)
        asked = study_of(people.attributes, sizes, len(train), epsilon, mechanism=mechanism, target=LABEL)
        prepared = release(proposed(asked), people.rows[train], draw)
        linear = fit_prepared(prepared, LABEL, estimator="shrunken")
        found[f"{mechanism}, linear"] = people.design @ linear.coefficients
        try:
            found[f"{mechanism}, logistic"] = people.design @ glm(prepared, f"{LABEL} ~ .").coefficients
        except EstimationError:
            continue
    return found


def without_privacy(people: People, train: Integers) -> dict[str, Array]:
    """Scores of everybody; the logistic fit has a slight ridge, as an event may be separable."""
    X, event = people.design[:, 1:], people.event
    slopes = LogisticRegression(C=100.0, max_iter=1000).fit(X[train], event[train]).coef_[0]
    linear = np.linalg.lstsq(people.design[train], event[train].astype(np.float64))[0]
    return {"not private, linear": people.design @ linear, "not private, logistic": X @ slopes}


def theirs(people: People, train: Integers, parties: int, epsilon: float, draw: Generator) -> dict[str, Array]:
    """Scores of everybody by the paper's fits, which have no intercept."""
    x = people.design[:, 1:]
    A = np.column_stack([x, people.event])[train]
    fits = published(A.T @ A, len(A), party_sizes(A.shape[1], parties), epsilon, draw)
    return {name: x @ slopes for name, slopes in fits.items()}


def one_split(forms: Mapping[str, People], parties: int, seed: int) -> dict[float, dict[str, float]]:
    event = forms["numbers"].event
    draw = generator(len(event), seed)
    train, test = np.split(draw.permutation(len(event)), [len(event) * 4 // 5])
    known = {(form, way): s for form, people in forms.items() for way, s in without_privacy(people, train).items()}
    found = {}
    for epsilon in EPSILONS:
        every = known | {
            ("paper", way): s for way, s in theirs(forms["numbers"], train, parties, epsilon, draw).items()
        }
        for form, people in forms.items():
            every |= {(form, way): s for way, s in scores(people, train, parties, epsilon, draw).items()}
        found[epsilon] = {f"{form}: {way}": auc(s[test], event[test]) for (form, way), s in every.items()}
    return found


def of_table(values: Array, name: str, *, splits: int) -> Iterator[dict[str, Any]]:
    """A record for each epsilon; the best k is the one with the greatest mean, which nobody could know."""
    x, event = values[:, :-1], values[:, -1] > np.median(values[:, -1])
    forms = {"numbers": as_numbers(x, event), "levels": as_levels(x, event)}
    runs = [one_split(forms, TABLES[name], seed) for seed in range(splits)]
    for epsilon in EPSILONS:
        ways = {way: spread([run[epsilon][way] for run in runs]) for way in runs[0][epsilon]}
        sketches = [way for way in ways if way.startswith("paper: RMGM-OLS k=")]
        ways["paper: RMGM-OLS best k"] = max((ways.pop(way) for way in sketches), key=lambda found: found["mean"])
        yield {"table": name, "n": len(values) * 4 // 5, "epsilon": epsilon, "auc": ways}


def measure(asked: Asked) -> Report:
    splits, there = asked.times(2, 20), at_hand(asked.data, TABLES)
    found = [cell for name in there for cell in of_table(scaled(asked.data, name), name, splits=splits)]
    return {"splits": splits, "cells": found}


def draw(report: Report, folder: Path) -> None:
    if not report["cells"]:
        return
    panels = []
    for name in dict.fromkeys(cell["table"] for cell in report["cells"]):
        series: dict[str, list[tuple[float, float]]] = {}
        for cell in (c for c in report["cells"] if c["table"] == name):
            for way, found in cell["auc"].items():
                series.setdefault(way, []).append((cell["epsilon"], found["mean"]))
        plain, shown = (
            {said: series[way] for said, way in names.items() if way in series} for names in (_REFERENCES, _SHOWN)
        )
        panels.append(Panel(name, "ε of each party", "AUC", shown, plain, log_y=False))
    draw_panels(folder / "classification.png", panels)


EXPERIMENT = Experiment("classification", __doc__, measure, draw=draw)

if __name__ == "__main__":
    EXPERIMENT.command()
