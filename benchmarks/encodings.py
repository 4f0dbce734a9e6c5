"""What squares and intervals of numbers gain, and whether the planner knows beforehand from public rows.

A tenth of the rows is public: it gives bounds, and moments from which `plan --encodings` forecasts each encoding. Three
members release `moments` of the rest at an epsilon each, listed subjects; R^2 of a tested tenth by `shrunken`, as
`predict` predicts, means of 18 runs of fewer than 20,000 rows, else 9. No constant was chosen on it.
"""

import numpy as np
import pyarrow as pa
from numpy.random import default_rng

from benchmarks.choice import EPSILONS
from benchmarks.harness import Asked, Experiment, Report, spread
from benchmarks.release_law import party_sizes, proposed, release, study_of
from benchmarks.tables import at_hand, columns
from benchmarks.users import explained, numbers, split
from commingle.party_agent.private.regression.problem import Floats
from commingle.services.fit import fit_prepared
from commingle.services.planning.public_table import compared, encodings
from commingle.services.tables import Table
from commingle.shared.documents.study import Study
from commingle.shared.encoding import encode_rows

TABLES = (
    *("bike_hour", "support2", "airfoil", "insurance_numeric", "wine", "sml", "parkinsons", "nhanes_bp", "concrete"),
    *("energy", "protein", "winequality_white"),
)
_PARTIES, _FEW = 3, 20_000


def cells(rows: tuple[Floats, Floats], names: list[str]) -> dict[str, "pa.Array[pa.DoubleScalar]"]:
    x, y = rows
    return {name: pa.array(column) for name, column in zip(names, [*x[:, 1:].T, y], strict=True)}


def learnt(study: Study, data: tuple[tuple[Floats, Floats], tuple[Floats, Floats]], run: int) -> float:
    names = [a.name for a in numbers(data[0][0].shape[1])]
    *_, target = names
    spec = proposed(study)
    encoded = encode_rows(spec.terms.attributes, cells(data[0], names))
    fit = fit_prepared(release(spec, encoded, default_rng(run)), target, estimator="shrunken")
    tested = dict(zip(names, data[1][0][:, 1:].T, strict=False))
    return explained(fit.predictor.of(tested).values, data[1])


def measure(asked: Asked) -> Report:
    found = []
    for name in at_hand(asked.data, TABLES):
        table = columns(asked.data, name)
        rows = split(table, 0)[1]
        attributes = numbers(rows[0].shape[1])
        target = attributes[-1].name
        public = Table(np.arange(len(rows[1])).astype(str), cells(rows, [a.name for a in attributes]))
        for epsilon in EPSILONS[1:]:
            scores: dict[str, list[float]] = {}
            for run in range(asked.times(1, 18 if len(table[1]) < _FEW else 9)):
                data = split(table, 1 + run % 9)
                n, width = data[0][0].shape
                study = study_of(attributes, party_sizes(width, _PARTIES), n, epsilon, mechanism="moments")
                for way, asked_so in encodings(study, public, target=target).items():
                    scores.setdefault(way, []).append(learnt(asked_so, data, run))
            ranked = compared(study, public, where=name, target=target)
            forecasts = {each.name: each.forecast.r_squared for each in ranked}
            about = {"table": name, "n": n, "epsilon": epsilon, "taken": ranked[0].name, "forecast": forecasts}
            found.append({**about, "r_squared": {way: spread(values) for way, values in scores.items()}})
    return {"cells": found}


EXPERIMENT = Experiment("encodings", __doc__, measure)
if __name__ == "__main__":
    EXPERIMENT.command()
