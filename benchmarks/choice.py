"""What should I have used? Every way from three members' columns, or one holder's table, to a private linear fit.

The risk of a person is the same everywhere: three members release at an epsilon each, and a method of one trusted
holder of the joined table spends what the three lose together (`per_subject` of the release, replace_one, delta 1e-5).
A public tenth of the rows gives bounds. Figures are R^2 of a tested tenth by `shrunken`, with predictions clipped as
`predict` clips them: means over runs, and of `moments` minus each way of a holder on the same rows. The tables had
no part in choosing constants.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import numpy as np
from numpy.random import Generator, default_rng

from benchmarks.harness import Asked, Experiment, Panel, Report, draw_panels, spread
from benchmarks.peers import by_peer
from benchmarks.release_law import party_sizes, proposed, release, study_of
from benchmarks.tables import at_hand, columns
from benchmarks.users import Split, explained, fit, numbers, split
from commingle.party_agent.private.regression.measuring import Privacy
from commingle.party_agent.private.regression.problem import Floats
from commingle.services.fit import fit_prepared
from commingle.shared.documents.regression import RegressionMethod
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.fixed_point import quantise
from commingle.shared.release.plan import privacy_statement

TABLES = (
    *("insurance_numeric", "wine", "sml", "parkinsons", "support2", "nhanes_bp", "bike_hour"),
    *("keggundirected", "diabetes130"),
)
"""Of the reporting half: at least 1000 rows, at most forty features, one of each source, with something to explain."""
EPSILONS = (0.3, 1.0, 3.0)
RELEASES = ("moments", "rmgm", "dgm")
HOLDER: tuple[RegressionMethod, ...] = ("two_stage", "adassp", "boosted_adassp")
_PARTIES, _FEW = 3, 20_000


def released(spec: ReleaseSpec, data: Split, draw: Generator) -> Floats:
    (x, y), (tested, _) = data
    *features, label = spec.terms.attributes
    made = release(spec, quantise(np.column_stack([x[:, 1:], y])), draw)
    found = fit_prepared(made, label.name, [a.name for a in features], estimator="shrunken")
    return np.asarray(tested @ found.coefficients, np.float64)


def spec_of(n: int, d: int, mechanism: str, epsilon: float) -> ReleaseSpec:
    columns_of = numbers(d + 1)
    asked = study_of(
        columns_of, party_sizes(d + 1, _PARTIES), n, epsilon, mechanism=mechanism, target=columns_of[-1].name
    )
    return proposed(asked)


def ways(data: Split, specs: Mapping[str, ReleaseSpec], run: int) -> dict[str, float]:
    rows, tested = data
    found = {name: explained(released(spec, data, default_rng(run)), tested) for name, spec in specs.items()}
    together = privacy_statement(specs["moments"]).per_subject.own.epsilon
    for method in HOLDER:
        theta = fit(rows, method, Privacy(together, 1e-5), len(rows[1]), default_rng(run))
        found[method] = explained(np.asarray(tested[0] @ theta), tested)
    found["not private"] = explained(np.asarray(tested[0] @ np.linalg.lstsq(*rows)[0]), tested)
    return found


def by_diffprivlib(python: str, splits: Sequence[Split], epsilon: float) -> dict[str, list[float]]:
    """R^2 of IBM's `LinearRegression`, which that Python has, on each split."""
    with TemporaryDirectory() as folder:
        files = [f"{folder}/{number}.npz" for number in range(len(splits))]
        for file, (rows, _) in zip(files, splits, strict=True):
            np.savez(file, x=rows[0], y=rows[1])
        found = by_peer("diffprivlib", python, {"files": files, "epsilon": epsilon})
    fits = zip(found, splits, strict=True)
    return {"diffprivlib": [explained(np.asarray(tested[0] @ theta), tested) for theta, (_, tested) in fits]}


def measure(asked: Asked) -> Report:
    found, peer = [], asked.given["diffprivlib"]
    for name in at_hand(asked.data, TABLES):
        table = columns(asked.data, name)
        splits = [split(table, 1 + run % 9) for run in range(asked.times(2, 18 if len(table[1]) < _FEW else 9))]
        n, d = splits[-1][0][0].shape
        for epsilon in EPSILONS:
            specs = [{m: spec_of(len(rows[1]), d - 1, m, epsilon) for m in RELEASES} for rows, _ in splits]
            together = privacy_statement(specs[-1]["moments"]).per_subject.own.epsilon
            runs = [ways(data, specs[run], run) for run, data in enumerate(splits)]
            every = {way: [one[way] for one in runs] for way in runs[0]}
            every |= by_diffprivlib(peer, splits, together) if peer else {}
            about = {"table": name, "n": n, "features": d - 1, "epsilon": epsilon, "together": together}
            over = {way: spread(np.subtract(every["moments"], every[way])) for way in HOLDER}
            r_squared = {way: spread(values) for way, values in every.items()}
            found.append({**about, "r_squared": r_squared, "moments_over": over})
    return {"cells": found}


def draw(report: Report, folder: Path) -> None:
    if not report["cells"]:
        return
    panels = []
    for epsilon in EPSILONS:
        shown = [way for way in report["cells"][0]["r_squared"] if way != "not private"]
        series: dict[str, list[tuple[float, float, float]]] = {way: [] for way in shown}
        for cell in sorted((c for c in report["cells"] if c["epsilon"] == epsilon), key=lambda c: c["n"]):
            found, whole = cell["r_squared"], cell["r_squared"]["not private"]["mean"]
            for way, points in series.items():
                points.append((cell["n"], found[way]["mean"] / whole, 2 * found[way]["standard_error"] / whole))
        ends = [(1e3, 1.0), (1e5, 1.0)]
        title, known = f"ε = {epsilon:g} for each of three members", {"not private": ends}
        panels.append(Panel(title, "people", "share of R² kept", series, known, log_y=False, y_limits=(-0.2, 1.05)))
    draw_panels(folder / "choice.png", panels, columns=3)


_OPTIONS = (click.Option(["--diffprivlib"], help="A Python that has it.  [left out]"),)
EXPERIMENT = Experiment("choice", __doc__, measure, draw=draw, options=_OPTIONS)
if __name__ == "__main__":
    EXPERIMENT.command()
