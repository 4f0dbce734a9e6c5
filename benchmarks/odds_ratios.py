"""Odds and rate ratios of one release: how often intervals hold, and the AUC beside that of the fit on the rows.

Six tables have an event, two a count and two ordered levels, at three parties; it makes people up if they are not at
hand. A trial draws n rows of a table with replacement, releases them (`moments`, by the product's own code without
encryption, which changes nothing) and fits all attributes. Subjects are listed; or keyed, and each party holds them
with the same chance, the overlap, independently. It compares 95 % intervals for the table with the fit of `statsmodels`
on the drawn rows, and those for the population, the whole table, with its fit on all rows, where the levels that the
release's fit counts as one also count as one. AUC is among the population. A cell with a weight is of a study that
gives the outcome one, as `commingle plan` proposes for readmission, whose features explain a tenth or less. For ordered
levels `equations` compares with the release's own equations on all rows: if odds are not proportional, the maximum of
the likelihood differs. Coverage is a mean over coefficients and trials; coefficients of one release share errors. A
coefficient is warned of if a warning or a note names its level, or the level that it is compared with; an intercept, if
one names any of the latter. `quiet` is the coverage of the others.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.stats import rankdata
from statsmodels.miscmodels.ordinal_model import OrderedModel

from benchmarks.harness import Asked, Experiment, Report, covers, generator, means
from benchmarks.labelled import BINARY, DIABETES, LABEL, OTHERS, Labelled, Question
from benchmarks.release_law import Array, party_sizes, release_of
from commingle.services.fit import PreparedMoments
from commingle.services.models import GeneralisedFit, glm
from commingle.shared.documents.schema import Weighted

SIZES, OVERLAPS, EPSILONS = (10_000, 80_000), (1.0, 0.9, 0.7), (1.0, 3.0)
WEIGHT = 2
PARTIES, _NO_NOISE = 3, 1e5
_TIMES = {"poisson": 100, "binomial": 20, "ordinal": 20}
Cell = tuple[Question, dict[str, Any]]


def auc(scores: Array, event: NDArray[np.bool_]) -> float:
    """The share of pairs of an event and a non-event in which the event has the higher score."""
    ranks, m = rankdata(scores), int(event.sum())
    return float((ranks[event].sum() - m * (m + 1) / 2) / (m * (len(event) - m)))


@dataclass(frozen=True, slots=True, eq=False)
class OnRows:
    """A fit without privacy: coefficients and standard errors; for ordered levels those of the features alone."""

    b: Array
    errors: Array
    parameters: Array


def on_rows(people: Labelled, chosen: NDArray[np.intp] | slice, start: Array | None = None) -> OnRows:
    """Fit by `statsmodels`; `start` has the parameters of a similar fit."""
    X, y = people.design[chosen], people.y[chosen]
    if people.family == "ordinal":
        fit = OrderedModel(y, X[:, 1:], distr="logit").fit(start, method="bfgs", disp=0)
    elif people.time is not None:
        fit = sm.GLM(y, X, family=sm.families.Poisson(), exposure=people.time[chosen]).fit(start)
    else:
        fit = (sm.Logit if people.family == "binomial" else sm.Poisson)(y, X).fit(start, disp=0)
    parameters, kept = np.asarray(fit.params), X.shape[1] - (people.family == "ordinal")
    return OnRows(parameters[:kept], np.asarray(fit.bse)[:kept], parameters)


@cache
def without_noise(people: Labelled) -> Array:
    """Coefficients of the features by a release's equations on all rows."""
    attributes, cells, draw = people.attributes, people.cells(np.arange(len(people.y))), generator(42)
    sizes = party_sizes(len(attributes), PARTIES)
    prepared = release_of(attributes, sizes, cells, epsilon=_NO_NOISE, overlap=None, draw=draw)
    return glm(prepared, f"{LABEL} ~ .", family=people.family).coefficients[-people.design.shape[1] + 1 :]


def drawn(
    people: Labelled, cell: Mapping[str, Any], draw: np.random.Generator
) -> tuple[NDArray[np.intp], PreparedMoments]:
    """Places of n of these people, with replacement, and a release of them."""
    chosen, attributes = draw.integers(0, len(people.y), cell["n"]), people.attributes
    sizes, asked = party_sizes(len(attributes), PARTIES), {name: cell[name] for name in ("epsilon", "overlap")}
    weighted = Weighted(attribute=LABEL, weight=cell["weight"]) if "weight" in cell else None
    return chosen, release_of(attributes, sizes, people.cells(chosen), **asked, draw=draw, weighted=weighted)


