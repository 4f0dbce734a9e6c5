"""How often intervals hold the slopes of the private table, with one stage and with two, whose rows are cut.

python -m benchmarks.stage_intervals [--quick] [--data DIR] [--json FILE]

Releases as in `benchmarks.stages`. Each is fitted by the mechanism's default for inference on four features, the first
of each party in turn; counted are 95 % intervals around least squares on the private rows, over five ways to hold out
a fifth of them. Of fits without a warning about their signal: an interval that warns promises less. With two stages as
fits give them, and without what they allow for cut rows, which was chosen on the first seven tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path

import click
import numpy as np

from benchmarks.adaptive import Array
from benchmarks.release_law import proposed
from benchmarks.reporting import heading, row, write_json
from benchmarks.second_moments import load
from benchmarks.stages import Mechanism, Rows, release, study
from benchmarks.tables import DATA, entries
from commingle.services.fit import Fit, FitRequest, PreparedMoments, fit_prepared

TUNING = ("bike_hour", "elevators", "concrete", "winequality_white", "skillcraft", "support2", "airfoil")
TABLES = (*TUNING, "nhanes_bp", "diabetes130", "gpu_sgemm", "pol", "keggundirected", "parkinsons")
_EPSILONS = (1.0, 3.0, 10.0)
_FEATURES = 4


@dataclass(frozen=True, slots=True)
class Covered:
    """Of slopes, by number of stages: share of intervals that hold them, and how many were counted.

    Attributes:
        uncounted: of two stages, without what intervals allow for cut rows.
        wider: the median factor by which that widens them.
    """

    table: str
    mechanism: str
    epsilon: float
    one: float
    two: float
    uncounted: float
    wider: float
    counted: tuple[int, int]


def features_of(rows: Rows) -> tuple[str, ...]:
    """The first of each party in turn, but the label."""
    target, parties = rows.case.dataset.target, rows.case.dataset.parties
    turns = chain.from_iterable(zip_longest(*([a.name for a in p.attributes if a.name != target] for p in parties)))
    return tuple(name for name in turns if name is not None)[:_FEATURES]


def without_noise(made: PreparedMoments, S: Array) -> PreparedMoments:
    """The private table's moments, S (p, p), as a release of n rows."""
    nothing = np.zeros_like(S)
    entries_of = None if made.entry_variance is None else nothing
    return replace(made, gram=S, V=nothing, root=nothing, rows=made.n, entry_variance=entries_of)


def intervals(
    rows: Rows, mechanism: Mechanism, *, epsilon: float, stages: int, draws: int
) -> tuple[list[bool], list[bool], list[float]]:
    """Of every counted interval whether it holds its slope, with what cutting may bend and without; how much wider."""
    spec = proposed(study(rows, mechanism, epsilon=epsilon, stages=stages))
    random = np.random.default_rng([stages, *rows.case.name.encode()])
    held, uncounted, wider = list[bool](), list[bool](), list[float]()
    asked = FitRequest(target=rows.case.dataset.target, features=features_of(rows))
    for draw in range(draws):
        split = draw % len(rows.splits)
        made = release(spec, rows.splits[split], random)
        exact = fit_prepared(without_noise(made, rows.case.splits[split][0]), asked)
        fitted, plain = fit_prepared(made, asked), fit_prepared(replace(made, lost=None), asked)
        if any("signal" in warning for warning in fitted.warnings) or np.isnan(fitted.intervals).any():
            continue
        held += _held(fitted, exact)
        uncounted += _held(plain, exact)
        wider += (_widths(fitted) / _widths(plain)).tolist()
    return held, uncounted, wider


def _held(fitted: Fit, exact: Fit) -> list[bool]:
    low, high = fitted.intervals[1:].T
    slopes = exact.coefficients[1:]
    return [bool(held) for held in (low <= slopes) & (slopes <= high)]


def _widths(fitted: Fit) -> Array:
    return np.diff(fitted.intervals[1:], axis=1)[:, 0]


def _mean(found: list[bool]) -> float:
    return float(np.mean(found)) if found else float("nan")


def measure(rows: Rows, *, draws: int) -> Iterator[Covered]:
    """One for each mechanism and epsilon."""
    mechanisms: Sequence[Mechanism] = ("moments", "rmgm")
    for mechanism in mechanisms:
        for epsilon in _EPSILONS:
            one, _, _ = intervals(rows, mechanism, epsilon=epsilon, stages=1, draws=draws)
            two, uncounted, wider = intervals(rows, mechanism, epsilon=epsilon, stages=2, draws=draws)
            yield Covered(
                rows.case.name,
                mechanism,
                epsilon,
                one=_mean(one),
                two=_mean(two),
                uncounted=_mean(uncounted),
                wider=float(np.median(wider)) if wider else float("nan"),
                counted=(len(one), len(two)),
            )


def markdown(found: Sequence[Covered]) -> str:
    """One line each."""
    lines = heading(
        "table", "mechanism", "ε", "one stage", "intervals", "two stages", "intervals", "uncounted", "wider"
    )
    for c in found:
        cells = (
            f"{c.one:.3f}",
            str(c.counted[0]),
            f"{c.two:.3f}",
            str(c.counted[1]),
            f"{c.uncounted:.3f}",
            f"{c.wider:.2f}",
        )
        lines.append(row(c.table, c.mechanism, f"{c.epsilon:g}", *cells))
    return "\n".join(lines).replace("nan", "-") + "\n"


@click.command()
@click.option("--quick", is_flag=True, help="One small table and few draws, for CI.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures here.")
def main(*, quick: bool, data: Path, json_file: Path | None) -> None:
    """Measure every table and print the shares."""
    found: list[Covered] = []
    for about in entries(data):
        if about["name"] in (("autompg",) if quick else TABLES):
            found += measure(Rows.of(load(about, data)), draws=5 if quick else 50)
    print(markdown(found))
    write_json({"benchmark": "stage_intervals", "covered": [asdict(c) for c in found]}, json_file)


if __name__ == "__main__":
    main()
