"""A smoke check against Wang 2018, table 3; the whole table is a benchmark's."""

import json
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng

from benchmarks.methods.mapping import Mapped, Mapping, map_rows, scales_from_rows
from benchmarks.methods.published import AS_PUBLISHED
from commingle.party_agent.private.regression.floating import ridge_fit
from commingle.party_agent.private.regression.measuring import FloatingPoint, NoiseCalibration
from commingle.party_agent.private.regression.problem import Floats, clip_sample
from commingle.party_agent.private.regression.regress import ExactMethod
from tests.party_agent.private.regression.cases import SHARED, privacy

DATA, TABLE = SHARED / "data", SHARED / "reference" / "wang2018_table3.json"

pytestmark = pytest.mark.skipif(
    not (DATA.exists() and TABLE.exists()), reason="the real data sets are not on this machine"
)


def load(name: str) -> tuple[Mapped, Floats]:
    manifest = json.loads((DATA / "datasets.json").read_text())["datasets"]
    entry = next(e for e in manifest if e["name"] == name)
    table = pq.read_table(DATA / entry["file"]).to_pydict()
    x = np.column_stack([np.array(table[c], np.float64) for c in entry["feature_columns"]])
    y = np.array(table[entry["target_column"]], np.float64)
    folds = pq.read_table(DATA / "wang2018_folds.parquet", filters=[("dataset", "=", name)])
    fold = np.empty(len(y))
    fold[folds["row"].to_numpy()] = folds["fold"].to_numpy()
    scales = scales_from_rows(x, y, mapping=Mapping.PER_ROW, intercept=False)
    return map_rows(x, y, mapping=Mapping.PER_ROW, scales=scales, intercept=False), fold


def errors(name: str) -> dict[str, float]:
    mapped, fold = load(name)
    found: dict[str, list[float]] = {}
    asked = privacy(0.1, min(1e-6, 1 / len(fold) ** 2), calibration=NoiseCalibration.PUBLISHED)
    for k in range(10):
        train = fold != k
        sample = clip_sample(mapped.x[train], mapped.y[train], row_bound=1.0, label_bound=1.0)
        adassp = AS_PUBLISHED["adassp"]
        assert isinstance(adassp, ExactMethod)
        fits = {
            "trivial": np.zeros(sample.d),
            "non_private": ridge_fit(sample, 1.0),
            "AdaSSP": adassp.run(sample, asked, FloatingPoint(default_rng(k))).coefficients,
        }
        for method, theta in fits.items():
            error = float(np.mean((mapped.y[~train] - mapped.x[~train] @ theta) ** 2))
            found.setdefault(method, []).append(error)
    return {method: float(np.mean(values)) for method, values in found.items()}


@pytest.mark.parametrize("name", ["airfoil", "concrete", "bike"])
def test_table_3_is_met(name: str) -> None:
    published: dict[str, Any] = json.loads(TABLE.read_text())["table"][name]
    found = errors(name)
    assert found["trivial"] == pytest.approx(published["trivial"]["mse"], rel=0.05)
    assert found["non_private"] == pytest.approx(published["non_private"]["mse"], rel=0.01)
    assert abs(found["AdaSSP"] - published["AdaSSP"]["mse"]) < 3 * published["AdaSSP"]["sd"]
