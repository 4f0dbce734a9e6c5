"""Odds ratios of one release: how often intervals hold, and what the AUC loses beside the fit on the rows.

The table is diabetes130_raw: readmission by nineteen attributes with levels, at three parties; made-up rows where it is
not at hand. A trial draws n of its rows with replacement, releases them (`moments`, listed subjects, proved bounds, the
product's own code without encryption, which changes nothing) and fits all attributes. 95 % intervals for the table are
held against the fit on the drawn rows, those for the population against the fit on all rows. AUC is of rows that were
not drawn. Coverage is a mean over coefficients and trials: coefficients of one release share errors.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.harness import Asked, Experiment, Report, generator, heading, row
from benchmarks.keyed import Party, released
from benchmarks.release_law import Array, of_parties, party_sizes, proposed, study_of
from commingle.services.models import GeneralisedFit, glm
from commingle.shared.documents.schema import BinaryAttribute, CategoricalAttribute
from commingle.shared.encoding import encode_attribute

Codes = NDArray[np.intp]
LABEL = "readmitted"
SETTINGS = ((1.0, 10_000), (3.0, 10_000), (1.0, 80_000), (3.0, 80_000))
_PARTIES = 3


def _cut(*cuts: float) -> Callable[[NDArray[Any]], Codes]:
    return lambda values: np.digitize(values.astype(np.float64), cuts)


def _among(*levels: Any) -> Callable[[NDArray[Any]], Codes]:  # noqa: ANN401 - levels of any type
    """Places of levels, and one behind them for all others."""
    places = {level: i for i, level in enumerate(levels)}
    return lambda values: np.array([places.get(value, len(levels)) for value in values.tolist()])


DERIVED: Mapping[str, Callable[[NDArray[Any]], Codes]] = {
    LABEL: _among("NO"),
    "age": lambda values: np.digitize([int(value[1:].split("-")[0]) for value in values], [40, 50, 60, 70, 80]),
    "gender": _among("Female"),
    "race": _among("Caucasian", "AfricanAmerican"),
    "admission_type_id": _among(1, 2, 3),
    "discharge_disposition_id": _among(1, 3, 6),
    "admission_source_id": _among(7, 1),
    "time_in_hospital": _cut(2, 3, 5, 8),
    "num_lab_procedures": _cut(30, 45, 60),
    "num_procedures": _cut(1, 2),
    "num_medications": _cut(10, 15, 20),
    "number_outpatient": _cut(1),
    "number_emergency": _cut(1),
    "number_inpatient": _cut(1, 2),
    "number_diagnoses": _cut(6, 9),
    "A1Cresult": _among("None", "Norm"),
    "metformin": _among("No"),
    "insulin": _among("No", "Steady", "Up"),
    "change": _among("No"),
    "diabetesMed": _among("Yes"),
}
"""By column of the table: places of levels."""


def table(data: Path) -> Codes:
    """(N, d) levels of the real table, the label first; of made-up people where it is not at hand."""
    path = data / "diabetes130_raw.parquet"
    if path.is_file():
        read = pq.read_table(path, columns=list(DERIVED))
        return np.column_stack([derive(np.array(read[name].to_pylist())) for name, derive in DERIVED.items()])
    draw = generator(40)
    health = draw.normal(size=(8000, 1))
    features = np.digitize(health + draw.normal(size=(8000, 4)), [-0.8, 0.8])
    chance = 1 / (1 + np.exp(1 - features @ [0.5, 0.3, -0.2, 0.1]))
    return np.column_stack([draw.random(8000) < chance, features]).astype(np.intp)


def attributes_of(codes: Codes) -> list[BinaryAttribute | CategoricalAttribute]:
    """One for each column."""
    found: list[BinaryAttribute | CategoricalAttribute] = []
    names = [LABEL, *(f"x{j}" for j in range(1, codes.shape[1]))]
    for name, most in zip(names, codes.max(axis=0).tolist(), strict=True):
        levels = tuple(f"l{i}" for i in range(most + 1))
        binary = len(levels) == 2
        found.append(
            BinaryAttribute(name=name, levels=(levels[0], levels[1]))
            if binary
            else CategoricalAttribute(name=name, levels=levels)
        )
    return found


def design(codes: Codes, sizes: Sequence[int]) -> Array:
    """Ones, and indicators of all levels but the first."""
    blocks = (np.eye(size)[codes[:, j], 1:] for j, size in enumerate(sizes))
    return np.hstack([np.ones((len(codes), 1)), *blocks])


def auc(scores: Array, event: NDArray[np.bool_]) -> float:
    """The share of pairs of an event and none in which the event has the higher score."""
    ranks, m = rankdata(scores), int(event.sum())
    return float((ranks[event].sum() - m * (m + 1) / 2) / (m * (len(event) - m)))


def _held(fit: GeneralisedFit, b: Array) -> float:
    low, high = fit.intervals.T
    return float(np.mean((low <= b) & (b <= high)))


def trial(codes: Codes, *, epsilon: float, n: int, draw: np.random.Generator) -> dict[str, float]:
    """One release."""
    attributes, drawn = attributes_of(codes), draw.integers(0, len(codes), n)
    others = np.setdiff1d(np.arange(len(codes)), drawn)
    levels = [len(a.levels) for a in attributes[1:]]
    X, y = design(codes[:, 1:], levels), codes[:, 0] == 1
    everybody, people = (sm.Logit(y[of] * 1.0, X[of]).fit(disp=0) for of in (slice(None), drawn))
    sizes = party_sizes(len(attributes), _PARTIES)
    asked = of_parties(study_of(attributes, sizes, n, epsilon, mechanism="moments"), first_stage_share=None)
    encoded = [
        encode_attribute(a, pa.array(np.array(a.levels)[codes[drawn, j]].tolist())).exact
        for j, a in enumerate(attributes)
    ]
    parties = [
        Party(np.arange(n), np.hstack(encoded[first:last])) for first, last in pairwise(np.cumsum([0, *sizes]).tolist())
    ]

    def noise(sigma: int, count: int) -> NDArray[np.int64]:
        return np.rint(draw.normal(0, sigma, count)).astype(np.int64)

    prepared = released(proposed(asked, draw.bytes(32)), parties, noise)
    start = time.process_time()
    fit = glm(prepared, f"{LABEL} ~ .")
    seconds = time.process_time() - start
    of_table = glm(prepared, f"{LABEL} ~ .", interval_for="table")
    found, expected = auc(X[others] @ fit.coefficients, y[others]), fit.auc or np.nan
    low, high = fit.auc_interval or (np.nan, np.nan)
    return {
        "table": _held(of_table, people.params),
        "population": _held(fit, everybody.params),
        "standard_error": float(fit.standard_errors[1:].mean()),
        "rows_standard_error": float(people.bse[1:].mean()),
        "auc": found,
        "rows_auc": auc(X[others] @ people.params, y[others]),
        "said_auc": expected,
        "auc_held": float(low <= found <= high),
        "cpu_seconds": seconds,
    }


def measure(asked: Asked) -> Report:
    """All settings."""
    codes, results = table(asked.data), []
    for epsilon, n in ((3.0, 4000),) if asked.quick else SETTINGS:
        trials = [
            trial(codes, epsilon=epsilon, n=n, draw=generator(41, int(epsilon), n, number))
            for number in range(asked.times(2, 8))
        ]
        means = {name: float(np.mean([t[name] for t in trials])) for name in trials[0]}
        results.append({"epsilon": epsilon, "n": n, "releases": len(trials), **means})
    return {"people": len(codes), "attributes": codes.shape[1], "results": results}


def lines(report: Report) -> list[str]:
    """The table of docs/odds-ratios.md."""
    about = ("ε", "n", "releases", "table", "population", "standard error", "on the rows")
    shown = heading(*about, "AUC", "of the fit on the rows", "said", "AUC held", "CPU s")
    for r in report["results"]:
        shares = (f"{r[name]:.3f}" for name in ("table", "population"))
        errors = (f"{r[name]:.3f}" for name in ("standard_error", "rows_standard_error"))
        areas = (f"{r[name]:.3f}" for name in ("auc", "rows_auc", "said_auc"))
        facts = (f"{r['epsilon']:g}", f"{r['n']:,}", str(r["releases"]))
        shown.append(row(*facts, *shares, *errors, *areas, f"{r['auc_held']:.2f}", f"{r['cpu_seconds']:.1f}"))
    return shown


EXPERIMENT = Experiment("odds_ratios", __doc__, measure, lines)

if __name__ == "__main__":
    EXPERIMENT.command()
