"""Synthetic rows of a release and of other programs: tables of two attributes, and predictions of a fit on the rows.

There are four tables, with a fifth of each for tests (made-up people if one is not at hand). Three members that hold
all people release `moments` of keyed data sets at epsilon each. A peer of `benchmarks.peers` is a trusted holder of the
joined table; it spends what a person loses to everybody by all members together. All draw 40,000 rows. Variation is
half the sum of |share - share of the people|, a mean over pairs of attributes. AUC is of the tested people, by a
logistic fit of the outcome on all other attributes of the rows. `people` are the released people themselves, with the
variation of the tested ones. `drawn` are as many of the people as rows, drawn independently, as peers draw theirs. A
peer without rows says why.
"""

import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from subprocess import CalledProcessError
from typing import Any

import click
import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.consortium import timed
from benchmarks.harness import Asked, Experiment, Report, as_table, generator
from benchmarks.labelled import BINARY, Codes, Labelled, Question
from benchmarks.odds_ratios import auc
from benchmarks.peers import SYNTHETIC, by_peer
from benchmarks.questions import pair_table, variation
from benchmarks.release_law import party_sizes, proposed, release_of, study_of
from commingle.services.models.synthetic import SyntheticRows, synthesize
from commingle.shared.estimation.prepared import PreparedMoments
from commingle.shared.release.plan import privacy_statement

QUESTIONS, EPSILONS, ROWS = BINARY[:4], (1.0, 3.0), 40_000
OURS, DRAWN = ("people", "release"), "drawn"
_PARTIES, _TESTED, _SAID, _CPU_MINUTES = 3, 5, 200, 5
_BESIDE = 9  # attributes, of a table that peers are run on too
_ROUNDS = {"rounds": 12, "max_size": 2.0}  # of AIM, and megabytes of its model


def sizes_of(people: Labelled) -> list[int]:
    return [int(column.max()) + 1 for column in people.both.T]


def judged(rows: Codes, people: Labelled, tested: Labelled) -> dict[str, float]:
    """Variation from the people, and AUC of the tested ones; rows (N, d) have the outcome first."""
    sizes = sizes_of(people)
    found = [
        variation(*(pair_table(each[:, [i, j]], (sizes[i], sizes[j])) for each in (rows, people.both)))
        for i, j in combinations(range(len(sizes)), 2)
    ]
    X, Z = (
        np.hstack([np.eye(size)[column, 1:] for size, column in zip(sizes[1:], codes.T, strict=True)])
        for codes in (rows[:, 1:], tested.codes)
    )
    fit = LogisticRegression(max_iter=1000).fit(X, rows[:, 0])
    return {"variation": float(np.mean(found)), "auc": auc(fit.decision_function(Z), tested.y == 1)}


def codes_of(rows: SyntheticRows) -> Codes:
    columns: Any = rows.coded.combine_chunks().columns
    return np.column_stack([column.chunk(0).indices for column in columns]).astype(np.intp)


def by_program(name: str, python: str, given: Mapping[str, Any]) -> tuple[Codes | str, float]:
    """Its rows, or why there are none, and CPU seconds."""
    made = list[Codes | str]()

    def run() -> None:
        try:
            made.append(np.array(by_peer(name, python, dict(given)), np.intp))
        except CalledProcessError as error:
            late = error.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
            limit = f"not within {given['cpu_seconds'] / 60:g} CPU minutes"
            made.append(limit if late else " ".join(str(error.stderr).rpartition("Traceback")[2].split())[-_SAID:])

    _, seconds = timed(run)
    return made[0], seconds


def by_release(prepared: PreparedMoments, people: Labelled, tested: Labelled) -> tuple[Report, Report]:
    """Figures of these people themselves, and of rows of their release, with CPU seconds."""
    before = time.process_time()
    drawn = synthesize(prepared, ROWS)
    seconds = time.process_time() - before
    themselves = judged(people.both, people, tested) | {"variation": judged(tested.both, people, tested)["variation"]}
    return themselves, {**judged(codes_of(drawn), people, tested), "cpu_seconds": seconds}


def cell(question: Question, *key: int, asked: Asked, epsilon: float, beside: bool) -> Report:
    """For one table: variation, AUC and CPU seconds by program, or why it has no rows; peers only if `beside`."""
    draw, whole = generator(*key), question.read(asked.data)
    part = np.array_split(draw.permutation(len(whole.y)), _TESTED)
    whole = whole.first(_BESIDE) if beside else whole
    people, tested = (replace(whole, y=whole.y[i], codes=whole.codes[i]) for i in (np.concatenate(part[1:]), part[0]))
    attributes, members = people.attributes, party_sizes(people.both.shape[1], _PARTIES)
    facts: dict[str, Any] = {"mechanism": "moments", "subjects": "keyed"}
    study = study_of(attributes, members, len(people.y), epsilon, first_stage_share=None, **facts)
    lost = privacy_statement(proposed(study)).per_subject.own
    cells = people.cells(np.arange(len(people.y)))
    prepared = release_of(attributes, members, cells, epsilon=epsilon, overlap=1.0, draw=draw)
    programs = dict(zip(OURS, by_release(prepared, people, tested), strict=True))
    if beside:
        programs[DRAWN] = judged(generator(*key, 1).choice(people.both, ROWS), people, tested)
    given: Report = {"rows": ROWS, "rho": lost.rho, "epsilon": lost.epsilon, "delta": study.delta, "aim": _ROUNDS}
    given |= {"codes": people.both.tolist(), "sizes": sizes_of(people), "cpu_seconds": 60 * _CPU_MINUTES}
    for name, python in asked.given["peers"] if beside else ():
        made, seconds = by_program(name, python, given)
        figures = {"failed": made} if isinstance(made, str) else judged(made, people, tested)
        programs[name] = {"cpu_seconds": seconds, **figures}
    about = {"table": question.table, "n": len(people.y), "attributes": len(attributes), "epsilon": epsilon}
    return {**about, "together": lost.epsilon, "programs": programs}


def measure(asked: Asked) -> Report:
    some, cells = (1 if asked.quick else None), partial(cell, asked=asked)
    asks = list(enumerate(QUESTIONS))[:some]
    return {
        "rows": ROWS,
        **_ROUNDS,
        "cells": [cells(q, 70, i, epsilon=e, beside=False) for e in EPSILONS[:some] for i, q in asks],
        "beside": [cells(q, 70, i, epsilon=EPSILONS[0], beside=True) for i, q in asks],
    }


def lines(report: Report) -> list[str]:
    flat = (
        {**{k: v for k, v in c.items() if k != "programs"}, "program": name, **found}
        for c in (*report["cells"], *report["beside"])
        for name, found in c["programs"].items()
    )
    return as_table([*flat])


OPTIONS = (click.Option(["--peer", "peers"], type=(click.Choice(SYNTHETIC), str), multiple=True, help="Its Python."),)
EXPERIMENT = Experiment("synthetic", __doc__, measure, lines, options=OPTIONS)

if __name__ == "__main__":
    EXPERIMENT.command()
