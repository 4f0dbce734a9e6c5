"""Odds and rate ratios of one release: how often intervals hold, and what the AUC loses beside the fit on the rows.

Six tables with an event, two with a count and two with ordered levels, at three parties; made-up people where they are
not at hand. A trial draws n rows of a table with replacement, releases them (`moments`, the product's own code without
encryption, which changes nothing) and fits all attributes. Subjects are listed, or keyed and at each party with a
chance, the overlap, by itself. 95 % intervals for the table are held against the fit of `statsmodels` on the drawn
rows, those for the population, which is the whole table, against its fit on all rows, with levels as one that the
release's fit counts as one. AUC is among the population.
A cell with a weight is of a study that gives the outcome one, as `commingle plan` proposes it for readmission, whose
features explain a tenth or less.
Coverage is a mean over coefficients and trials: coefficients of one release share errors. A coefficient is warned of if
a warning names its level, or the one that it is compared with.
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.stats import rankdata
from statsmodels.miscmodels.ordinal_model import OrderedModel

from benchmarks.harness import Asked, Experiment, Report, generator
from benchmarks.keyed import release_of
from benchmarks.labelled import BINARY, DIABETES, LABEL, OTHERS, Labelled, Question
from benchmarks.release_law import Array, party_sizes
from commingle.services.models import GeneralisedFit, glm
from commingle.shared.documents.schema import Weighted

SIZES, OVERLAPS, EPSILONS = (10_000, 80_000), (1.0, 0.9, 0.7), (1.0, 3.0)
WEIGHT = 2
_PARTIES = 3
_TIMES = {"poisson": 100, "binomial": 20, "ordinal": 10}
Cell = tuple[Question, dict[str, Any]]


def auc(scores: Array, event: NDArray[np.bool_]) -> float:
    """The share of pairs of an event and none in which the event has the higher score."""
    ranks, m = rankdata(scores), int(event.sum())
    return float((ranks[event].sum() - m * (m + 1) / 2) / (m * (len(event) - m)))


def on_rows(people: Labelled, chosen: NDArray[np.intp] | slice) -> tuple[Array, Array]:
    """Coefficients and standard errors without privacy; of ordered levels those of the features alone."""
    X, y = people.design[chosen], people.y[chosen]
    if people.family == "ordinal":
        fit = OrderedModel(y, X[:, 1:], distr="logit").fit(method="bfgs", disp=0)
        return np.asarray(fit.params)[: X.shape[1] - 1], np.asarray(fit.bse)[: X.shape[1] - 1]
    fit = sm.Logit(y, X).fit(disp=0) if people.family == "binomial" else sm.Poisson(y, X).fit(disp=0)
    return np.asarray(fit.params), np.asarray(fit.bse)


def trial(people: Labelled, truth: Array, cell: Mapping[str, Any], draw: np.random.Generator) -> dict[str, float]:
    """One release; NaN for what it has not."""
    chosen = draw.integers(0, len(people.y), cell["n"])
    rows, rows_errors = on_rows(people, chosen)
    attributes, asked = people.attributes, {name: cell[name] for name in ("epsilon", "overlap")}
    sizes = party_sizes(len(attributes), _PARTIES)
    weighted = Weighted(attribute=LABEL, weight=cell["weight"]) if "weight" in cell else None
    prepared = release_of(attributes, people.cells(chosen), sizes, **asked, draw=draw, weighted=weighted)
    start = time.process_time()
    fit = glm(prepared, f"{LABEL} ~ .", family=people.family)
    seconds = time.process_time() - start
    counted = people.as_counted(fit.terms)
    truth = truth if counted is people else on_rows(counted, slice(None))[0]
    kept = slice(len(fit.terms) - len(truth), None)
    warned, features = _warned(fit)[kept], counted.design.shape[1] - 1
    held = _held(fit, truth)
    found = {
        "population": float(held.mean()),
        "quiet": float(held[~warned].mean()) if not warned.all() else np.nan,
        "warned": float(warned.mean()),
        "standard_error": float(fit.standard_errors[-features:].mean()),
        "rows_standard_error": float(rows_errors[-features:].mean()),
        "cpu_seconds": seconds,
    }
    if cell["overlap"] is None:
        fit_of_table = glm(prepared, f"{LABEL} ~ .", family=people.family, interval_for="table")
        b = rows if counted is people else on_rows(counted, chosen)[0]
        found["table"] = float(_held(fit_of_table, b).mean())
    if people.family == "binomial":
        event = people.y == 1
        found |= {
            "auc": auc(counted.design @ fit.coefficients, event),
            "rows_auc": auc(people.design @ rows, event),
            "said_auc": fit.auc or np.nan,
        }
    return found


def _held(fit: GeneralisedFit, b: Array) -> NDArray[np.bool_]:
    low, high = fit.intervals[-len(b) :].T
    return np.asarray((low <= b) & (b <= high))


def _warned(fit: GeneralisedFit) -> NDArray[np.bool_]:
    """Of each term, whether a warning names its level or the first one of its attribute."""
    said = " ".join(fit.warnings)
    first = {level.partition("[")[0]: level for level in reversed(fit.levels)}
    return np.array([term in said or first.get(term.partition("[")[0], term) in said for term in fit.terms])


def measure(asked: Asked) -> Report:
    """All settings: listed people of one table, then keyed ones of all."""
    listed: list[Cell] = [(DIABETES, {"n": n, "overlap": None, "epsilon": e}) for n in SIZES for e in EPSILONS]
    listed.append((DIABETES, {"n": SIZES[0], "overlap": None, "epsilon": EPSILONS[0], "weight": WEIGHT}))
    keyed: list[Cell] = [
        (q, {"n": 10_000, "overlap": o, "epsilon": e}) for q in BINARY for o in OVERLAPS for e in EPSILONS
    ]
    others: list[Cell] = [(q, {"n": 10_000, "overlap": None, "epsilon": e}) for q in OTHERS for e in EPSILONS]
    if asked.quick:
        listed, keyed = [(DIABETES, {"n": 4000, "overlap": None, "epsilon": 3.0})], []
        others = [(OTHERS[-1], {"n": 4000, "overlap": 0.9, "epsilon": 3.0})]
    results = []
    for number, (question, cell) in enumerate([*listed, *keyed, *others]):
        people = question.read(asked.data)
        truth, _ = on_rows(people, slice(None))
        times = asked.times(1, _TIMES[question.family])
        trials = [trial(people, truth, cell, generator(41, number, t)) for t in range(times)]
        means = {name: float(np.nanmean([t[name] for t in trials])) for name in trials[0]}
        about = {"table_name": question.table, "outcome": question.outcome, "family": question.family}
        results.append({**about, **cell, "coefficients": len(truth), "releases": times, **means})
    return {"results": results}


EXPERIMENT = Experiment("odds_ratios", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