def trial(people: Labelled, whole: OnRows, cell: Mapping[str, Any], draw: np.random.Generator) -> dict[str, float]:
    """Figures of one release, NaN where it has none. `whole` is the fit on all rows."""
    chosen, prepared = drawn(people, cell, draw)
    rows = on_rows(people, chosen, whole.parameters)
    start = time.process_time()
    fit = glm(prepared, f"{LABEL} ~ .", family=people.family)
    seconds = time.process_time() - start
    counted = people.as_counted(fit.terms)
    truth = whole.b if counted is people else on_rows(counted, slice(None)).b
    kept = slice(len(fit.terms) - len(truth), None)
    warned, features = named(fit)[kept], counted.design.shape[1] - 1
    within = holds(fit, truth)
    found = {
        "population": float(within.mean()),
        "quiet": float(within[~warned].mean()) if not warned.all() else np.nan,
        "warned": float(warned.mean()),
        "standard_error": float(fit.standard_errors[-features:].mean()),
        "rows_standard_error": float(rows.errors[-features:].mean()),
        "cpu_seconds": seconds,
    }
    if cell["overlap"] is None:
        fit_of_table = glm(prepared, f"{LABEL} ~ .", family=people.family, interval_for="table")
        b = rows.b if counted is people else on_rows(counted, chosen).b
        found["table"] = float(holds(fit_of_table, b).mean())
    if people.family == "ordinal" and counted is people:
        found["equations"] = float(holds(fit, without_noise(people)).mean())
    if people.family == "binomial":
        event = people.y == 1
        found |= {
            "auc": auc(counted.design @ fit.coefficients, event),
            "rows_auc": auc(people.design @ rows.b, event),
            "said_auc": fit.auc or np.nan,
        }
    return found


def holds(fit: GeneralisedFit, b: Array) -> NDArray[np.bool_]:
    return covers(fit.intervals[-len(b) :], b)


def named(fit: GeneralisedFit) -> NDArray[np.bool_]:
    """Whether a sentence names each term or its first level; for an intercept, any first level."""
    said = " ".join((*fit.warnings, *fit.subjects))
    first = {level.partition("[")[0]: level for level in reversed(fit.levels)}
    open_ = any(level in said for level in first.values())
    by = [first.get(term.partition("[")[0]) for term in fit.terms]
    return np.array(
        [term in said or (open_ if at is None else at in said) for term, at in zip(fit.terms, by, strict=True)]
    )


def cells(*, quick: bool) -> list[Cell]:
    """All settings: listed people of one table, then keyed people of all tables."""
    if quick:
        of_ordinal = {"n": 4000, "overlap": 0.9, "epsilon": 3.0}
        return [(DIABETES, {"n": 4000, "overlap": None, "epsilon": 3.0}), (OTHERS[-1], of_ordinal)]
    listed: list[Cell] = [(DIABETES, {"n": n, "overlap": None, "epsilon": e}) for n in SIZES for e in EPSILONS]
    listed.append((DIABETES, {"n": SIZES[0], "overlap": None, "epsilon": EPSILONS[0], "weight": WEIGHT}))
    keyed: list[Cell] = [
        (q, {"n": 10_000, "overlap": o, "epsilon": e}) for q in BINARY for o in OVERLAPS for e in EPSILONS
    ]
    return [*listed, *keyed, *((q, {"n": 10_000, "overlap": None, "epsilon": e}) for q in OTHERS for e in EPSILONS)]


def measure(asked: Asked) -> Report:
    @cache
    def of(question: Question) -> tuple[Labelled, OnRows]:
        people = question.read(asked.data)
        return people, on_rows(people, slice(None))

    results = []
    for number, (question, cell) in enumerate(cells(quick=asked.quick)):
        people, whole = of(question)
        times = asked.times(1, _TIMES[question.family])
        trials = [trial(people, whole, cell, generator(41, number, t)) for t in range(times)]
        about = {"table_name": question.table, "outcome": question.outcome, "family": question.family}
        results.append({**about, **cell, "coefficients": len(whole.b), "releases": times, **means(trials)})
    return {"results": results}


EXPERIMENT = Experiment("odds_ratios", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
