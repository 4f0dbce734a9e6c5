"""Rate ratios of one release: how often intervals hold those of `statsmodels` with an exposure.

A count by the time of the same people, at three parties: procedures a day in hospital, deaths a day of follow-up, and
falls a year of made-up people. The time of these is a product over features, or two features change it together as much
as each does alone, or more. A trial is one of `odds_ratios`: `table` compares with the fit on the drawn rows,
`population` with that on all rows. Terms that a warning or a note names count apart from the others, and the intercept,
a rate, apart from both.
`together` is how far two features change the mean of a column together beside what each does alone: over pairs of
features with 200 people at any two levels, the root of the squares of what is left of the logarithm of the mean after a
sum by level, less drawing, over those of the root of s_A s_B, the standard deviations of both parts of the sum.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Asked, Experiment, Report, generator
from benchmarks.labelled import BINARY, DIABETES, LABEL, NHANES, SUPPORT, TIME, Labelled, Question, codes_of, columns_of
from benchmarks.odds_ratios import EPSILONS, OnRows, drawn, holds, named, on_rows
from commingle.services.models import glm

N, RELEASES = 10_000, 40
_LEAST = 200
OVERLAPS = (None, 0.9)
QUESTIONS = (
    replace(
        DIABETES,
        outcome="num_procedures",
        event=(),
        levels="gender race A1Cresult insulin",
        cut="number_diagnoses",
        family="poisson",
        time="time_in_hospital",
    ),
    replace(
        SUPPORT,
        outcome="death",
        event=(),
        levels="sex race ca",
        cut="age num_co meanbp",
        family="poisson",
        time="d_time",
    ),
)

MEANS = (
    *((DIABETES, name) for name in ("time_in_hospital", "num_medications", "num_lab_procedures", "num_procedures")),
    *((SUPPORT, name) for name in ("d_time", "slos", "hday")),
    *((NHANES, name) for name in ("household_size", "weight_kg", "age")),
    (BINARY[3], "registered"),
)


def together(data: Path, question: Question, column: str) -> float:
    levels, cut = ([name for name in names.split() if name != column] for names in (question.levels, question.cut))
    held = columns_of(data / f"{question.table}.parquet", [column, *levels, *cut])
    values, squares = held[column].astype(np.float64), [0.0, 0.0]
    for one, other in combinations(codes_of(held, levels, cut).T, 2):
        k, size = int(one.max()) + 1, int(other.max()) + 1
        counts, sums, of_squares = (np.bincount(one * size + other, w, k * size) for w in (None, values, values**2))
        if counts.min() < _LEAST:
            continue
        w, means = counts / counts.sum(), sums / counts
        X = np.hstack([np.kron(np.eye(k), np.ones((size, 1))), np.kron(np.ones((k, 1)), np.eye(size))[:, 1:]])
        b = np.linalg.lstsq(X * np.sqrt(w)[:, None], np.log(means) * np.sqrt(w))[0]
        drawing, free = (of_squares / counts / means**2 - 1) / counts, 1 - X.shape[1] / len(X)
        squares[0] += w @ (np.log(means) - X @ b) ** 2 / free - w @ drawing
        variances = [w @ (part - w @ part) ** 2 for part in (X[:, :k] @ b[:k], X[:, k:] @ b[k:])]
        squares[1] += float(np.sqrt(np.prod(variances)))
    return float(np.sqrt(max(squares[0], 0.0) / squares[1]))


def fallen(kind: int) -> Labelled:
    """Made-up people: four features in three levels, years of at most five, and falls."""
    draw, n = generator(43, kind), 50_000
    health = draw.normal(size=(n, 1))
    codes = np.digitize(health + draw.normal(size=(n, 4)), [-0.8, 0.8]).astype(np.intp)
    a, b, c, _ = codes.T
    mean = (
        np.exp(0.3 - 0.3 * a - 0.2 * b),
        np.where((a == 2) & (b > 0), 0.5, 1.5),
        0.5 + 1.5 * ((a == 2) & (b == 2)) + 0.8 * ((a == 0) & (c == 0)),
    )[kind]
    years = np.minimum(mean * draw.gamma(2, 0.5, n), 5)
    falls = draw.poisson(years * np.exp(codes @ [0.3, 0.2, -0.3, 0.1] - 0.7))
    return Labelled("poisson", np.minimum(falls, 12), codes, years)


def trial(people: Labelled, whole: OnRows, cell: Mapping[str, Any], draw: np.random.Generator) -> dict[str, float]:
    """One release: how many terms there are of each kind, and how many of their intervals hold."""
    chosen, prepared = drawn(people, cell, draw)
    fit = glm(prepared, f"{LABEL} ~ .", family="poisson", offset=TIME)
    counted = people.as_counted(fit.terms)
    held = {"population": holds(fit, whole.b if counted is people else on_rows(counted, slice(None)).b)}
    if cell["overlap"] is None:
        of_table = glm(prepared, f"{LABEL} ~ .", family="poisson", offset=TIME, interval_for="table")
        held["table"] = holds(of_table, on_rows(counted, chosen).b)
    of_rates, marked = np.arange(len(fit.terms)) == 0, named(fit)
    kinds = {"unmarked": ~marked & ~of_rates, "marked": marked & ~of_rates, "intercept": of_rates}
    found = {kind: float(which.sum()) for kind, which in kinds.items()} | {"intercept_marked": float(marked[0])}
    return found | {
        f"{kind}_{of}": float(held_of[which].sum()) for kind, which in kinds.items() for of, held_of in held.items()
    }


def _share(key: str, sums: Mapping[str, float]) -> float | None:
    # the number of terms of a kind, or the share of these
    kind, _, of = key.partition("_")
    return sums[key] if not of else sums[key] / sums[kind] if sums[kind] else None


def measure(asked: Asked) -> Report:
    populations = {
        **{f"{q.table}: {q.outcome}": q.read(asked.data) for q in QUESTIONS},
        **{
            f"made up: {name}": fallen(kind) for kind, name in enumerate(("a product", "together", "strongly together"))
        },
    }
    cells = [(None, 3.0)] if asked.quick else [(overlap, epsilon) for overlap in OVERLAPS for epsilon in EPSILONS]
    results = []
    for number, (name, people) in enumerate(populations.items()):
        whole = on_rows(people, slice(None))
        for overlap, epsilon in cells:
            cell = {"n": N, "overlap": overlap, "epsilon": epsilon}
            draws = [generator(44, number, t) for t in range(asked.times(2, RELEASES))]
            trials = [trial(people, whole, cell, draw) for draw in draws]
            sums = {key: sum(each[key] for each in trials) for key in trials[0]}
            about = {"people": name, **cell, "releases": len(trials), "terms": len(whole.b)}
            results.append(about | {key: _share(key, sums) for key in sums})
    there = [(q, name) for q, name in MEANS if (asked.data / f"{q.table}.parquet").is_file() and not asked.quick]
    moved = [{"table": q.table, "mean": name, "together": together(asked.data, q, name)} for q, name in there]
    return {"results": results, "together": moved}


EXPERIMENT = Experiment("rates", __doc__, measure)

if __name__ == "__main__":
    EXPERIMENT.command()
