"""How often intervals for the population hold slopes of levels, with and without what a release says of residuals.

Tables with an event and with a count, which is released with its square; two of them are of statsmodels. Three parties.
A trial draws n rows of a table with replacement, releases them (`moments`, the product's own code without encryption,
which changes nothing) and fits the outcome by all features; the truth is least squares of the whole table. Both fits of
one release differ in their intervals alone. Of listed people the law of a slope is known: the noise that the fit for
the table states and the sandwich of all rows. So `least` is how often intervals of the stated width hold the slope that
they hold least, a mean over releases, `alike_least` where residuals are taken to spread alike; `rows_least` is the same
without noise. `mean` counts which slopes were held, over slopes and releases.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy.special import ndtr, ndtri

from benchmarks.harness import Asked, Experiment, Report, generator
from benchmarks.keyed import release_of
from benchmarks.labelled import DIABETES, LABEL, NHANES, SUPPORT, Labelled, quarters
from benchmarks.release_law import Array, party_sizes
from commingle.services.fit import PreparedMoments, fit_prepared
from commingle.shared.documents.schema import NumericAttribute

N, EPSILON, RELEASES = 50_000, 10.0, 40
OVERLAPS = (None, 0.9)
_MOST_FEATURES = 8
_REACH = float(ndtri(0.975))


QUESTIONS = (
    DIABETES,
    SUPPORT,
    NHANES,
    replace(NHANES, outcome="household_size", event=(), cut="age income_poverty_ratio bmi", family="poisson"),
)


def doctor_visits() -> Labelled:
    """Visits to a doctor in a year, by coinsurance, plan, health and diseases."""
    held = sm.datasets.randhie.load_pandas().data
    health = held[["hlthg", "hlthf", "hlthp"]].to_numpy() @ [1, 2, 3]
    levels = [held["lncoins"] > 0, held["idp"], health, held["physlm"].round()]
    codes = np.column_stack([*levels, *(quarters(held[name].to_numpy(float)) for name in ("disea", "lpi", "fmde"))])
    return Labelled("poisson", held["mdvis"].to_numpy(np.int64), codes.astype(np.intp))


def affairs() -> Labelled:
    """Time spent in affairs, rounded, by what the women of a magazine's survey said of themselves."""
    held = sm.datasets.fair.load_pandas().data
    names = ("rate_marriage", "yrs_married", "children", "religious", "educ")
    codes = np.column_stack([quarters(held[name].to_numpy(float)) for name in names])
    return Labelled("poisson", held["affairs"].round().to_numpy(np.int64), codes)


def people_of(asked: Asked) -> dict[str, Labelled]:
    """By name; made-up ones where tables are not at hand."""
    read = {f"{q.table}: {q.outcome}": q.read(asked.data) for q in QUESTIONS}
    few = {name: replace(each, codes=each.codes[:, :_MOST_FEATURES]) for name, each in read.items()}
    return {"randhie: mdvis": doctor_visits(), "fair: affairs": affairs(), **few}


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Least squares of the whole table: slopes (q,), their variances in n draws of it, R^2, and the least coverage."""

    slopes: Array
    variances: Array
    r_squared: float
    least: float

    @classmethod
    def of(cls, people: Labelled) -> "Truth":
        fit = sm.OLS(people.y.astype(float), people.design).fit()
        variances = np.asarray(fit.HC0_se[1:] ** 2) * len(people.y) / N
        return cls(np.asarray(fit.params[1:]), variances, float(fit.rsquared), _coverage(fit.bse[1:] / fit.HC0_se[1:]))


def _coverage(width: Array) -> float:
    """The least coverage, of intervals with stated errors so many times as wide as they should be."""
    return float(np.min(2 * ndtr(_REACH * width) - 1))


def without_levels(prepared: PreparedMoments, name: str) -> PreparedMoments:
    """A release whose fits take residuals to spread alike, since cells of this feature may be anything."""
    unsure = prepared.attributes[name].model_copy(update={"missing": "midpoint"})
    return replace(prepared, attributes={**prepared.attributes, name: unsure})


def trial(people: Labelled, truth: Truth, overlap: float | None, draw: np.random.Generator) -> dict[str, float]:
    """One release."""
    chosen = draw.integers(0, len(people.y), N)
    (own, *others), cells = people.attributes, people.cells(chosen)
    attributes = [own, *others]
    if isinstance(own, NumericAttribute):
        squared = NumericAttribute(name="squared", lower=-1, upper=1, product=(own, own))
        attributes, cells = [own, squared, *others], [cells[0], *cells]
    sizes = party_sizes(len(attributes), 3)
    prepared = release_of(attributes, cells, sizes, epsilon=EPSILON, overlap=overlap, draw=draw)
    start = time.process_time()
    fit = fit_prepared(prepared, LABEL, interval_for="population")
    seconds = time.process_time() - start
    alike = fit_prepared(without_levels(prepared, others[0].name), LABEL, interval_for="population")
    noise = fit_prepared(prepared, LABEL).standard_errors[1:] ** 2
    low, high = fit.intervals[1:].T
    found = {
        "counted": float(fit.counts_spread),
        "mean": float(np.mean((low <= truth.slopes) & (truth.slopes <= high))),
        "cpu_seconds": seconds,
    }
    if overlap is None:
        errors = np.sqrt(noise + truth.variances)
        found["least"] = _coverage(fit.standard_errors[1:] / errors)
        found["alike_least"] = _coverage(alike.standard_errors[1:] / errors)
    return found


def measure(asked: Asked) -> Report:
    """All tables, with listed people and with keyed ones."""
    results: list[dict[str, Any]] = []
    for number, (name, people) in enumerate(people_of(asked).items()):
        truth = Truth.of(people)
        about = {"table_name": name, "slopes": len(truth.slopes), "r_squared": truth.r_squared}
        for overlap in OVERLAPS[: 1 if asked.quick else 2]:
            times = asked.times(1, RELEASES)
            trials = [trial(people, truth, overlap, generator(47, number, t)) for t in range(times)]
            means = {figure: float(np.mean([t[figure] for t in trials])) for figure in trials[0]}
            results.append({**about, "overlap": overlap, "releases": times, "rows_least": truth.least, **means})
    return {"n": N, "epsilon": EPSILON, "results": results}


EXPERIMENT = Experiment("spread", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
