"""What releases of one table could reach if whoever plans them knew it: shares, radii and sketches chosen afterwards.

python -m benchmarks.hindsight [--quick] [--data DIR] [--table NAME] [--mechanism moments|rmgm] [--epsilon E]
    [--draws N]

Releases as in `benchmarks.stages`. Shares of rho for first stages and squared radii r^2 at which mapped rows are cut
are tried by pairs; of rmgm multiples of the planned k, too. Beside them: the same releases as they are planned, fits of
rows that are cut as planned and get no noise, and least squares on whole rows. A goal above all of these is out of
reach of any rule for a share, a radius and a k.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np

from benchmarks.adaptive import Array
from benchmarks.release_law import proposed
from benchmarks.reporting import heading, row
from benchmarks.second_moments import exact_score, load, score
from benchmarks.stage_intervals import without_noise
from benchmarks.stages import Mechanism, Rows, release, scores, study
from benchmarks.tables import DATA, entry
from commingle.shared.documents.spec import ReleaseSpec
from commingle.shared.dp.first_stage import RadiusRule
from commingle.shared.registry import mechanism_named

_SHARES = (0.05, 0.1, 0.15, 0.2)
_RADII = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3))
_MULTIPLES = (0.5, 1.0, 2.0)
_NO_LESS = 10**12  # a rule's unit, with which only its least radius counts


@contextmanager
def radius(mechanism: Mechanism, squared: Fraction) -> Iterator[None]:
    """Mapped rows are cut there, whatever a release would make of its figures."""
    with patch.object(type(mechanism_named(mechanism)), "radius", RadiusRule(_NO_LESS, squared, rooted=False)):
        yield


def cut_rows_alone(rows: Rows, spec: ReleaseSpec, *, draws: int) -> Array:
    """Test R^2 of least squares on rows that are cut as the spec's noisy sums say; nothing else is noisy."""
    random, found = np.random.default_rng(0), []
    for draw in range(draws):
        split = draw % len(rows.splits)
        made = release(spec, rows.splits[split], random, noisy=False)
        exact = without_noise(made, made.gram)
        found.append(score(rows.case, exact, rows.case.splits[split][1], "ols"))
    return np.array(found)


def tried(rows: Rows, mechanism: Mechanism, *, epsilon: float, draws: int) -> Iterator[tuple[str, Array]]:
    """What was chosen, and test R^2 of releases."""
    asked = study(rows, mechanism, epsilon=epsilon, stages=2)
    planned = proposed(asked)
    yield "as planned", scores(rows, planned, draws=draws)
    for squared in _RADII:
        for share in _SHARES:
            parties = tuple(p.model_copy(update={"first_stage_share": share}) for p in asked.parties)
            spec = proposed(asked.model_copy(update={"parties": parties, "k": planned.k}))
            with radius(mechanism, squared):
                yield f"share {share:.0%}, r² {float(squared):g}", scores(rows, spec, draws=draws)
    k = planned.k or 0
    for factor in _MULTIPLES if k else ():
        spec = proposed(asked.model_copy(update={"k": round(factor * k)}))
        yield f"{factor:g} times the planned k", scores(rows, spec, draws=draws)
    yield "rows cut as planned, no noise", cut_rows_alone(rows, planned, draws=draws)


@click.command()
@click.option("--quick", is_flag=True, help="Few draws, for CI.")
@click.option("--data", type=click.Path(path_type=Path, exists=True, file_okay=False), default=DATA)
@click.option("--table", default="airfoil", show_default=True)
@click.option("--mechanism", type=click.Choice(["moments", "rmgm"]), default="moments", show_default=True)
@click.option("--epsilon", type=float, default=1.0, show_default=True)
@click.option("--draws", type=int, default=100, show_default=True)
def main(*, quick: bool, data: Path, table: str, mechanism: Mechanism, epsilon: float, draws: int) -> None:
    """Print what each choice reaches."""
    rows = Rows.of(load(entry(data, table), data))
    print("\n".join(heading(f"{table}, {mechanism}, ε = {epsilon:g}", "test R²", "±")))
    for name, found in tried(rows, mechanism, epsilon=epsilon, draws=2 if quick else draws):
        print(row(name, f"{found.mean():.3f}", f"{found.std() / np.sqrt(len(found)):.3f}"), flush=True)
    print(row("least squares on whole rows", f"{exact_score(rows.case):.3f}", ""))


if __name__ == "__main__":
    main()
